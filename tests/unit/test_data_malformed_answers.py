"""Test that every malformed answer of a mirror only counts as a failed mirror. The server answers with raw bytes."""

from __future__ import annotations

import hashlib
import random
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kit.datasets import service
from kit.datasets.download import download
from kit.datasets.registry import SOURCES, RemoteFile
from kit.model.errors import DataError
from kit.model.formatting import printable
from kit.model.progress import Silent
from tests.command import Kit
from tests.fuzz import mutate

# urllib3 leaves the socket of an answer with two lengths to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:.*socket:pytest.PytestUnraisableExceptionWarning")

CONTENT = bytes(range(256)) * 4
SIZE = len(CONTENT)
FILE = RemoteFile("set.gz", SIZE, hashlib.sha256(CONTENT).hexdigest())
OK = b"HTTP/1.1 200 OK\r\n"
HONEST = OK + b"Content-Length: %d\r\n\r\n" % SIZE + CONTENT
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"


def redirect(place: bytes, status: bytes = b"302 Found") -> bytes:
    return b"HTTP/1.1 " + status + b"\r\nLocation: " + place + b"\r\nContent-Length: 0\r\n\r\n"


def header(line: bytes) -> bytes:
    """Return an answer that is whole and right except for this line of its header."""
    return OK + line + b"\r\n\r\n" + CONTENT


def partial(content_range: bytes) -> bytes:
    return b"HTTP/1.1 206 Partial Content\r\nContent-Range: " + content_range + b"\r\n\r\n" + CONTENT


MALFORMED = {
    "nothing": b"",
    "no HTTP": b"SSH-2.0-OpenSSH_9.6\r\n",
    "binary": bytes(range(255, -1, -1)) * 9,
    "status word": b"HTTP/1.1 fine\r\n\r\n",
    "negative status": b"HTTP/1.1 -200 OK\r\n\r\n",
    "huge status": b"HTTP/1.1 " + b"2" * 5000 + b" OK\r\n\r\n",
    "protocol": b"HTTP/9.7 200 OK\r\n\r\n",
    "long status line": b"HTTP/1.1 200 " + b"x" * 70_000 + b"\r\n\r\n",
    "only continue": b"HTTP/1.1 100 Continue\r\n\r\n" * 50,
    "early hints": b"HTTP/1.1 103 Early Hints\r\n\r\n",
    "no content": b"HTTP/1.1 204 No Content\r\n\r\n",
    "not modified": b"HTTP/1.1 304 Not Modified\r\n\r\n",
    "missing": b"HTTP/1.1 404 Not Found\r\n\r\n",
    "length abc": header(b"Content-Length: abc"),
    "length negative": header(b"Content-Length: -1"),
    "length huge": header(b"Content-Length: " + b"9" * 5000),
    "length float": header(b"Content-Length: 1024.0"),
    "length empty": header(b"Content-Length:"),
    "length superscript": header(b"Content-Length: \xb2"),
    "two lengths": header(b"Content-Length: 5, 6"),
    "two length lines": header(b"Content-Length: 1024\r\nContent-Length: 7"),
    "another length": header(b"Content-Length: 7"),
    "header without colon and early close": OK + b"Content-Length 1024\r\n\r\n" + CONTENT[:-1],
    "header bytes": OK + b"\xff\xfe\x00: \x80\r\n\r\n" + CONTENT[:9],
    "long header": OK + b"X: " + b"x" * 70_000 + b"\r\n\r\n" + CONTENT,
    "many headers": OK + b"X: x\r\n" * 200 + b"\r\n" + CONTENT,
    "header without end": OK + b"X: x",
    "early close": HONEST[:-100],
    "no body": HONEST[: -len(CONTENT)],
    "other content": HONEST[:-3] + b"abc",
    "range words": partial(b"bytes abc-def/ghi"),
    "range empty": partial(b""),
    "range of another start": partial(b"bytes 5-1023/1024"),
    "range of another size": partial(b"bytes 0-1023/999999999999999999999999"),
    "range bytes": partial(b"\xff\xff-\xff/\xff"),
    "chunk size": CHUNKED + b"xyz\r\n" + CONTENT,
    "chunk size negative": CHUNKED + b"-5\r\n" + CONTENT[::-1],
    "chunk size huge": CHUNKED + b"f" * 5000 + b"\r\n" + CONTENT[::-1],
    "chunk line long": CHUNKED + b"1" * 70_000 + b"\r\n" + CONTENT,
    "chunk short": CHUNKED + b"400\r\n" + CONTENT[:50],
    "chunk without end": CHUNKED + b"10\r\n" + CONTENT[:16] + b"garbage",
    "chunks that end early": CHUNKED + b"10\r\n" + CONTENT[:16] + b"\r\n0\r\n\r\n",
    "gzip that is none": OK + b"Content-Encoding: gzip\r\n\r\n" + CONTENT[::-1],
    "unknown encodings": OK + b"Content-Encoding: br, \xff, zstd, gzip\r\n\r\nx",
    "redirect loop": redirect(b"/set.gz"),
    "redirect without place": b"HTTP/1.1 302 Found\r\n\r\n",
    "redirect to nothing": redirect(b""),
    "redirect to a file": redirect(b"file:///etc/passwd"),
    "redirect to FTP": redirect(b"ftp://127.0.0.1/set.gz"),
    "redirect to javascript": redirect(b"javascript:alert(1)"),
    "redirect to a bracket": redirect(b"http://[::1/set.gz"),
    "redirect to no host": redirect(b"http:///set.gz"),
    "redirect to a port": redirect(b"http://127.0.0.1:99999/set.gz"),
    "redirect to a port word": redirect(b"http://127.0.0.1:port/set.gz"),
    "redirect to dots": redirect(b"http://a..b/set.gz"),
    "redirect to a long label": redirect(b"http://" + b"a" * 300 + b"/set.gz"),
    "redirect to bytes": redirect(b"http://\xff\xfe\xfd/set.gz"),
    "redirect to a control byte": redirect(b"http://127.0.0.1\x01/\x7f"),
    "redirect with a body of garbage": b"HTTP/1.1 301 x\r\nLocation: /\r\nContent-Encoding: gzip\r\n"
    b"Transfer-Encoding: chunked\r\n\r\nnone",
    "redirect with credentials": redirect(b"http://u:p@[x]/", b"308 x"),
    "cookie garbage": header(b"Set-Cookie: \xff=\x01; expires=never; max-age=x; domain=..;;=\r\nContent-Length: 7"),
}


