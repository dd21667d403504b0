"""Throughput and latency of inference of each network in each framework."""

from collections.abc import Callable
from dataclasses import dataclass

from kit.analysis.measured_launch import MeasuredLaunch
from kit.analysis.pairing import Measure
from kit.analysis.spread import Spread, latency_spread, throughput_spread
from kit.analysis.summaries import CellSummary
from kit.report.headings import inference_heading
from kit.report.rows import Quantity, Rows, quantity_rows
from kit.report.section import ReportInput, Section
from kit.report.text import listed


@dataclass(frozen=True)
class InferenceData:
    """The heading and the tables. batch: images per call of the throughput, as words."""

    heading: str
    throughput: Rows
    latency: Rows
    batch: str


def _data(source: ReportInput) -> InferenceData | None:
    served = [cell for cell in source.measured if cell.inference_images_per_s]
    if not served:
        return None
    batches = sorted({cell.inference_batch for cell in served if cell.inference_batch})
    throughput = Quantity(
        words="Throughput of inference",
        unit="images/s",
        value=lambda cell: cell.inference_images_per_s,
        interval=lambda cell: cell.inference_interval,
        spread=_spread(source, throughput_spread),
    )
    latency = Quantity(
        words="Median latency of inference",
        unit="ms",
        value=lambda cell: cell.p50_ms,
        interval=lambda cell: cell.p50_interval,
        spread=_spread(source, latency_spread),
    )
    call = "In one launch each" if all(cell.launches == 1 for cell in source.measured) else "Verdict"
    return InferenceData(
        heading=inference_heading(source),
        throughput=quantity_rows(source, throughput, source.contests[Measure.INFERENCE], call),
        latency=quantity_rows(source, latency, source.contests[Measure.LATENCY], call),
        batch=listed([str(batch) for batch in batches]),
    )


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
