"""Unpack archives without trusting them."""

import errno
import shutil
import stat
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

from kit.datasets.files import portable_name, sha256
from kit.model.errors import CorruptDataError, DataError
from kit.model.progress import Progress
from kit.storage.tar_members import DAMAGES, Member, Refused, TarHeader, inner_path, tar_members

MAX_BYTES = 4 << 30  # unpacked: five times the largest published set
MAX_FILES = 100_000  # with folders
REMEDY = "Unpack it yourself, check its content, and pass the folder."


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
    except Refused as error:
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
        raise Refused(f"it has more than {MAX_BYTES:,} bytes or {MAX_FILES:,} files")
    return inner_path(name)


def _members(archive: Path) -> Iterator[Member]:
    """Return the members of an archive. Try tar first, because the last member of a tar file can be a zip file."""
    try:
        opened = tarfile.open(archive, tarinfo=TarHeader)  # noqa: SIM115 - tar_members closes it
    except DAMAGES as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        if not zipfile.is_zipfile(archive):
            sha256(archive)  # zipfile hides a fault of the disk; this raises it
            raise CorruptDataError(
                f"{archive.name} is not a complete zip or tar file.", "Download it again: it may have been truncated."
            ) from error
        return _zip_members(archive)
    return tar_members(opened)


def _zip_members(archive: Path) -> Iterator[Member]:
    with zipfile.ZipFile(archive) as opened:
        for info in opened.infolist():
            if info.flag_bits & 1:
                raise Refused(f"{info.filename!r} is encrypted")
            if stat.S_ISLNK(info.external_attr >> 16):
                raise Refused(f"{info.filename!r} is a link")
            if info.filename.endswith("/"):  # ZipInfo.is_dir fails for an empty name
                yield info.filename, 0, None
                continue
            with opened.open(info) as content:
                yield info.filename, info.file_size, content
