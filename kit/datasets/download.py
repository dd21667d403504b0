"""Download files from ordered mirrors. Resume and check them, and give up hosts that are dead or slow."""

import shutil
import time
from pathlib import Path
from urllib.parse import urlsplit

import requests
import urllib3

from kit.datasets.files import sha256
from kit.datasets.registry import RemoteFile
from kit.host.background import in_background
from kit.host.privacy import without_user_info
from kit.model.errors import CorruptDataError, DataError
from kit.model.progress import Progress

ANSWER_S = 6.0  # from the request to the header of the response
SILENCE_S = 15.0  # between two chunks of the response
MIN_RATE = 250_000  # bytes per second over RATE_WINDOW_S; a slower mirror is tried again only after all others
RATE_WINDOW_S = 8.0
ATTEMPTS = 5  # per mirror; the transfer ends earlier if an attempt adds no bytes
CHUNK_BYTES = 1 << 16

_silent: set[str] = set()  # hosts that did not answer this process; asking them again would only cost time


class MirrorFailed(Exception):
    """This mirror does not deliver the file. The message says why."""


class Dropped(MirrorFailed):
    """The connection ended before the file did."""


class TooSlow(MirrorFailed):
    """The mirror is slow, and another one may be faster."""


def download(file: RemoteFile, urls: list[str], target: Path, progress: Progress, deadline: float | None) -> None:
    """Download `file` to `target` from the first of `urls` that delivers it. `target` appears only whole and checked.

    A partial file is kept next to it as `.part`, and the next mirror resumes it. Slow mirrors are tried again after all
    others. deadline: value of the monotonic clock. Give up as soon as the rate shows that it will be missed. Raise
    DataError, which names the failure of each mirror. Raise OSError if the files cannot be written.
    """
    failures: list[str] = []
    slow: list[str] = []
    for candidates, patient in ((urls, len(urls) == 1), (slow, True)):
        for url in candidates:
            try:
                part = _fetch(file, url, target, progress, _RateCheck(patient, deadline))
            except TooSlow:
                slow.append(url)
            except MirrorFailed as error:
                failures.append(_describe(url, error))
            else:
                part.replace(target)
                return
    raise DataError(
        f"{file.name} could not be downloaded: {'; '.join(failures)}.",
        "Check the connection and HTTPS_PROXY, or set KIT_DATA_MIRROR to a folder or URL that has the file. Or get the "
        "data in another way and use `kit data add`.",
    )


def _describe(url: str, error: MirrorFailed) -> str:
    """Return the error with the host of its mirror. Leave out the rest of the URL, which is long."""
    mirror = without_user_info(url).partition("://")[2].partition("/")[0]
    return str(error) if mirror in str(error) else f"{mirror}: {error}"


def copy(file: RemoteFile, source: Path, target: Path) -> None:
    """Copy `file` from a local folder. Raise CorruptDataError if `source` has other content. Raise OSError."""
    size, digest = source.stat().st_size, sha256(source)
    if digest != file.sha256:
        raise CorruptDataError(
            f"{file.name} in KIT_DATA_MIRROR is not the published file: it has {size:,} bytes and SHA-256 {digest}. "
            f"The published file has {file.size:,} bytes and {file.sha256}.",
            f"Replace {source} with the published file. Use `kit data add` for repacked data or your own data.",
        )
    part = _part(target)
    shutil.copyfile(source, part)
    part.replace(target)


class _RateCheck:
    """Check the rate of one transfer. patient: there is no other mirror to try."""

    def __init__(self, patient: bool, deadline: float | None) -> None:
        self._patient = patient
        self._deadline = deadline
        self._since = time.monotonic()
        self._received = 0

    def add(self, received: int, missing: int) -> None:
        """Count the received bytes; `missing` bytes remain. Raise TooSlow, or MirrorFailed if the deadline cannot be
        met."""
        self._received += received
        now = time.monotonic()
        late = self._deadline is not None and now > self._deadline
        elapsed = now - self._since
        if missing == 0 or (elapsed < RATE_WINDOW_S and not late):
            return
        rate = self._received / max(elapsed, 1e-3)
        late = late or (self._deadline is not None and now + missing / max(rate, 1) > self._deadline)
        if not self._patient and (late or rate < MIN_RATE):
            raise TooSlow
        if late:
            raise MirrorFailed(f"{rate / 1e6:.2f} MB/s is too slow for the time limit")
        self._since, self._received = now, 0


