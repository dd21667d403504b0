"""The command line: parse, call, print. `kit --help` must be quick, so commands import what they need when they run."""

from __future__ import annotations

import io
import os
import signal
import sys
from typing import Annotated, NoReturn

import typer

from kit import __version__
from kit.cli.compare import app as compare_app
from kit.cli.data import app as data_app
from kit.cli.host import app as host_app
from kit.cli.measure import app as measure_app
from kit.model.errors import DiskError, KitError

app = typer.Typer(
    name="kit",
    help="How fast is this machine at deep learning, in which framework, and is the GPU worth it?",
    epilog="Start with `kit doctor`, then `kit run --all`.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,  # Rich in the help would cost 0.2 s
    pretty_exceptions_enable=False,
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"kit {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and end.")
    ] = False,
) -> None:
    """What goes before every command."""


app.add_typer(host_app)
app.add_typer(measure_app)
app.add_typer(compare_app)
app.add_typer(data_app, name="data")


def main() -> NoReturn:
    """Run a command. Every error ends here: message and remedy on stderr, and the exit code of its kind."""
    for number in (signal.SIGTERM, signal.SIGHUP):  # like Ctrl-C: what was measured is kept, nothing is left running
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, signal.default_int_handler)
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - closed by the caller (`>&-`)
    sys.stderr = sys.stderr or sys.stdout
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # an ASCII terminal has no ±
    try:
        app()
    except KitError as error:
        from kit.model.text import harmless

        _fail(harmless(f"{error}\n"), error.exit_code)  # it may quote a record or a file's name
    except OSError as error:
        from kit.cli.crash import blame_disk, explain

        _fail(blame_disk(error) or explain(error), DiskError.exit_code if blame_disk(error) else 1)
    except Exception as error:  # noqa: BLE001 - a person gets one line and the place of the traceback
        from kit.cli.crash import explain

        _fail(explain(error), 1)
    sys.exit(0)


def _fail(words: str, code: int) -> NoReturn:
    """End with this exit code, also where nobody can be told."""
    try:
        sys.stderr.write(words)
        sys.stderr.flush()
    except OSError:  # its reader has gone, or its disk is full; what is left in it would fail once more at the end
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - open until the process ends
    sys.exit(code)
