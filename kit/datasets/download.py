"""Files from ordered mirrors: resumed, checked, given up where a host is dead or slow."""

from __future__ import annotations

import queue
import shutil
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

import requests
import urllib3

from kit.datasets.files import disk_errors, sha256
from kit.datasets.registry import RemoteFile
from kit.host.privacy import without_user_info
from kit.model.errors import CorruptDataError, DataError
from kit.model.progress import Progress

ANSWER_S = 6.0  # from asking for a file to the head of the answer
SILENCE_S = 15.0  # between two pieces of it
MIN_RATE = 250_000  # bytes a second; a mirror slower than that over RATE_WINDOW_S is left for the next
RATE_WINDOW_S = 8.0
ATTEMPTS = 5  # at one mirror, each of which must bring the file on
PIECE = 1 << 16

_silent: set[str] = set()  # hosts that left this process waiting; asking them again would only cost time


class MirrorFailed(Exception):
    """This mirror does not give the file; the text says why."""


class Dropped(MirrorFailed):
    """The connection ended before the file did."""


class TooSlow(MirrorFailed):
    """Others may be faster."""


def download(file: RemoteFile, urls: list[str], target: Path, progress: Progress, deadline: float | None) -> None:
    """Bring `file` to `target` from the first of `urls` that has it; `target` appears only whole and checked.

    What has arrived lies beside it as `.part` and is resumed, by whichever mirror comes next. A slow mirror is left
    for the others and comes back last. deadline: reading of the monotonic clock; given up as soon as the rate shows
    that it will be missed. Raises DataError, with what each mirror said, and DiskError.
    """
    failures: list[str] = []
    slow: list[str] = []
    with disk_errors(target.parent):
        for candidates, patient in ((urls, len(urls) == 1), (slow, True)):
            for url in candidates:
                try:
                    part = _fetch(file, url, target, progress, _Pace(patient, deadline))
                except TooSlow:
                    slow.append(url)
                except MirrorFailed as error:
                    failures.append(_told(url, error))
                else:
                    part.replace(target)
                    return
    raise DataError(
        f"{file.name} could not be downloaded: {'; '.join(failures)}.",
        "Check the connection (and HTTPS_PROXY), let KIT_DATA_MIRROR name a folder or URL that has the file, or bring "
        "the data by other means and use `kit data add`.",
    )


def _told(url: str, error: MirrorFailed) -> str:
    """Which mirror says what, without the rest of its address, which is long; once where the error names it."""
    mirror = without_user_info(url).partition("://")[2].partition("/")[0]
    return str(error) if mirror in str(error) else f"{mirror}: {error}"


def copy(file: RemoteFile, source: Path, target: Path) -> None:
    """Bring `file` from a local folder. Raises DataError where `source` is another file, DiskError."""
    size, digest = source.stat().st_size, sha256(source)
    if digest != file.sha256:
        raise CorruptDataError(
            f"{file.name} in KIT_DATA_MIRROR is not the published file: it has {size:,} bytes and SHA-256 {digest}, "
            f"expected are {file.size:,} bytes and {file.sha256}.",
            f"{source} must be the published file; the same data packed otherwise, or your own, takes `kit data add`.",
        )
    part = _part(target)
    with disk_errors(target.parent):
        shutil.copyfile(source, part)
        part.replace(target)


class _Pace:
    """Watches the rate of one transfer. patient: there is no other mirror to turn to."""

    def __init__(self, patient: bool, deadline: float | None) -> None:
        self._patient = patient
        self._deadline = deadline
        self._since = time.monotonic()
        self._arrived = 0

    def check(self, arrived: int, missing: int) -> None:
        """Count `arrived` bytes, `missing` are still to come. Raises TooSlow, MirrorFailed (the deadline)."""
        self._arrived += arrived
        now = time.monotonic()
        late = self._deadline is not None and now > self._deadline
        elapsed = now - self._since
        if missing == 0 or (elapsed < RATE_WINDOW_S and not late):
            return
        rate = self._arrived / max(elapsed, 1e-3)
        late = late or (self._deadline is not None and now + missing / max(rate, 1) > self._deadline)
        if not self._patient and (late or rate < MIN_RATE):
            raise TooSlow
        if late:
            raise MirrorFailed(f"{rate / 1e6:.2f} MB/s is too slow for the time there is")
        self._since, self._arrived = now, 0


