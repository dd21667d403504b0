"""One ok launch with the parts that judgements rest on, and what the host saw while it trained. Pure."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kit.analysis.host_samples import mean
from kit.model.machine import Gpu
from kit.model.plausible import LEAST
from kit.model.record import Record
from scenarios.contract.reasons import Status
from scenarios.contract.request import Request
from scenarios.contract.result import Evidence, Telemetry, Training

MIN_SEEN_S = 2.0  # some of the host's samples, wholly within
POWER_CAP_SHARE = 0.99  # of the default limit: drivers round limits to the watt


@dataclass(frozen=True)
class Launch:
    """An `ok` launch whose result has these parts."""

    record: Record
    training: Training
    evidence: Evidence
    telemetry: Telemetry

    @property
    def request(self) -> Request:
        return self.record.request

    @property
    def steady_rates(self) -> list[float]:
        """Images/s of each steady window, above 0."""
        steady = self.training.windows[self.training.steady_from :]
        return [w.images / w.seconds for w in steady if w.images > 0 and w.seconds >= LEAST]

    @property
    def other_cpus(self) -> float | None:
        """CPUs that processes outside of the launch kept busy while it trained, at least 0. None: not seen, or too
        short a time to tell its own load from what was before and after it."""
        busy, seconds = self._mean("cpu_busy"), self.telemetry.to_at - self.telemetry.from_at
        return None if busy is None or seconds < MIN_SEEN_S else max(0.0, busy - self.telemetry.cpu_s / seconds)

    @property
    def stolen(self) -> float | None:
        """Share of the CPU time asked for by all that the hypervisor gave to other machines. None: not seen."""
        busy, steal = self._mean("cpu_busy"), self._mean("cpu_steal")
        return steal / (busy + steal) if busy is not None and steal is not None and busy + steal > 0 else None

    @property
    def held_back(self) -> float | None:
        """Share of the CPU time that the launch asked for and its cgroup's quota withheld. None: not seen.

        The kernel adds up throttled time over CPUs, as it does CPU time, so that it may well exceed the clock's.
        """
        throttled = self.telemetry.throttled_s
        wanted = self.telemetry.cpu_s + (throttled or 0.0)
        return throttled / wanted if throttled is not None and wanted > 0 else None

    def while_training(self, series: str) -> list[float]:
        """The host's samples of all series whose whole name matches this pattern, taken while the launch trained."""
        context, telemetry = self.record.host_samples, self.telemetry
        if context is None:
            return []
        return [
            value
            for name, values in context.series.items()
            if re.fullmatch(series, name)
            for at, value in zip(context.at, values, strict=False)
            if value is not None and telemetry.from_at <= at <= telemetry.to_at
        ]

    @property
    def gpus(self) -> set[int]:
        """Indices of the GPUs that the host watched for it."""
        series = self.record.host_samples.series if self.record.host_samples else {}
        return {int(found[1]) for name in series if (found := re.match(r"gpu(\d{1,4})_", name))}

    def slowed(self, reasons: frozenset[str]) -> float:
        """Largest share of the samples while it trained in which one of these reasons held a GPU of the launch back."""
        told = [self.while_training(f"gpu{gpu}_{reason}") for gpu in self.gpus for reason in reasons]
        return max((statistics.fmean(held) for held in told if held), default=0.0)

    def _mean(self, series: str) -> float | None:
        """Of the host's samples while the launch trained. None: not seen."""
        context, telemetry = self.record.host_samples, self.telemetry
        return mean(context, series, telemetry.from_at, telemetry.to_at) if context else None


def measured(records: Sequence[Record]) -> list[Launch]:
    """The ok launches among the records, in their order."""
    launches = []
    for record in records:
        result = record.result
        if record.status is Status.OK and result and result.training and result.evidence and result.telemetry:
            launches.append(Launch(record, result.training, result.evidence, result.telemetry))
    return launches


def capped(gpus: Iterable[Gpu]) -> list[tuple[Gpu, float]]:
    """Those of the GPUs whose power limit is below their default, with its share of that."""
    limits = [
        (gpu, gpu.power_limit_w / gpu.default_power_limit_w)
        for gpu in gpus
        if gpu.power_limit_w and gpu.default_power_limit_w
    ]
    return [(gpu, share) for gpu, share in limits if share < POWER_CAP_SHARE]
