"""All figures of all cells in two tables: training and inference."""

from __future__ import annotations

from dataclasses import dataclass

from kit.analysis.pairing import Measure
from kit.analysis.reliability import unsteady_cells
from kit.analysis.summaries import CellSummary, format_accuracy
from kit.model.formatting import format_count
from kit.report import text
from kit.report.elements import Table
from kit.report.rows import cell_key, configuration_words
from kit.report.section import ReportInput, Section
from scenarios.catalog import scenario_of
from scenarios.contract.cell import Cell
from scenarios.contract.result import MIN_P99_SAMPLES
from scenarios.spec import DATASETS, Scenario

NAMES = ("Network", "Framework", "On")
TRAINING = ("Images/s", "Launches", "Step", "Limited by", "Epoch", "Test accuracy", "CPUs busy")
INFERENCE = ("Latency p50 / p90 / p99, ms", "Images/s", "Images per call")
OPTIMIZERS = {"Sgd": "SGD"}
SCALING = {"nearest": "nearest neighbor"}


@dataclass(frozen=True)
class FiguresData:
    """The content. notes: what the signs in both tables mean, only those that they have. networks: what each one is."""

    summary: str
    training: Table
    inference: Table
    notes: tuple[str, ...]
    networks: Table


def _data(source: ReportInput) -> FiguresData | None:
    if not source.measured:
        return None
    cells = [c for group in source.rows.values() for c in sorted(group, key=cell_key)]
    return FiguresData(
        summary=f"training, inference, latency and CPUs busy of {format_count(len(cells), 'cell')}",
        training=Table(
            caption="Training",
            headers=(*NAMES, *TRAINING),
            rows=tuple(_training_rows(source, cells)),
            numeric=(3, 4, 5, 7, 9),
        ).limited(),
        inference=Table(
            caption="Inference",
            headers=(*NAMES, *INFERENCE),
            rows=tuple(_inference_rows(source, cells)),
            numeric=(3, 4, 5),
        ).limited(),
        notes=tuple(_notes(source, cells)),
        networks=_networks(source),
    )


def _names(source: ReportInput, cells: list[CellSummary]) -> list[tuple[str, ...]]:
    """Return what names the row of each cell."""
    labels = {c.key: label for label, group in source.rows.items() for c in group}
    return [(labels[c.key], source.framework_title(c.cell.framework), configuration_words(c.cell)) for c in cells]


def _training_rows(source: ReportInput, cells: list[CellSummary]) -> list[tuple[str, ...]]:
    diagnoses, unsteady = {d.key: d for d in source.analysis.diagnoses}, unsteady_cells(source.analysis)
    rows: list[tuple[str, ...]] = []
    for names, c in zip(_names(source, cells), cells, strict=True):
        diagnosis = diagnoses.get(c.key)
        rows.append(
            (
                *names,
                text.estimate(c.images_per_s, c.interval) + " ⚠" * (c.key in unsteady),
                f"{c.launches}: {text.number(c.lowest)} to {text.number(c.highest)}" if c.launches > 1 else "1",
                text.seconds(diagnosis.parts.total if diagnosis and diagnosis.parts else None),
                diagnosis.label if diagnosis else text.MISSING,
                ("≈ " if c.projected else "") + text.seconds(c.epoch_s),
                format_accuracy(c, text.MISSING),
                text.number(c.cpu_cores, 2),
            )
        )
    return rows


def _inference_rows(source: ReportInput, cells: list[CellSummary]) -> list[tuple[str, ...]]:
    disturbed = unsteady_cells(source.analysis, Measure.INFERENCE)
    return [
        (
            *names,
            " / ".join((text.estimate(c.p50_ms, c.p50_interval), text.number(c.p90_ms), text.number(c.p99_ms))),
            text.estimate(c.inference_images_per_s, c.inference_interval) + " ⚠" * (c.key in disturbed),
            text.MISSING if c.inference_batch is None else str(c.inference_batch),
        )
        for names, c in zip(_names(source, cells), cells, strict=True)
    ]


def _notes(source: ReportInput, cells: list[CellSummary]) -> list[str]:
    notes = [
        (
            any(c.launches > 1 for c in cells),
            (
                "Numbers are medians over launches; of two launches, speeds are geometric means. The step and the "
                "accuracy are those of the first launch."
            ),
        ),
        (
            any(c.projected for c in cells),
            "≈ The time of an epoch is computed from the steady windows, because windows were timed, not whole epochs.",
        ),
        (
            any(c.p99_ms is None for c in cells),
            f"– for p99: a 99th percentile needs at least {MIN_P99_SAMPLES} calls, and the launches made fewer.",
        ),
        (
            any(c.interval for c in cells),
            (
                "± The longer arm of the 95% interval, relative to the value, or both ends if ± would mislead. "
                "Uncertain: the ends are more than a factor of 10 apart."
            ),
        ),
        (
            bool(unsteady_cells(source.analysis)),
            "⚠ The cell was disturbed or, in the table of training, was not steady, see “Warnings”.",
        ),
        (
            any(c.synthetic for c in cells),
            "Accuracies on synthetic data say nothing about the real task.",
        ),
    ]
    return [note for applies, note in notes if applies]


def _networks(source: ReportInput) -> Table:
    rows = []
    for label, cells in source.rows.items():
        cell = cells[0].cell
        scenario = scenario_of(cell, source.analysis.scenarios)
        data = "synthetic" if all(c.synthetic for c in cells) else "real"
        data = "real and synthetic" if data == "real" and any(c.synthetic for c in cells) else data
        rows.append((label, source.network(cell), data, str(cell.batch), *_facts(scenario), _studies(source, cell)))
    return Table(
        caption="The networks",
        headers=("Network", "Title", "Data", "Batch", "Images", "Optimizer", "Loss", "Studies"),
        rows=tuple(rows),
        numeric=(3,),
    ).limited()


def _facts(scenario: Scenario | None) -> tuple[str, str, str]:
    if scenario is None:
        return ("unknown to this kit, or changed since the run", "", "")
    optimizer, name = scenario.optimizer, type(scenario.optimizer).__name__
    dataset = DATASETS[scenario.dataset]
    scaled = f", photos scaled by {SCALING[scenario.scaling]}" if dataset.shape is None else ""
    return (
        f"{dataset.title}, {'×'.join(map(str, scenario.image))}{scaled}",
        f"{OPTIMIZERS.get(name, name)}, learning rate {optimizer.learning_rate:g}",
        f"{scenario.loss} cross-entropy from {scenario.output.activation.replace('linear', 'logits')}",
    )


def _studies(source: ReportInput, cell: Cell) -> str:
    return ", ".join(s.name for s in source.studies.values() if s.uses(cell.scenario, cell.variant)) or text.MISSING


SECTION = Section(100, "figures", "All figures", _data, "figures.html")
