"""The folder of a run: plan, machine, one file a record, logs, scratch. Written atomically, never overwritten.

<run>/plan.json  machine.json  records/<key with / as __>__<launch>.json  logs/<same>.log  work/  index.html
      probes/<like records>.json  tuning/<like records>.json
"""

from __future__ import annotations

import errno
import os
import shlex
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kit.host import program
from kit.model.cell import Cell
from kit.model.errors import DiskError, UsageError
from kit.model.machine import Machine
from kit.model.plan import Plan, PlannedLaunch
from kit.model.record import Record
from kit.model.units import format_bytes
from kit.storage.safe_read import read_plain
from scenarios.contract.reasons import Status
from scenarios.contract.request import Request

PLAN_FILE, MACHINE_FILE = "plan.json", "machine.json"
TEMPORARY_SUFFIX = ".new"
RECORDS = {"measure": "records", "probe": "probes", "tune": "tuning"}  # by purpose
FOLDERS = (*RECORDS.values(), "logs", "work")
MIN_FREE_BYTES = 512 << 20
SETTLED = {Status.OK, Status.SKIPPED}
# What file systems without hard links (exFAT, some network and shared folders) answer to os.link.
FULL = {errno.ENOSPC, errno.EDQUOT}
NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}


def file_stem(key: str, launch: int) -> str:
    """`mnist-cnn__torch__cpu__stock__fp32__b64__001`: the name of a launch's files."""
    return f"{key.replace('/', '__')}__{launch:03d}"


def _resume(path: Path) -> str:
    return f"{program.called()} run --resume {shlex.quote(str(path))}"


def _place(record: Record) -> Path:
    """The record's file within the run's folder."""
    return Path(RECORDS[record.request.purpose], f"{file_stem(record.key, record.launch)}.json")


