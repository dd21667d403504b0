"""Figures as they stand in sentences: few digits, with their unit."""

from __future__ import annotations

import math

PREFIXES = {-9: "n", -6: "µ", -3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P"}


def percent(share: float) -> str:
    """0.124 as `12 %`."""
    return f"{100 * share:.0f} %"


def signed_percent(change: float) -> str:
    """-0.124 as `-12 %`, 0.03 as `+3 %`."""
    return f"{100 * change:+.0f} %"


def si(value: float, unit: str) -> str:
    """Three significant digits and an SI prefix: 0.00082 s as `820 µs`. value: not negative."""
    if value == 0:
        return f"0 {unit}"
    rounded = float(f"{value:.2e}")
    power = min(max(3 * math.floor(math.log10(rounded) / 3), min(PREFIXES)), max(PREFIXES))
    return f"{rounded / 10.0**power:.3g} {PREFIXES[power]}{unit}"


def two_digits(value: float) -> str:
    """Two significant digits, thousands separated: 1234 as `1,200`."""
    return f"{float(f'{value:.1e}'):,.0f}"


def counted(count: int, thing: str) -> str:
    """So many of them: "1 core", "2 cores"."""
    return f"{count} {thing}{'s' * (count != 1)}"
