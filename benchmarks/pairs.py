"""Two sides that do the same work, measured by turns, and the line that tells of them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from kit.errors import KitError
from kit.intervals import median_interval

LEAST_PAIRS = 6  # fewer have no 95 % interval of their median


@dataclass(frozen=True)
class Subject:
    """What is measured, for its line of JSON."""

    bench: str
    scenario: str
    framework: str

    def line(self, ratios: Sequence[float]) -> str:
        """ratios: of the pairs, ours / baseline in images/s. ratio: their median; interval: of the median, 95 %,
        which a pair that something else disturbed does not widen.
        Raises ValueError for fewer than LEAST_PAIRS."""
        interval = median_interval(ratios)
        if interval is None:
            raise ValueError(f"{len(ratios)} pairs have no interval")
        fields = {
            **vars(self),
            "precision": "fp32",
            "ratio": round(interval.estimate, 4),
            "interval": [round(interval.low, 4), round(interval.high, 4)],
            "n": len(ratios),
        }
        return json.dumps(fields)


def pair_count(text: str) -> int:
    """For argparse: a number of pairs. Raises ValueError for what is none, or too few for an interval."""
    if (count := int(text)) < LEAST_PAIRS:
        raise ValueError(text)
    return count


def ratios(ours: Callable[[], float], baseline: Callable[[], float], pairs: int) -> Iterator[float]:
    """The ratio of each pair, ours / baseline in images/s, after an epoch of each to warm up.

    ours, baseline: train one epoch of as many images and return its seconds. The side that goes first changes from
    pair to pair (ours, baseline, baseline, ours), so that a drift of the machine favours neither.
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
