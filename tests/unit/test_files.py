"""Test atomic writes, the translation of write errors, and the cache of limited size."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from kit.model.errors import DiskError
from kit.storage.bounded_cache import keep
from kit.storage.files import disk_errors, write_atomic


def fail_with(code: int):
    def fail(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    return fail


@pytest.mark.parametrize("overwrite", [True, False])
@pytest.mark.parametrize(("content", "expected"), [("grün\n", "grün\n".encode()), (b"\xff\x00", b"\xff\x00")])
def test_a_file_is_written_whole_and_alone(
    tmp_path: Path, content: str | bytes, expected: bytes, overwrite: bool
) -> None:
    write_atomic(tmp_path / "a.json", content, overwrite=overwrite)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"a.json": expected}


def test_a_file_is_overwritten_by_default(tmp_path: Path) -> None:
    write_atomic(tmp_path / "a.json", "old")
    write_atomic(tmp_path / "a.json", "new")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"a.json": "new"}


@pytest.mark.parametrize("code", [None, errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK])
def test_a_file_is_not_overwritten_on_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int | None
) -> None:
    if code is not None:  # a file system without hard links
        monkeypatch.setattr(os, "link", fail_with(code))
    write_atomic(tmp_path / "a.json", "old", overwrite=False)
    with pytest.raises(FileExistsError):
        write_atomic(tmp_path / "a.json", "new", overwrite=False)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"a.json": "old"}


def test_nothing_is_written_through_a_link_in_place_of_the_temporary_file(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    (tmp_path / f"a.{os.getpid()}.new").symlink_to("mine")
    write_atomic(tmp_path / "a", "new")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"a": "new", "mine": "mine"}


def test_a_file_has_the_requested_permissions(tmp_path: Path) -> None:
    write_atomic(tmp_path / "a", "new", mode=0o600)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("overwrite", [True, False])
def test_after_a_failed_write_the_old_file_is_there_and_the_error_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, overwrite: bool
) -> None:
    write_atomic(tmp_path / "old", "old")
    monkeypatch.setattr(os, "fsync", fail_with(errno.ENOSPC))
    for name in ("old", "new"):
        with pytest.raises(OSError, match="No space left") as caught:
            write_atomic(tmp_path / name, "new", overwrite=overwrite)
        assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(tmp_path / name))
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"old": "old"}


def test_files_and_their_folder_are_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(Path(f"/proc/self/fd/{descriptor}").readlink()))
    write_atomic(tmp_path / "a", "")
    assert [path.name for path in synced] == [f"a.{os.getpid()}.new", tmp_path.name]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_named_with_advice_to_free_space(code: int) -> None:
    with pytest.raises(DiskError) as caught, disk_errors(Path("/a/b"), "Set KIT_X."):
        fail_with(code)()
    assert caught.value.message == f"/a/b cannot be written: {os.strerror(code)}."
    assert caught.value.remedy == "Free disk space, or set KIT_X."


@pytest.mark.parametrize("name", ["/a/b", "/a/b/c", "/elsewhere", None])
def test_a_write_error_names_its_file_and_cause(name: str | None) -> None:
    with pytest.raises(DiskError) as caught, disk_errors(Path("/a/b"), "Set KIT_X."):
        raise PermissionError(errno.EACCES, "Permission denied", name)
    assert caught.value.message == f"{name or '/a/b'} cannot be written: Permission denied."
    assert caught.value.remedy == "Set KIT_X."


def test_a_cache_deletes_the_oldest_files_of_its_kind(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    for number in range(4):
        keep(folder / f"{number}.npz", b"0123456789", 25)
        os.utime(folder / f"{number}.npz", (number, number))
        (folder / "other.txt").write_bytes(bytes(100))
    assert {path.name for path in folder.iterdir()} == {"2.npz", "3.npz", "other.txt"}