class RunFolder:
    """One run on disk. Only the process that holds the machine's lock writes records into it."""

    def __init__(self, path: Path, plan: Plan, machine: Machine) -> None:
        self.path = path
        self.plan = plan
        self.machine = machine
        self.index = path / "index.html"

    @classmethod
    def create(cls, path: Path, plan: Plan, machine: Machine) -> RunFolder:
        """Start a run in a new folder. Raises UsageError where it holds a run already, DiskError where it cannot be
        written."""
        with writing(path):
            taken = (path / PLAN_FILE).exists()
        if taken:
            raise UsageError(
                f"{path} holds a run already; nothing measured is ever overwritten.",
                f"Continue it with `{_resume(path)}`, or choose another folder with --out.",
            )
        with writing(path):
            for name in FOLDERS:
                (path / name).mkdir(parents=True, exist_ok=True)
            _write_new(path / MACHINE_FILE, machine.to_json())
            _write_new(path / PLAN_FILE, plan.to_json())  # last: with it the folder is a run
        return cls(path, plan, machine)

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """Read a run. Raises UsageError where there is none, where it is damaged, or from a newer kit."""
        documents = []
        for kind, name in ((Plan, PLAN_FILE), (Machine, MACHINE_FILE)):
            try:
                documents.append(kind.from_json(read_plain(path / name), str(path / name)))
            except OSError as error:
                raise UsageError(
                    f"{path} is not the folder of a run: {name} cannot be read ({error.strerror}).",
                    "Name a folder that `kit run` wrote, such as one below reports/.",
                ) from error
        plan, machine = documents
        assert isinstance(plan, Plan)
        assert isinstance(machine, Machine)
        return cls(path, plan, machine)

    def save(self, record: Record) -> Path:
        """Write one record so that whoever sees the file sees all of it. Raises UsageError where that launch has a
        record already, DiskError where the disk is full."""
        file = self.path / _place(record)
        with writing(self.path):
            try:
                _write_new(file, record.to_json())
            except FileExistsError as error:
                raise UsageError(
                    f"{file} exists already; records are never overwritten.",
                    "Another process wrote it: let only one run use this folder.",
                ) from error
        return file

    def records(self) -> list[Record]:
        """All records of cells, sorted by key and launch. Raises UsageError naming a file that is damaged or
        misplaced."""
        return self._read_all("records")

    def probes(self) -> list[Record]:
        """All records of probes, sorted by key. Raises as `records`."""
        return self._read_all("probes")

    def tunings(self) -> list[Record]:
        """All records of searches for settings, sorted by key. Raises as `records`."""
        return self._read_all("tuning")

    def _read_all(self, folder: str) -> list[Record]:
        records = []
        for file in _files(self.path / folder):
            record = Record.from_json(_read(file), str(file))
            if file != self.path / (place := _place(record)):
                raise UsageError(
                    f"{file} holds the record of {record.key}, launch {record.launch}.",
                    f"Give the file its name back ({place}), or move it away and run again with --resume.",
                )
            if record.request.purpose != "probe" and (asked := Cell.of(record.request).key) != record.key:
                raise UsageError(
                    f"{file} holds the record of {record.key}, but the request of {asked:.200}.",
                    "Restore the file, or move it away and run again with --resume.",
                )
            records.append(record)
        return sorted(records, key=lambda r: (r.key, r.launch))

    def missing(self) -> list[PlannedLaunch]:
        """The planned launches that have no record yet, in order."""
        return [launch for launch in self.plan.launches if not self._record_file(launch.key, launch.launch).exists()]

    def retries(self) -> list[PlannedLaunch]:
        """Further launches for the cells that ended neither `ok` nor skipped: as many as a cell still lacks, numbered
        after all that it was planned to have or has."""
        numbers: dict[str, list[int]] = {}
        settled: Counter[str] = Counter()
        for record in self.records():
            numbers.setdefault(record.key, []).append(record.launch)
            settled[record.key] += record.status in SETTLED
        wanted = Counter(launch.key for launch in self.plan.launches)
        still_missing = Counter(launch.key for launch in self.missing())
        further = []
        for launch in {launch.key: launch for launch in self.plan.launches}.values():
            used = max([launch.launch, *numbers.get(launch.key, [])])  # the cell's last planned launch, or its last
            lacking = wanted[launch.key] - settled[launch.key] - still_missing[launch.key]
            further += [launch.model_copy(update={"launch": used + 1 + n}) for n in range(lacking)]
        return further

    def work(self, request: Request) -> Path:
        """The scratch folder of a launch, absolute, because engines hand it to other processes; not made here."""
        return self.path.absolute() / "work" / file_stem(request.key, request.launch)

    def log(self, request: Request) -> Path:
        """The file that keeps what the launch's process printed."""
        return self.path / "logs" / f"{file_stem(request.key, request.launch)}.log"

    def clean(self) -> None:
        """Remove what a killed run left half made, scratch folders and files not yet renamed, and make the folders
        that are missing. Nothing is removed through a link: a run's folder may come from somebody else. Raises
        UsageError (a link in the place of a folder), DiskError."""
        for name in FOLDERS:
            if (self.path / name).is_symlink():
                raise UsageError(f"{self.path / name} is a link.", "Put the folder itself there, as `kit run` made it.")
        with writing(self.path):
            for name in FOLDERS:
                (self.path / name).mkdir(exist_ok=True)
            for leftover in self.path.glob(f"*/*{TEMPORARY_SUFFIX}"):
                leftover.unlink()
            for scratch in (self.path / "work").glob("*"):
                if scratch.is_dir() and not scratch.is_symlink():
                    shutil.rmtree(scratch)
                else:
                    scratch.unlink()

    def require_space(self) -> None:
        """Raise DiskError where too little is left for a launch and its record."""
        free = shutil.disk_usage(self.path).free
        if free < MIN_FREE_BYTES:
            raise DiskError(
                f"Only {format_bytes(free)} are left on the disk of {self.path}; what was measured is kept.",
                f"Free some space, then continue with `{self.resume_command}`.",
            )

    @property
    def resume_command(self) -> str:
        """What continues this run."""
        return _resume(self.path)

    def _record_file(self, key: str, launch: int) -> Path:
        return self.path / "records" / f"{file_stem(key, launch)}.json"


def _files(folder: Path) -> list[Path]:
    """Its records; none where it is not there, as in runs of an older kit. Raises UsageError where it is closed to us:
    without its records a run would look like one that measured nothing."""
    try:
        return sorted(file for file in folder.iterdir() if file.suffix == ".json")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise UsageError(f"{folder} cannot be read: {error.strerror}.", "Make it readable.") from error


def _read(file: Path) -> bytes:
    try:
        return read_plain(file)
    except OSError as error:
        remedy = "Make it readable, or move it away and run again with --resume."
        raise UsageError(f"{file} cannot be read: {error.strerror}.", remedy) from error


def _write_new(file: Path, text: str) -> None:
    """Write a file that is not there yet: complete under another name, then linked, which fails where it exists."""
    temporary = file.with_name(f"{file.name}.{os.getpid()}{TEMPORARY_SUFFIX}")
    try:
        with open(temporary, "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        _link(temporary, file)
    finally:
        temporary.unlink(missing_ok=True)
    folder = os.open(file.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # the name, too, must survive a power cut
    finally:
        os.close(folder)


def _link(temporary: Path, file: Path) -> None:
    try:
        os.link(temporary, file)
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        if file.exists():  # not atomic with the next line, but only one process writes here
            raise FileExistsError(errno.EEXIST, "exists already", str(file)) from error
        temporary.rename(file)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn what goes wrong while writing into a DiskError that names the file, or `path`."""
    try:
        yield
    except OSError as error:
        free = "Free disk space or choose" if error.errno in FULL else "Choose"
        remedy = f"{free} another place with --out; what was measured is kept."
        raise DiskError(f"{error.filename or path} cannot be written: {error.strerror}.", remedy) from error
