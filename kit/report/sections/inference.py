"""Throughput and latency of inference of each network in each framework."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kit.analysis.measured_launch import MeasuredLaunch
from kit.analysis.pairing import Measure, calls_per_s
from kit.analysis.spread import Spread, latency_spread, throughput_spread
from kit.analysis.summaries import CellSummary
from kit.report.headings import inference_heading
from kit.report.rows import Quantity, Rows, quantity_rows
from kit.report.section import ReportInput, Section
from kit.report.text import listed

MAX_NAMED = 6  # cells in a sentence


@dataclass(frozen=True)
class InferenceData:
    """The heading and the tables. batch: images per call of the throughput, as words.

    led: whether verdicts say how far a framework leads over several launches. served_by: whether the records say what
    was called. faster_alone: the cells that predict more images/s with one image per call, as words, or "".
    """

    heading: str
    throughput: Rows
    latency: Rows
    batch: str
    led: bool
    served_by: bool
    faster_alone: str


def _data(source: ReportInput) -> InferenceData | None:
    served = [cell for cell in source.measured if cell.inference_images_per_s]
    if not served:
        return None
    batches = sorted({cell.inference_batch for cell in served if cell.inference_batch})
    throughput = Quantity(
        words="Throughput of inference",
        unit="images/s",
        measure=Measure.INFERENCE,
        value=lambda cell: cell.inference_images_per_s,
        interval=lambda cell: cell.inference_interval,
        spread=_spread(source, throughput_spread),
    )
    latency = Quantity(
        words="Median latency of inference",
        unit="ms",
        measure=Measure.LATENCY,
        value=lambda cell: cell.p50_ms,
        interval=lambda cell: cell.p50_interval,
        spread=_spread(source, latency_spread),
    )
    single = all(cell.launches == 1 for cell in source.measured)
    call = "In one launch each" if single else "Verdict"
    tables = [quantity_rows(source, quantity, call) for quantity in (throughput, latency)]
    return InferenceData(
        heading=inference_heading(source),
        throughput=tables[0],
        latency=tables[1],
        batch=listed([str(batch) for batch in batches]),
        led=not single and any(table.call for table in tables),
        served_by=any(result.evidence and result.evidence.placement.serving for _, result in source.results),
        faster_alone=_faster_alone(source, served),
    )


def _faster_alone(source: ReportInput, served: Sequence[CellSummary]) -> str:
    """Return the cells whose intervals show that calls with one image give more images/s than large ones, or ""."""
    found = [
        source.name(cell.key)
        for cell in served
        if cell.p50_interval
        and cell.inference_interval
        and (cell.inference_batch or 1) > 1
        and calls_per_s(cell.p50_interval.high) > cell.inference_interval.high
    ]
    return listed(found, MAX_NAMED)


def _spread(
    source: ReportInput, of: Callable[[MeasuredLaunch], Spread | None]
) -> Callable[[CellSummary], Spread | None]:
    def found(cell: CellSummary) -> Spread | None:
        launch = source.single_launches.get(cell.key)
        return of(launch) if launch else None

    return found


SECTION = Section(
    30, "inference", "Inference", _data, "inference.html", question="Which framework serves fastest here?"
)
