"""One section per scenario, with its charts and its table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kit.analysis.intervals import Interval
from kit.analysis.summaries import CellSummary, format_accuracy
from kit.report import text
from kit.report.elements import Bar, Point, Table
from kit.report.section import ReportInput, Section, configuration
from scenarios.spec import DATASETS, Scenario

MAX_EPOCHS = 300  # of a curve: about two per pixel


@dataclass(frozen=True)
class ScenarioData:
    """One scenario or variant at one batch size. bars: title of a chart (with unit) to its bars."""

    label: str
    title: str
    facts: tuple[str, ...]
    synthetic: bool
    table: Table
    bars: Mapping[str, tuple[Bar, ...]]
    curve: tuple[Point, ...]


def _data(source: ReportInput) -> tuple[ScenarioData, ...] | None:
    return tuple(_scenario(source, label, group) for label, group in source.rows.items()) or None


def _scenario(source: ReportInput, label: str, group: Sequence[CellSummary]) -> ScenarioData:
    cells = sorted(group, key=lambda c: (c.cell.device, c.cell.framework))
    scenario = source.analysis.scenarios.get(cells[0].cell.scenario, {}).get(cells[0].cell.variant)

    def bar(summary: CellSummary, value: float | None, interval: Interval | None = None) -> Bar:
        ends = (interval.low, interval.high) if interval else (None, None)
        title, device = source.framework_title(summary.cell.framework), summary.cell.device
        return Bar(title, configuration(summary), device, value or 0.0, *ends)

    return ScenarioData(
        label=label,
        title=scenario.title if scenario else label,
        facts=_facts(scenario, cells[0]),
        synthetic=any(c.synthetic for c in cells),
        table=_table(source, cells),
        bars={
            "Training, images/s": tuple(bar(c, c.images_per_s, c.interval) for c in cells),
            "Inference, images/s": tuple(bar(c, c.inference_images_per_s, c.inference_interval) for c in cells),
            "One training epoch, s": tuple(bar(c, c.epoch_s) for c in cells),
        },
        curve=tuple(
            Point(source.series(c), epoch, accuracy, part)
            for c in cells
            if len(c.curve) > 1
            for epoch, train, test in _thinned(c.curve)
            for part, accuracy in (("train", train), ("test", test))
        ),
    )


def _facts(scenario: Scenario | None, cell: CellSummary) -> tuple[str, ...]:
    if scenario is None:
        return (f"Batch {cell.cell.batch}.",)
    height, width, channels = scenario.image
    optimizer = scenario.optimizer
    loss = f"{scenario.loss} cross-entropy from {scenario.output.activation.replace('linear', 'logits')}"
    return (
        f"{DATASETS[scenario.dataset].title}, {height}×{width}×{channels}, batch {cell.cell.batch}.",
        f"{type(optimizer).__name__}, learning rate {optimizer.learning_rate:g}; {loss}.",
        f"From study {scenario.study}." if scenario.study else "",
    )


def _table(source: ReportInput, cells: Sequence[CellSummary]) -> Table:
    return Table(
        caption="Training and inference",
        headers=(
            "Framework",
            "Device",
            "Training images/s",
            "Launches",
            "Epoch",
            "Test accuracy",
            "Latency p50 / p90 / p99, ms",
            "Inference images/s",
            "CPUs busy",
        ),
        rows=tuple(
            (
                source.framework_title(c.cell.framework),
                configuration(c),
                text.estimate(c.images_per_s, c.interval),
                f"{c.launches}: {text.number(c.lowest)} to {text.number(c.highest)}" if c.launches > 1 else "1",
                ("≈ " if c.projected else "") + text.seconds(c.epoch_s),
                format_accuracy(c, text.MISSING),
                " / ".join((text.estimate(c.p50_ms, c.p50_interval), text.number(c.p90_ms), text.number(c.p99_ms))),
                f"{text.estimate(c.inference_images_per_s, c.inference_interval)} (b{c.inference_batch})",
                text.number(c.cpu_cores, 2),
            )
            for c in cells
        ),
        numeric=(2, 3, 4, 5, 6, 7, 8),
        marks=frozenset(i for i, c in enumerate(cells) if c.synthetic),
    )


def _thinned(curve: Sequence[tuple[int, float, float]]) -> Sequence[tuple[int, float, float]]:
    """Return at most MAX_EPOCHS points of a curve, including the last one."""
    every = -(-len(curve) // MAX_EPOCHS)
    return curve[(len(curve) - 1) % every :: every]


SECTION = Section(120, "scenarios", "All figures", _data, "scenarios.html")
