"""Read the members of a tar file of a stranger, one after the other."""

import lzma
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import IO

MAX_LEVELS = 30  # of folders
MAX_HEADER_BYTES = 1 << 20  # of an extended tar header, which holds a long name or attributes
MAX_PADDING_BYTES = 1 << 24  # zeros after the end of a tar file

Member = tuple[str, int, IO[bytes] | None]  # name, size in bytes, content (None for a folder)
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


class Refused(Exception):
    """The archive has a member that no honest archive has. The message is a clause without a period."""


class TarHeader(tarfile.TarInfo):
    """A header that cannot fill the memory: tarfile reads extended headers and maps of sparse files of any size."""

    def _proc_member(self, opened: tarfile.TarFile) -> tarfile.TarInfo | None:
        """Check the header. tarfile's source names this method as the one for subclasses to override."""
        if self.type in EXTENDED_HEADERS and not 0 <= self.size <= MAX_HEADER_BYTES:
            raise tarfile.ReadError(f"a header states a size of {self.size:,} bytes")
        if self.type == tarfile.GNUTYPE_SPARSE:
            raise tarfile.ReadError("it has a sparse file")
        return super()._proc_member(opened)  # type: ignore[misc, no-any-return]


def tar_members(opened: tarfile.TarFile) -> Iterator[Member]:
    """Yield the members of a tar file that was opened with TarHeader, and close it at the end.

    Read a member before the next one is asked for. Raise Refused for a link or a device, one of DAMAGES if the file is
    damaged, and OSError if it cannot be read.
    """
    with opened:
        for info in opened:
            content = opened.extractfile(info) if info.isreg() else None
            if content is None and not info.isdir():
                raise Refused(f"{info.name[:100]!r} is a link or a device")
            yield info.name, info.size if content else 0, content
        # tarfile mistakes a damaged header for the end. Only zeros follow the true end. Reading to the last byte also
        # makes gzip and xz check their checksums.
        assert opened.fileobj is not None
        padding = 0
        while block := opened.fileobj.read(1 << 20):
            padding += len(block)
            if block.count(0) < len(block) or padding > MAX_PADDING_BYTES:
                raise tarfile.ReadError("a header is not readable")


def inner_path(name: str) -> PurePosixPath:
    """Return the name of a member as a path within a folder. Raise Refused if it leads out of the folder, or if it has
    more than MAX_LEVELS folders."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name:
        raise Refused(f"the name {name[:100]!r} leads out of the folder")
    if len(path.parts) > MAX_LEVELS:
        raise Refused(f"the name {name[:100]!r}... has more than {MAX_LEVELS} levels of folders")
    return path
