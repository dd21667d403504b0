"""Define the command line. `kit --help` must be fast, so commands import what they need when they run."""

from typing import Annotated

import typer

from kit import __version__
from kit.cli.compare import app as compare_app
from kit.cli.console import print_text
from kit.cli.data import app as data_app
from kit.cli.exchange import app as exchange_app
from kit.cli.groups import GroupedCommand
from kit.cli.host import app as host_app
from kit.cli.measure import app as measure_app
from kit.cli.predict import app as predict_app
from kit.cli.predict import weights_app
from kit.cli.study import app as study_app
from kit.cli.upkeep import app as upkeep_app
from kit.execution.interrupts import interrupts
from kit.model.errors import KitError

app = typer.Typer(
    name="kit",
    help="Measure how fast this machine is at deep learning, per framework, on the CPU and on the GPU.",
    epilog="Start with `kit doctor`, then `kit run --all`.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,  # Rich would delay the help by 0.2 s
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        print_text(f"kit {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Declare options that come before the command."""


# The help lists commands in this order: the order in which people need them.
PARTS = (
    (host_app, None),
    (data_app, "data"),
    (study_app, "study"),
    (measure_app, None),
    (compare_app, None),
    (exchange_app, None),
    (predict_app, None),
    (weights_app, "weights"),
    (upkeep_app, None),
)
for part, name in PARTS:
    app.add_typer(part, name=name)
    for command in part.registered_commands:
        command.cls = GroupedCommand


def run() -> tuple[str, int]:
    """Run the command of the command line. Return the text for stderr and the exit code.

    Raise KeyboardInterrupt if a signal ended the command, unless the command has a message about it.
    """
    code = 0
    try:
        app()
    except SystemExit as ended:  # the end of every command, also by KeyboardInterrupt
        code = int(ended.code or 0)
    except Exception as error:  # noqa: BLE001 - users get a message instead of a traceback
        # An interrupted import may raise ImportError.
        if isinstance(error, KitError) or not interrupts.pending():
            from kit.cli.crash import describe

            return describe(error)
    if interrupts.pending():
        raise KeyboardInterrupt
    return "", code
