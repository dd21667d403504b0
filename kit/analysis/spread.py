"""Compute the spread within one launch, which is no confidence interval. No input or output."""

import statistics
from collections.abc import Sequence

from kit.analysis.measured_launch import MeasuredLaunch

MIN_VALUES = 5  # the outer deciles of fewer values are extrapolated

Spread = tuple[float, float]


def middle_80_percent(values: Sequence[float]) -> Spread | None:
    """Return the first and the ninth decile, or None for fewer than MIN_VALUES values."""
    if len(values) < MIN_VALUES:
        return None
    deciles = statistics.quantiles(values, n=10, method="inclusive")
    return deciles[0], deciles[-1]


def training_spread(launch: MeasuredLaunch) -> Spread | None:
    """Return the middle 80% of the images/s of the steady windows, see `MeasuredLaunch.comparable_windows`."""
    return middle_80_percent(launch.steady_rates)


def throughput_spread(launch: MeasuredLaunch) -> Spread | None:
    """Return the middle 80% of the images/s of the windows of inference at the large batch size."""
    return middle_80_percent([w.images / w.seconds for w in launch.inference.windows])


def latency_spread(launch: MeasuredLaunch) -> Spread | None:
    """Return the middle 80% of the durations of the calls with one image, in ms."""
    return middle_80_percent(launch.inference.latency_ms)
