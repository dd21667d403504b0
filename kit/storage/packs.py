"""Write a pack: one file with everything that is needed to write the report of a run elsewhere.

A pack is a tar file, compressed with xz (`kit.model.pack.Manifest`). Equal runs give equal bytes: names are sorted, and
times, owners and permissions are fixed. xz packs the records of a run, which are similar, into about half the size
of a zip file, and one checksum covers the whole pack.
"""

import hashlib
import io
import lzma
import os
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from kit import __version__
from kit.host.privacy import redact
from kit.model.errors import EngineError, UsageError
from kit.model.pack import FILE_NAME, Manifest, PackedFile
from kit.model.plan import MAX_LAUNCHES, Plan
from kit.model.progress import Progress, Task
from kit.storage.files import disk_errors, write_atomic
from kit.storage.run_folder import MACHINE_FILE, PICTURES, PLAN_FILE, RECORDS, RunFolder
from kit.storage.safe_read import MAX_PLAIN_BYTES, read_untrusted

MANIFEST_FILE = "manifest.json"
SUFFIX = ".tar.xz"
# Limits of a pack. `kit unpack` refuses larger ones, so that a hostile pack cannot fill a disk.
MAX_FILES = 5 * MAX_LAUNCHES  # the longest plan, with retries, further rounds, probes and searches
MAX_FILE_BYTES = MAX_PLAIN_BYTES  # kit reads no larger file of a run
MAX_BYTES = 4 << 30  # the records of the longest plan have about 0.5 GB
FILE_MODE = 0o644
REMEDY = "Choose another file with --out."


def write_pack(folder: RunFolder, target: Path, progress: Progress) -> None:
    """Write the pack of a run. Unless the run identifies its machine, personal data is removed from its plan.

    Raise EngineError if the run is measured now. Raise UsageError if `target` exists, if the run is larger than the
    limits, or if one of its files cannot be read or is a link. Raise DiskError if the pack cannot be written.
    """
    if os.path.lexists(target):
        raise UsageError(f"{target} exists.", REMEDY)
    _require_at_rest(folder)
    names = _names(folder.path)
    content = _make(_Files(folder), names, progress)
    _require_at_rest(folder)
    if _names(folder.path) != names:
        raise _changed(folder.path)
    with disk_errors(target, REMEDY):
        write_atomic(target, content, overwrite=False)


def limits_exceeded(files: Sequence[PackedFile]) -> str:
    """Return which limit the files of a pack exceed, as a clause, or "" if they exceed none."""
    if len(files) > MAX_FILES:
        return f"it has {len(files):,} files, more than {MAX_FILES:,}"
    if large := [file for file in files if file.size > MAX_FILE_BYTES]:
        return f"{large[0].name} has more than {MAX_FILE_BYTES >> 20} MiB"
    if sum(file.size for file in files) > MAX_BYTES:
        return f"its files have more than {MAX_BYTES >> 30} GiB"
    return ""


class _Files:
    """The content of a run's files, as it is packed."""

    def __init__(self, folder: RunFolder) -> None:
        self.plan = folder.plan
        self.path = folder.path
        self._redacted = _redacted(folder.plan)

    def read(self, name: str) -> bytes:
        """Return the content of a file. No link is followed: the folder may come from a stranger, who could make this
        user send somebody a file of his own."""
        if name == PLAN_FILE and self._redacted != self.plan:
            return self._redacted.to_json().encode()
        path = self.path / name
        try:
            content = read_untrusted(path, MAX_FILE_BYTES)
        except OSError as error:
            raise UsageError(f"{path} cannot be read: {error.strerror}.", "Make it readable.") from error
        except ValueError as error:
            raise UsageError(f"{path} cannot be packed: {error}.", "Move it away.") from error
        if content is None:
            raise _changed(self.path)
        return content


def _redacted(plan: Plan) -> Plan:
    """Return the plan without personal data: the path of an interpreter, and UUIDs of GPUs."""
    if plan.identify:
        return plan
    gpus = plan.gpus and redact(plan.gpus)
    return plan.model_copy(update={"environment": redact(plan.environment), "gpus": gpus})


def _require_at_rest(folder: RunFolder) -> None:
    if folder.being_measured:
        raise EngineError(
            f"The run {folder.plan.run} is being measured now, so it is not complete.", "Wait until it ends."
        )


def _names(run: Path) -> list[str]:
    """Return the names of the files that a pack of this run has, sorted."""
    found = [MACHINE_FILE, PLAN_FILE]
    for name in RECORDS.values():
        found += [f"{name}/{file}" for file in _listed(run / name, ".json")]
    found += [f"{PICTURES}/{file}" for file in _listed(run / PICTURES, ".jpg")]
    if unusual := [name for name in found if not FILE_NAME.fullmatch(name)]:
        raise UsageError(f"{run / unusual[0]} has a name that a pack cannot have.", "Move it away.")
    return sorted(found)


def _listed(folder: Path, suffix: str) -> Iterator[str]:
    """Yield the names of the files of a folder with a suffix."""
    if folder.is_symlink():
        raise UsageError(f"{folder} is a link.", "Replace the link with the folder itself.")
    try:
        yield from (path.name for path in folder.iterdir() if path.suffix == suffix)
    except FileNotFoundError:
        return
    except OSError as error:
        raise UsageError(f"{folder} cannot be read: {error.strerror}.", "Make it readable.") from error


def _make(files: _Files, names: Sequence[str], progress: Progress) -> bytes:
    """Return the content of the pack. The files are read twice, because the manifest is the first one."""
    packed, run = [], files.plan.run
    for name in names:
        content = files.read(name)
        packed.append(PackedFile(name=name, size=len(content), sha256=hashlib.sha256(content).hexdigest()))
    if exceeded := limits_exceeded(packed):
        raise UsageError(f"The run {run} cannot be packed: {exceeded}.", "Pack a run with fewer launches.")
    manifest = Manifest(run=run, kit=__version__, files=packed)
    buffer = io.BytesIO()
    with (
        progress.task(f"Pack {run}", manifest.size, "B") as task,
        lzma.open(buffer, "wb", format=lzma.FORMAT_XZ, check=lzma.CHECK_CRC64) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        _add(archive, f"{run}/{MANIFEST_FILE}", manifest.to_json().encode())
        for file in packed:
            _add_file(archive, files, file, task)
    return buffer.getvalue()


def _add_file(archive: tarfile.TarFile, files: _Files, file: PackedFile, task: Task) -> None:
    content = files.read(file.name)
    if hashlib.sha256(content).hexdigest() != file.sha256:
        raise _changed(files.path)
    _add(archive, f"{files.plan.run}/{file.name}", content)
    task.advance(file.size)


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    """Add a file. The defaults of TarInfo are fixed: no owner, and the time 0."""
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(content), FILE_MODE
    archive.addfile(info, io.BytesIO(content))


def _changed(run: Path) -> UsageError:
    return UsageError(f"{run} changed while it was packed.", "Pack it again when nothing changes it.")
