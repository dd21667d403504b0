"""Answer the question of a study in one sentence without a period."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from kit.analysis.accuracy_ladder import make_ladder
from kit.analysis.gpu_answer import missing_gpu
from kit.analysis.overfitting import MIN_EPOCHS, overfitting_epoch
from kit.analysis.study_speedup import judge_speedups
from kit.analysis.study_values import StudyValues
from kit.analysis.sweeps import Curve, curves, value_words
from kit.model.formatting import DEVICES, format_count
from kit.planning.studies import Study
from kit.planning.study_files import Axis, Conclusion, StudyPart
from kit.planning.study_measures import MEASURES
from kit.report import text
from kit.report.section import ReportInput
from kit.report.studies.part_source import PartSource, value_text
from scenarios.contract.cell import Cell

NO_EPOCHS = "Not measured: no cell trained whole epochs on real data"


def answer(source: ReportInput, study: Study, values: StudyValues) -> str:
    """Return the answer to the question of a study, from what the run measured."""
    measure, sentence = ANSWERS[study.file.conclusion]
    part = StudyPart(kind="table", title=study.name, measures=[measure], published=True)
    found = PartSource(source, study, part, values)
    return sentence(found) if found.summaries else "Not measured: no cell of the study has a result"


def _speedup(part: PartSource) -> str:
    cells = [(place, one) for place in part.measured_at("speedup") for one in part.series]
    speedups = [value for place, one in cells if (value := part.value(place, one, "speedup"))]
    if not speedups:
        return _cpu_time(part)
    keys = {s.key for s in part.summaries if s.cell.device == "cuda"}
    found = judge_speedups(speedups, [d for d in part.source.analysis.diagnoses if d.key in keys])
    low, high = text.ratio(found.low), text.ratio(found.high)
    extent = low if low == high else f"{low} to {high}"
    start = "A tie: the" if found.tied else "The"
    slower = f", slower in {found.slower} of {len(speedups)} cells" if found.slower else ""
    limit = f"; most of its cells are limited by {found.limit}" if found.limit else ""
    published = [f"{MEASURES['speedup'].exact(f.low, f.high)}" for f in part.figures]
    beside = f" (published: {text.listed(published)})" if published else ""
    single = " (single launches)" if found.single else ""
    return f"{start} GPU trains at {extent} the speed of the CPU{single}{slower}{beside}{limit}"


def _cpu_time(part: PartSource) -> str:
    """Return how long the fastest cell of the first network trains, and why there is no speedup."""
    times = [
        (value.value, place, one, value)
        for place in part.places
        for one in part.series
        if (value := part.value(place, one, "training_s"))
    ]
    why = missing_gpu(part.source.analysis, part.summaries)
    if not times:
        return f"Not measured: {why}"
    first = times[0][1]
    _, place, one, value = min((each for each in times if each[1] == first), key=lambda each: each[0])
    took = value_text(MEASURES["training_s"], value)
    return (
        f"{part.network(place)} trains for {took} on the {DEVICES[place.device]} in {one.title}; the speedup of "
        f"a GPU is not known: {why}"
    )


def _flattening(part: PartSource) -> str:
    records, scenarios = part.source.run.records, part.source.analysis.scenarios
    axis: Axis = next((p.x for p in part.study.file.parts if p.kind == "lines" and p.x), "batch")
    found = curves(part.summaries, records, scenarios, axis)
    if not found:
        return "Not measured: the curve has fewer than two values"
    devices = dict.fromkeys(curve.cells[0].cell.device for curve in found)
    own = {device: [curve for curve in found if curve.cells[0].cell.device == device] for device in devices}
    parts = [f"on the {DEVICES[device]}, the speed is {_flat(curves)}" for device, curves in own.items()]
    single = " (single launches)" if any(curve.single for curve in found) else ""
    sentence = "; ".join(parts)
    return f"{sentence[0].upper()}{sentence[1:]}{single}"


def _flat(own: Sequence[Curve]) -> str:
    """Return from which value on the curves of one device are flat."""
    decided = [curve for curve in own if not curve.undecided]
    flat = sorted(curve.flattening.value for curve in decided if curve.flattening.value < curve.values[-1])
    words = []
    if flat:
        extent = f" to {flat[-1]}" * (flat[-1] > flat[0])
        words.append(f"flat from {value_words(own[0].field, flat[0])}{extent} on")
    for count, what in (
        (len(decided) - len(flat), f"not flat up to {own[0].values[-1]}"),
        (len(own) - len(decided), "too uncertain to say where it gets flat"),
    ):
        if count:
            words.append(what + f" in {count} of {len(own)} curves" * (count < len(own)))
    return text.listed(words)


def _overfitting(part: PartSource) -> str:
    found: dict[str, list[list[float]]] = {}  # by device: the validation losses of each curve
    for place in part.places:
        for one in part.series:
            summary = part.summary(place, one)
            curve = part.values.curve(summary) if summary and not summary.synthetic else []
            if len(curve) > 1:
                found.setdefault(DEVICES[place.device], []).append([epoch.test_loss for epoch in curve])
    if not found:
        return NO_EPOCHS
    if (longest := max(len(losses) for own in found.values() for losses in own)) <= MIN_EPOCHS:
        return f"Not known: {longest} epochs are too few to show overfitting"
    begun, parts = False, []
    for device, own in found.items():
        epochs = sorted(epoch for losses in own if (epoch := overfitting_epoch(losses)))
        share = f" in {len(epochs)} of {len(own)} curves" if len(epochs) < len(own) else ""
        never = f"not on the {device} within {max(map(len, own))} epochs"
        parts.append(f"on the {device} after epoch {_extent(epochs)}{share}" if epochs else never)
        begun |= bool(epochs)
    if not begun:
        return f"No overfitting shows: {text.listed(parts)}"
    return f"Overfitting begins {text.listed(parts)}, where the validation loss is lowest"


def _extent(epochs: list[int]) -> str:
    return str(epochs[0]) if epochs[0] == epochs[-1] else f"{epochs[0]} to {epochs[-1]}"


def _accuracy(part: PartSource) -> str:
    """Return the lowest and the highest accuracy of the variants, as means over frameworks and devices."""
    measure = "best_accuracy"
    compared = [place for place in part.places if part.figures_at(measure, place)] or [*part.places]
    values: dict[str, tuple[Cell, list[float]]] = {}
    few: list[int] = []
    for place in compared:
        for one in part.series:
            if value := part.value(place, one, measure):
                values.setdefault(place.label, (place, []))[1].append(value.value)
                few += [value.epochs] if value.epochs else []
    if not values:
        return NO_EPOCHS
    places, means = [place for place, _ in values.values()], [statistics.fmean(own) for _, own in values.values()]
    published = [next((f.value for f in part.figures_at(measure, place)), None) for place in places]
    ladder = make_ladder(means, published)
    low, high = (f"{text.percent(means[i], 1)} ({part.network(places[i])})" for i in (ladder.lowest, ladder.highest))
    order = f"; {ladder.agreeing} of {ladder.pairs} pairs are in the published order" if ladder.pairs else ""
    after = f" after only {format_count(min(few), 'epoch')}" if few else ""
    if len(means) == 1:
        return f"Validation accuracy of {low}{after}"
    return f"Validation accuracy from {low} to {high}{after}{order}"


# Kind of conclusion to the measure that it compares with published figures, and the function that makes the sentence.
ANSWERS: dict[Conclusion, tuple[str, Callable[[PartSource], str]]] = {
    "speedup": ("speedup", _speedup),
    "flattening": ("training_s", _flattening),
    "overfitting": ("test_loss", _overfitting),
    "accuracy": ("best_accuracy", _accuracy),
}
