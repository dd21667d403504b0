"""The warnings about the run, the most serious first."""

from kit.report.elements import Table
from kit.report.section import ReportInput, Section


def _data(source: ReportInput) -> Table | None:
    if not source.analysis.warnings:
        return None
    return Table(
        headers=("Cell", "Observation", "What to do"),
        rows=tuple((source.name(w.about) or "the whole run", w.cause, w.remedy) for w in source.analysis.warnings),
    )


SECTION = Section(50, "warnings", "Warnings", _data)
