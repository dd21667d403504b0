"""Measure two sides in turn, and summarize their ratios as one line of JSON."""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from scipy.special import bdtr

from kit.analysis.intervals import CONFIDENCE, Interval
from kit.model.errors import KitError

MIN_VALUES = 6  # fewer values have no 95% interval of their median


@dataclass(frozen=True)
class Subject:
    """What is measured. The fields begin its line of JSON."""

    bench: str
    scenario: str
    framework: str
    precision: str = "fp32"

    @property
    def label(self) -> str:
        """Return a short text for progress bars and error messages."""
        return f"{self.bench}: {self.scenario}, {self.framework}"

    def line(self, fields: Mapping[str, object]) -> dict[str, object]:
        """Return the subject's fields, followed by `fields`."""
        return {**vars(self), **fields}


def summary(ratios: Sequence[float], pairs: int) -> dict[str, object]:
    """Return the fields of a line: the median ratio, its 95% interval, and the number of pairs.

    ratios: speed of our side / speed of the baseline, one value per launch or per pair. A single disturbed value does
    not widen the interval of a median. Raise ValueError for fewer than MIN_VALUES ratios."""
    interval = median_interval(ratios)
    if interval is None:
        raise ValueError(f"{len(ratios)} ratios have no interval")
    return figures(interval, pairs)


def figures(interval: Interval, count: int) -> dict[str, object]:
    """Return the fields that all lines with a ratio share."""
    return {
        "ratio": round(interval.estimate, 4),
        "interval": [round(interval.low, 4), round(interval.high, 4)],
        "n": count,
    }


def median_interval(values: Sequence[float]) -> Interval | None:
    """Return the median with its interval from order statistics, for any distribution of the values.

    The bounds are the k-th smallest and the k-th largest value. k is the largest number for which they contain the
    median with a probability of at least CONFIDENCE (W. J. Conover, Practical Nonparametric Statistics, 3.2). Return
    None for fewer than MIN_VALUES values: not even their smallest and largest value reach that probability."""
    ordered, count = sorted(values), len(values)
    outside = (1 - CONFIDENCE) / 2
    rank = next((k for k in range(count // 2, 0, -1) if bdtr(k - 1, count, 0.5) <= outside), 0)
    if not rank:
        return None
    return Interval(statistics.median(ordered), ordered[rank - 1], ordered[-rank])


def whole_number(minimum: int) -> Callable[[str], int]:
    """Return an argparse type for whole numbers of at least `minimum`. It raises ArgumentTypeError for other texts."""

    def parse(text: str) -> int:
        if not re.fullmatch(r"\d{1,9}", text) or int(text) < minimum:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of {minimum} or more")
        return int(text)

    return parse


def ratios(ours: Callable[[], float], baseline: Callable[[], float], pairs: int) -> Iterator[float]:
    """Yield the ratio of each pair (speed of our side / speed of the baseline) after one warm-up epoch on each side.

    ours, baseline: do the same work and return its duration in seconds. The order within a pair alternates (ours,
    baseline, baseline, ours), so that a steady drift of the machine's speed favors neither side.
    """
    ours()
    baseline()
    for index in range(pairs):
        if index % 2 == 0:
            our_seconds, their_seconds = ours(), baseline()
        else:
            their_seconds, our_seconds = baseline(), ours()
        yield their_seconds / our_seconds


def percent(outcomes: Iterable[bool]) -> float:
    """Return the share of outcomes that are true, in percent."""
    return round(100 * statistics.fmean(outcomes), 1)


def print_line(fields: Mapping[str, object]) -> None:
    """Print one line of JSON, and flush it."""
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()


def exit_code(main: Callable[[], None]) -> int:
    """Run `main` and return the program's exit code. Print a KitError, with its remedy, to standard error."""
    try:
        main()
    except KitError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    return 0
