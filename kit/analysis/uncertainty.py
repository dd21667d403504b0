"""Say in a few words how uncertain the figures of a sentence are. No input or output."""

from collections.abc import Iterable

from kit.analysis.intervals import Interval
from kit.model.formatting import format_percent

SMALL = 0.1  # a smaller half-width has a decimal
WIDE = 0.5  # half-width of an interval from which on its size says nothing more


def uncertainty(intervals: Iterable[Interval | None]) -> str:
    """Return the half-width of the widest of these intervals, in parentheses after a space, or "" if one is missing.

    If it is too wide to be a useful number, say in how many cases.
    """
    found = [*intervals]
    widths = [interval.half_width for interval in found if interval]
    if not found or len(widths) < len(found):
        return ""
    if (widest := max(widths)) >= WIDE:
        wide = sum(width >= WIDE for width in widths)
        where = f" in {wide} of {len(widths)} cases" if wide < len(widths) else ""
        return f" (uncertain by more than ± {format_percent(WIDE)}{where}, because launches differ)"
    return f" (± {format_percent(widest, 1 if widest < SMALL else 0)}{' or less' * (len(widths) > 1)})"
