"""Durations and sizes as people write and read them."""

from __future__ import annotations

import re

from kit.model.errors import UsageError

LONGEST_S = 366 * 86400
SECONDS = {"h": 3600, "m": 60, "s": 1}
BYTES = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def parse_duration(text: str) -> float:
    """Seconds in `90s`, `10m`, `1h30m`, `1.5h`. Raises UsageError where it is nothing of the kind, zero, or more than a
    year."""
    number = r"[0-9]{1,9}(?:\.[0-9]{1,9})?"
    found = re.fullmatch(rf"(?:({number})h)?(?:({number})m)?(?:({number})s)?", text.strip().lower())
    parts = zip(found.groups(), SECONDS.values(), strict=True) if found else ()
    seconds = sum(float(part) * unit for part, unit in parts if part)
    if seconds <= 0:
        raise UsageError(f"{text!r} is not a duration.", "Write a number with its unit: 90s, 10m or 1h30m.")
    if seconds > LONGEST_S:
        raise UsageError(f"{text!r} is longer than a year.", "Write a number with its unit: 90s, 10m or 1h30m.")
    return seconds


def parse_bytes(text: str) -> int:
    """Bytes in `4g`, `512m`, `1.5GiB`; k, m, g, t are powers of 1024. Raises UsageError as parse_duration does."""
    found = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*([kmgt])(?:i?b)?", text.strip().lower())
    size = int(float(found[1]) * BYTES[found[2]]) if found else 0
    if size <= 0:
        raise UsageError(f"{text!r} is not an amount of memory.", "Write a number with its unit: 512m, 4g or 1.5g.")
    return size


def format_duration(seconds: float) -> str:
    """As `0.4 s`, `35 s`, `4 min 05 s`, `2 h 10 min`."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    minutes = round(whole / 60)
    return f"{minutes // 60} h {minutes % 60:02d} min"


def format_bytes(count: float) -> str:
    """As `512 B`, `3.4 MiB`, `120 GiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1023.5:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 9.95 else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"
