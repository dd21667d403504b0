"""Compute energy and means from the host samples of a launch over a period of time. No input or output."""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from operator import mul
from typing import cast

import numpy as np
import numpy.typing as npt

from kit.model.record import HostSamples, Record

Times = npt.NDArray[np.float64]
ENERGY_SERIES = re.compile(r"(cpu|gpu\d+)_(?:energy_j|power_w)")


def energy_j(samples: HostSamples, name: str, spans: Sequence[tuple[float, float]]) -> float | None:
    """Return the energy in J that `cpu` (all packages) or a GPU (`gpu0`) used over all these spans of time.

    It comes from the energy counter, or else from the power, interpolated between samples. Return None if neither
    covers all spans.
    """
    ends = np.array(spans).T
    found = (curve.between(*ends) for curve in _curves(samples, name)) if spans else iter(())
    return next((joules for joules in found if joules is not None), None)  # the power is integrated only if needed


def mean(samples: HostSamples, name: str, from_at: float, to_at: float) -> float | None:
    """Return the mean of a series over a span, or None if it has no sample there.

    A sample describes the time since the previous one. This is how loads are defined, and it is nearly true for NVML's
    use and power. Only samples whose whole time lies within the span count: those at its ends also describe the time
    before or after it.
    """
    series = _readable(samples, name)
    first = 0 if series.since >= from_at else bisect_left(series.at, from_at) + 1
    end = bisect_right(series.at, to_at)
    starts = series.at[first - 1 : end] if first else [series.since, *series.at[:end]]
    seconds = [last - start for start, last in zip(starts, series.at[first:end], strict=False)]
    covered = sum(seconds)
    return sum(map(mul, seconds, series.values[first:end])) / covered if covered else None


def joules_per_1000_images(record: Record) -> dict[str, float]:
    """Return the energy in J per 1,000 training images over the steady windows, for `cpu` and each GPU of the launch.

    A part is left out if its energy was not measured over all steady windows. `cpu` is the energy of all packages of
    the machine, including other processes. All values include idle power.
    """
    samples, result = record.host_samples, record.result
    if samples is None or result is None or result.training is None:
        return {}
    windows = result.training.windows[result.training.steady_from :]
    spans = [(window.start_at, window.start_at + window.seconds) for window in windows]
    images = sum(window.images for window in windows)
    names = sorted({match[1] for series in samples.series if (match := ENERGY_SERIES.fullmatch(series))})
    used = {name: energy_j(samples, name, spans) for name in names}
    return {name: joules / images * 1000 for name, joules in used.items() if joules and images}


@dataclass(frozen=True)
class _Series:
    """The samples of one series that could be read. since: start of the time that the first sample describes."""

    at: list[float]
    values: list[float]
    since: float


@dataclass(frozen=True)
class _EnergyCurve:
    """Cumulative energy at some times."""

    at: Sequence[float]
    joules: Sequence[float]

    def between(self, from_at: Times, to_at: Times) -> float | None:
        """Return the energy of all spans between these times, or None if one is not covered."""
        if from_at.min() < self.at[0] or to_at.max() > self.at[-1] or (from_at > to_at).any():
            return None
        first, last = (np.interp(moments, self.at, self.joules) for moments in (from_at, to_at))
        return float((last - first).sum())


def _curves(samples: HostSamples, name: str) -> Iterator[_EnergyCurve]:
    """Yield the curve of the counter, then that of the power (integrated by trapezoids), if they are valid."""
    counter = _readable(samples, f"{name}_energy_j")
    if _rises(counter.values):
        yield _EnergyCurve(counter.at, counter.values)
    power = _readable(samples, f"{name}_power_w")
    trapezoids = [
        (end - start) * (first + last) / 2
        for (start, end), (first, last) in zip(pairwise(power.at), pairwise(power.values), strict=True)
    ]
    integral = list(accumulate(trapezoids, initial=0.0))
    if _rises(integral):
        yield _EnergyCurve(power.at, integral)


def _rises(joules: Sequence[float]) -> bool:
    """Return whether this is a measurement. A counter that falls was reset, and a constant one counts nothing."""
    return len(joules) > 1 and joules[-1] > joules[0] and all(later >= earlier for earlier, later in pairwise(joules))


def _readable(samples: HostSamples, name: str) -> _Series:
    values = samples.series.get(name, [])
    if values and None not in values:
        return _Series(samples.at, cast("list[float]", values), since=samples.at[0])
    read = [i for i, value in enumerate(values) if value is not None]
    return _Series(
        at=[samples.at[i] for i in read],
        values=[value for value in values if value is not None],
        since=samples.at[max(0, read[0] - 1)] if read else 0.0,
    )
