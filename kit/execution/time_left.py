"""Estimate the time that is left in a run, at the pace of the launches that ended."""

from collections.abc import Iterable, Sequence

from kit.model.plan import PlannedLaunch
from kit.model.record import Record
from kit.planning.estimates import Pace, planned_seconds, request_seconds
from kit.planning.profiles import find_profile
from kit.storage.run_folder import RunFolder
from scenarios.catalog import Scenarios


def whole_seconds(record: Record) -> float | None:
    """Return the seconds that a launch takes if nothing stops it, or None if it did not do all of its work.

    The time of a launch that continued a training is that of its own epochs, so those before are added. It is somewhat
    too short, because records have no times of the evaluations and files of these earlier epochs.
    """
    if not record.ok:
        return None
    seconds, training = record.seconds, record.result.training if record.result else None
    if training and training.resumed_from:
        seconds += sum(epoch.seconds for epoch in training.epochs[: training.resumed_from[-1]])
    return seconds


def pace_of(records: Iterable[Record], scenarios: Scenarios) -> Pace:
    """Return the pace of launches of one purpose. scenarios: they have all cells of records with a request."""
    pace = Pace()
    for record in records:
        if record.request and (seconds := whole_seconds(record)):
            pace.add(record.key, request_seconds(record.request, scenarios), seconds)
    return pace


def seconds_left(folders: Sequence[RunFolder], launches: Iterable[PlannedLaunch], scenarios: Scenarios) -> float:
    """Return the seconds of launches, at the pace of the records of these runs, which are measured in the same rounds.

    An interrupted launch counts as a whole one, although it may continue its training. scenarios: they have all cells.
    """
    plan = folders[0].plan
    profile = find_profile(plan.profile)
    pace = pace_of((record for folder in folders for record in folder.records()), scenarios)
    return pace.left_s((launch.key, planned_seconds(launch, profile, plan.epochs, scenarios)) for launch in launches)
