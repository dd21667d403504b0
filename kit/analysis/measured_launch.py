"""Define an ok launch with its measurements, and with what the host measured while it trained. No input or output."""

import re
import statistics
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from kit.analysis.host_samples import mean
from kit.analysis.robust import change_point
from kit.model.machine import Gpu
from kit.model.record import Record
from scenarios.contract.evidence import Evidence
from scenarios.contract.request import Request
from scenarios.contract.result import Inference, Telemetry, Training, Window, within_epochs

MIN_SAMPLED_S = 2.0  # long enough for some host samples to lie completely within
POWER_CAP_SHARE = 0.99  # of the default limit: drivers round limits to the watt


@dataclass(frozen=True)
class MeasuredLaunch:
    """An `ok` launch whose result has these parts."""

    record: Record
    request: Request
    training: Training
    inference: Inference
    evidence: Evidence
    telemetry: Telemetry

    @cached_property
    def steady_rates(self) -> list[float]:
        """Return the images/s of each of `comparable_windows`."""
        return [window.images / window.seconds for window in self.comparable_windows]

    @cached_property
    def change_point(self) -> tuple[int, float]:
        """Return where the steady rates most likely jump, and the p-value against no jump (see `change_point`)."""
        return change_point(self.steady_rates)

    @cached_property
    def comparable_windows(self) -> list[Window]:
        """Return the steady windows that say how fast equal work is done: without epoch boundaries, if these are
        rare."""
        return within_epochs(self.training.windows[self.training.steady_from :])

    @property
    def other_cpus(self) -> float | None:
        """Return how many CPUs other processes kept busy while the launch trained, at least 0.

        Return None if the host took no samples, or if the training was too short to separate its own load from what
        came before and after it.
        """
        busy, seconds = self._mean("cpu_busy"), self.telemetry.to_at - self.telemetry.from_at
        return None if busy is None or seconds < MIN_SAMPLED_S else max(0.0, busy - self.telemetry.cpu_s / seconds)

    @property
    def steal_share(self) -> float | None:
        """Return the share of the CPU time requested by all processes that the hypervisor gave to other machines.

        Return None if the host took no samples.
        """
        busy, steal = self._mean("cpu_busy"), self._mean("cpu_steal")
        return steal / (busy + steal) if busy is not None and steal is not None and busy + steal > 0 else None

    @property
    def throttled_share(self) -> float | None:
        """Return the share of the CPU time requested by the launch that the quota of its cgroup withheld.

        Return None if it was not measured. The kernel sums throttled time over CPUs, like CPU time, so it can exceed
        the elapsed time.
        """
        throttled = self.telemetry.throttled_s
        requested = self.telemetry.cpu_s + (throttled or 0.0)
        return throttled / requested if throttled is not None and requested > 0 else None

    @property
    def gpus(self) -> frozenset[int]:
        """Return the indices of the GPUs that the host sampled for the launch."""
        return _gpus_of(tuple(self.record.host_samples.series if self.record.host_samples else ()))

    def training_samples(self, pattern: str) -> list[float]:
        """Return the host samples taken while the launch trained, of all series whose whole name matches a pattern."""
        samples, telemetry = self.record.host_samples, self.telemetry
        if samples is None:
            return []
        first = bisect_left(samples.at, telemetry.from_at)
        end = bisect_right(samples.at, telemetry.to_at)
        return [
            value
            for name, values in samples.series.items()
            if _matches(pattern, name)
            for value in values[first:end]
            if value is not None
        ]

    def slowdown_share(self, reasons: frozenset[str]) -> float:
        """Return the share of samples in training in which one of these reasons lowered the clocks of a GPU.

        It is the largest share over the GPUs of the launch and the reasons.
        """
        flags = [self.training_samples(f"gpu{gpu}_{reason}") for gpu in self.gpus for reason in reasons]
        return max((statistics.fmean(values) for values in flags if values), default=0.0)

    def _mean(self, series: str) -> float | None:
        samples, telemetry = self.record.host_samples, self.telemetry
        return mean(samples, series, telemetry.from_at, telemetry.to_at) if samples else None


@lru_cache(maxsize=1024)  # the same few names are in all launches
def _gpus_of(series: tuple[str, ...]) -> frozenset[int]:
    return frozenset(int(found[1]) for name in series if (found := re.match(r"gpu(\d{1,4})_", name)))


@lru_cache(maxsize=1024)
def _matches(pattern: str, name: str) -> bool:
    return re.fullmatch(pattern, name) is not None


def measured_launches(records: Sequence[Record]) -> list[MeasuredLaunch]:
    """Return the ok launches among the records, in their order."""
    launches = []
    for record in records:
        request, result = record.request, record.result
        if not (record.ok and request and result):
            continue
        training, inference, evidence, telemetry = result.training, result.inference, result.evidence, result.telemetry
        if training and inference and evidence and telemetry:
            launches.append(MeasuredLaunch(record, request, training, inference, evidence, telemetry))
    return launches


def launches_by_cell(records: Sequence[Record]) -> dict[str, list[MeasuredLaunch]]:
    """Return the ok launches of each cell that has one, by its key, in the order of the records."""
    found: dict[str, list[MeasuredLaunch]] = {}
    for launch in measured_launches(records):
        found.setdefault(launch.record.key, []).append(launch)
    return found


def power_capped(gpus: Iterable[Gpu]) -> list[tuple[Gpu, float]]:
    """Return the GPUs whose power limit is below their default, each with its limit as a share of the default."""
    limits = [
        (gpu, gpu.power_limit_w / gpu.default_power_limit_w)
        for gpu in gpus
        if gpu.power_limit_w and gpu.default_power_limit_w
    ]
    return [(gpu, share) for gpu, share in limits if share < POWER_CAP_SHARE]
