"""Unpack the pack of a stranger: into one new folder, within limits, and only if it is as its manifest says.

Nothing is written before the manifest is known, and whatever is refused leaves nothing.
"""

import errno
import hashlib
import lzma
import os
import shutil
import stat
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from kit.model.errors import UsageError
from kit.model.machine import Machine
from kit.model.pack import Manifest, PackedFile
from kit.model.plan import Plan
from kit.model.progress import Progress, Task
from kit.storage.files import TEMPORARY_SUFFIX, disk_errors, require_space, sync_folder
from kit.storage.packs import MANIFEST_FILE, limits_exceeded
from kit.storage.run_folder import MACHINE_FILE, PLAN_FILE
from kit.storage.run_names import require_out_folder
from kit.storage.tar_members import DAMAGES, Member, Refused, TarHeader, inner_path, tar_members

MAX_MANIFEST_BYTES = 32 << 20  # of MAX_FILES files with the longest names
MAX_DECODER_BYTES = 128 << 20  # memory of the decompressor; the highest preset of xz needs 65 MiB
CHUNK_BYTES = 1 << 20
XZ_MAGIC = b"\xfd7zXZ\0"
COPY_AGAIN = "Copy the pack again from where it was made."
MADE_BY_KIT = "Use a pack as `kit pack` wrote it."
NAME_A_PACK = "Name a file of `kit pack`."
OTHER_FOLDER = "Name another folder with --out."


def unpack(archive: Path, out: Path, progress: Progress) -> Path:
    """Unpack a run into a new folder in `out`, which is named after the run. Return this folder.

    Raise UsageError if the pack cannot be read, is damaged or refused, or if the folder exists or cannot be one. Raise
    DiskError if the disk is full or the folder cannot be written. Then nothing is left.
    """
    require_out_folder(out)
    try:
        with _opened(archive) as members, progress.task(f"Unpack {archive.name}", None, "B") as task:
            manifest = _read_manifest(archive, next(members, None))
            target = out / manifest.run
            if os.path.lexists(target):
                raise UsageError(f"{target} exists.", OTHER_FOLDER)
            require_space(out, manifest.size, "the run", OTHER_FOLDER)
            with _new_folder(target) as folder:
                _write_files(members, manifest, folder, task)
                _check_documents(archive, manifest, folder)
            return target
    except Refused as error:
        raise UsageError(f"{archive.name} is refused: {error}.", MADE_BY_KIT) from error
    except DAMAGES as error:
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise  # a fault of the disk
        why = f"{type(error).__name__}: {error}"
        raise UsageError(f"{archive.name} is not a pack, or is damaged or truncated ({why}).", COPY_AGAIN) from error


