"""Training speed of each network in each framework."""

from collections.abc import Iterable
from dataclasses import dataclass

from kit.analysis.intervals import CONFIDENCE, MIN_LAUNCHES, median_confidence
from kit.analysis.pairing import Measure
from kit.analysis.spread import Spread, training_spread
from kit.analysis.summaries import CellSummary
from kit.report import text
from kit.report.headings import training_heading
from kit.report.published import published_speeds
from kit.report.rows import Quantity, Rows, quantity_rows
from kit.report.section import ReportInput, Section


@dataclass(frozen=True)
class TrainingData:
    """The heading and the table.

    single: whether no cell has more than one launch. few: whether a cell has several, but fewer than five. less: the
    numbers of launches whose interval has less than 95%, as words, or "". onnxruntime: whether ONNX Runtime was
    measured.
    """

    heading: str
    table: Rows
    single: bool
    few: bool
    less: str
    onnxruntime: bool


def _data(source: ReportInput) -> TrainingData | None:
    if not source.measured:
        return None

    def spread(cell: CellSummary) -> Spread | None:
        launch = source.single_launches.get(cell.key)
        return training_spread(launch) if launch else None

    quantity = Quantity(
        words="Training speed",
        unit="images/s",
        measure=Measure.TRAINING,
        value=lambda cell: cell.images_per_s,
        interval=lambda cell: cell.interval,
        spread=spread,
        published=lambda cell: published_speeds(cell, source.studies, source.analysis.scenarios),
        depends_on_batch=True,
    )
    single = all(cell.launches == 1 for cell in source.measured)
    return TrainingData(
        heading=training_heading(source),
        table=quantity_rows(source, quantity, "In one launch each" if single else "Verdict"),
        single=single,
        few=any(1 < cell.launches < MIN_LAUNCHES for cell in source.measured),
        less=_less_confidence({cell.launches for cell in source.measured if cell.launches >= MIN_LAUNCHES}),
        onnxruntime="onnxruntime" in source.frameworks,
    )


def _less_confidence(counts: Iterable[int]) -> str:
    """Return which numbers of launches give an interval with less than 95%: `93.8% with 5 launches`, or ""."""
    found = {count: median_confidence(count) for count in sorted(counts)}
    less = {count: confidence for count, confidence in found.items() if confidence < CONFIDENCE}
    return text.listed([f"{text.percent(confidence, 1)} with {count} launches" for count, confidence in less.items()])


SECTION = Section(20, "training", "Training", _data, "training.html", question="Which framework trains fastest here?")
