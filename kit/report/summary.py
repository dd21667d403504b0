"""Summarize a report for the list of runs."""

from kit.analysis.run_analysis import RunAnalysis
from kit.model.formatting import printable, shortened
from kit.model.run_summary import MAX_SECTIONS, MAX_TEXT_LENGTH, RunSummary, SectionLink
from kit.report.elements import Table
from kit.report.view import View

PROBLEMS = "problems"  # anchor of the section with what failed


def summarize_report(view: View, analysis: RunAnalysis) -> RunSummary:
    """Return the summary of a run. view: the content of its report."""
    run, answers, failure = analysis.run, view.answers, view.failure
    problems = next((data for section, data in view.folded if section.anchor == PROBLEMS), None)
    return RunSummary(
        records=sum(map(len, (run.records, run.probes, run.tunings, run.unusable))),
        headline=_text(failure.headline if failure else answers.speed.headline if answers else ""),
        detail=_text(answers.framework.headline if answers else ""),
        reliability=_text((view.reliability and view.reliability.level) or ""),
        warnings=len(analysis.warnings),
        problems=_text(problems.summary if isinstance(problems, Table) else ""),
        sections=[
            SectionLink(anchor=_text(section.anchor), title=_text(section.title))
            for section, _ in view.open[:MAX_SECTIONS]
        ],
    )


def _text(text: str) -> str:
    """Return a text that a summary can have. It may come from the record of a stranger."""
    return shortened(printable(text), MAX_TEXT_LENGTH)
