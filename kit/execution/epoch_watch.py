"""Watch how a launch with whole epochs proceeds."""

from collections.abc import Callable
from pathlib import Path

from kit.storage.safe_read import read_untrusted
from scenarios.contract.codec import from_json
from scenarios.contract.epochs import EpochProgress

MAX_BYTES = 4096

OnEpoch = Callable[[EpochProgress], None]


class EpochWatch:
    """Reports each new content of the file that the worker writes after an epoch."""

    def __init__(self, file: Path, report: OnEpoch) -> None:
        self._file, self._report = file, report
        self._seen: int | None = None

    def look(self) -> None:
        """Report the file if it is new. Ignore one that cannot be used, because it only informs."""
        try:
            written = self._file.lstat().st_mtime_ns
            if written == self._seen:
                return
            self._seen = written
            content = read_untrusted(self._file, MAX_BYTES)
            progress = from_json(EpochProgress, content or b"")
        except (OSError, ValueError):
            return
        self._report(progress)
