"""Two sides that do the same work, measured by turns, and the line that tells of them."""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from scipy.special import bdtr

from kit.analysis.intervals import CONFIDENCE, Interval
from kit.model.errors import KitError

LEAST = 6  # fewer values have no 95 % interval of their median


@dataclass(frozen=True)
class Subject:
    """What is measured, for its line of JSON."""

    bench: str
    scenario: str
    framework: str
    precision: str = "fp32"

    @property
    def label(self) -> str:
        """For people."""
        return f"{self.bench}: {self.scenario}, {self.framework}"

    def line(self, figures: Mapping[str, object]) -> str:
        """figures: of `summary`."""
        return json.dumps({**vars(self), **figures})


def summary(ratios: Sequence[float], pairs: int) -> dict[str, object]:
    """What a line says. ratios: ours / baseline in speed, of launches or of pairs. ratio: their median; interval: of
    the median, 95 %, which one that something else disturbed does not widen. Raises ValueError for fewer than LEAST."""
    interval = median_interval(ratios)
    if interval is None:
        raise ValueError(f"{len(ratios)} ratios have no interval")
    return figures(interval, pairs)


def figures(interval: Interval, count: int) -> dict[str, object]:
    """The common fields of a line."""
    return {
        "ratio": round(interval.estimate, 4),
        "interval": [round(interval.low, 4), round(interval.high, 4)],
        "n": count,
    }


def median_interval(values: Sequence[float]) -> Interval | None:
    """The median, with an interval from order statistics: the narrowest pair of the k-th smallest and the k-th largest
    value that holds the median at least as often as CONFIDENCE says (W. J. Conover, Practical Nonparametric Statistics,
    3.2), whatever the values' distribution. None for fewer than 6, of which even the outermost hold it too seldom."""
    ordered, count = sorted(values), len(values)
    outside = (1 - CONFIDENCE) / 2
    rank = next((k for k in range(count // 2, 0, -1) if bdtr(k - 1, count, 0.5) <= outside), 0)
    if not rank:
        return None
    return Interval(statistics.median(ordered), ordered[rank - 1], ordered[-rank])


def at_least(least: int) -> Callable[[str], int]:
    """For argparse: the type of whole numbers from `least` on, which raises ArgumentTypeError for others."""

    def whole(text: str) -> int:
        if not re.fullmatch(r"\d{1,9}", text) or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of {least} or more")
        return int(text)

    return whole


def ratios(ours: Callable[[], float], baseline: Callable[[], float], pairs: int) -> Iterator[float]:
    """The ratio of each pair, ours / baseline in speed, after one of each to warm up.

    ours, baseline: do the same work, as an epoch of as many images, and return its seconds. The side that goes first
    changes from pair to pair (ours, baseline, baseline, ours), so that a drift of the machine favours neither.
    """
    ours()
    baseline()
    for index in range(pairs):
        if index % 2 == 0:
            our_seconds, their_seconds = ours(), baseline()
        else:
            their_seconds, our_seconds = baseline(), ours()
        yield their_seconds / our_seconds


def say(line: str) -> None:
    """Print a result at once: whoever reads along need not wait for the last one."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def exit_code(main: Callable[[], None]) -> int:
    """Run a benchmark as a program: an error is told with its remedy on standard error, and becomes an exit code."""
    try:
        main()
    except KitError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    return 0
