"""Measure one cell of the example with the local engine, and read the report of this run."""

from __future__ import annotations

import html
import re
import uuid
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from kit import assets
from kit.engines.base import Engine
from kit.environments.package_sources import Sources
from kit.execution import workflow
from kit.host import machine_lock
from kit.model.progress import Silent
from kit.model.record import Record
from kit.planning.plan import Options
from kit.planning.profiles import PROFILES, Profile
from kit.planning.selection import Selection
from scenarios import catalog
from scenarios.contract.reasons import Status


@dataclass(frozen=True)
class MeasuredRun:
    """A finished run of one launch: its record and its report."""

    record: Record
    page: str

    def rows(self, section: str) -> list[list[str]]:
        """Return the rows of all tables in a section of the report as plain text. Empty if the section is missing."""
        found = re.search(rf'<section id="{section}"[^>]*>.*?</section>', self.page, re.DOTALL)
        rows = re.findall(r"<tr>(.*?)</tr>", found[0], re.DOTALL) if found else []
        cells = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL) for row in rows]
        return [[html.unescape(re.sub(r"<[^>]+>", "", cell)) for cell in row] for row in cells]

    def warning(self, pattern: str) -> re.Match[str] | None:
        """Return the match of the first warning of the report that has this pattern."""
        return next((match for row in self.rows("warnings") if (match := re.search(pattern, row[1]))), None)

    def verdict(self) -> tuple[str, str, str]:
        """Return what limits the cell according to the report, the evidence and the remedy."""
        rows = self.rows("ceilings")
        at = next(number for number, row in enumerate(rows) if "Evidence" in row)
        fields = dict(zip(*rows[at : at + 2], strict=True))
        return fields["Limited by"], fields["Evidence"], fields["What to change"]

    def other_load(self) -> float:
        """Return the CPUs that other processes used according to the report's warning, or 0 without this warning."""
        match = self.warning(
            r"Other processes kept ([\d.]+) of the machine's \d+ logical CPUs busy while the cell trained"
        )
        return float(match[1]) if match else 0.0


def use_assets(site: Path, scratch: Path, profile: Profile, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let kit use the scenarios and frameworks of `site`, this profile, and a cache and a lock in `scratch`."""
    monkeypatch.setattr(assets, "ROOT", site)
    monkeypatch.setattr(catalog, "__path__", [str(site / "scenarios/catalog")])
    monkeypatch.setattr(machine_lock, "PATH", scratch / "lock")
    monkeypatch.setenv("KIT_CACHE_DIR", str(scratch / "cache"))
    monkeypatch.setitem(PROFILES, profile.name, profile)


def measure_cell(selection: Selection, options: Options, engine: Engine, scratch: Path) -> MeasuredRun:
    """Plan, measure and report a single launch, which must be ok. The run goes to a new folder in `scratch`."""
    prepared = workflow.prepare(selection, options, Sources())
    outcome = workflow.start(replace(prepared, engine=engine), scratch / uuid.uuid4().hex, Silent())
    (record,) = outcome.analysis.run.records
    assert record.status is Status.OK, record.reason
    return MeasuredRun(record, outcome.report.read_text())
