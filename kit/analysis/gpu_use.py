"""Compute how busy the GPUs were while cells trained. No input or output."""

import statistics
from collections.abc import Mapping, Sequence

from kit.analysis.host_samples import mean
from kit.analysis.measured_launch import MeasuredLaunch


def busy_shares(launches: Sequence[MeasuredLaunch]) -> Mapping[str, float]:
    """Return the mean share of the training time for which a GPU computed, by key of the cell.

    It is the mean over the GPUs of a launch, and the median over launches. Cells without samples are left out. Source:
    NVML's utilization, the share of the time in which at least one kernel ran.
    """
    found: dict[str, list[float]] = {}
    for launch in launches:
        samples, of = launch.record.host_samples, launch.telemetry
        if samples is None:
            continue
        shares = [mean(samples, f"gpu{gpu}_use", of.from_at, of.to_at) for gpu in sorted(launch.gpus)]
        if known := [share for share in shares if share is not None]:
            found.setdefault(launch.record.key, []).append(statistics.fmean(known))
    return {key: statistics.median(values) for key, values in found.items()}
