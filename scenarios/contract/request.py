"""What passes between orchestrator and worker: one request file in, one result file out.

Standard library only. Every type here is a frozen dataclass; `scenarios.codec` writes and reads them.
Times are seconds unless the name says milliseconds; `*_at` are readings of the monotonic clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

SCHEMA = 1


REQUEST_FILE = "request.json"


RESULT_FILE = "result.json"


EVENTS_FILE = "events.jsonl"


REFERENCE_FILE = "reference.npz"


@dataclass(frozen=True)
class Budget:
    """How much a launch measures. None means no such limit; `epochs` switches to whole, evaluated epochs.

    steps: training steps in all. seconds: of steady training windows. test_images: None for the whole test set.
    """

    steps: int | None = None
    seconds: float | None = None
    epochs: int | None = None
    test_images: int | None = None


@dataclass(frozen=True)
class Request:
    """Everything a worker is told. `spec` is the digest of the catalogue's scenario (before `batch` and `epochs`).

    purpose `probe`: the machine's ceilings through this framework, device and precision; scenario, variant and spec are
    then empty and batch is 1. `tune`: the settings with which this cell is fastest, found in about budget.seconds.
    settings: what is not as in stock, a flat map for the adapter. environment: variables that must exist when the
    process starts; the engine sets them, the worker verifies them. data: `real` reads /data (or the folder given),
    `synthetic` makes its own.
    """

    key: str
    launch: int
    scenario: str
    variant: str
    spec: str
    framework: str
    device: Literal["cpu", "cuda"]
    devices: int
    lane: Literal["stock", "tuned"]
    precision: Literal["fp32", "tf32", "bf16"]
    batch: int
    seed: int
    threads: int
    data: Literal["real", "synthetic"]
    budget: Budget
    purpose: Literal["measure", "tune", "probe"] = "measure"
    settings: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    schema: int = SCHEMA

    @property
    def working_threads(self) -> int:
        """Threads that the framework is to use: those of the settings, else those asked for. Raises ValueError for a
        setting that is no number."""
        return int(self.settings.get("threads", self.threads))
