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

from kit.errors import KitError
from kit.intervals import CONFIDENCE, Interval

LEAST_PAIRS = 6  # fewer have no 95 % interval of their median


@dataclass(frozen=True)
class Subject:
    """What is measured, for its line of JSON."""

    bench: str
    scenario: str
    framework: str

    def line(self, figures: Mapping[str, object]) -> str:
        """figures: of `summary`."""
        return json.dumps({**vars(self), "precision": "fp32", **figures})


def summary(ratios: Sequence[float]) -> dict[str, object]:
    """What a line says of pairs. ratios: ours / baseline in speed. ratio: their median; interval: of the median, 95 %,
    which a pair that something else disturbed does not widen. Raises ValueError for fewer than LEAST_PAIRS."""
    interval = median_interval(ratios)
    if interval is None:
        raise ValueError(f"{len(ratios)} pairs have no interval")
    return figures(interval, len(ratios))


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


def pair_count(text: str) -> int:
    """For argparse: a number of pairs. Raises ArgumentTypeError for what is none, or too few for an interval."""
    return _whole(text, LEAST_PAIRS, "fewer have no 95 % interval")


def image_count(text: str) -> int:
    """For argparse: images of an epoch. Raises ArgumentTypeError for what is none."""
    return _whole(text, 1, "an epoch has some")


def _whole(text: str, least: int, why: str) -> int:
    if not re.fullmatch(r"\d{1,9}", text) or int(text) < least:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of {least} or more ({why})")
    return int(text)


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
