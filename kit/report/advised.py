"""What to change about each cell, with the words that all sections share."""

from __future__ import annotations

from kit.analysis.advice import advice
from kit.report.section import ReportInput
from scenarios.catalog import scenario_of


def advised(source: ReportInput) -> dict[str, str]:
    """Return the advice for each diagnosed cell, by its key."""
    slower = {ratio.numerator.key for ratio in source.ratios("device") if ratio.ratio < 1}  # than on the CPU
    summaries = {summary.key: summary for summary in source.measured}
    found = {}
    for diagnosis in source.analysis.diagnoses:
        if summary := summaries.get(diagnosis.key):
            cell = summary.cell
            scenario = scenario_of(cell, source.analysis.scenarios)
            feed = source.settings(summary).get("feed", "")
            found[cell.key] = advice(diagnosis, cell, scenario, feed, cell.key in slower)
    return found