@contextmanager
def answering(answer: bytes, *, hold: bool = False) -> Iterator[str]:
    """Run a server that answers every request with these bytes and closes the connection. Yield the URL of a file.

    hold: wait until the client closes the connection.
    """
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:  # the listener is closed
                    return
                with connection:
                    try:
                        while b"\r\n\r\n" not in connection.recv(1 << 16):  # unread bytes would reset the connection
                            pass
                        connection.sendall(answer)
                        while hold and connection.recv(1 << 16):
                            pass
                    except OSError:  # the client closed first
                        pass

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/set.gz"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def fetch(folder: Path, *urls: str) -> bytes:
    target = folder / FILE.name
    download(FILE, list(urls), target, Silent(), None)
    return target.read_bytes()


@pytest.mark.parametrize("answer", MALFORMED.values(), ids=MALFORMED)
def test_after_a_malformed_answer_the_next_mirror_is_tried(tmp_path: Path, answer: bytes) -> None:
    with answering(answer) as url, answering(HONEST) as honest:
        with pytest.raises(DataError) as caught:
            fetch(tmp_path, url)
        message = str(caught.value)
        assert "set.gz could not be downloaded: 127.0.0.1:" in message
        assert "kit data add" in message
        assert len(message) < 600
        assert message == printable(message)
        assert fetch(tmp_path, url, honest) == CONTENT
    assert [path.name for path in tmp_path.iterdir()] == ["set.gz"]


def test_the_body_of_a_redirect_is_not_read(tmp_path: Path) -> None:
    with answering(HONEST) as honest:
        answer = b"HTTP/1.1 302 x\r\nLocation: " + honest.encode() + b"\r\nContent-Length: 999999999999\r\n\r\nx"
        with answering(answer, hold=True) as url:  # if the client waits for the body, it never ends
            assert fetch(tmp_path, url) == CONTENT


@settings(max_examples=150)
@given(rng=st.randoms(use_true_random=False), chunked=st.booleans())
def test_a_mutated_answer_gives_the_file_or_a_data_error(rng: random.Random, chunked: bool) -> None:
    valid = CHUNKED + b"400\r\n" + CONTENT + b"\r\n0\r\n\r\n" if chunked else HONEST
    cut = rng.choice([len(valid), 60])  # most bytes are content, but the header is of more interest
    answer = mutate(valid[:cut], rng) + valid[cut:]
    with tempfile.TemporaryDirectory() as folder, answering(answer) as url:
        try:
            assert fetch(Path(folder), url) == CONTENT
        except DataError:
            assert not (Path(folder) / FILE.name).exists()


@pytest.fixture
def malformed_mirror(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Give MNIST one mirror, whose answers have a wrong length."""
    monkeypatch.setitem(SOURCES, "mnist", (FILE,))
    monkeypatch.setenv("KIT_DATA_DIR", str(tmp_path / "data"))
    with answering(MALFORMED["length abc"]) as url:
        monkeypatch.setenv("KIT_DATA_MIRROR", url.removesuffix("/set.gz"))
        yield


def test_after_all_mirrors_a_run_uses_the_synthetic_set(malformed_mirror: None) -> None:
    found = service.resolve("mnist", "auto", Silent())
    assert found.kind == "synthetic"
    assert "Content-Length 'abc'" in found.note
    with pytest.raises(DataError, match="Content-Length 'abc'"):
        service.resolve("mnist", "real", Silent())


def test_after_all_mirrors_fetch_exits_with_5(kit: Kit, malformed_mirror: None) -> None:
    called = kit("data", "fetch", "mnist")
    assert called.code == 5
    assert "Content-Length 'abc'" in " ".join(called.err.split())
