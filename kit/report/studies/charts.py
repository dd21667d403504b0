"""Make the line charts of a study: measures over a varied field, and learning curves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter

from kit.analysis.overfitting import find_overfitting
from kit.analysis.pairing import Measure
from kit.analysis.study_values import QUALITY
from kit.analysis.sweeps import Curve, curves
from kit.model.formatting import format_count
from kit.model.swept import TITLES
from kit.planning.study_measures import MEASURES
from kit.report import text
from kit.report.flattening import MEANING, flat_words
from kit.report.line_charts import LineChart, Series, Spot, line_chart, value_chart
from kit.report.marks import SHAPES, sort_key
from kit.report.rows import configuration_words
from kit.report.studies.part_source import PartSource, SeriesKey
from scenarios.contract.cell import Cell

TRIANGLE, DIAMOND, SQUARE = SHAPES[3], SHAPES[1], SHAPES[2]  # of published figures
OUTLINES = (TRIANGLE, SQUARE, DIAMOND)  # for one device, two, and more
# Kind of a chart of learning curves to its measures: validation, training.
LEARNING = {"Loss": ("test_loss", "train_loss"), "Accuracy": ("test_accuracy", "train_accuracy")}


@dataclass(frozen=True)
class StudyCharts:
    """Line charts. findings: what they mark, one sentence each."""

    charts: tuple[LineChart, ...]
    findings: tuple[str, ...]


def sweep_charts(part: PartSource) -> StudyCharts | None:
    """Return one chart for each measure, network and kind of device over the varied field, or None without values."""
    charts, findings = [], []
    for measure in part.part.measures:
        groups: dict[tuple[str, str], list[Cell]] = {}
        for place in part.places:
            groups.setdefault((place.label, place.device), []).append(place)
        for (label, device), places in groups.items():
            series = [*_measured(part, measure, places), *_published(part, measure, places)]
            if not any(one.framework for one in series):
                continue
            grows = MEASURES[measure].speed and part.part.x != "hidden_layers"  # more layers never train faster
            spots, sentences = _flattening(part, label, device) if grows else ([], [])
            charts.append(_sweep_chart(part, measure, places[0], series, spots))
            findings += sentences
    found = [*dict.fromkeys(findings), *([MEANING] if findings else []), *_epochs_notes(part)]
    found += ["Some values are doubtful. The table marks them."] * part.doubtful
    return StudyCharts(tuple(charts), tuple(found)) if charts else None


def _epochs_notes(part: PartSource) -> list[str]:
    """Return which accuracies and losses were measured after fewer epochs than the published ones, if any."""
    fewer = sorted(
        {
            (value.epochs, part.places[place])
            for measure in part.part.measures
            for place in part.places_of(measure)
            for one in part.series
            if (value := part.value(place, one, measure)) and value.epochs
        }
    )
    if not fewer:
        return []
    words = text.listed([f"{epochs} of {format_count(planned, 'epoch')}" for epochs, planned in fewer])
    return [f"Accuracies or losses were measured after fewer epochs than in the study: {words}."]


def _sweep_chart(
    part: PartSource, measure: str, place: Cell, series: Sequence[Series], spots: Sequence[Spot]
) -> LineChart:
    of, x = MEASURES[measure], part.part.x
    assert x
    device = "GPU" if place.device == "cuda" else configuration_words(place)
    made = ", synthetic data" * (place.network in part.made)
    title = f"{of.title}, {device}" + f", {part.variant(place)}" * part.mixed + made
    return value_chart(
        title,
        TITLES[x],
        series,
        of.short,
        doubling=x != "hidden_layers",
        zero=of.speed,
        log=of.unit not in {"accuracy", "share"},  # a logarithmic axis squeezes values near 1
        spots=spots,
    )


def _measured(part: PartSource, measure: str, places: Sequence[Cell]) -> list[Series]:
    found = []
    styles = list(dict.fromkeys((one.lane, one.precision) for one in part.series))
    for one in part.series:
        dash = styles.index((one.lane, one.precision)) % 4
        values = ((_x(part, place), part.value(place, one, measure)) for place in places)
        measured = sorted(((x, value) for x, value in values if x is not None and value), key=itemgetter(0))
        if measured:
            points = [(x, value.value) for x, value in measured]
            intervals = [value.interval if text.is_useful(value.interval) else None for _, value in measured]
            found.append(Series(one.title, points, one.framework, dash, device="cuda", intervals=intervals))  # filled
    return found


def _published(part: PartSource, measure: str, places: Sequence[Cell]) -> list[Series]:
    found = []
    for devices in sorted({place.devices for place in places}):
        own = [place for place in places if place.devices == devices]
        figures = [(_x(part, place), figure) for place in own for figure in part.figures_at(measure, place)]
        points = sorted((x, figure.value) for x, figure in figures if x is not None)
        if points:
            hardware = next((figure.hardware for _, figure in figures if figure.hardware), "")
            name = f"published: {hardware}" if hardware else "published"
            outline = OUTLINES[min(devices, len(OUTLINES)) - 1]
            found.append(Series(name, points, dash=devices - 1, outline=outline))
    return found


def _x(part: PartSource, place: Cell) -> float | None:
    assert part.part.x
    return part.x_of(place, part.part.x)


def _flattening(part: PartSource, label: str, device: str) -> tuple[list[Spot], list[str]]:
    """Return where the curve of each series flattens, and a sentence about each. A point that is uncertain, or that is
    not before the last value, is not marked."""
    own = [s for s in part.summaries if (s.cell.label, s.cell.device) == (label, device)]
    assert part.part.x
    analysis = part.source.analysis
    found = curves(own, analysis.rates[Measure.TRAINING], analysis.scenarios, part.part.x)
    found.sort(key=lambda curve: sort_key(curve.cells[0].cell.framework))
    sentences = [_sentence(part, curve) for curve in found]
    marked = [(c, words) for c, words in zip(found, sentences, strict=True) if c.flattens and not c.undecided]
    return [_spot(curve, words) for curve, words in marked], sentences


def _spot(curve: Curve, sentence: str) -> Spot:
    flat = curve.flattening
    ends = flat.earliest or flat.value, flat.latest or flat.value
    return Spot(flat.value, *ends, sentence, curve.cells[0].cell.framework)


def _sentence(part: PartSource, curve: Curve) -> str:
    cell = curve.cells[0].cell
    names = [part.source.framework_title(cell.framework), *[part.variant(cell)] * part.mixed, configuration_words(cell)]
    return f"{', '.join(names)}: {flat_words([curve])}."


def learning_charts(part: PartSource) -> StudyCharts | None:
    """Return the learning curves of each place: loss and accuracy, with the epoch at which overfitting begins."""
    charts, findings = [], []
    for place in part.places:
        cells = [(one, summary, part.curve(place, one)) for one in part.series if (summary := part.summary(place, one))]
        trained = [cell for cell in cells if len(cell[2]) > 1]
        if not trained:
            continue
        spots = [
            spot
            for one, summary, curve in trained
            if not summary.synthetic and (spot := _overfitting(part, place, one, [e.test_loss for e in curve]))
        ]
        findings += [spot.text for spot in spots]
        real = [s for _, s, _ in trained if not s.synthetic]
        styles = list(dict.fromkeys((one.lane, one.precision) for one, _, _ in trained))
        for kind, measures in LEARNING.items():
            series = [
                Series(
                    name=f"{one.title}, {words}",
                    points=[(e.index, QUALITY[measure](e)) for e in curve],
                    framework=one.framework,
                    dash=(2 * styles.index((one.lane, one.precision)) + dash) % 4,
                    device="cuda",  # filled: measured
                    ends=True,
                )
                for one, _, curve in trained
                for dash, (words, measure) in enumerate(zip(("validation", "training"), measures, strict=True))
            ]
            series += _published_epochs(part, place, measures) if real else []
            title = f"{kind}, {part.label(place)}" + ", synthetic data" * (not real and not part.made)
            charts.append(line_chart(title, "epochs", series, MEASURES[measures[0]].short, zero=False, spots=spots))
    return StudyCharts(tuple(charts), tuple(findings)) if charts else None


def _published_epochs(part: PartSource, place: Cell, measures: tuple[str, str]) -> list[Series]:
    """Return the published values of single epochs. measures: of validation and of training.

    A value without an epoch is that of the last one, but the epoch of a best accuracy is then not known.
    """
    found = []
    for words, outline, names in (
        ("validation", TRIANGLE, [measures[0], *["best_accuracy"] * (measures[0] == "test_accuracy")]),
        ("training", DIAMOND, [measures[1]]),
    ):
        figures = [f for name in names for f in part.figures_at(name, place)]
        placed = [f for f in figures if f.epoch or f.measure != "best_accuracy"]
        points = sorted((f.epoch or part.places[place], f.value) for f in placed)
        if points:
            found.append(Series(f"published, {words}", points, outline=outline, alone=True))
    return found


def _overfitting(part: PartSource, place: Cell, one: SeriesKey, losses: Sequence[float]) -> Spot | None:
    found = find_overfitting(losses)
    if not found.begun:
        return None
    words = (
        f"{one.title}, {part.label(place)}: overfitting begins after epoch {found.lowest}, with the lowest validation "
        f"loss of {losses[found.lowest - 1]:.4g}."
    )
    return Spot(found.lowest, found.lowest, found.lowest, words, one.framework)
