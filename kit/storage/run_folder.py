"""Read and write the folder of a run. Files are written atomically and never overwritten.

<run>/plan.json, machine.json
<run>/index.html, summary.json                     the report, and what the list of runs says about it
<run>/run.log                                      the progress of the run: lines with their times in UTC, appended
<run>/run.lock                                     held while the run is measured (`kit.storage.run_lock`)
<run>/records/<key with __ for />__<launch>.json   one file per launch of a cell
<run>/probes/, tuning/                             the same for probes of the ceilings and searches for settings
<run>/logs/<same name>.log                         the output of each launch; of a search, <same name>__tune.log
<run>/weights/<same name>__last.safetensors        weights after the last epoch, and __best after the best one
<run>/pictures/<digest>.jpg                        examples of augmented synthetic photos
<run>/checkpoints/<same name>/                     checkpoints of a launch that did not end ok, for --resume
<run>/work/                                        scratch folders of running launches
"""

import gc
import os
import re
import shlex
import shutil
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Self, TypeVar, cast

from kit.host import machine_lock, program
from kit.host.privacy import redact
from kit.model.document import Document
from kit.model.errors import UsageError
from kit.model.machine import Machine
from kit.model.plan import Plan, PlannedLaunch
from kit.model.record import Record
from kit.model.run import Run, UnusableFile
from kit.storage.files import TEMPORARY_SUFFIX, disk_errors, require_space, write_atomic
from kit.storage.kept_files import KeptPaths, remove_checkpoints, take_checkpoints
from kit.storage.kept_pictures import read_pictures
from kit.storage.safe_read import read_plain
from scenarios.contract.reasons import Status
from scenarios.contract.request import Purpose, Request

T = TypeVar("T", bound=Document)

PLAN_FILE, MACHINE_FILE, REPORT_FILE, RUN_LOG = "plan.json", "machine.json", "index.html", "run.log"
RECORDS: dict[Purpose, str] = {"measure": "records", "probe": "probes", "tune": "tuning"}
PICTURES = "pictures"
FOLDERS = (*RECORDS.values(), "logs", "weights", PICTURES, "checkpoints", "work")
SCRATCH = "io"  # in the scratch folder of a launch: what the worker sees
MIN_FREE_BYTES = 512 << 20
SETTLED = {Status.OK, Status.SKIPPED}
UNWRITABLE = "Choose another folder with --out. Nothing was measured."


def file_stem(key: str, launch: int) -> str:
    """Return the name of a launch's files, for example `mnist-cnn__torch__cpu__stock__fp32__b64__001`."""
    return f"{key.replace('/', '__')}__{launch:03d}"


def _stem(request: Request) -> str:
    """Return the name of a launch's files. A search has the key of its cell, whose launches have files of their own."""
    stem = file_stem(request.cell.key, request.launch)
    return f"{stem}__tune" if request.purpose == "tune" else stem


def resume_command(path: Path) -> str:
    """Return the command that continues the run in this folder."""
    return f"{program.called()} run --resume {shlex.quote(str(path))}"


def parent_of(run: Path) -> Path:
    """Return the folder that contains a run. The parent of `.` is `.`, and a link may lead to another folder."""
    return Path(os.path.normpath(run.absolute())).parent


def _record_path(purpose: Purpose, key: str, launch: int) -> Path:
    """Return the path of a record within the folder of the run."""
    return Path(RECORDS[purpose], f"{file_stem(key, launch)}.json")


