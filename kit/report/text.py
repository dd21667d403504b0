"""Format the numbers of the report: three significant digits, with unit, `–` for a missing value."""

import math
import re
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime

from kit.analysis.intervals import Interval, Verdict
from kit.analysis.summaries import Ratio
from kit.model.formatting import (
    format_bytes,
    format_count,
    format_list,
    format_number,
    format_percent,
    format_ratio,
    format_si,
)
from kit.model.machine import Machine

MISSING = "–"
MAX_SPREAD = 10.0  # ratio of the ends of an interval
SMALL_LEADS = {1.02: 4, 2.0: 3}  # a lead below this ratio has so many significant digits
WIDE, NARROW = 0.5, 0.05  # half-widths of an interval: ± never describes a wide one, and always a narrow one
LOPSIDED = 1.5  # ratio of the arms of an interval above which ± would mislead
BEFORE_UNIT = re.compile(r"(?<=\d) (?=(?:ms|µs|s|W)\b)")
NO_BREAK = "\N{NO-BREAK SPACE}"


def unbroken(sentence: str) -> str:
    """Return a sentence in which no line break can separate a number from its sign or unit: `± 50%`, `0.64 ms`."""
    return BEFORE_UNIT.sub(NO_BREAK, sentence.replace("± ", f"±{NO_BREAK}"))


def number(value: float | None, digits: int = 3) -> str:
    """Return a number with this many significant digits and thousands separators: 12345.6 as `12,300`."""
    return MISSING if value is None or not math.isfinite(value) else format_number(value, digits)


def seconds(value: float | None) -> str:
    """Return a duration, for example `850 ms`, `12.3 s`, `4.20 min` or `2.50 h`."""
    if value is None:
        return MISSING
    if value < 1:
        return f"{number(value * 1e3)} ms"
    if value < 120:
        return f"{number(value)} s"
    return f"{number(value / 60)} min" if value < 7200 else f"{number(value / 3600)} h"


def percent(share: float | None, decimals: int = 0) -> str:
    """Return a share as a percentage: 0.9912 with two decimals as `99.12%`."""
    return MISSING if share is None else format_percent(share, decimals)


def size(value: int | None) -> str:
    """Return a size in binary units, for example `1.5 GiB`."""
    return MISSING if value is None else format_bytes(value)


def rate(value: float, unit: str) -> str:
    """Return a value with its unit, for example `312 GFLOP/s`, `18.2 GB/s` (powers of ten) or `1,240 images/s`."""
    return f"{number(value)} {unit}" if unit == "images/s" else format_si(value, unit)


def ratio(value: float) -> str:
    """Return a speedup, for example `3.1×` or `1.03×`."""
    return f"{factor(value)}×"


def lead(value: float) -> str:
    """Return by how much something is ahead of the second: `1.05×`, or `5.4×`."""
    return f"{number(value, _lead_digits(value))}×"


def lead_interval(interval: Interval) -> str:
    """Return the interval of a lead: `1.30 to 1.38×`, or `5.2 to 6.0×`.

    Of ends that are more than a factor of MAX_SPREAD apart, only the lower one is shown: `at least 2.3×`. interval: its
    lower end is above 1.
    """
    if not is_useful(interval):
        return f"at least {factor(interval.low)}×"
    digits = _lead_digits(interval.low)
    return f"{number(interval.low, digits)} to {number(interval.high, digits)}×"


def _lead_digits(value: float) -> int:
    """Return the number of significant digits of a lead. A small one needs more."""
    return next((digits for limit, digits in SMALL_LEADS.items() if value < limit), 2)


def factor(value: float) -> str:
    """Return a ratio, or one end of its interval, with more digits near 1, where they decide: `2.3` or `0.964`."""
    return format_ratio(value) if math.isfinite(value) else MISSING


def ends(found: Interval, digits: int = 3) -> str:
    """Return both ends of the interval of a ratio with equally many decimals: `0.92 to 1.10`, `28.5 to 30.9`.

    digits: the least number of significant digits of the higher end. The lower one has at least two. There are more
    decimals if an end is near 1, where they decide, and up to two more if they distinguish ends that would look equal.
    Ends that are more than a factor of MAX_SPREAD apart have their own digits.
    """
    low, high = found.low, found.high
    if not (math.isfinite(high) and 0 < high <= MAX_SPREAD * low):
        return f"{factor(low)} to {factor(high)}"
    near = 2 if any(0.9 < end < 1.1 for end in (low, high)) else 0
    least = max(near, digits - 1 - _exponent(high, digits), 1 - _exponent(low, 2))
    for decimals in range(least, least + 3):
        shown = round(low, decimals), round(high, decimals)
        false_one = any(short == 1 != end for short, end in zip(shown, (low, high), strict=True))
        if low == high or (shown[0] != shown[1] and not false_one):
            break
    else:
        decimals = least
    return f"{low:,.{decimals}f} to {high:,.{decimals}f}"


