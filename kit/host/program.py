"""Find the name by which a shell starts this program, for commands in messages."""

import shlex
import shutil
import sys
from pathlib import Path

NAME = "kit"


def called() -> str:
    """Return `kit` if a shell finds this program by that name, else the path by which it was started."""
    here = Path(sys.argv[0])
    found = shutil.which(NAME)
    if here.name != NAME or (found and here.exists() and Path(found).samefile(here)):
        return NAME
    return shlex.quote(sys.argv[0])


def in_messages(text: str) -> str:
    """Return a text in which each command of kit in backticks has the name by which a shell finds this program."""
    return text.replace(f"`{NAME} ", f"`{called()} ")


def as_called(command: str) -> str:
    """Return a command of kit, for example `kit run --all`, with the name by which a shell finds this program."""
    return f"{called()}{command.removeprefix(NAME)}"