def _part(target: Path) -> Path:
    return target.with_name(f"{target.name}.part")


def _fetch(file: RemoteFile, url: str, target: Path, progress: Progress, rate: _RateCheck) -> Path:
    """Return the complete, checked `.part` file of `target`. Raise MirrorFailed."""
    part = _part(target)
    for _ in range(ATTEMPTS):
        before = part.stat().st_size if part.exists() else 0
        if before < file.size:
            try:
                _transfer(file, url, part, progress, rate)
            except Dropped:
                if part.stat().st_size <= before:
                    raise
                continue
        digest = sha256(part)
        if digest == file.sha256:
            return part
        part.unlink()
        if before == 0:  # otherwise the earlier bytes may be wrong: try again from the start
            raise MirrorFailed(f"other bytes than the published ones: SHA-256 {digest}, expected {file.sha256}")
    raise MirrorFailed(f"the connection dropped {ATTEMPTS} times")


def _transfer(file: RemoteFile, url: str, part: Path, progress: Progress, rate: _RateCheck) -> None:
    start = part.stat().st_size if part.exists() else 0
    with _request(url, start) as response:
        host = urlsplit(url).hostname or ""
        done = start = _offset(response, start, file.size)
        with (
            progress.task(f"Download {file.name} from {host}", file.size, "B") as task,
            open(part, "ab" if start else "wb") as out,
        ):
            task.advance(done)
            while done < file.size:
                try:
                    chunk = response.raw.read1(CHUNK_BYTES, decode_content=False)
                except (urllib3.exceptions.HTTPError, OSError) as error:
                    raise Dropped(f"the connection broke after {done:,} bytes ({type(error).__name__})") from error
                if not chunk:
                    raise Dropped(f"ended after {done:,} of {file.size:,} bytes")
                out.write(chunk)
                done += len(chunk)
                task.advance(len(chunk))
                rate.add(len(chunk), file.size - done)


def _request(url: str, start: int) -> requests.Response:
    """Return the response as soon as its header is here. Raise MirrorFailed after ANSWER_S at the latest.

    The limit is enforced here because requests applies its connect timeout to each address of a host in turn. Behind a
    firewall that drops packets, that takes minutes.
    """
    try:
        host = urlsplit(url).netloc
    except ValueError as error:
        raise MirrorFailed(f"not a valid URL: {error}") from error
    if host in _silent:
        raise MirrorFailed("its host did not answer an earlier request")
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={start}-"} if start else {})
    response = in_background(lambda: requests.get(url, headers=headers, stream=True, timeout=(ANSWER_S, SILENCE_S)))
    try:
        return response.result(timeout=ANSWER_S)
    except TimeoutError:
        _silent.add(host)
        raise MirrorFailed(f"no answer within {ANSWER_S:.0f} s") from None
    except (requests.RequestException, ValueError) as error:  # urllib3 raises ValueError for some host names
        cause = getattr(error.args[0], "reason", error) if error.args else error
        raise MirrorFailed(str(cause).rpartition(": ")[2] or type(error).__name__) from error


def _offset(response: requests.Response, requested: int, size: int) -> int:
    """Return the offset in the file at which the body begins. Raise MirrorFailed if the response is not the file or the
    requested rest of it."""
    if response.status_code == 206:
        first, _, total = response.headers.get("Content-Range", "").removeprefix("bytes ").partition("/")
        if not first.startswith(f"{requested}-") or total not in (str(size), "*"):
            raise MirrorFailed(f"another file: Content-Range {first}/{total}, expected {size:,} bytes")
        return requested
    if response.status_code != 200:
        raise MirrorFailed(f"HTTP status {response.status_code}")
    length = response.headers.get("Content-Length")
    if length is not None and length != str(size):
        raise MirrorFailed(f"another file: {int(length):,} bytes, expected {size:,}")
    return 0
