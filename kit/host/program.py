"""How this program is called, for hints that are to be pasted into a shell."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path

NAME = "kit"


def called() -> str:
    """`kit` where a shell finds this very program by that name, else the path that it was called by."""
    here = Path(sys.argv[0])
    found = shutil.which(NAME)
    if here.name != NAME or (found and here.exists() and Path(found).samefile(here)):
        return NAME
    return shlex.quote(sys.argv[0])
