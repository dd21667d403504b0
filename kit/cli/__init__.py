"""Define the command line. `kit --help` must be fast, so commands import what they need when they run."""

import io
import os
import signal
import sys
from typing import Annotated, NoReturn

import typer

from kit import __version__
from kit.cli.compare import app as compare_app
from kit.cli.console import print_text
from kit.cli.data import app as data_app
from kit.cli.groups import GroupedCommand
from kit.cli.host import app as host_app
from kit.cli.measure import app as measure_app
from kit.cli.upkeep import app as upkeep_app

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
for part, name in ((host_app, None), (data_app, "data"), (measure_app, None), (compare_app, None), (upkeep_app, None)):
    app.add_typer(part, name=name)
    for command in part.registered_commands:
        command.cls = GroupedCommand


def main() -> NoReturn:
    """Run a command. Print the message and remedy of an error on stderr, and exit with the code of its class."""
    for number in (signal.SIGTERM, signal.SIGHUP):  # like Ctrl-C: keep results, leave nothing running
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, signal.default_int_handler)
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - closed by the caller (`>&-`)
    sys.stderr = sys.stderr or sys.stdout
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # an ASCII terminal has no ±
    try:
        app()
    except Exception as error:  # noqa: BLE001 - users get a message instead of a traceback
        from kit.cli.crash import describe

        _fail(*describe(error))
    sys.exit(0)


def _fail(message: str, code: int) -> NoReturn:
    """Write the message and exit with this code, even if stderr cannot be written."""
    try:
        sys.stderr.write(message)
        sys.stderr.flush()
    except OSError:  # flushing the buffered text at exit would fail again
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - open until the process ends
    sys.exit(code)
