"""Settings of tuned cells between runs: what a search found is kept for runs on the same machine; what a person wants
to be measured with is pinned by a file."""

from __future__ import annotations

from pathlib import Path

from kit.model.errors import UsageError
from kit.model.plan import Pins
from kit.model.record import tuning_of
from kit.storage.run_folder import RunFolder
from kit.storage.safe_read import read_plain
from scenarios.contract.reasons import Status


def read_pins(file: Path) -> dict[str, dict[str, str]]:
    """Settings by cell from a file that `kit settings` wrote. Raises UsageError."""
    try:
        return Pins.from_json(read_plain(file), str(file)).cells
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}.", Pins.remedy) from error


def pins(folder: RunFolder) -> Pins:
    """The settings of a run's tuned cells: those that it was given and those that a search found which came to its end.
    Raises UsageError where it has none."""
    tunings = {record.key: tuning_of(record) for record in folder.tunings() if record.status is Status.OK}
    found = {key: tuning.settings for key, tuning in tunings.items() if not tuning.broken} | folder.plan.pinned
    if not found:
        if not any(launch.lane == "tuned" for launch in folder.plan.launches):
            raise UsageError(f"{folder.path} has no tuned cells.", "Make a run with --lane tuned.")
        raise UsageError(
            f"{folder.path} has no tuned cells whose search came to its end.",
            f"Continue it: {folder.resume_command} --retry-failed.",
        )
    return Pins(cells=found)
