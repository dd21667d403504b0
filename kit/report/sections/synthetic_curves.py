"""Learning curves on synthetic data, which show only that the networks learn."""

from kit.report.curves import make_curves
from kit.report.section import Section

SECTION = Section(
    125,
    "synthetic-curves",
    "Learning curves on synthetic data",
    lambda source: make_curves(source, synthetic=True),
    "curves.html",
)
