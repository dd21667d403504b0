"""Compute means of the GPU samples of launches while they trained. No input or output."""

import statistics
from collections.abc import Iterable, Mapping, Sequence

from kit.analysis.host_samples import mean
from kit.analysis.measured_launch import MeasuredLaunch


def gpu_mean(launch: MeasuredLaunch, series: str) -> float | None:
    """Return the mean of a series, for example `use`, over the training and the GPUs of a launch.

    Return None if it was not sampled.
    """
    samples, of = launch.record.host_samples, launch.telemetry
    if samples is None:
        return None
    means = [mean(samples, f"gpu{gpu}_{series}", of.from_at, of.to_at) for gpu in sorted(launch.gpus)]
    known = [each for each in means if each is not None]
    return statistics.fmean(known) if known else None


def busy_shares(cells: Mapping[str, Sequence[MeasuredLaunch]]) -> Mapping[str, float]:
    """Return the `busy_share` of each cell, by its key. Cells without samples are left out."""
    return {key: share for key, own in cells.items() if (share := busy_share(own)) is not None}


def busy_share(launches: Iterable[MeasuredLaunch]) -> float | None:
    """Return the share of the training time for which the GPUs of a cell computed, or None if it was not sampled.

    It is the median over launches. Source: NVML's utilization, the share of the time in which at least one kernel ran.
    """
    shares = [share for launch in launches if (share := gpu_mean(launch, "use")) is not None]
    return statistics.median(shares) if shares else None
