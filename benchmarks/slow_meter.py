"""Makes a worker slower on purpose: put beside `scenarios/measure.py` of a copy and called at that module's end."""

from __future__ import annotations

import time
from typing import Any

SHARE = 1 / 9  # of a step's time, waited for after it: a tenth less speed


def slow(meter: type[Any]) -> None:
    """Have every step of this class of meters (`scenarios.frameworks.base.Meter`) followed by busy waiting."""
    plain_begin, plain_step = meter.begin, meter.step
    ended_at = 0.0

    def begin(self: Any) -> None:
        nonlocal ended_at
        plain_begin(self)
        ended_at = time.monotonic()

    def step(self: Any, images: int) -> bool:
        nonlocal ended_at
        now = time.monotonic()
        until = now + SHARE * (now - ended_at)
        while time.monotonic() < until:
            pass
        ended_at = until
        found: bool = plain_step(self, images)
        return found

    meter.begin, meter.step = begin, step
