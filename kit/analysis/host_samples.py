"""What a launch's samples says of a stretch of time: energy and means. Pure."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from kit.model.record import HostSamples, Record

ENERGY_SERIES = re.compile(r"(cpu|gpu\d+)_(?:energy_j|power_w)")


def energy_j(samples: HostSamples, name: str, spans: Sequence[tuple[float, float]]) -> float | None:
    """Joules that `cpu` (all packages) or a GPU (`gpu0`) took over these spans of time together.

    From its counter, else from its power, between samples in proportion to time. None where neither covers all spans.
    """
    for curve in _curves(samples, name):
        spent = [part for span in spans if (part := curve.between(*span)) is not None]
        if len(spent) == len(spans):
            return sum(spent)
    return None


def mean(samples: HostSamples, name: str, from_at: float, to_at: float) -> float | None:
    """Mean of a series over those samples whose time lies wholly within a span; None where there are none. The samples
    at its ends tell of what came before and after it, too.

    A sample stands for the time since the one before it: so loads are defined, and NVML's use and power nearly so.
    """
    known = _known(samples, name)
    starts = [known.since, *known.at]
    inside = [
        (end - start, value)
        for start, end, value in zip(starts, known.at, known.values, strict=False)
        if from_at <= start < end <= to_at
    ]
    covered = sum(seconds for seconds, _ in inside)
    return sum(seconds * value for seconds, value in inside) / covered if covered else None


def joules_per_1000_images(record: Record) -> dict[str, float]:
    """Energy per thousand training images over the steady windows, of `cpu` and of each GPU of the launch; only what
    was measured over all of them.

    `cpu` is every package of the machine, with what others do on it, and idle power is within every figure.
    """
    samples, result = record.host_samples, record.result
    if samples is None or result is None or result.training is None:
        return {}
    windows = result.training.windows[result.training.steady_from :]
    spans = [(window.start_at, window.start_at + window.seconds) for window in windows]
    images = sum(window.images for window in windows)
    names = sorted({match[1] for series in samples.series if (match := ENERGY_SERIES.fullmatch(series))})
    taken = {name: energy_j(samples, name, spans) for name in names}
    return {name: joules / images * 1000 for name, joules in taken.items() if joules and images}


@dataclass(frozen=True)
class _Known:
    """The samples of one series that could be read. since: where the time that the first one stands for begins."""

    at: list[float]
    values: list[float]
    since: float


@dataclass(frozen=True)
class _Curve:
    """Energy taken up to each of some times."""

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


def _curves(samples: HostSamples, name: str) -> list[_Curve]:
    """The counter first, then power summed up by trapezoids; only those that measured something."""
    counter, power = _known(samples, f"{name}_energy_j"), _known(samples, f"{name}_power_w")
    trapezoids = [
        (end - start) * (first + last) / 2
        for (start, end), (first, last) in zip(pairwise(power.at), pairwise(power.values), strict=True)
    ]
    curves = [_Curve(counter.at, counter.values), _Curve(power.at, list(accumulate(trapezoids, initial=0.0)))]
    return [curve for curve in curves if len(curve.at) > 1 and _rises(curve.joules)]


def _rises(joules: Sequence[float]) -> bool:
    """A counter that falls was reset, and one that stands still counts nothing: neither is a measurement."""
    return joules[-1] > joules[0] and all(later >= earlier for earlier, later in pairwise(joules))


def _known(samples: HostSamples, name: str) -> _Known:
    values = samples.series.get(name, [])
    read = [i for i, value in enumerate(values) if value is not None]
    return _Known(
        at=[samples.at[i] for i in read],
        values=[value for value in values if value is not None],
        since=samples.at[max(0, read[0] - 1)] if read else 0.0,
    )
