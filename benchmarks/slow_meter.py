"""Slow a worker down on purpose. A copy of this file is added to a copy of `scenarios`, whose
`measuring/window_meter.py` then calls `slow` at its end."""

from __future__ import annotations

import time
from typing import Any

SHARE = 1 / 9  # of a step's time, added as busy waiting: 10% less speed


def slow(meter: type[Any]) -> None:
    """Add busy waiting after every step of a class of meters (`scenarios.measuring.window_meter.WindowMeter`)."""
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
        goes_on: bool = plain_step(self, images)
        return goes_on

    meter.begin, meter.step = begin, step
