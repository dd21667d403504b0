"""Measure how long `kit report` takes, how much memory it needs and how large the report is, for growing runs.

`python -m benchmarks.report_size` prints one line of JSON for each size of the run, and one with the exponent of
growth: from 2,500 records on, the time is proportional to the number of records to this power. seconds: of the whole
command, the best of `--repeats`. peak_mb: its peak memory. html_kb: size of the report. record_kb: mean size of a
record. over: which limits are exceeded. Then the exit code is 1.

The records are made up, and as large as those of real launches. Their files come from the cache of the file system.
"""

from __future__ import annotations

import argparse
import math
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.made_up_run import write_run
from benchmarks.pairs import exit_code, print_line, whole_number
from benchmarks.processes import ROOT
from kit.model.errors import KitError

MB, KB = 1_000_000, 1_000
SIZES = (108, 2_500, 5_000, 10_000)
MAX_EXPONENT = 1.15  # linear, with room for the error of two timings


@dataclass(frozen=True)
class Figures:
    """What a report takes, or may take at most."""

    seconds: float
    peak_mb: float
    html_kb: float


LIMITS = {108: Figures(2.0, math.inf, 500), 10_000: Figures(10.0, 1000, 8000)}


def written(page: Path, *command: str) -> Figures:
    """Run a command of kit that writes this page, in a process of its own. Raise KitError if that fails."""
    start = time.monotonic()
    process = subprocess.Popen([sys.executable, "-m", "kit", *command], cwd=ROOT, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    seconds = time.monotonic() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise KitError(f"`kit {command[0]}` ended with {process.returncode}.", "Its message is above.")
    return Figures(seconds, used.ru_maxrss * 1024 / MB, page.stat().st_size / KB)


def print_figures(figures: Figures, limits: Figures | None, **about: object) -> list[str]:
    """Print a line, and return which limits are exceeded."""
    over = [name for name, value in vars(figures).items() if limits and value > vars(limits)[name]]
    shown = {name: round(value, 2) for name, value in vars(figures).items()}
    print_line({**about, **shown, "over": over})
    return over


def measure(run: Path, size: int, seconds: int, repeats: int) -> tuple[Figures, list[str]]:
    """Make the run as long as `size`, report it, print the line, and return the figures and what exceeds a limit.

    seconds: of training per launch.
    """
    record_kb = write_run(run, size, seconds) / size / KB
    pages = (written(run / "index.html", "report", str(run)) for _ in range(repeats))
    figures = min(pages, key=lambda found: found.seconds)
    limits = LIMITS.get(size)
    return figures, print_figures(figures, limits, bench="report", records=size, record_kb=round(record_kb, 1))


def main() -> None:
    """Measure all sizes. Raise KitError if a limit is exceeded."""
    parser = argparse.ArgumentParser(prog="benchmarks.report_size", description=__doc__)
    count = whole_number(1)
    parser.add_argument(
        "--seconds", type=count, default=3, help="of training per launch; default: %(default)s, as quick"
    )
    parser.add_argument("--repeats", type=count, default=3, help="reports for each size; default: %(default)s")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        found = {size: measure(Path(scratch) / "run", size, args.seconds, args.repeats) for size in SIZES}
    first, last = SIZES[1], SIZES[-1]  # imports take most of the time of the shortest run
    exponent = math.log(found[last][0].seconds / found[first][0].seconds, last / first)
    print_line({"bench": "report-growth", "exponent": round(exponent, 2)})
    over = [f"{name} of {size} records" for size, (_, names) in found.items() for name in names]
    if exponent > MAX_EXPONENT:
        over.append("growth")
    if over:
        raise KitError(f"Above the limit: {', '.join(over)}.", "Profile `kit report` with cProfile.")


if __name__ == "__main__":
    sys.exit(exit_code(main))