class RunFolder:
    """One run on disk. Only the process that holds the locks of the machine and of the run writes records into it."""

    def __init__(self, path: Path, plan: Plan, machine: Machine) -> None:
        self.path = path
        self.plan = plan
        self.machine = machine
        self.index = path / REPORT_FILE

    @classmethod
    def create(cls, path: Path, plan: Plan, machine: Machine) -> Self:
        """Start a run in a new folder.

        Raise UsageError if the folder already holds a run, and DiskError if it cannot be written.
        """
        with disk_errors(path, UNWRITABLE):
            taken = (path / PLAN_FILE).exists()
        if taken:
            raise UsageError(
                f"{path} already holds a run. Measurements are never overwritten.",
                f"Continue it with `{resume_command(path)}`, or choose another folder with --out.",
            )
        with disk_errors(path, UNWRITABLE):
            existed = path.exists()
            try:
                for name in FOLDERS:
                    (path / name).mkdir(parents=True, exist_ok=True)
                write_atomic(path / MACHINE_FILE, machine.to_json(), overwrite=False)
                write_atomic(path / PLAN_FILE, plan.to_json(), overwrite=False)  # last: now the folder is a run
            except BaseException:  # also Ctrl-C
                if not existed and not (path / PLAN_FILE).exists():
                    shutil.rmtree(path, ignore_errors=True)
                raise
        return cls(path, plan, machine)

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open a run. Raise UsageError if there is none, if it is damaged, or if it has an unknown schema."""
        return cls(path, _read_document(Plan, path, PLAN_FILE), _read_document(Machine, path, MACHINE_FILE))

    def save(self, record: Record) -> Path:
        """Write one record and return its path.

        Raise UsageError if that launch already has a record, and DiskError if the file cannot be written.
        """
        file = self.path / _record_path(record.purpose, record.key, record.launch)
        with disk_errors(self.path):
            try:
                write_atomic(file, record.to_json(), overwrite=False)
            except FileExistsError as error:
                raise UsageError(
                    f"{file} already exists. Records are never overwritten.",
                    "Another process wrote it. Let only one run use this folder.",
                ) from error
        return file

    def read(self) -> Run:
        """Read the whole run. Raise UsageError, which names the file, if one is damaged or misplaced."""
        with _no_collections():
            records = _sorted(_compact(self._record(file)) for file in _files(self.path / RECORDS["measure"]))
        pictures = self._pictures(records)
        return Run(self.plan, self.machine, records, self.records("probe"), self.records("tune"), pictures=pictures)

    def read_usable(self) -> Run:
        """Read the run, and list files of records that `read` would refuse instead of raising an error for them."""
        unusable: list[UnusableFile] = []
        records, probes, tunings = (self._usable(purpose, unusable) for purpose in RECORDS)
        return Run(self.plan, self.machine, records, probes, tunings, unusable, self._pictures(records))

    def _pictures(self, records: Iterable[Record]) -> dict[str, bytes]:
        named = [r.result.augmented for r in records if r.result and r.result.augmented]
        return read_pictures(self.path / PICTURES, named)

    def records(self, purpose: Purpose = "measure") -> list[Record]:
        """Read the records of cells, probes or searches, sorted by key and launch. Raise UsageError as `read` does."""
        with _no_collections():
            return _sorted(self._record(file) for file in _files(self.path / RECORDS[purpose]))

    def count_records(self) -> int:
        """Return the number of files that `read_usable` would read. Raise UsageError if a folder cannot be read."""
        return sum(len(_files(self.path / name)) for name in RECORDS.values())

    def _usable(self, purpose: Purpose, unusable: list[UnusableFile]) -> list[Record]:
        """Read records like `records`. Append the files that cannot be used to `unusable`."""
        records = []
        with _no_collections():
            for file in _files(self.path / RECORDS[purpose]):
                try:
                    records.append(_compact(self._record(file)))
                except UsageError as error:
                    own = file.relative_to(self.path)
                    message = error.message.replace(str(file), str(own))  # a report names no folder of this machine
                    unusable.append(UnusableFile(str(own), message, error.remedy, self._planned.get(own)))
        return _sorted(records)

    @cached_property
    def _planned(self) -> dict[Path, PlannedLaunch]:
        """Return the planned launches by the paths of their records."""
        return {_record_path("measure", launch.key, launch.launch): launch for launch in self.plan.launches}

    def _record(self, file: Path) -> Record:
        record = Record.from_json(_read(file), str(file))
        own = _record_path(record.purpose, record.key, record.launch)
        if file != self.path / own:
            raise UsageError(
                f"{file} holds the record of {record.key}, launch {record.launch}.",
                f"This launch already has a record, {own}. Move one of both away."
                if os.path.lexists(self.path / own)
                else f"Rename the file to {own}. Or move it away and run again with --resume.",
            )
        # Thousands of records with equal machines share one, which saves memory.
        return record.model_copy(update={"machine": self.machine}) if record.machine == self.machine else record

    def missing(self) -> list[PlannedLaunch]:
        """Return the planned launches that have no record yet, in order."""
        return [launch for launch in self.plan.launches if self.lacks(launch)]

    def lacks(self, launch: PlannedLaunch) -> bool:
        """Return whether a launch has no record yet."""
        return not (self.path / _record_path("measure", launch.key, launch.launch)).exists()

    def further(self) -> list[PlannedLaunch]:
        """Return the launches that have a record and follow the planned ones of their cell."""
        planned = {launch.key: launch for launch in self.plan.launches}
        return [
            planned[record.key].model_copy(update={"launch": record.launch})
            for record in self.records()
            if record.key in planned and record.launch > planned[record.key].launch
        ]

    def retries(self) -> list[PlannedLaunch]:
        """Return further launches for the cells that ended neither `ok` nor skipped.

        There are as many as a cell still lacks. Their numbers follow all planned and recorded ones.
        """
        numbers: dict[str, list[int]] = {}
        settled: Counter[str] = Counter()
        for record in self.records():
            numbers.setdefault(record.key, []).append(record.launch)
            settled[record.key] += record.status in SETTLED
        wanted = Counter(launch.key for launch in self.plan.launches)
        still_missing = Counter(launch.key for launch in self.missing())
        found = []
        for launch in {launch.key: launch for launch in self.plan.launches}.values():
            used = max([launch.launch, *numbers.get(launch.key, [])])
            lacking = wanted[launch.key] - settled[launch.key] - still_missing[launch.key]
            found += [launch.model_copy(update={"launch": used + 1 + n}) for n in range(lacking)]
        return found

    def work(self, request: Request) -> Path:
        """Return the scratch folder of a launch. It is absolute, because engines pass it to other processes."""
        return self.path.absolute() / "work" / _stem(request)

    def log(self, request: Request) -> Path:
        """Return the file that keeps the output of a launch."""
        return self.path / "logs" / f"{_stem(request)}.log"

    def kept(self, request: Request) -> KeptPaths:
        """Return where the files of a launch are kept.

        A launch continues from its own checkpoints. A retry, which the plan does not have, continues from those of a
        failed launch of its cell.
        """
        key, stem = request.cell.key, _stem(request)
        own = resumed = self._checkpoints / stem
        planned = _record_path("measure", key, request.launch) in self._planned
        if request.purpose == "measure" and not planned and not own.exists():
            numbered = re.compile(re.escape(stem[: -len(f"{request.launch:03d}")]) + r"\d{3,}")
            found = (path for path in self._checkpoints.glob("*") if numbered.fullmatch(path.name))
            # A launch without a record continues itself.
            ended = self.path / RECORDS["measure"]
            resumed = min((path for path in found if (ended / f"{path.name}.json").exists()), default=own)
        path = self.path.absolute()
        return KeptPaths(path / "weights" / stem, own, resumed, path / PICTURES)

    @property
    def _checkpoints(self) -> Path:
        return self.path.absolute() / "checkpoints"

    def append_progress(self, text: str) -> None:
        """Append lines to the log of the run. Unless the run identifies its machine, remove personal data.

        A failure is ignored, because the log only informs: a full disk stops a run when a record cannot be written.
        """
        text = text if self.plan.identify else redact(text)
        now = datetime.now(UTC).isoformat(timespec="seconds")
        # The folder may come from somebody else, so nothing is written through a link, and no pipe makes this wait.
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK
        with suppress(OSError), open(os.open(self.path / RUN_LOG, flags, 0o666), "a", encoding="utf-8") as file:
            file.writelines(f"{now} {line}\n" for line in text.splitlines())

    def clean(self) -> None:
        """Remove scratch folders and temporary files of a killed run, but keep the checkpoints of launches that are not
        ok. Create missing folders.

        Nothing is removed through a link, because the folder may come from somebody else. Raise UsageError if a folder
        is a link, and DiskError.
        """
        for name in FOLDERS:
            if (self.path / name).is_symlink():
                raise UsageError(f"{self.path / name} is a link.", "Replace the link with the folder itself.")
        with disk_errors(self.path):
            for name in FOLDERS:
                (self.path / name).mkdir(exist_ok=True)
            for place in (self.path, *(self.path / name for name in FOLDERS)):  # any other folder may be a link
                for leftover in place.glob(f"*{TEMPORARY_SUFFIX}"):
                    if leftover.is_symlink() or leftover.is_file():
                        leftover.unlink()
            for scratch in (self.path / "work").glob("*"):
                if scratch.is_dir() and not scratch.is_symlink():
                    take_checkpoints(scratch / SCRATCH, self._checkpoints / scratch.name)
                    shutil.rmtree(scratch)
                else:
                    scratch.unlink()
            if kept := [*self._checkpoints.iterdir()]:
                done = {file_stem(record.key, record.launch) for record in self.records() if record.ok}
                for place in kept:
                    if place.name in done:
                        remove_checkpoints(place)

    def require_space(self) -> None:
        """Raise DiskError if the disk has too little space for a launch and its record."""
        require_space(self.path, MIN_FREE_BYTES, "a launch", "")

    @property
    def being_measured(self) -> bool:
        """Return whether a process on this machine measures the run now. Both runs of a pair are measured under the id
        of one of them. Raise EngineError if the machine's lock cannot be used."""
        return any(machine_lock.is_alive(run) for run in (self.plan.run, self.plan.against) if run)

    @property
    def resume_command(self) -> str:
        """Return the command that continues this run."""
        return resume_command(self.path)

    @property
    def retry_command(self) -> str:
        """Return the command that continues this run and retries its failed launches."""
        return f"{self.resume_command} --retry-failed"


