"""Compute energy and means from the host samples of a launch over a period of time. No input or output."""

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from kit.model.record import HostSamples, Record

ENERGY_SERIES = re.compile(r"(cpu|gpu\d+)_(?:energy_j|power_w)")


def energy_j(samples: HostSamples, name: str, spans: Sequence[tuple[float, float]]) -> float | None:
    """Return the energy in J that `cpu` (all packages) or a GPU (`gpu0`) used over all these spans of time.

    It comes from the energy counter, or else from the power, interpolated between samples. Return None if neither
    covers all spans.
    """
    for curve in _curves(samples, name):
        spent = [part for span in spans if (part := curve.between(*span)) is not None]
        if len(spent) == len(spans):
            return sum(spent)
    return None


def mean(samples: HostSamples, name: str, from_at: float, to_at: float) -> float | None:
    """Return the mean of a series over a span, or None if it has no sample there.

    A sample describes the time since the previous one. This is how loads are defined, and it is nearly true for NVML's
    use and power. Only samples whose whole time lies within the span count: those at its ends also describe the time
    before or after it.
    """
    series = _readable(samples, name)
    starts = [series.since, *series.at]
    inside = [
        (end - start, value)
        for start, end, value in zip(starts, series.at, series.values, strict=False)
        if from_at <= start < end <= to_at
    ]
    covered = sum(seconds for seconds, _ in inside)
    return sum(seconds * value for seconds, value in inside) / covered if covered else None


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

    def between(self, from_at: float, to_at: float) -> float | None:
        if not self.at[0] <= from_at <= to_at <= self.at[-1]:
            return None
        return self._until(to_at) - self._until(from_at)

    def _until(self, moment: float) -> float:
        before = bisect_right(self.at, moment) - 1
        if before == len(self.at) - 1:
            return self.joules[-1]
        share = (moment - self.at[before]) / (self.at[before + 1] - self.at[before])
        return self.joules[before] + share * (self.joules[before + 1] - self.joules[before])


def _curves(samples: HostSamples, name: str) -> list[_EnergyCurve]:
    """Return the curve of the counter, then that of the power (integrated by trapezoids), if they are valid."""
    counter, power = _readable(samples, f"{name}_energy_j"), _readable(samples, f"{name}_power_w")
    trapezoids = [
        (end - start) * (first + last) / 2
        for (start, end), (first, last) in zip(pairwise(power.at), pairwise(power.values), strict=True)
    ]
    integral = list(accumulate(trapezoids, initial=0.0))
    curves = [_EnergyCurve(counter.at, counter.values), _EnergyCurve(power.at, integral)]
    return [curve for curve in curves if len(curve.at) > 1 and _rises(curve.joules)]


def _rises(joules: Sequence[float]) -> bool:
    """Return whether this is a measurement. A counter that falls was reset, and a constant one counts nothing."""
    return joules[-1] > joules[0] and all(later >= earlier for earlier, later in pairwise(joules))


def _readable(samples: HostSamples, name: str) -> _Series:
    values = samples.series.get(name, [])
    read = [i for i, value in enumerate(values) if value is not None]
    return _Series(
        at=[samples.at[i] for i in read],
        values=[value for value in values if value is not None],
        since=samples.at[max(0, read[0] - 1)] if read else 0.0,
    )