class _XzReader:
    """The content of a file with one xz stream. Python's own reader has no limit of memory, and ignores what follows.

    Raise EOFError if the file is truncated, LZMAError if it is damaged, and DiskError if it cannot be read.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._decoder = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=MAX_DECODER_BYTES)

    def read(self, size: int) -> bytes:
        """Return at most `size` bytes, none at the end of the stream."""
        while not self._decoder.eof:
            raw = self._raw(CHUNK_BYTES) if self._decoder.needs_input else b""
            if self._decoder.needs_input and not raw:
                raise EOFError("the file ends too early")
            if content := self._decoder.decompress(raw, size):
                return content
        return b""

    def require_end(self) -> None:
        """Raise Refused if something follows the stream."""
        if self._decoder.unused_data or self._raw(1):
            raise Refused("something follows its end")

    def _raw(self, size: int) -> bytes:
        with disk_errors(Path(self._file.name), "Copy it to another disk.", did="read"):
            return self._file.read(size)


@contextmanager
def _opened(archive: Path) -> Iterator[Iterator[Member]]:
    """Open a pack. Give its members, then check that nothing follows. Raise UsageError if it cannot be opened."""
    try:
        plain = stat.S_ISREG(archive.stat().st_mode)  # a pipe might never end
        file = archive.open("rb") if plain else None
    except OSError as error:
        raise UsageError(f"{archive} cannot be read: {error.strerror}.", NAME_A_PACK) from error
    if file is None:
        raise UsageError(f"{archive} cannot be read: not a plain file.", NAME_A_PACK)
    with file:
        reader: Any = _XzReader(file)  # tarfile needs only its `read`
        yield _until_the_end(reader)


def _until_the_end(reader: Any) -> Iterator[Member]:
    with tarfile.open(fileobj=reader, mode="r|", tarinfo=TarHeader) as opened:
        yield from tar_members(opened)
    reader.require_end()


def _read_manifest(archive: Path, first: Member | None) -> Manifest:
    name, size, content = first or ("", 0, None)
    path = inner_path(name)
    if content is None or len(path.parts) != 2 or path.name != MANIFEST_FILE:
        raise Refused(f"its first file is not {MANIFEST_FILE}")
    if size > MAX_MANIFEST_BYTES:
        raise Refused(f"{MANIFEST_FILE} has more than {MAX_MANIFEST_BYTES >> 20} MiB")
    manifest = Manifest.from_json(content.read(size), f"{archive.name}: {MANIFEST_FILE}")
    if name != f"{manifest.run}/{MANIFEST_FILE}":
        raise Refused(f"its folder {path.parts[0][:100]!r} is not named after the run {manifest.run}")
    if exceeded := limits_exceeded(manifest.files):
        raise Refused(exceeded)
    return manifest


def _write_files(members: Iterator[Member], manifest: Manifest, folder: Path, task: Task) -> None:
    """Write all files to `folder`. Raise Refused unless they are exactly those of the manifest."""
    files = {f"{manifest.run}/{file.name}": file for file in manifest.files}
    left = dict(files)
    for name, size, content in members:
        inner_path(name)
        if name not in left:
            raise Refused(f"it has {name!r} twice" if name in files else f"its manifest lacks {name[:100]!r}")
        file = left.pop(name)
        if content is None or size != file.size:
            raise _altered(file)
        _write_file(content, folder / file.name, file, task)
    if left:
        raise Refused(f"{next(iter(left.values())).name} is missing")


def _write_file(content: IO[bytes], target: Path, file: PackedFile, task: Task) -> None:
    found = hashlib.sha256()
    with disk_errors(target, OTHER_FOLDER):
        target.parent.mkdir(exist_ok=True)
        with open(target, "xb") as out:
            while chunk := content.read(CHUNK_BYTES):
                if not out.tell() and chunk.startswith(XZ_MAGIC):
                    raise Refused(f"{file.name} is a pack inside the pack")
                found.update(chunk)
                out.write(chunk)
                task.advance(len(chunk))
            out.flush()
            os.fsync(out.fileno())
    if found.hexdigest() != file.sha256:
        raise _altered(file)


def _altered(file: PackedFile) -> Refused:
    return Refused(f"{file.name} is not the file that its manifest describes")


def _check_documents(archive: Path, manifest: Manifest, folder: Path) -> None:
    """Raise UsageError unless plan and machine are valid. Records that are not valid are listed by the report."""
    plan = Plan.from_json((folder / PLAN_FILE).read_bytes(), f"{archive.name}: {PLAN_FILE}")
    Machine.from_json((folder / MACHINE_FILE).read_bytes(), f"{archive.name}: {MACHINE_FILE}")
    if plan.run != manifest.run:
        raise Refused(f"its plan is that of the run {plan.run}")


@contextmanager
def _new_folder(target: Path) -> Iterator[Path]:
    """Give a new folder, and name it `target` at the end of the block, when a power cut can no longer damage its files.
    After an error, leave nothing."""
    missing = [place for place in (target.parent, *target.parent.parents) if not place.exists()]
    # It begins with a dot, so after a crash nothing takes it for a run.
    temporary = target.with_name(f".{target.name}.{os.getpid()}{TEMPORARY_SUFFIX}")
    try:
        with disk_errors(target, OTHER_FOLDER):
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(temporary, ignore_errors=True)  # of a dead process with the same number
            temporary.mkdir()
        yield temporary
        with disk_errors(target, OTHER_FOLDER):
            for folder in (*filter(Path.is_dir, temporary.iterdir()), temporary):
                sync_folder(folder)
            temporary = temporary.rename(target)  # so an error still removes it
            sync_folder(target.parent)
    except BaseException:  # also Ctrl-C
        shutil.rmtree(temporary, ignore_errors=True)
        for place in missing:
            with suppress(OSError):
                place.rmdir()
        raise
