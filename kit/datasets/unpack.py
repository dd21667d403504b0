"""Unpack archives without trusting them."""

import errno
import lzma
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import IO

from kit.model.errors import CorruptDataError, DataError
from kit.model.progress import Progress

MAX_BYTES = 4 << 30  # unpacked: five times the largest published set
MAX_FILES = 100_000

Member = tuple[str, int, IO[bytes]]  # name, size in bytes, content
REMEDY = "Unpack it yourself, check its content, and pass the folder."


class _Refused(Exception):
    """The archive has a member that no honest archive of images has."""


def unpack(archive: Path, folder: Path, wanted: Callable[[PurePosixPath, int], bool], progress: Progress) -> None:
    """Unpack those members of a zip or tar file into `folder` for which `wanted(name, bytes)` is true.

    Raise DataError if the archive is damaged or encrypted, if it has a link, a device, an absolute name or a name with
    "..", or if all its members, wanted or not, exceed MAX_BYTES or MAX_FILES.
    """
    if zipfile.is_zipfile(archive):
        members = _zip_members(archive)
    elif _is_tar(archive):
        members = _tar_members(archive)
    else:
        raise CorruptDataError(
            f"{archive.name} is not a complete zip or tar file.", "Download it again: it may have been truncated."
        )
    try:
        with progress.task(f"Unpack {archive.name}", None, "B") as task:
            total = 0
            for count, (name, size, content) in enumerate(members, 1):
                total += size
                path = _check(name, count, total)
                if not wanted(path, size):
                    continue
                target = folder / path
                target.parent.mkdir(parents=True, exist_ok=True)
                with open(target, "xb") as out:
                    shutil.copyfileobj(content, out)
                task.advance(size)
    except _Refused as error:
        raise DataError(f"{archive.name} is rejected: {error}.", REMEDY) from error
    except FileExistsError as error:
        raise DataError(f"{archive.name} is rejected: it has two files of the same name.", REMEDY) from error
    except NotImplementedError as error:  # zipfile does not know the compression method or version
        raise DataError(f"{archive.name} uses an unsupported compression ({error}).", REMEDY) from error
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError) as error:
        if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
            raise DataError(f"{archive.name} is rejected: it has a name that is too long.", REMEDY) from error
        if isinstance(error, OSError) and error.errno is not None:
            raise  # a fault of the disk, not of the archive
        raise CorruptDataError(
            f"{archive.name} is damaged or truncated ({type(error).__name__}: {error}).", "Download the archive again."
        ) from error


def _check(name: str, count: int, total: int) -> PurePosixPath:
    if total > MAX_BYTES or count > MAX_FILES:
        raise _Refused(f"it has more than {MAX_BYTES:,} bytes or {MAX_FILES:,} files")
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name:
        raise _Refused(f"the name {name!r} leads out of the folder")
    return path


def _is_tar(archive: Path) -> bool:
    try:
        return tarfile.is_tarfile(archive)
    except (EOFError, zlib.error, lzma.LZMAError):
        return False


def _zip_members(archive: Path) -> Iterator[Member]:
    with zipfile.ZipFile(archive) as opened:
        for info in opened.infolist():
            if info.flag_bits & 1:
                raise _Refused(f"{info.filename!r} is encrypted")
            if stat.S_ISLNK(info.external_attr >> 16):
                raise _Refused(f"{info.filename!r} is a link")
            if not info.is_dir():
                with opened.open(info) as content:
                    yield info.filename, info.file_size, content


def _tar_members(archive: Path) -> Iterator[Member]:
    with tarfile.open(archive) as opened:
        for info in opened:
            if info.isdir():
                continue
            content = opened.extractfile(info) if info.isreg() else None
            if content is None:
                raise _Refused(f"{info.name!r} is a link or a device")
            yield info.name, info.size, content
        # tarfile mistakes a damaged header for the end. Only zeros follow the true end. Reading to the last byte also
        # makes gzip and xz check their checksums.
        while block := opened.fileobj.read(1 << 20):
            if any(block):
                raise tarfile.ReadError("a header is not readable")
