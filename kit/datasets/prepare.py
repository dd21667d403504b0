"""Turn published archives, or the user's own files, into the files that workers read. Identify them by content only."""

import gzip
import hashlib
import shutil
import zlib
from functools import partial
from pathlib import Path, PurePosixPath

from kit.datasets.files import sha256
from kit.datasets.photos import is_photo, prepare_photos
from kit.datasets.registry import CIFAR_FILE_BYTES, CIFAR_FILES, SOURCES
from kit.datasets.unpack import unpack
from kit.model.errors import DataError
from kit.model.progress import Progress
from kit.storage.files import files_below

GZIP_MAGIC = b"\x1f\x8b"
MAX_IDX_BYTES = 64_000_000  # the largest file has 47,040,016
IDX_SETS = ("mnist", "fashion-mnist")


def prepare(name: str, path: Path, folder: Path, work: Path, progress: Progress) -> None:
    """Fill `folder` with the data set `name` from `path`, which is a folder or an archive (unpacked below `work`).

    Raise DataError if `path` is damaged or does not hold this data set.
    """
    root = path
    if path.is_file():
        root = work / "unpacked" / path.name
        root.mkdir(parents=True)
        unpack(path, root, partial(_wanted, name), progress)
    if name == "cats-dogs":
        prepare_photos(root, folder, root != path, progress)
    elif name == "cifar-10":
        _prepare_cifar(root, folder)
    else:
        _prepare_idx(name, root, folder)


def _wanted(name: str, path: PurePosixPath, size: int) -> bool:
    """Return whether a member of an archive is worth unpacking."""
    if name == "cats-dogs":
        return is_photo(path.name)
    return size == CIFAR_FILE_BYTES if name == "cifar-10" else size <= MAX_IDX_BYTES


def _prepare_cifar(root: Path, folder: Path) -> None:
    published = {digest: name for name, digest in CIFAR_FILES.items()}
    found: dict[str, Path] = {}
    for path in files_below(root):
        if path.stat().st_size == CIFAR_FILE_BYTES and (name := published.get(sha256(path))):
            found[name] = path
    if missing := sorted(set(CIFAR_FILES) - set(found)):
        pickled = any(path.name == "data_batch_1" for path in files_below(root))
        raise DataError(
            f"{root.name} is not the published CIFAR-10: no file has the content of {', '.join(missing)}.",
            "This is the Python version. Loading its pickles is not safe, so get the binary version."
            if pickled
            else "Give the binary version: the folder cifar-10-batches-bin, or cifar-10-binary.tar.gz.",
        )
    for name, path in found.items():
        shutil.copyfile(path, folder / name)


def _prepare_idx(name: str, root: Path, folder: Path) -> None:
    published = {
        digest: (s, f.name) for s in IDX_SETS for f in SOURCES[s] for digest in (f.sha256, f.content) if digest
    }
    found: dict[str, Path] = {}
    others: set[str] = set()
    damaged: list[str] = []
    unreadable: OSError | None = None  # it does not matter if it is another file
    for path in files_below(root):
        if path.stat().st_size > MAX_IDX_BYTES:
            continue
        try:
            known = published.get(sha256(path)) or published.get(_content_digest(path))
        except (OSError, EOFError, zlib.error) as error:
            if isinstance(error, OSError) and error.errno is not None:
                unreadable = error
            damaged.append(f"{path.name} is damaged or truncated ({error})")
            continue
        if known and known[0] == name:
            found[known[1]] = path
        elif known:
            others.add(known[0])
    if missing := [file.name for file in SOURCES[name] if file.name not in found]:
        if unreadable:
            raise unreadable
        hints = damaged + [f"it has files of {other} instead" for other in sorted(others)]
        raise DataError(
            f"{root.name} is not the published {name}: no file has the content of {', '.join(missing)}"
            + "".join(f"; {hint}" for hint in hints)
            + ".",
            "Give the four published IDX files (.gz, or unpacked for MNIST).",
        )
    for target, path in found.items():
        if _is_gzip(path):
            shutil.copyfile(path, folder / target)
        else:
            (folder / target).write_bytes(gzip.compress(path.read_bytes(), compresslevel=1, mtime=0))


def _content_digest(path: Path) -> str:
    """Return the SHA-256 of the unpacked gzip file, or of the file itself. Unpack at most MAX_IDX_BYTES."""
    if not _is_gzip(path):
        return sha256(path)
    with gzip.open(path) as file:
        return hashlib.sha256(file.read(MAX_IDX_BYTES)).hexdigest()


def _is_gzip(path: Path) -> bool:
    with open(path, "rb") as file:
        return file.read(2) == GZIP_MAGIC
