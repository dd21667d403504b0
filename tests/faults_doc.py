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
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "faults.md"
DISK = {"disk full", "I/O error", "no permission"}
# Functions that others use to read or write their files. A fault in them counts for their caller.
HELPERS = ("kit.storage.files.", "kit.storage.safe_read.", "kit.storage.bounded_cache.", "scenarios.contract.codec.")
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
    "run: write the report": "run: kit.report",
    "run: find scenarios and the folder of --out": "run: (scenarios|kit)",
    "engine: describe": "engine: (describe|info|version)",
    "engine: remove leftovers": "engine: (sweep|list containers)",
    "engine: prepare an environment": "engine: prepare",
    "engine: run a launch": "engine:",
    "image: pull, build, commit and tag": "image build: (pull|build|commit|tag)",
    "image: files of the build": "image build: (kit|scenarios)",
    "image: other requests to the engine": "image build:",
    "virtual environment: uv, and the import": "virtual environment: (venv|install|import)",
    "virtual environment: files": "virtual environment: kit",
    "data set: download": "[^:]*: kit.datasets.download",
    "data set: unpack an archive": "[^:]*: kit.datasets.unpack",
    "data set: read photos": "[^:]*: kit.datasets.photos",
    "data set: prepare, verify and install": "[^:]*: (kit|scenarios)",
}
HEAD = """# Faults

This page is generated with `make docs-faults`. Do not edit it by hand.

Tests inject each fault below at the boundaries of kit to the operating system and to the engine. Each function of kit
that calls the operating system, and each request to the engine, gets each kind of fault. After each fault, the tests
try again without a fault, and fail in any of these cases:

- The command ends with an exit code that is not documented, or without a remedy.
- A record, a data set or an image that existed before the fault has changed or is missing.
- The next attempt does not finish, or a planned launch does not have exactly one `ok` record after it.
- The next attempt leaves a lock, a container, a temporary file or a scratch folder.

So the next attempt succeeded in every row. For runs, the table also says whether it resumed the run or started again.

"Lost" counts these cases. "Faults of the disk" are a full disk (ENOSPC), an I/O error (EIO) and a missing permission
(EACCES). "No effect" means that kit did without the call that failed, for example a cache. The exit codes are 1 for a
failed launch, 2 for a file that cannot be read, 3 for the engine, 4 for a build, 5 for a data set, 6 for the disk and
130 for an interrupt. A probe of the machine's ceilings that failed has a record, and costs no cell. Only the shares of
these ceilings are missing in the report.
"""


def main() -> None:
    """Run the tests and write the page. Fail if a test fails."""
    with tempfile.NamedTemporaryFile("r", encoding="utf-8") as notes:
        files = sorted(map(str, (ROOT / "tests" / "unit").glob("test_*faults*.py")))
        command = [sys.executable, "-m", "pytest", "-q", "-n", "auto", *files]
        subprocess.run(command, cwd=ROOT, env=os.environ | {"KIT_TEST_FAULTS": notes.name}, check=True)
        rows = [line.rstrip("\n").split("\t") for line in notes]
    PAGE.write_text(make_page([(fault, place, outcome) for fault, place, outcome in rows]), encoding="utf-8")


def make_page(notes: list[tuple[str, str, str]]) -> str:
    """Return the text of the page. notes: fault, place and outcome of each injected fault."""
    table: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for fault, place, outcome in notes:
        table[boundary(place), "fault of the disk" if fault in DISK else fault][outcome] += 1
    order = list(BOUNDARIES)
    merged: dict[tuple[str, frozenset[str]], list[str]] = defaultdict(list)  # the faults with the same outcomes
    for where, fault in sorted(table, key=lambda row: (order.index(row[0]), row[1])):
        merged[where, frozenset(table[where, fault])].append(fault)
    lines = [
        f"The tests injected {len(notes):,} faults, and 0 of them lost anything. The numbers depend on the version of",
        f"Python, whose library makes the calls. These are of Python {'.'.join(map(str, sys.version_info[:2]))}.",
        "",
        "| Where | Fault | Injected | Lost | How the attempt ended, and what the next one did |",
        "|---|---|---:|---:|---|",
    ]
    for (where, _), found in merged.items():
        outcomes = sum((table[where, fault] for fault in found), Counter[str]())
        ends = "; ".join(f"{outcome} ({count:,})" for outcome, count in sorted(outcomes.items()))
        lines.append(f"| {where} | {', '.join(found)} | {outcomes.total():,} | 0 | {ends} |")
    return "\n".join([HEAD, *lines, ""])


def boundary(place: str) -> str:
    """Return the name of the boundary of a place, for example `run: os.link in kit.storage.files._rename_new for
    kit.storage.run_folder.save`. Raise ValueError if it has none."""
    context, _, what = place.partition(": ")
    call = re.fullmatch(r"\S+ in (\S+)(?: for (\S+))?", what)
    if call:
        function, caller = call[1], call[2]
        what = caller if caller and caller != "tests" and function.startswith(HELPERS) else function
    for name, beginning in BOUNDARIES.items():
        if re.match(beginning, f"{context}: {what}"):
            return name
    raise ValueError(f"{place}: add it to BOUNDARIES")


if __name__ == "__main__":
    main()
