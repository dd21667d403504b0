"""Placeholder for the reliability of a run."""

from kit.analysis.answer import Level, NextLevel, Reliability
from kit.analysis.run_analysis import RunAnalysis


def reliability(analysis: RunAnalysis) -> Reliability:
    """Return how reliable a run is."""
    return Reliability(
        Level.FIRST_LOOK,
        (),
        NextLevel(Level.COMPARISON, "kit run --all --profile standard", "5 launches, about 1 h 30 min"),
    )
