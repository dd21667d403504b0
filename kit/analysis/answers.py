"""Placeholder for the answers of a run."""

from collections.abc import Mapping

from kit.analysis.answer import Answer, Answers, State
from kit.analysis.run_analysis import RunAnalysis


def answers(analysis: RunAnalysis, titles: Mapping[str, str]) -> Answers:
    """Return the answers of a run."""
    none = Answer("?", State.NOT_MEASURED, "Not measured")
    return Answers(none, none, none, none)