def _part(target: Path) -> Path:
    return target.with_name(f"{target.name}.part")


def _fetch(file: RemoteFile, url: str, target: Path, progress: Progress, pace: _Pace) -> Path:
    """The whole, checked `.part` of `target`. Raises MirrorFailed."""
    part = _part(target)
    for _ in range(ATTEMPTS):
        before = part.stat().st_size if part.exists() else 0
        if before < file.size:
            try:
                _transfer(file, url, part, progress, pace)
            except Dropped:
                if part.stat().st_size <= before:
                    raise
                continue
        digest = sha256(part)
        if digest == file.sha256:
            return part
        part.unlink()
        if before == 0:  # else what lay there before may have been the wrong bytes: once more, from the start
            raise MirrorFailed(f"other bytes than the published ones: SHA-256 {digest}, expected {file.sha256}")
    raise MirrorFailed(f"the connection dropped {ATTEMPTS} times")


def _transfer(file: RemoteFile, url: str, part: Path, progress: Progress, pace: _Pace) -> None:
    start = part.stat().st_size if part.exists() else 0
    with _ask(url, start) as response:
        host = urlsplit(url).hostname or ""
        start = _start(response, start, file.size)
        done = start
        with (
            progress.task(f"Download {file.name} from {host}", file.size, "B") as task,
            open(part, "ab" if start else "wb") as out,
        ):
            task.advance(done)
            while done < file.size:
                try:
                    piece = response.raw.read1(PIECE, decode_content=False)
                except (urllib3.exceptions.HTTPError, OSError) as error:
                    raise Dropped(f"the connection broke after {done:,} bytes ({type(error).__name__})") from error
                if not piece:
                    raise Dropped(f"ended after {done:,} of {file.size:,} bytes")
                out.write(piece)
                done += len(piece)
                task.advance(len(piece))
                pace.check(len(piece), file.size - done)


def _ask(url: str, start: int) -> requests.Response:
    """The head of the answer. Raises MirrorFailed within ANSWER_S: requests would grant its connect timeout to each
    of a host's addresses in turn, which behind a firewall that drops packets takes minutes; hence our own clock."""
    try:
        host = urlsplit(url).netloc
    except ValueError as error:
        raise MirrorFailed(f"this is no URL: {error}") from error
    if host in _silent:
        raise MirrorFailed("its host did not answer before")
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={start}-"} if start else {})
    answers: queue.Queue[requests.Response | requests.RequestException] = queue.Queue()

    def ask() -> None:
        try:
            answers.put(requests.get(url, headers=headers, stream=True, timeout=(ANSWER_S, SILENCE_S)))
        except requests.RequestException as error:
            answers.put(error)

    threading.Thread(target=ask, daemon=True).start()
    try:
        answer = answers.get(timeout=ANSWER_S)
    except queue.Empty:
        _silent.add(host)
        raise MirrorFailed(f"no answer within {ANSWER_S:.0f} s") from None
    if isinstance(answer, requests.RequestException):
        cause = getattr(answer.args[0], "reason", answer) if answer.args else answer
        raise MirrorFailed(str(cause).rpartition(": ")[2] or type(answer).__name__) from answer
    return answer


def _start(response: requests.Response, asked: int, size: int) -> int:
    """The offset at which the body begins. Raises MirrorFailed where the answer is not (the rest of) such a file."""
    if response.status_code == 206:
        first, _, total = response.headers.get("Content-Range", "").removeprefix("bytes ").partition("/")
        if not first.startswith(f"{asked}-") or total not in (str(size), "*"):
            raise MirrorFailed(f"another file: Content-Range {first}/{total}, published are {size:,} bytes")
        return asked
    if response.status_code != 200:
        raise MirrorFailed(f"HTTP status {response.status_code}")
    length = response.headers.get("Content-Length")
    if length is not None and length != str(size):
        raise MirrorFailed(f"another file: {int(length):,} bytes, published are {size:,}")
    return 0
