"""Format numbers and text for people."""

import math
import re
from collections.abc import Sequence

DEVICES = {"cpu": "CPU", "cuda": "GPU"}  # devices in sentences
MAX_NAMES = 3  # names in a sentence
MAX_TEXT = 3000  # characters of a sentence on a terminal; kit writes shorter ones
PREFIXES = {-9: "n", -6: "µ", -3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P"}


def format_duration(seconds: float) -> str:
    """Return a duration, for example `0.4 s`, `35 s`, `4 min 05 s` or `2 h 10 min`."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    minutes = round(whole / 60)
    return f"{minutes // 60} h {minutes % 60:02d} min"


def format_about(seconds: float) -> str:
    """Return an estimated duration, rounded up: `a few seconds`, `about 40 s`, `about 12 min` or `about 1 h 30 min`."""
    if seconds < 15:
        return "a few seconds"
    if seconds <= 60:
        return f"about {10 * math.ceil(seconds / 10)} s"
    minutes = math.ceil(seconds / 60)
    if minutes < 60:
        return f"about {minutes} min"
    hours, rest = divmod(10 * math.ceil(minutes / 10), 60)
    return f"about {hours} h {rest:02d} min" if rest else f"about {hours} h"


def format_bytes(count: float) -> str:
    """Return a size in binary units, for example `512 B`, `3.4 MiB` or `120 GiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1023.5:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 9.95 else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def format_disk(count: float) -> str:
    """Return how much disk space something will take, for example `3.4 GiB of disk space` or `no more disk space`."""
    return f"{format_bytes(count)} of disk space" if count else "no more disk space"


def format_percent(share: float, decimals: int = 0, *, signed: bool = False) -> str:
    """Return a share as a percentage: 0.124 as `12%`, or signed as `+12%`."""
    return f"{100 * share:{'+' if signed else ''}.{decimals}f}%"


def format_number(value: float, digits: int = 3) -> str:
    """Return a number with this many significant digits and thousands separators: 12345.6 as `12,300`."""
    if value == 0:
        return "0"
    rounded = float(f"{value:.{digits - 1}e}")  # 9.997 becomes 10, which needs one decimal less
    decimals = digits - 1 - math.floor(math.log10(abs(rounded)))
    return f"{rounded:,.{max(decimals, 0)}f}"


def format_ratio(value: float) -> str:
    """Return a ratio with more digits near 1, where they decide: `2.3`, `0.964`, `1.03` or `1.004`."""
    digits = 4 if 0.9995 <= value < 1.02 else 3 if 0.9 < value < 1.1 else 2  # from 0.9995 on, 3 would be 1.00
    return format_number(value, digits)


def format_range(low: str, high: str) -> str:
    """Return two ends as a range, or one of them if they look equal."""
    return low if low == high else f"{low} to {high}"


def format_whole(value: float) -> str:
    """Return a whole number with two significant digits and thousands separators: 1234 as `1,200`."""
    return f"{float(f'{value:.1e}'):,.0f}"


def format_si(value: float, unit: str) -> str:
    """Return three significant digits with an SI prefix: 0.00082 s as `820 µs`. value: not negative."""
    if value == 0:
        return f"0 {unit}"
    rounded = float(f"{value:.2e}")
    power = min(max(3 * math.floor(math.log10(rounded) / 3), min(PREFIXES)), max(PREFIXES))
    return f"{rounded / 10.0**power:.3g} {PREFIXES[power]}{unit}"


def format_count(count: int, noun: str) -> str:
    """Return a count with its noun: `1 core`, `2 cores`."""
    plural = noun + ("es" if noun.endswith("ch") and noun != "epoch" else "s")
    return f"{count} {noun if count == 1 else plural}"


def format_few(names: Sequence[str], noun: str) -> str:
    """Return the names, or only their number if there are more than MAX_NAMES: `a, b`, `12 cells`."""
    return ", ".join(names) if len(names) <= MAX_NAMES else format_count(len(names), noun)


def format_list(words: Sequence[str]) -> str:
    """Return words as a list in a sentence: `A`, `A and B`, or `A, B and C`."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def shortened(text: str, most: int = MAX_TEXT) -> str:
    """Return the text, cut to `most` characters. A record of a stranger may hold megabytes."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def short_digests(text: str) -> str:
    """Return the text with each digest cut to 12 characters."""
    return re.sub(r"\b([0-9a-f]{12})[0-9a-f]{4,}\b", r"\1", text)


def printable(text: str) -> str:
    """Return the text with `?` for each character that could control a terminal or that UTF-8 or XML cannot hold.

    Records and data sets may come from strangers.
    """
    return re.sub(
        r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]", "?", text
    )
