"""Sample the machine from the host while a launch runs: containers cannot see power, clocks or other load."""

import threading
import time
from collections.abc import Sequence
from typing import Protocol

from kit.host.gpus import opened
from kit.host.sampling.cpu import Clocks, Load
from kit.host.sampling.gpu import Gpus
from kit.host.sampling.rapl import Packages
from kit.model.record import HostSamples

INTERVAL_S = 0.5
PATIENCE_S = 10.0  # for the first and the last sample: a driver that hangs never answers
# After this many intervals, the interval grows with the launch's age. So a day of training adds 11,000 samples to its
# record instead of 170,000. Each load is still the mean over its whole interval, and counters lose nothing.
STEADY_INTERVALS = 2048
DIGITS = 4  # of watts, seconds and shares: no source is more precise


class Source(Protocol):
    """One part of the machine."""

    def read(self) -> dict[str, float]:
        """Return the current value of each series that could be read, by its name."""


class Sampler:
    """Sample in a separate thread, from start() to stop(), at both and every interval_s between them.

    gpus: of the launch, by index or UUID. Series that could never be read are missing. An unexpected error, or a driver
    that does not answer, ends the sampling but not the launch. `failure` describes it, and earlier samples are kept.
    """

    def __init__(self, gpus: Sequence[str], interval_s: float = INTERVAL_S, patience_s: float = PATIENCE_S) -> None:
        self._names, self._interval_s, self._patience_s = gpus, interval_s, patience_s
        self._started, self._stopping = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._watch, name="sampler", daemon=True)
        self._load = Load()
        self._sources: list[Source] = []
        self._at: list[float] = []
        self._samples: list[dict[str, float]] = []
        self._error: Exception | None = None
        self._cost_s = 0.0

    def start(self) -> None:
        """Take the first sample, before the launch begins, and continue in the background."""
        self._thread.start()
        self._started.wait(self._patience_s)

    def stop(self) -> HostSamples:
        """Take the last sample, end, and return all samples."""
        self._stopping.set()
        self._thread.join(self._patience_s)
        if self._thread.is_alive():
            self._error = TimeoutError(f"no answer within {self._patience_s:g} s")
        samples = list(self._samples)
        names = dict.fromkeys(name for sample in samples for name in sample)
        return HostSamples(
            at=self._at[: len(samples)],
            series={name: [sample.get(name) for sample in samples] for name in names},
            core_busy=[round(share, DIGITS) for share in self._load.core_busy()],
            cost_s=self._cost_s,
        )

    @property
    def failure(self) -> str | None:
        """Return what ended the sampling early, None if it did not end early."""
        if self._error is None:
            return None
        return f"Sampling the host ended early: {type(self._error).__name__}: {self._error}"

    def _watch(self) -> None:
        try:
            with opened(self._names) as gpus:
                # Clocks may take time to read. They come last, so that the other values belong to the sample's moment.
                self._sources = [self._load, Packages(), Gpus(gpus), Clocks()]
                self._sample()
                self._started.set()
                while not self._stopping.wait(self._pause_s()):
                    self._sample()
                self._sample()
        except Exception as error:  # noqa: BLE001 - `failure` describes it
            self._error = error
        self._cost_s = time.thread_time()
        self._started.set()

    def _sample(self) -> None:
        self._at.append(round(time.monotonic(), DIGITS))
        values: dict[str, float] = {}
        for source in self._sources:
            values |= source.read()
        self._samples.append({name: round(value, DIGITS) for name, value in values.items()})

    def _pause_s(self) -> float:
        interval_s = max(self._interval_s, (self._at[-1] - self._at[0]) / STEADY_INTERVALS)
        return max(0.0, self._at[-1] + interval_s - time.monotonic())
