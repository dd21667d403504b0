"""Estimate the time that is left in a run, at the pace of the launches that ended."""

from kit.model.record import Record
from kit.planning.estimates import Pace, planned_seconds
from kit.planning.profiles import find_profile
from kit.storage.run_folder import RunFolder
from scenarios.catalog import Scenarios


def whole_seconds(record: Record) -> float | None:
    """Return the seconds that a launch takes if nothing stops it, or None if it did not do all of its work.

    The time of a launch that continued a training is that of its own epochs, so those before are added.
    """
    if not record.ok:
        return None
    seconds, training = record.seconds, record.result.training if record.result else None
    if training and training.resumed_from:
        seconds += sum(epoch.seconds for epoch in training.epochs[: training.resumed_from[-1]])
    return seconds


def seconds_left(folder: RunFolder, scenarios: Scenarios) -> float:
    """Return the seconds of the planned launches that have no record. scenarios: they have all planned cells.

    An interrupted launch counts as a whole one, although it may continue its training.
    """
    plan, pace = folder.plan, Pace()
    profile = find_profile(plan.profile)
    typical_s = {
        (launch.key, launch.launch): planned_seconds(launch, profile, plan.epochs, scenarios)
        for launch in plan.launches
    }
    for record in folder.records():
        usual_s, seconds = typical_s.get((record.key, record.launch)), whole_seconds(record)
        if usual_s and seconds:
            pace.add(record.key, usual_s, seconds)
    return pace.left_s((launch.key, typical_s[launch.key, launch.launch]) for launch in folder.missing())
