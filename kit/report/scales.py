"""Map values to positions in a chart, in percent of its width. Charts then need no fixed width."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

PADDING = 0.06  # of the range of values, left free on both sides
# A chart of numbers beyond these would divide by 0, or by infinity. Nothing that is measured comes near them.
TINY, HUGE = 1e-200, 1e200
STEPS = (1, 2, 5)


@dataclass(frozen=True)
class Scale:
    """A linear or logarithmic scale. low, high: values at the left and right end; above 0 if logarithmic."""

    low: float
    high: float
    log: bool = False

    def at(self, value: float) -> float:
        """Return the position of a value in percent, within 0 and 100."""
        low, high, found = (math.log(v) if self.log else v for v in (self.low, self.high, max(value, self.low)))
        return round(100 * min(1.0, (found - low) / (high - low)), 2)

    def from_top(self, value: float, height: int) -> float:
        """Return the vertical position of a value in pixels, in a plot of this height. The highest value is on top."""
        return round(height * (1 - self.at(value) / 100), 1)

    def ticks(self, most: int = 6) -> list[float]:
        """Return at most this many round values within the scale, in ascending order."""
        size = math.floor(math.log10(max(self.high - self.low, TINY)))
        exponents = range(size - 2, size + 2)  # the last one is above the range, so it has at most two ticks
        if self.log:
            exponents = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            found: list[float] = []
            for steps in (STEPS, (1, 3), (1,)):
                found = [step * 10.0**e for e in exponents for step in steps if self.low <= step * 10.0**e <= self.high]
                if len(found) <= most:
                    # Within a factor of 2.5, such values may be missing. Then those of a linear scale are used.
                    return found if len(found) > 1 else Scale(self.low, self.high).ticks(most)
            return found[:: -(-len(found) // most)]
        for e in exponents:
            for step in STEPS:
                width = step * 10.0**e
                first, last = math.ceil(self.low / width), math.floor(self.high / width)
                if last - first < most:
                    return [round(width * n, 12) for n in range(first, last + 1)]
        return [self.low, self.high]


def log_scale(values: Iterable[float]) -> Scale:
    """Return a logarithmic scale around these values, which are above 0. It covers at least a factor of 1.5."""
    found = [min(max(value, TINY), HUGE) for value in values if 0 < value < math.inf] or [1.0]
    low, high = min(found), max(found)
    middle = math.sqrt(low) * math.sqrt(high)
    low, high = min(low, middle / math.sqrt(1.5)), max(high, middle * math.sqrt(1.5))
    room = math.exp(PADDING * (math.log(high) - math.log(low)))  # a quotient may overflow
    return Scale(low / room, high * room, log=True)
