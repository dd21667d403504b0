"""List the runs in a folder, each with its summary. No record is read, so many runs are listed quickly."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kit.model.errors import UsageError
from kit.model.machine import Machine
from kit.model.run_summary import RunSummary
from kit.storage.files import disk_errors, write_atomic
from kit.storage.run_folder import PLAN_FILE, REPORT_FILE, RunFolder
from kit.storage.safe_read import read_untrusted

SUMMARY_FILE = "summary.json"
MAX_SUMMARY_BYTES = 1 << 20


@dataclass(frozen=True)
class ListedRun:
    """A run in a folder of runs.

    path: its folder. error: why the run is broken, or "". Then it has no machine and no records. created_at, profile:
    of its plan. records: number of its files of records. summary: None if it is missing or not valid. has_report:
    whether its folder has a report.
    """

    path: Path
    error: str = ""
    created_at: str = ""
    profile: str = ""
    machine: Machine | None = None
    records: int = 0
    summary: RunSummary | None = None
    has_report: bool = False

    @property
    def current(self) -> bool:
        """Return whether report and summary are there, and no record was added since they were written."""
        return self.has_report and self.summary is not None and self.summary.records == self.records


def list_runs(out: Path) -> list[ListedRun]:
    """Return the runs in a folder, in the order of their names.

    Raise UsageError if `out` is no folder or is a run itself. Raise DiskError if it cannot be read.
    """
    with disk_errors(out, "Name a folder that you can read.", did="read"):
        if not out.is_dir():
            raise UsageError(f"{out} is not a folder.", "Name a folder that contains runs.")
        if (out / PLAN_FILE).exists():
            raise UsageError(f"{out} is the folder of a run.", "Name the folder that contains it.")
        return [_listed(path) for path in sorted(_runs(out))]


def save_summary(run: Path, summary: RunSummary) -> None:
    """Write the summary of a run into its folder. Raise UsageError if a folder has its name, and DiskError if it cannot
    be written."""
    target = run / SUMMARY_FILE
    with disk_errors(run):
        if target.is_dir():
            raise UsageError(f"{target} is a folder, in place of the summary of the run.", "Move it away.")
        write_atomic(target, summary.to_json())


def _runs(out: Path) -> Iterator[Path]:
    """Yield the folders of runs. A name that begins with a dot is that of a run that is being unpacked."""
    for path in out.iterdir():
        if not path.name.startswith(".") and os.path.lexists(path / PLAN_FILE):
            yield path


def _listed(path: Path) -> ListedRun:
    has_report = (path / REPORT_FILE).is_file()
    try:
        folder = RunFolder.open(path)
        records = folder.count_records()
    except UsageError as error:
        # A list that somebody gets names no folder of this machine.
        message = error.message.replace(f"{path}{os.sep}", "").replace(str(path), path.name)
        return ListedRun(path, message, has_report=has_report)
    plan = folder.plan
    return ListedRun(path, "", plan.created_at, plan.profile, folder.machine, records, _read_summary(path), has_report)


def _read_summary(run: Path) -> RunSummary | None:
    """Return the summary of a run, None if it is missing or not valid. `kit report` writes it again."""
    try:
        content = read_untrusted(run / SUMMARY_FILE, MAX_SUMMARY_BYTES)
        return None if content is None else RunSummary.from_json(content, SUMMARY_FILE)
    except (OSError, ValueError, UsageError):
        return None
