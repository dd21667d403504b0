"""Learning curves on real data."""

from kit.report.curves import make_curves
from kit.report.section import Section

SECTION = Section(
    80,
    "curves",
    "Learning curves",
    lambda source: make_curves(source, synthetic=False),
    "curves.html",
    question="How accurate are the networks?",
)
