"""How numbers are written in the report: with units, figures at three significant digits, never a bare float."""

from __future__ import annotations

import math
from datetime import UTC, datetime

from kit.model.figures import si
from kit.model.units import format_bytes

MISSING = "–"


def number(value: float | None, digits: int = 3) -> str:
    """Rounded to significant digits, thousands separated: 12345.6 -> "12,300"."""
    if value is None or not math.isfinite(value):
        return MISSING
    if value == 0:
        return "0"
    decimals = digits - 1 - math.floor(math.log10(abs(value)))
    return f"{round(value, decimals):,.{max(decimals, 0)}f}"


def seconds(value: float | None) -> str:
    """A duration in the unit that suits it: "850 ms", "12.3 s", "4.2 min"."""
    if value is None:
        return MISSING
    if value < 1:
        return f"{number(value * 1e3)} ms"
    if value < 120:
        return f"{number(value)} s"
    return f"{number(value / 60)} min" if value < 7200 else f"{number(value / 3600)} h"


def percent(value: float | None) -> str:
    """A share as a percentage with two decimals: "99.12 %"."""
    return MISSING if value is None else f"{100 * value:.2f} %"


def size(value: int | None) -> str:
    """Bytes in binary units: "1.5 GiB"."""
    return MISSING if value is None else format_bytes(value)


def rate(value: float, unit: str) -> str:
    """A value of a ceiling with its unit: "312 GFLOP/s", "18.2 GB/s" (powers of ten), "4.1 µs", "1,240 images/s"."""
    return f"{number(value)} {unit}" if unit == "images/s" else si(value, unit)


def ratio(value: float) -> str:
    """A speedup: "3.1×"."""
    return f"{number(value, 2)}×"


def moment(value: str) -> str:
    """An ISO 8601 time as a date and minutes in UTC: "2026-01-02 03:04 UTC"; another text as it is."""
    try:
        return datetime.fromisoformat(value).astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")
    except (ValueError, OverflowError):  # the year 0
        return value
