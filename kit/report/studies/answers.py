"""Answer the question of a study in one sentence without a period."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kit.analysis.accuracy_ladder import Ladder, Trainings, make_ladder
from kit.analysis.overfitting import find_overfitting
from kit.analysis.pairing import Measure
from kit.analysis.study_speedup import judge_speedups
from kit.analysis.study_values import StudyValues
from kit.analysis.summaries import too_few
from kit.analysis.sweeps import curves
from kit.analysis.uncertainty import uncertainty
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
    start, others = "The", []
    for count, whole, word in (
        (found.tied, "A tie: the", "a tie"),
        (found.undecided, "Undecided, because launches differ: the", "undecided"),
        (found.slower, "The", "slower"),
    ):
        if count == found.count:
            start = whole
        if 0 < count < found.count or (count and word == "slower"):
            others.append(f", {word} in {count} of {format_count(found.count, 'cell')}")
    few = f" {too_few(part.summaries)}" if found.single else uncertainty(speedup.interval for speedup in speedups)
    limit = f"; most of its cells are limited by {found.limit}" if found.limit else ""
    return (
        f"{start} GPU trains at {extent} the speed of the CPU{few}{_lanes(part)}{''.join(others)}"
        f"{_published_speedup(part)}{limit}"
    )


def _published_speedup(part: PartSource) -> str:
    """Return the published speedups of measured networks. They are named if others were measured, too."""
    measured = [p for p in part.measured_at("speedup") if any(part.value(p, one, "speedup") for one in part.series)]
    words = []
    for figure in part.figures:
        own = {place.label for place in measured if figure.is_at(place)}
        exact = MEASURES["speedup"].exact(figure.low, figure.high)
        if own == {place.label for place in measured}:
            words.append(exact)
        elif own:
            words.append(f"{exact} for {part.network(figure.place)}")
    return f" (published: {text.listed(words)})" if words else ""


def _lanes(part: PartSource) -> str:
    """Return the lanes and precisions of the measured cells, unless all are the usual ones."""
    kinds = list(dict.fromkeys(one.unusual or "stock" for one in part.series))
    return "" if kinds == ["stock"] else f" ({text.listed(kinds)})"


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
    return f"{sentence[0].upper()}{sentence[1:]}{_lanes(part)}"


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
    begun, without, unknown = [], [], []
    for device, own in found.items():
        results = [find_overfitting(losses) for losses in own]
        lowest = sorted(result.lowest for result in results if result.begun)
        epochs = max(map(len, own))
        if lowest:
            share = f" in {len(lowest)} of {len(own)} curves" if len(lowest) < len(own) else ""
            begun.append(f"on the {device} after epoch {format_range(str(lowest[0]), str(lowest[-1]))}{share}")
        elif any(result.begun is None for result in results):
            last = format_range(*(str(end([result.lowest for result in results])) for end in (min, max)))
            unknown.append(
                f"{epochs} epochs on the {device} are too few to show overfitting (lowest loss: epoch {last})"
            )
        else:
            without.append(f"no overfitting shows on the {device} within {epochs} epochs")
    start = [f"overfitting begins {text.listed(begun)}, where the validation loss is lowest"] if begun else []
    sentence = "; ".join([*start, *without, *unknown])
    return f"{sentence[0].upper()}{sentence[1:]}"


def _accuracy(part: PartSource) -> str:
    """Return the lowest and the highest accuracy of the variants, and whether their order is the published one.

    The accuracy of a variant is the mean over the frameworks and seeds that all variants have, if there are any.
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
    shared = set.intersection(*(set(trainings) for trainings in measured))
    own = [{key: trainings[key] for key in trainings if key in shared or not shared} for trainings in measured]
    means = make_ladder(own, [None] * len(own)).means
    after = f" after only {format_count(min(few), 'epoch')}" if few else ""
    ladder = make_ladder(measured, [next((f.value for f in part.figures_at(measure, p)), None) for p in places])
    return f"{_extent(part, places, means)}{_averaged(own)}{after}{_order(ladder)}"


def _extent(part: PartSource, places: Sequence[Cell], means: Sequence[float]) -> str:
    low, high = (
        f"{text.percent(means[i], 1)} ({part.network(places[i])})"
        for i in (end(range(len(means)), key=means.__getitem__) for end in (min, max))
    )
    return f"Best validation accuracy of {low}" if len(means) == 1 else f"Best validation accuracy from {low} to {high}"


def _averaged(variants: Sequence[Trainings]) -> str:
    """Return over what the accuracies of variants are means, or "" if each is one value."""
    frameworks = {framework for trainings in variants for framework, _ in trainings}
    if len(frameworks) == 1 and all(sum(map(len, trainings.values())) == 1 for trainings in variants):
        return ""
    word = "mean" if len(variants) == 1 else "means"
    if any(trainings.keys() != variants[0].keys() for trainings in variants):
        return f", {word} over different trainings"
    several = len(frameworks) > 1
    return f", {word} over {format_count(len(frameworks), 'framework') if several else 'several trainings'}"


def _order(ladder: Ladder) -> str:
    """Return whether the order of the variants is the published one, as the end of a sentence."""
    if not ladder.pairs:
        return ""
    seeds = format_count(ladder.seeds, "seed")
    if not ladder.decided:
        return f"; the order of the variants cannot be told from so few trainings ({seeds})"
    pairs = format_count(ladder.pairs, "pair")
    return (
        f"; in {ladder.decided} of {pairs}, variants differ by more than trainings of the same variant do ({seeds}), "
        f"and {ladder.agreeing} of these {ladder.decided} have the published order"
    )


# Kind of conclusion to the measure that it compares with published figures, and the function that makes the sentence.
ANSWERS: dict[Conclusion, tuple[str, Callable[[PartSource], str]]] = {
    "speedup": ("speedup", _speedup),
    "flattening": ("training_s", _flattening),
    "overfitting": ("test_loss", _overfitting),
    "accuracy": ("best_accuracy", _accuracy),
}
