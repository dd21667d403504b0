"""Measure how long `kit compare --html` takes for many long runs, how much memory it needs and how large the page is.

`python -m benchmarks.compare_size` prints one line of JSON. Its fields and its exit code are those of
`benchmarks.report_size`. The records are made up, and as large as those of real launches in the quick profile.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from benchmarks.made_up_run import write_run
from benchmarks.pairs import exit_code, whole_number
from benchmarks.report_size import Figures, print_figures, written
from kit.model.errors import KitError

RUNS, RECORDS, SECONDS = 10, 1_000, 3
LIMIT = Figures(10.0, 1000, 8000)


def main() -> None:
    """Compare the runs. Raise KitError if a limit is exceeded."""
    parser = argparse.ArgumentParser(prog="benchmarks.compare_size", description=__doc__)
    parser.add_argument("--repeats", type=whole_number(1), default=3, help="comparisons; default: %(default)s")
    repeats = parser.parse_args().repeats
    with tempfile.TemporaryDirectory() as scratch:
        page, runs = Path(scratch) / "page.html", [Path(scratch) / f"run{number}" for number in range(RUNS)]
        for run in runs:
            write_run(run, RECORDS, SECONDS)
        prices = [f"--price={label}=0.{index + 1}/h" for index, label in enumerate("ABCDEFGHIJ")]
        command = ["compare", *map(str, runs), "--html", str(page), *prices]
        figures = min((written(page, *command) for _ in range(repeats)), key=lambda found: found.seconds)
        over = print_figures(figures, LIMIT, bench="compare", runs=RUNS, records=RUNS * RECORDS)
    if over:
        raise KitError(f"Above the limit: {', '.join(over)}.", "Profile `kit compare` with cProfile.")


if __name__ == "__main__":
    sys.exit(exit_code(main))
