"""Keep the reference values of the proof between launches. For deep nets, the float64 computation takes longer than the
launch itself.

The name of a cache file depends on everything that determines its values. The worker also checks a key inside the file.
It computes the values itself if the key does not match.
"""

import hashlib
import os
import shutil
from pathlib import Path

from kit import assets
from kit.storage.bounded_cache import keep
from kit.storage.safe_read import read_untrusted
from scenarios.contract.request import REFERENCE_FILE, Request

MAX_FILE_BYTES = 256 << 20
MAX_FOLDER_BYTES = 1 << 30


class ReferenceCache:
    """A folder of reference values, at most MAX_FOLDER_BYTES. The least recently used files are deleted first."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        code = (assets.ROOT / "scenarios" / "proof" / "reference.py").read_bytes()
        self._code = hashlib.sha256(code).hexdigest()

    def lend(self, request: Request, scratch: Path) -> None:
        """Copy the values for this request into the launch's scratch folder if they are known. Raise OSError."""
        file = self._file(request)
        if file.exists():
            shutil.copyfile(file, scratch / REFERENCE_FILE)
            os.utime(file)

    def keep(self, request: Request, scratch: Path) -> None:
        """Store the values that a launch computed if they are new. Raise OSError, or ValueError if the launch left
        something other than a plain file of at most MAX_FILE_BYTES."""
        content = read_untrusted(scratch / REFERENCE_FILE, MAX_FILE_BYTES)
        file = self._file(request)
        if content is None or (file.exists() and file.read_bytes() == content):
            return
        keep(file, content, MAX_FOLDER_BYTES)

    def _file(self, request: Request) -> Path:
        identity = f"{request.spec} {request.seed} {self._code}"
        return self._folder / f"{hashlib.sha256(identity.encode()).hexdigest()}.npz"
