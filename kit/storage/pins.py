"""Collect, write and read pinned settings: what `kit settings` writes and `kit run --settings` reads."""

import os
from pathlib import Path

from kit.model.errors import UsageError
from kit.model.plan import Pins
from kit.model.run import Run
from kit.storage.files import disk_errors, write_atomic
from kit.storage.safe_read import read_plain
from scenarios.contract.reasons import Status


def read_pins(file: Path) -> dict[str, dict[str, str]]:
    """Read settings by cell. Raise UsageError if the file cannot be read or is not valid."""
    try:
        return Pins.from_json(read_plain(file), str(file)).cells
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}.", Pins.remedy) from error


def collect_pins(run: Run, retry_command: str) -> Pins:
    """Return the settings of a run's tuned cells: pinned, or found by a search that was complete.

    retry_command: retries the failed launches of the run. Raise UsageError if there are no settings.
    """
    tunings = {record.key: record.tuning for record in run.tunings if record.ok}
    found = {key: tuning.settings for key, tuning in tunings.items() if not tuning.broken} | run.plan.pinned
    if not found:
        if not (tuned := {launch.key for launch in run.plan.launches if launch.cell.lane == "tuned"}):
            raise UsageError(f"The run {run.plan.run} has no tuned cells.", "Make a run with --lane tuned.")
        # A run repeats no search that is ok, even if it stopped early.
        ended = tunings.keys() | {record.key for record in run.records if record.status is Status.SKIPPED}
        raise UsageError(
            f"The run {run.plan.run} has no tuned cell whose search is complete.",
            f"Continue it with `{retry_command}`." if tuned - ended else "Start a new run, which searches again.",
        )
    return Pins(cells=found)


def write_pins(target: Path, pins: Pins) -> None:
    """Write settings, atomically.

    Raise UsageError if `target` exists and is not a file of settings. Raise DiskError if it cannot be written.
    """
    remedy = "Choose another file with --out."
    if os.path.lexists(target):
        try:
            read_pins(target)
        except UsageError as error:
            raise UsageError(f"{target} exists and is not a file of settings.", remedy) from error
    with disk_errors(target, remedy):
        write_atomic(target, pins.to_json())