def _read_document(kind: type[T], path: Path, name: str) -> T:
    try:
        return kind.from_json(read_plain(path / name), str(path / name))
    except OSError as error:
        raise UsageError(
            f"{path / name} cannot be read: {error.strerror}.", "Restore the file from a copy, or start a new run."
        ) from error


def _compact(record: Record) -> Record:
    """Return the record with its single latencies in an array, which needs a quarter of the memory of a list."""
    if record.result is None or record.result.inference is None:
        return record
    latencies = cast("list[float]", array("d", record.result.inference.latency_ms))
    inference = replace(record.result.inference, latency_ms=latencies)
    return record.model_copy(update={"result": replace(record.result, inference=inference)})


def _sorted(records: Iterable[Record]) -> list[Record]:
    return sorted(records, key=lambda record: (record.key, record.launch))


def _files(folder: Path) -> list[Path]:
    """Return the record files of a folder.

    Raise UsageError if the folder cannot be read. Without its records a run would look like one that measured nothing.
    """
    try:
        return sorted((file for file in folder.iterdir() if file.suffix == ".json"), key=lambda file: file.name)
    except OSError as error:
        if isinstance(error, FileNotFoundError) and not folder.is_symlink():
            return []
        raise UsageError(f"{folder} cannot be read: {error.strerror}.", "Restore it, or make it readable.") from error


@contextmanager
def _no_collections() -> Iterator[None]:
    """Pause the garbage collector, which would walk again and again through all records read so far."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()  # records have no cycles
        if enabled:
            gc.enable()


def _read(file: Path) -> bytes:
    try:
        return read_plain(file)
    except OSError as error:
        remedy = "Restore it, or make it readable. Or move it away and run again with --resume."
        raise UsageError(f"{file} cannot be read: {error.strerror}.", remedy) from error
