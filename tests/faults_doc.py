"""Generate docs/faults.md: run the tests that inject faults, and count how the attempts with a fault ended.

`python -m tests.faults_doc` or `make docs-faults`. This takes minutes.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "faults.md"
DISK = {"disk full", "I/O error", "no permission"}
STOPS = {"interrupt", "kill"}
# Functions that others use to read or write their files. A fault in them counts for their caller.
HELPERS = (
    "kit.storage.files.",
    "kit.storage.safe_read.",
    "kit.storage.tar_members.",
    "kit.storage.bounded_cache.",
    "scenarios.contract.codec.",
)
# The name of a boundary, and the beginning of what is there: the context, then the function that met the fault.
BOUNDARIES = {
    "run: create its folder": "run: kit.storage.run_folder.create",
    "run: write a record": "run: kit.storage.run_folder.save",
    "run: remove leftovers": "run: kit.storage.run_folder.clean",
    "run: write run.log": "run: kit.storage.run_folder.append_progress",
    "run: check the free space": "run: kit.storage.run_folder.require_space",
    "run: read plan and records": "run: kit.storage.run_folder",
    "run: caches of settings and reference values": r"run: kit.(storage.(tuning|reference)_cache|execution.tuned)",
    "run: prepare a launch, collect what it left": "run: kit.execution.launch",
    "run: the machine's lock": "run: kit.host.machine_lock",
    "run: describe the machine": "run: (kit.host|scenarios.linux)",
    "run: write the report": "run: kit.(report|storage.run_list)",
    "run: find scenarios and the folder of --out": "run: (scenarios|kit)",
    "engine: describe": "engine: (describe|info|version)",
    "engine: remove leftovers": "engine: (sweep|list containers)",
    "engine: prepare an environment": "engine: prepare",
    "engine: run a launch": "engine:",
    "image: files of the build": "image: (kit|scenarios)",
    "image: requests to the engine": "image:",
    "virtual environment: files": "virtual environment: (kit|removal)",
    "virtual environment: uv, and the import": "virtual environment: (venv|install|import)",
    "data set: download": "data set: kit.datasets.download",
    "data set: unpack an archive": "data set: kit.datasets.unpack",
    "data set: read photos": "data set: kit.datasets.photos",
    "data set: replace a prepared one": "data set: replacement",
    "data set: prepare, verify and install": "data set: (kit|scenarios)",
}
HEAD = """# Faults

This page is generated with `make docs-faults`. Do not edit it by hand.

Tests inject faults at the boundaries of kit to the operating system and to the engine, in a run, a build and the
preparation of a data set. There, each function of kit that uses files gets each fault of the disk and an interrupt, and
each request to the engine gets each fault of the engine and an interrupt. After **every** fault, the tests check that
nothing is lost: they try again without a fault, and fail in any of these cases:

- The fault was not raised at the place where the table counts it.
- The attempt with the fault ends with an exit code that is not documented, without a remedy, or with the remedy of
  another fault.
- The attempt with the fault succeeds, but its result is not the same as without the fault.
- A record, a data set or an image that existed before the fault has changed or is missing.
- The next attempt does not succeed, or a planned launch does not have exactly one `ok` record after it.
- After the next attempt, a lock, a container, a temporary file or a scratch folder is left.

So the next attempt succeeded in every row. The last column says whether it resumed the run or started again.

Some words in the table:

- Fault of the disk: a full disk (ENOSPC), an I/O error (EIO), or a missing permission (EACCES).
- Lost request, lost answer: the connection to Docker breaks before or after Docker carries out a request. Lost all
  requests: it breaks for good.
- Engine lost: from one request on, no engine answers. For one call: only one request is not answered. No answer: a
  request times out. Conflict, engine's error: the engine answers with status 409 or 500.