def _exponent(value: float, digits: int) -> int:
    """Return the power of ten of a number that is rounded to so many digits: 1 for 9.996 with three digits."""
    return math.floor(math.log10(float(f"{value:.{digits - 1}e}")))


def interval(ratio: Ratio) -> str:
    """Return the interval of a ratio, and what it says if it contains 1: `0.98 to 1.03, a tie`."""
    if ratio.interval is None:
        single = ratio.numerator.launches == ratio.denominator.launches == 1
        few = "one launch" if single else "one common round"
        return f"unknown ({few})" if ratio.rounds else "unknown (never in the same round)"
    words = open_words(ratio.interval)
    return f"{ends(ratio.interval)}{f', {words}' if words else ''}"


def open_words(found: Interval) -> str:
    """Return what the interval of a ratio says if it contains 1: `a tie` or `undecided`. Else return ""."""
    if found.verdict is not Verdict.TIE:
        return ""
    return "a tie" if found.tied else "undecided"


def is_useful(interval: Interval | None) -> bool:
    """Return whether an interval says more than that the value is uncertain."""
    return interval is not None and interval.high <= MAX_SPREAD * interval.low


def half_width(interval: Interval) -> str:
    """Return the half-width of an interval, for example `± 1.8%`, or its ends, for example `5,650 to 9,650`.

    The half-width is the longer arm relative to the estimate. The ends are shown if ± would mislead. Ends that are more
    than a factor of MAX_SPREAD apart say only that the value is `uncertain`.
    """
    if not _needs_ends(interval):
        return f"± {percent(interval.half_width, 1)}"
    if not is_useful(interval):
        return "uncertain"
    return f"{number(interval.low)} to {number(interval.high)}"


def _needs_ends(interval: Interval) -> bool:
    """Return whether an interval is wide, or lopsided and not narrow, so that ± does not describe it."""
    arms = interval.high - interval.estimate, interval.estimate - interval.low
    lopsided = max(arms) > LOPSIDED * min(arms)
    return interval.half_width >= WIDE or (lopsided and interval.half_width > NARROW)


def estimate(value: float | None, interval: Interval | None) -> str:
    """Return a value with its interval: `12,300 ± 1.8%`, or `6,110 (5,650 to 9,650)` if ± would mislead."""
    return with_interval(number(value), interval)


def with_interval(words: str, interval: Interval | None) -> str:
    """Return the words of a value with its interval as in `estimate`, or alone if there is no interval."""
    if interval is None:
        return words
    width = half_width(interval)
    return f"{words} ({width})" if _needs_ends(interval) else f"{words} {width}"


def moment(value: str) -> str:
    """Return an ISO 8601 time in UTC, for example `2026-01-02 03:04 UTC`. Return any other text unchanged."""
    try:
        return datetime.fromisoformat(value).astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")
    except (ValueError, OverflowError):  # the year 0
        return value


def day(value: str) -> str:
    """Return the date of an ISO 8601 time in UTC, or of a date, for example `2 January 2026`. Return any other text
    unchanged."""
    try:
        found = datetime.fromisoformat(value)
        found = found.astimezone(UTC) if found.tzinfo else found  # a date alone is a day, wherever it is read
    except (ValueError, OverflowError):
        return value
    return f"{found.day} {found:%B %Y}"


def machine_title(machine: Machine) -> str:
    """Return a short description of a machine, for example `AMD EPYC, 2 cores, no GPU`.

    It names cores if all CPUs of the machine may be used, and logical CPUs otherwise.
    """
    cpu = re.sub(r"\((R|TM|tm)\)|\b\d+-Core\b|\bProcessor\b|(\bCPU\s*)?@.*", " ", machine.cpu_model)
    whole = machine.physical_cores > 0 and machine.cpus == machine.logical_cpus
    cores = format_count(machine.physical_cores, "core") if whole else format_count(machine.cpus, "CPU")
    counts = Counter(gpu.name for gpu in machine.gpus)
    gpus = [name if count == 1 else f"{count} × {name}" for name, count in counts.items()]
    return ", ".join([" ".join(cpu.split()) or "Unknown CPU", cores, *(gpus or ["no GPU"])])


def listed(words: Sequence[str], most: int | None = None) -> str:
    """Return words as a list in a sentence: `A`, `A and B`, or `A, B and C`. most: number of words that are named, for
    example 1 for `A and 2 more`."""
    if most is not None and len(words) > most:
        words = [*words[:most], f"{len(words) - most} more"]
    return format_list(words)


def number_short(value: float) -> str:
    """Return the number of a tick without digits that say nothing: 1000 as `1,000`, 0.5 as `0.5`."""
    return f"{value:,.0f}" if value >= 1 and value == round(value) else f"{value:.6g}"
