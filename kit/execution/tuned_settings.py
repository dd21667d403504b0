"""Keep the settings of a run's tuned cells: pinned by a file, found by an earlier run, or searched in this run."""

from collections import Counter
from collections.abc import Mapping, Sequence

from kit.execution.launch_requests import tuning
from kit.execution.resolve import ResolvedLaunch
from kit.model.environment import Environment
from kit.model.formatting import format_duration
from kit.model.progress import Progress
from kit.model.record import Record
from kit.storage.run_folder import RunFolder
from kit.storage.tuning_cache import TuningCache
from scenarios.contract.cell import Cell
from scenarios.contract.reasons import Reason
from scenarios.contract.request import Request
from scenarios.contract.result import Tuning


class TunedSettings:
    """The settings of each tuned cell, or the reason why its search failed."""

    def __init__(self, folder: RunFolder, cache: TuningCache, progress: Progress) -> None:
        """Start with the settings that the plan pins and those that this run found before it was interrupted."""
        self._folder, self._cache, self._progress = folder, cache, progress
        records = folder.records("tune")
        self._tries = Counter(record.key for record in records)
        self._found: dict[str, dict[str, str] | Reason] = {}
        self._found |= {record.key: record.tuning.settings for record in records if record.ok}
        self._found |= folder.plan.pinned

    def of(self, cell: Cell) -> Mapping[str, str] | Reason:
        """Return the settings of a cell whose search is done, or why it failed. The stock lane has no settings."""
        return self._found.get(cell.key, {})

    def missing(self, launches: Sequence[ResolvedLaunch]) -> list[ResolvedLaunch]:
        """Return one launch for each tuned cell that still needs a search."""
        tuned = {launch.planned.key: launch for launch in launches if launch.planned.cell.lane == "tuned"}
        return [launch for key, launch in tuned.items() if key not in self._found]

    def look_up(self, measured: Request, environment: Environment) -> Request | None:
        """Return the request to search for a cell's settings, or None if an earlier run on this machine found them.

        measured: the request to measure the cell. A search that failed before is not looked up again.
        """
        self._tries[measured.cell.key] += 1
        number = self._tries[measured.cell.key]
        request = tuning(self._folder.plan, measured, number)
        known = self._cache.find(request, environment) if number == 1 else None
        if known is None:
            return request
        self._folder.save(known)
        self._found[known.key] = known.tuning.settings
        self._progress.log(f"{known.key}: found by an earlier run ({known.started_at}): {describe(known.tuning)}")
        return None

    def take(self, record: Record, environment: Environment) -> None:
        """Take the settings from the record of a search, and keep them for later runs.

        A search that failed takes its cell with it. --resume --retry-failed tries it again.
        """
        if record.reason is not None:
            self._found[record.key] = record.reason
            return
        self._found[record.key] = record.tuning.settings
        if record.tuning.broken:
            return
        try:
            self._cache.keep(record, environment)
        except OSError as error:
            self._progress.log(f"{record.key}: the settings could not be kept for later runs: {error}")


def describe(tuning: Tuning) -> str:
    """Return in a few words what a search found."""
    if tuning.broken:
        return f"stock settings. The next run searches again, because this search stopped early: {tuning.broken}"
    if tuning.settings:
        return ", ".join(f"{name} {value}" for name, value in tuning.settings.items())
    if not tuning.untried:
        return "nothing is significantly faster than stock"
    limit = f" of {format_duration(tuning.allowed_s)}" if tuning.allowed_s else ""
    return (
        f"nothing is significantly faster than stock. In the search{limit} there was no time for {tuning.untried} "
        "values; a longer --tune tries them"
    )
