"""Download files from ordered mirrors. Resume and check them, and give up hosts that are dead or slow."""

import http.client
import re
import shutil
import time
from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import requests
import urllib3

from kit.datasets.files import sha256
from kit.datasets.registry import RemoteFile
from kit.host.background import in_background
from kit.host.pip_config import certificates
from kit.host.privacy import without_user_info
from kit.model.errors import CorruptDataError, DataError
from kit.model.formatting import printable
from kit.model.progress import Progress

ANSWER_S = 6.0  # from the request to the header of the response
SILENCE_S = 15.0  # between two chunks of the response
MIN_RATE = 250_000  # bytes per second over RATE_WINDOW_S; a slower mirror is tried again only after all others
RATE_WINDOW_S = 8.0
SLOWEST_RATE = 4_000  # bytes per second; a mirror that is slower for SLOWEST_S is given up, even if it is the only one
SLOWEST_S = 60.0
ATTEMPTS = 5  # per mirror; the transfer ends earlier if an attempt adds no bytes
CHUNK_BYTES = 1 << 16
MAX_REASON = 300  # characters of a failure in a message: a mirror can send headers of any length
# What requests, urllib3 and http.client raise if a connection fails or an answer is malformed. A URL that a mirror
# redirects to can raise any ValueError.
ANSWER_ERRORS = (
    requests.RequestException,
    urllib3.exceptions.HTTPError,
    http.client.HTTPException,
    ValueError,
    OSError,
)

URL = re.compile(r"\w+://\S+")

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
        "Check the connection and HTTPS_PROXY, and KIT_CA_BUNDLE if a certificate is refused. Or set KIT_DATA_MIRROR "
        "to a folder or URL that has the file, or get the data in another way and use `kit data add`.",
    )


def _describe(url: str, error: MirrorFailed) -> str:
    """Return the error with the host of its mirror. Leave out the rest of the URL, which is long."""
    mirror = without_user_info(url).partition("://")[2].partition("/")[0]
    text = printable(URL.sub("[address]", " ".join(str(error).split())))  # it may quote the mirror, with a password
    text = text if len(text) <= MAX_REASON else f"{text[:MAX_REASON]}..."
    return text if mirror in text else f"{mirror}: {text}"


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
        self._since = self._slow_since = time.monotonic()
        self._received = 0

    def add(self, received: int, missing: int) -> None:
        """Count the received bytes; `missing` bytes remain. Raise TooSlow. Raise MirrorFailed if the deadline cannot be
        met, or if the mirror is so slow that it is useless."""
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
        if rate >= SLOWEST_RATE:
            self._slow_since = now
        elif now - self._slow_since >= SLOWEST_S:
            raise MirrorFailed(f"slower than {SLOWEST_RATE / 1e3:.0f} kB/s for {SLOWEST_S:.0f} s")
        self._since, self._received = now, 0


def _part(target: Path) -> Path:
    return target.with_name(f"{target.name}.part")


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _fetch(file: RemoteFile, url: str, target: Path, progress: Progress, rate: _RateCheck) -> Path:
    """Return the complete, checked `.part` file of `target`. Raise MirrorFailed."""
    part = _part(target)
    for _ in range(ATTEMPTS):
        before = _size(part)
        if before < file.size:
            try:
                _transfer(file, url, part, progress, rate)
            except Dropped:
                if _size(part) <= before:
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
    start = _size(part)
    with _request(url, start) as response:
        host = urlsplit(url).hostname or ""
        done = start = _offset(response, start, file.size)
        with (
            progress.task(f"Download {file.name} from {host}", file.size, "B") as task,
            open(part, "ab" if start else "wb") as out,
        ):
            task.advance(done)
            while done < file.size:
                with _answer_errors(f"the connection broke after {done:,} bytes: "):
                    chunk = response.raw.read1(CHUNK_BYTES, decode_content=False)
                if not chunk:
                    raise Dropped(f"ended after {done:,} of {file.size:,} bytes")
                out.write(chunk)
                done += len(chunk)
                task.advance(len(chunk))
                rate.add(len(chunk), file.size - done)


@contextmanager
def _answer_errors(context: str = "") -> Iterator[None]:
    """Turn what the libraries raise about a URL, a connection or an answer into Dropped.

    context: the beginning of its message.
    """
    try:
        yield
    except ANSWER_ERRORS as error:
        cause = _innermost(error)
        text, kind = str(cause).rpartition(": ")[2].rstrip("."), type(cause).__name__
        raise Dropped(context + (text if kind in text else f"{text} ({kind})")) from error


def _innermost(error: Exception) -> Exception:
    """Return the error that requests and urllib3 wrapped in others."""
    wrapped = [inner for inner in (getattr(error, "reason", None), *error.args) if isinstance(inner, Exception)]
    return _innermost(wrapped[0]) if wrapped else error


def _request(url: str, start: int) -> requests.Response:
    """Return the response as soon as its header is here. Raise MirrorFailed after ANSWER_S at the latest.

    The limit is enforced here because requests applies its connect timeout to each address of a host in turn. Behind a
    firewall that drops packets, that takes minutes.
    """
    with _answer_errors("not a valid URL: "):
        host = urlsplit(url).netloc
    if host in _silent:
        raise MirrorFailed("its host did not answer an earlier request")
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={start}-"} if start else {})
    hooks = {"response": _skip_body_of_redirect}
    timeout, verify = (ANSWER_S, SILENCE_S), certificates()
    response = in_background(
        lambda: requests.get(url, headers=headers, hooks=hooks, stream=True, timeout=timeout, verify=verify)
    )
    if not futures.wait([response], ANSWER_S).done:
        _silent.add(host)
        raise MirrorFailed(f"no answer within {ANSWER_S:.0f} s")
    with _answer_errors():
        return response.result()


def _skip_body_of_redirect(response: requests.Response, **_: object) -> None:
    """Close the connection instead of reading a body that nobody needs. It can be of any size."""
    if response.is_redirect:
        response.close()


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
        raise MirrorFailed(f"another file: Content-Length {length!r}, expected {size:,} bytes")
    return 0
