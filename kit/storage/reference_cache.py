"""Keeps the reference's values between launches: for deep nets the float64 mathematics costs more than the launch.

A file is named by what its values depend on. The worker checks that again, by a key inside the file, and computes the
values itself where they do not fit.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

from kit import assets
from kit.storage.bounded_cache import keep
from kit.storage.safe_read import read_untrusted
from scenarios.contract.request import REFERENCE_FILE, Request

FILE_LIMIT = 256 << 20
FOLDER_LIMIT = 1 << 30


class ReferenceCache:
    """A folder of such files, at most FOLDER_LIMIT bytes in all: the ones unused for longest go first."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        code = (assets.ROOT / "scenarios" / "proof" / "reference.py").read_bytes()
        self._code = hashlib.sha256(code).hexdigest()

    def lend(self, request: Request, scratch: Path) -> None:
        """Put the values of this launch into its scratch folder, where they are known. Raises OSError."""
        file = self._file(request)
        if file.exists():
            shutil.copyfile(file, scratch / REFERENCE_FILE)
            os.utime(file)

    def keep(self, request: Request, scratch: Path) -> None:
        """Take over the values that a launch computed, where they are new. Raises OSError, ValueError."""
        content = read_untrusted(scratch / REFERENCE_FILE, FILE_LIMIT)
        file = self._file(request)
        if content is None or (file.exists() and file.read_bytes() == content):
            return
        keep(file, content, FOLDER_LIMIT)

    def _file(self, request: Request) -> Path:
        identity = f"{request.spec} {request.seed} {self._code}"
        return self._folder / f"{hashlib.sha256(identity.encode()).hexdigest()}.npz"
