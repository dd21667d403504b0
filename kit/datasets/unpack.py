"""Unpack archives without trusting them."""

import errno
import lzma
import shutil
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import IO

from kit.datasets.files import portable_name, sha256
from kit.model.errors import CorruptDataError, DataError
from kit.model.progress import Progress

MAX_BYTES = 4 << 30  # unpacked: five times the largest published set
MAX_FILES = 100_000  # with folders
MAX_LEVELS = 30  # of folders
MAX_HEADER_BYTES = 1 << 20  # of an extended tar header, which holds a long name or attributes
MAX_PADDING_BYTES = 1 << 24  # zeros after the end of a tar file

Member = tuple[str, int, IO[bytes] | None]  # name, size in bytes, content (None for a folder)
REMEDY = "Unpack it yourself, check its content, and pass the folder."
EXTENDED_HEADERS = (
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)
# What tarfile, zipfile and the decompressors raise for damaged archives. They do not check each number that they read.
DAMAGES = (
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    EOFError,
    ValueError,
    LookupError,
    OverflowError,
    RecursionError,
    OSError,
)


class _Refused(Exception):
    """The archive has a member that no honest archive of images has."""


class _TarHeader(tarfile.TarInfo):
    """A header that cannot fill the memory: tarfile reads extended headers and maps of sparse files of any size."""

    def _proc_member(self, opened: tarfile.TarFile) -> tarfile.TarInfo | None:
        """Check the header. tarfile's source names this method as the one for subclasses to override."""
        if self.type in EXTENDED_HEADERS and not 0 <= self.size <= MAX_HEADER_BYTES:
            raise tarfile.ReadError(f"a header states a size of {self.size:,} bytes")
        if self.type == tarfile.GNUTYPE_SPARSE:
            raise tarfile.ReadError("it has a sparse file")
        return super()._proc_member(opened)  # type: ignore[misc, no-any-return]


def unpack(archive: Path, folder: Path, wanted: Callable[[PurePosixPath, int], bool], progress: Progress) -> None:
    """Unpack those members of a zip or tar file into `folder` for which `wanted(name, bytes)` is true.

    Their names become portable (see `portable_name`). Raise DataError if the archive is damaged or encrypted, if it has
    a link, a device, an absolute name or a name with "..", or if all its members, wanted or not, exceed MAX_BYTES or
    MAX_FILES. Raise OSError if the archive cannot be read or a member cannot be written.
    """
    try:
        with progress.task(f"Unpack {archive.name}", None, "B") as task:
            total = 0
            for count, (name, size, content) in enumerate(_members(archive), 1):
                total += size
                path = _check(name, size, count, total)
                if content is None or not wanted(path, size):
                    continue
                target = folder.joinpath(*map(portable_name, path.parts))
                target.parent.mkdir(parents=True, exist_ok=True)
                with open(target, "xb") as out:
                    shutil.copyfileobj(content, out)
                task.advance(size)
    except _Refused as error:
        raise DataError(f"{archive.name} is rejected: {error}.", REMEDY) from error
    except (FileExistsError, NotADirectoryError) as error:
        raise DataError(f"{archive.name} is rejected: it has two members of the same name.", REMEDY) from error
    except NotImplementedError as error:  # zipfile does not know the compression method or version
        raise DataError(f"{archive.name} uses an unsupported compression ({error}).", REMEDY) from error
    except DAMAGES as error:
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise  # a fault of the disk. EINVAL: an archive with a negative offset
        raise CorruptDataError(
            f"{archive.name} is damaged or truncated ({type(error).__name__}: {error}).", "Download the archive again."
        ) from error


def _check(name: str, size: int, count: int, total: int) -> PurePosixPath:
    if size < 0 or total > MAX_BYTES or count > MAX_FILES:
        raise _Refused(f"it has more than {MAX_BYTES:,} bytes or {MAX_FILES:,} files")
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name:
        raise _Refused(f"the name {name[:100]!r} leads out of the folder")
    if len(path.parts) > MAX_LEVELS:
        raise _Refused(f"the name {name[:100]!r}... has more than {MAX_LEVELS} levels of folders")
    return path


def _members(archive: Path) -> Iterator[Member]:
    """Return the members of an archive. Try tar first, because the last member of a tar file can be a zip file."""
    try:
        opened = tarfile.open(archive, tarinfo=_TarHeader)  # noqa: SIM115 - _tar_members closes it
    except DAMAGES as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        if not zipfile.is_zipfile(archive):
            sha256(archive)  # zipfile hides a fault of the disk; this raises it
            raise CorruptDataError(
                f"{archive.name} is not a complete zip or tar file.", "Download it again: it may have been truncated."
            ) from error
        return _zip_members(archive)
    return _tar_members(opened)


def _zip_members(archive: Path) -> Iterator[Member]:
    with zipfile.ZipFile(archive) as opened:
        for info in opened.infolist():
            if info.flag_bits & 1:
                raise _Refused(f"{info.filename!r} is encrypted")
            if stat.S_ISLNK(info.external_attr >> 16):
                raise _Refused(f"{info.filename!r} is a link")
            if info.filename.endswith("/"):  # ZipInfo.is_dir fails for an empty name
                yield info.filename, 0, None
                continue
            with opened.open(info) as content:
                yield info.filename, info.file_size, content


def _tar_members(opened: tarfile.TarFile) -> Iterator[Member]:
    with opened:
        for info in opened:
            content = opened.extractfile(info) if info.isreg() else None
            if content is None and not info.isdir():
                raise _Refused(f"{info.name!r} is a link or a device")
            yield info.name, info.size if content else 0, content
        # tarfile mistakes a damaged header for the end. Only zeros follow the true end. Reading to the last byte also
        # makes gzip and xz check their checksums.
        assert opened.fileobj is not None
        padding = 0
        while block := opened.fileobj.read(1 << 20):
            padding += len(block)
            if block.count(0) < len(block) or padding > MAX_PADDING_BYTES:
                raise tarfile.ReadError("a header is not readable")
