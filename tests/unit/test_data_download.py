"""Test downloads from servers that drop connections, are slow, send wrong bytes or are missing."""

from __future__ import annotations

import hashlib
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from kit.datasets import download as downloads
from kit.datasets.download import MirrorFailed, copy, download
from kit.datasets.registry import RemoteFile
from kit.model.errors import DataError
from kit.model.progress import Silent

CONTENT = bytes(range(256)) * 2000
FILE = RemoteFile("set.gz", len(CONTENT), hashlib.sha256(CONTENT).hexdigest())


class Clock:
    """A replacement for the module `time`. Only servers advance it, so rates do not depend on the machine."""

    now = 100.0

    def monotonic(self) -> float:
        return self.now


class Server(ThreadingHTTPServer):
    """A server of one file. drop_after: close the connection after this many bytes. crawl: send 1 kB every `pause_s`
    of this clock. ranges: support the Range header. requested: the Range header of each request."""

    daemon_threads = True

    def __init__(
        self,
        content: bytes,
        *,
        drop_after: int | None = None,
        crawl: Clock | None = None,
        pause_s: float = 0.02,
        ranges: bool = True,
    ) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.content, self.drop_after, self.crawl, self.pause_s = content, drop_after, crawl, pause_s
        self.ranges = ranges
        self.requested: list[str] = []
        self.url = f"http://127.0.0.1:{self.server_port}/set.gz"
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore clients that close the connection: these tests expect it."""


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        wanted = self.headers.get("Range", "")
        self.server.requested.append(wanted)
        body, size = self.server.content, len(self.server.content)
        if wanted and self.server.ranges:
            start = int(wanted.removeprefix("bytes=").rstrip("-"))
            body = body[start:]
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{size - 1}/{size}")
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.server.crawl:
            for place in range(0, len(body), 1000):
                self.server.crawl.now += self.server.pause_s
                self.wfile.write(body[place : place + 1000])
        else:
            self.wfile.write(body[: self.server.drop_after])

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


@pytest.fixture
def serve() -> Iterator[type]:
    servers: list[Server] = []

    def start(*args: object, **kwargs: object) -> Server:
        servers.append(Server(*args, **kwargs))  # type: ignore[arg-type]
        return servers[-1]

    yield start  # type: ignore[misc]
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(downloads, "time", made)
    return made


def fetch(folder: Path, *urls: str, deadline: float | None = None) -> Path:
    target = folder / FILE.name
    download(FILE, list(urls), target, Silent(), deadline)
    assert target.read_bytes() == CONTENT
    assert not target.with_name("set.gz.part").exists()
    return target


def closed_port_url() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}/set.gz"


def test_existing_bytes_are_not_requested_again(tmp_path: Path, serve) -> None:
    server = serve(CONTENT)
    (tmp_path / "set.gz.part").write_bytes(CONTENT[:1000])
    fetch(tmp_path, server.url)
    assert server.requested == ["bytes=1000-"]


def test_a_complete_part_file_needs_no_mirror(tmp_path: Path) -> None:
    (tmp_path / "set.gz.part").write_bytes(CONTENT)
    fetch(tmp_path, closed_port_url())


def test_a_dropped_connection_is_resumed(tmp_path: Path, serve) -> None:
    server = serve(CONTENT, drop_after=200_000)
    fetch(tmp_path, server.url)
    assert server.requested[0] == ""
    assert server.requested[1] == "bytes=200000-"
    assert len(server.requested) == 3


def test_a_server_without_ranges_starts_over(tmp_path: Path, serve) -> None:
    server = serve(CONTENT, ranges=False)
    (tmp_path / "set.gz.part").write_bytes(b"x" * 1000)
    fetch(tmp_path, server.url)
    assert server.requested == ["bytes=1000-"]


def test_wrong_existing_bytes_are_discarded(tmp_path: Path, serve) -> None:
    server = serve(CONTENT)
    (tmp_path / "set.gz.part").write_bytes(b"x" * 1000)
    fetch(tmp_path, server.url)
    assert server.requested == ["bytes=1000-", ""]


def test_a_dead_mirror_and_one_with_wrong_bytes_are_skipped(tmp_path: Path, serve) -> None:
    liar, honest = serve(CONTENT[::-1]), serve(CONTENT)
    fetch(tmp_path, closed_port_url(), liar.url, honest.url)
    assert liar.requested == [""]


def test_after_a_slow_mirror_the_next_one_resumes(
    tmp_path: Path, serve, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(downloads, "RATE_WINDOW_S", 0.3)
    monkeypatch.setattr(downloads, "MIN_RATE", 60_000)
    slow, fast = serve(CONTENT, crawl=clock), serve(CONTENT)
    fetch(tmp_path, slow.url, fast.url)
    assert slow.requested == [""]
    assert fast.requested[0].startswith("bytes=")  # not from 0


def test_a_slow_mirror_is_tried_again_if_no_other_works(
    tmp_path: Path, serve, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(downloads, "RATE_WINDOW_S", 0.1)
    slow = serve(CONTENT, crawl=clock)
    fetch(tmp_path, slow.url, closed_port_url())
    assert len(slow.requested) == 2


def test_a_mirror_slower_than_4_kb_per_second_is_given_up_even_if_it_is_the_only_one(
    tmp_path: Path, serve, clock: Clock
) -> None:
    slow, fast = serve(CONTENT, crawl=clock, pause_s=5), serve(CONTENT)  # 200 bytes per second
    with pytest.raises(DataError, match="slower than 4 kB/s for 60 s"):
        fetch(tmp_path, slow.url)
    with pytest.raises(DataError, match=r"Connection refused.*; .*slower than 4 kB/s for 60 s"):
        fetch(tmp_path, slow.url, closed_port_url())
    fetch(tmp_path, slow.url, fast.url)


@pytest.mark.parametrize(("rate", "patience_s"), [(3_900, 64), (4_100, None)])
def test_the_only_mirror_may_be_slow_but_not_stall(clock: Clock, rate: int, patience_s: int | None) -> None:
    check = downloads._RateCheck(patient=True, deadline=None)
    for second in range(1, 1_000):
        clock.now += 1
        if second == patience_s:
            with pytest.raises(MirrorFailed, match="slower than 4 kB/s"):
                check.add(rate, missing=1)
            return
        check.add(rate, missing=1)
    assert patience_s is None


def test_a_stall_is_counted_from_the_last_time_that_the_mirror_was_fast(clock: Clock) -> None:
    check = downloads._RateCheck(patient=True, deadline=None)
    for second in range(1, 1_000):
        clock.now += 1
        check.add(50_000 if second % 50 == 0 else 10, missing=1)


def test_a_download_that_will_miss_its_deadline_is_stopped(
    tmp_path: Path, serve, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(downloads, "RATE_WINDOW_S", 0.1)
    slow = serve(CONTENT, crawl=clock)  # needs 10 s
    with pytest.raises(DataError, match="too slow for the time limit"):
        fetch(tmp_path, slow.url, deadline=clock.monotonic() + 5)
    assert 0 < (tmp_path / "set.gz.part").stat().st_size < len(CONTENT) / 2
    assert not (tmp_path / "set.gz").exists()


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (CONTENT[::-1], f"other bytes than the published ones: SHA-256 .*expected {FILE.sha256}"),
        (CONTENT[:-1], "another file: Content-Length '511999', expected 512,000 bytes"),
    ],
)
def test_wrong_content_from_every_mirror_is_an_error(tmp_path: Path, serve, content: bytes, expected: str) -> None:
    with pytest.raises(DataError, match=expected) as caught:
        fetch(tmp_path, serve(content).url)
    assert "kit data add" in caught.value.remedy
    assert list(tmp_path.iterdir()) == []


def test_a_silent_host_is_asked_only_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downloads, "ANSWER_S", 0.2)
    monkeypatch.setattr(downloads, "_silent", set())
    with socket.create_server(("127.0.0.1", 0)) as mute:  # accepts connections but never answers
        url = f"http://127.0.0.1:{mute.getsockname()[1]}/set.gz"
        with pytest.raises(DataError, match=r"no answer within .*; .*did not answer an earlier request"):
            fetch(tmp_path, url, url)


def test_the_error_names_the_host_but_not_the_whole_url(tmp_path: Path, serve) -> None:
    urls = [serve(b"").url, closed_port_url()]
    with pytest.raises(DataError) as caught:
        fetch(tmp_path, *urls)
    message = str(caught.value)
    for url in urls:
        assert message.count(url.removeprefix("http://").removesuffix("/set.gz")) == 1
    assert "/set.gz:" not in message


def test_an_invalid_url_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="not a valid URL"):
        download(FILE, ["http://[::1/x.bin"], tmp_path / "x.bin", Silent(), None)
    with pytest.raises(DataError, match="label empty or too long"):
        download(FILE, ["http://a..b/x.bin"], tmp_path / "x.bin", Silent(), None)
    with pytest.raises(DataError, match=r"127\.0\.0\.1:99999: .*\[address\]") as caught:
        download(FILE, ["http://bob:secret@127.0.0.1:99999/x.bin"], tmp_path / "x.bin", Silent(), None)
    assert "secret" not in str(caught.value)


def test_an_unexpected_error_of_a_request_is_not_taken_for_silence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def get(*args: object, **kwargs: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("requests.get", get)
    with pytest.raises(ZeroDivisionError):
        download(FILE, ["http://127.0.0.1/x.bin"], tmp_path / "x.bin", Silent(), None)


def test_a_local_file_with_wrong_content_is_rejected(tmp_path: Path) -> None:
    source, target = tmp_path / "theirs.gz", tmp_path / "set.gz"
    source.write_bytes(CONTENT[::-1])
    with pytest.raises(DataError, match=f"set.gz in KIT_DATA_MIRROR is not the published file: .*{FILE.sha256}"):
        copy(FILE, source, target)
    source.write_bytes(CONTENT)
    copy(FILE, source, target)
    assert target.read_bytes() == CONTENT