- Program: uv, or the Python of the virtual environment.
- Exit code 0: The attempt succeeded without the call that failed, for example because it only fills a cache. Without
  ceilings: the probe of the machine's limits failed. It has a record, and costs no cell. Only the shares of these
  limits are missing in the report.
- Exit code 1: A launch failed, and has a record. `--resume` with `--retry-failed` repeats it.
- Exit code 2: A file cannot be read. 3: The engine failed. 4: A build failed. 5: A data set cannot be used. 6: A disk
  cannot be used. 130: An interrupt.
- Killed: The process ended at once, without an exit code and without any clean-up.
"""


def main() -> None:
    """Run the tests and write the page. Fail if a test fails."""
    with tempfile.NamedTemporaryFile("r", encoding="utf-8") as notes:
        files = sorted(map(str, (ROOT / "tests" / "unit").glob("test_*faults*.py")))
        command = [sys.executable, "-m", "pytest", "-q", "-n", "auto", *files]
        subprocess.run(command, cwd=ROOT, env=os.environ | {"KIT_TEST_FAULTS": notes.name}, check=True)
        page = make_page([line.rstrip("\n").split("\t") for line in notes])
    PAGE.write_text(page, encoding="utf-8")


def make_page(notes: list[list[str]]) -> str:
    """Return the text of the page. notes: for each injected fault its name, its place, the outcome of the attempt, and
    what the next attempt did."""
    table: dict[tuple[str, str], list[tuple[str, str]]] = defaultdict(list)
    for fault, place, outcome, following in notes:
        where = boundary(place)
        if fault in STOPS:
            where = f"{context(where)}: all places"
        table[where, "fault of the disk" if fault in DISK else fault].append((outcome, following))
    merged: dict[tuple[str, frozenset[str]], list[str]] = defaultdict(list)  # the faults with the same outcomes
    for where, fault in sorted(table, key=position):
        outcomes = STOPS if fault in STOPS else {outcome for outcome, _ in table[where, fault]}
        merged[where, frozenset(outcomes)].append(fault)
    lines = [
        f"The tests injected {len(notes):,} faults. The numbers depend on the machine and on the version of Python",
        f"({'.'.join(map(str, sys.version_info[:2]))} here), because its library makes the calls.",
        "",
        "| Where | Fault | Injected | How the attempt ended | What the next attempt did |",
        "|---|---|---:|---|---|",
    ]
    for (where, _), found in merged.items():
        rows = [row for fault in found for row in table[where, fault]]
        ended, followed = map(counts, zip(*rows, strict=True))
        lines.append(f"| {where} | {', '.join(found)} | {len(rows):,} | {ended} | {followed} |")
    return "\n".join([HEAD, *lines, ""])


def context(where: str) -> str:
    return where.partition(":")[0]


def position(row: tuple[str, str]) -> tuple[int, int, str]:
    """Return the position of a row in the table. The rows of all places are the last ones of their context."""
    contexts, order = [context(name) for name in BOUNDARIES], list(BOUNDARIES)
    where, fault = row
    return contexts.index(context(where)), order.index(where) if where in order else len(order), fault


def counts(values: Iterable[str]) -> str:
    """Return how often each value occurs, for example "exit code 3: 14; exit code 6: 2"."""
    return "; ".join(f"{value}: {count:,}" for value, count in sorted(Counter(values).items()))


def boundary(place: str) -> str:
    """Return the name of the boundary of a place, for example `run: os.link in kit.storage.files._rename_new for
    kit.storage.run_folder.save`. Raise ValueError if it has none."""
    where, _, what = place.partition(": ")
    call = re.fullmatch(r"\S+ in (\S+)(?: for (\S+))?", what)
    if call:
        function, caller = call[1], call[2]
        what = caller if caller and function.startswith(HELPERS) else function
    for name, beginning in BOUNDARIES.items():
        if re.match(beginning, f"{where}: {what}"):
            return name
    raise ValueError(f"{place}: add it to BOUNDARIES")


if __name__ == "__main__":
    main()
