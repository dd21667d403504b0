"""Answer the question of a study in one sentence without a period."""

from __future__ import annotations

from collections.abc import Callable

from kit.analysis.accuracy_ladder import Ladder, Trainings, make_ladder
from kit.analysis.overfitting import MIN_EPOCHS, overfitting_epoch
from kit.analysis.pairing import Measure
from kit.analysis.study_speedup import judge_speedups
from kit.analysis.study_values import StudyValues
from kit.analysis.sweeps import curves
from kit.model.formatting import DEVICES, format_count, format_range
from kit.model.swept import SweptField
from kit.planning.studies import Study
from kit.planning.study_files import Conclusion, StudyPart
from kit.planning.study_measures import MEASURES
from kit.report import text
from kit.report.flattening import flat_words
from kit.report.section import ReportInput
from kit.report.studies.part_source import PartSource, value_text
from scenarios.contract.cell import Cell

NO_EPOCHS = "Not measured: no cell trained whole epochs on real data"


def answer(source: ReportInput, study: Study, values: StudyValues) -> str:
    """Return the answer to the question of a study, from what the run measured."""
    measure, sentence = ANSWERS[study.file.conclusion]
    part = StudyPart(kind="table", title=study.name, measures=[measure], published=True)
    found = PartSource(source, study, part, values)
    if found.summaries:
        return sentence(found)
    if found.changed:
        return "Not comparable: this kit defines the networks of the study differently"
    return "Not measured: no cell of the study has a result"


def _speedup(part: PartSource) -> str:
    cells = [(place, one) for place in part.measured_at("speedup") for one in part.series]
    speedups = [value for place, one in cells if (value := part.value(place, one, "speedup"))]
    if not speedups:
        return _cpu_time(part)
    keys = {s.key for s in part.summaries if s.cell.device == "cuda"}
    found = judge_speedups(speedups, [d for d in part.source.analysis.diagnoses if d.key in keys])
    extent = format_range(text.ratio(found.low), text.ratio(found.high))
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
        for place, epochs in part.places.items()
        for one in part.series
        if epochs and (value := part.value(place, one, "training_s"))
    ]
    if not times:
        return f"Not measured: {part.missing_gpu}"
    first = times[0][1]
    _, place, one, value = min((each for each in times if each[1] == first), key=lambda each: each[0])
    took = value_text(MEASURES["training_s"], value)
    return (
        f"{part.network(place)} trains for {took} on the {DEVICES[place.device]} in {one.title}; the speedup of "
        f"a GPU is not known: {part.missing_gpu}"
    )


def _flattening(part: PartSource) -> str:
    rates, scenarios = part.source.analysis.rates[Measure.TRAINING], part.source.analysis.scenarios
    axis: SweptField = next((p.x for p in part.study.file.parts if p.kind == "lines" and p.x), "batch")
    found = curves(part.summaries, rates, scenarios, axis)
    if not found:
        return "Not measured: the curve has fewer than two values"
    devices = dict.fromkeys(curve.cells[0].cell.device for curve in found)
    own = {device: [curve for curve in found if curve.cells[0].cell.device == device] for device in devices}
    sentence = "; ".join(f"on the {DEVICES[device]}, training is {flat_words(each)}" for device, each in own.items())
    return f"{sentence[0].upper()}{sentence[1:]}"


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
        extent = format_range(str(epochs[0]), str(epochs[-1])) if epochs else ""
        parts.append(f"on the {device} after epoch {extent}{share}" if epochs else never)
        begun |= bool(epochs)
    if not begun:
        return f"No overfitting shows: {text.listed(parts)}"
    return f"Overfitting begins {text.listed(parts)}, where the validation loss is lowest"


def _accuracy(part: PartSource) -> str:
    """Return the lowest and the highest accuracy of the variants, and whether their order is the published one.

    The accuracy of a variant is the mean over frameworks and devices.
    """
    measure = "best_accuracy"
    compared = [place for place in part.places if part.figures_at(measure, place)] or [*part.places]
    variants: dict[str, tuple[Cell, Trainings]] = {}
    few: list[int] = []
    for place in compared:
        for one in part.series:
            if value := part.value(place, one, measure):
                _, trainings = variants.setdefault(place.label, (place, {}))
                for seed, accuracies in part.accuracies(place, one).items():
                    trainings.setdefault((one.framework, seed), []).extend(accuracies)
                few += [value.epochs] if value.epochs else []
    if not variants:
        return NO_EPOCHS
    places, measured = zip(*variants.values(), strict=True)
    ladder = make_ladder(measured, [next((f.value for f in part.figures_at(measure, p)), None) for p in places])
    means = ladder.means
    ends = (min(range(len(means)), key=means.__getitem__), max(range(len(means)), key=means.__getitem__))
    low, high = (f"{text.percent(means[i], 1)} ({part.network(places[i])})" for i in ends)
    after = f" after only {format_count(min(few), 'epoch')}" if few else ""
    if len(means) == 1:
        return f"Best validation accuracy of {low}{after}"
    frameworks = {framework for trainings in measured for framework, _ in trainings}
    mean = f", means over {len(frameworks)} frameworks" if len(frameworks) > 1 else ""
    return f"Best validation accuracy from {low} to {high}{mean}{after}{_order(ladder)}"


def _order(ladder: Ladder) -> str:
    """Return whether the order of the variants is the published one, as the end of a sentence."""
    if not ladder.pairs:
        return ""
    seeds = format_count(ladder.seeds, "seed")
    if not ladder.decided:
        return f"; the order of the variants cannot be told from so few trainings ({seeds})"
    differ = "differs" if ladder.decided == 1 else "differ"
    return (
        f"; {ladder.decided} of {format_count(ladder.pairs, 'pair')} of variants {differ} by more than the trainings "
        f"do ({seeds}), {ladder.agreeing} of them in the published order"
    )


# Kind of conclusion to the measure that it compares with published figures, and the function that makes the sentence.
ANSWERS: dict[Conclusion, tuple[str, Callable[[PartSource], str]]] = {
    "speedup": ("speedup", _speedup),
    "flattening": ("training_s", _flattening),
    "overfitting": ("test_loss", _overfitting),
    "accuracy": ("best_accuracy", _accuracy),
}
