"""Answer the question of a study in one sentence without a period."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from operator import itemgetter

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
from kit.report.rows import unusual_words
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


def _doubts(count: int, total: int, noun: str) -> str:
    """Return how many of the values behind an answer are doubtful, as the end of a sentence."""
    return f"; {count} of {format_count(total, noun)} {'is' if count == 1 else 'are'} doubtful" if count else ""


def _speedup(part: PartSource) -> str:
    own = [(one, part.value(place, one, "speedup")) for place in part.places_of("speedup") for one in part.series]
    measured = [(one, value) for one, value in own if value]
    if not measured:
        return _cpu_time(part)
    speedups = [value for _, value in measured]
    keys = {s.key for s in part.summaries if s.cell.device == "cuda"}
    found = judge_speedups(speedups, [d for d in part.source.analysis.diagnoses if d.key in keys])
    extent = format_range(text.ratio(found.low), text.ratio(found.high))
    kinds = {"a tie": found.tied, "undecided": found.undecided, "slower": found.slower}
    starts = {"a tie": "A tie: the", "undecided": "Undecided: the"}
    start = next((starts[word] for word in starts if kinds[word] == found.count), "The")
    others = [
        f", {word} in {count} of {format_count(found.count, 'cell')}"
        for word, count in kinds.items()
        if count and not (word in starts and count == found.count)
    ]
    few = f" {too_few(part.summaries)}" if found.single else uncertainty(speedup.interval for speedup in speedups)
    limit = f"; most of its cells are limited by {found.limit}" if found.limit else ""
    return (
        f"{start} GPU trains at {extent} the speed of the CPU{few}{_lanes(one.unusual for one, _ in measured)}"
        f"{''.join(others)}{_published_speedup(part)}{limit}"
        f"{_doubts(sum(speedup.doubtful for speedup in speedups), len(speedups), 'speedup')}"
    )


def _published_speedup(part: PartSource) -> str:
    """Return the published speedups of measured networks. They are named if others were measured, too."""
    measured = [p for p in part.places_of("speedup") if any(part.value(p, one, "speedup") for one in part.series)]
    words = []
    for figure in part.figures:
        own = {place.label for place in measured if figure.is_at(place)}
        exact = MEASURES["speedup"].exact(figure.low, figure.high)
        if own == {place.label for place in measured}:
            words.append(exact)
        elif own:
            words.append(f"{exact} for {part.network(figure.place)}")
    return f" (published: {text.listed(words)})" if words else ""


def _lanes(kinds: Iterable[str]) -> str:
    """Return lanes and precisions in words, unless all are the usual ones. kinds: "" for the usual one."""
    named = list(dict.fromkeys(kind or "stock" for kind in kinds))
    return "" if named == ["stock"] else f" ({text.listed(named)})"


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
    took = value_text(MEASURES["training_s"], replace(value, doubtful=False))
    doubt = " (doubtful)" * value.doubtful
    return (
        f"{part.network(place)} trains for {took}{doubt} on the {DEVICES[place.device]} in {one.title}; the speedup of "
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
    sentence = "; ".join(f"on the {DEVICES[device]}, the speed is {flat_words(each)}" for device, each in own.items())
    lanes = _lanes(" ".join(unusual_words(curve.cells[0].cell)) for curve in found)
    keys = [summary.key for curve in found for summary in curve.cells]
    doubts = _doubts(len(part.values.doubtful & {*keys}), len(keys), "speed")
    return f"{sentence[0].upper()}{sentence[1:]}{lanes}{doubts}"


def _overfitting(part: PartSource) -> str:
    found: dict[str, list[list[float]]] = {}  # by device: the validation losses of each curve
    for place in part.places:
        for one in part.series:
            summary = part.summary(place, one)
            curve = part.curve(place, one) if summary and not summary.synthetic else []
            if len(curve) > 1:
                found.setdefault(DEVICES[place.device], []).append([epoch.test_loss for epoch in curve])
    if not found:
        return NO_EPOCHS
    begun, without, unknown = [], [], []
    for device, own in found.items():
        results = [find_overfitting(losses) for losses in own]
        longest = max(map(len, own))
        if lowest := [result.lowest for result in results if result.begun]:
            begun.append(f"on the {device} after {_epochs(lowest)}{_share(lowest, own)}")
        elif lowest := [result.lowest for result in results if result.begun is None]:
            few = f"{longest} epochs on the {device} are too few to show overfitting"
            unknown.append(f"{few}{_share(lowest, own)} (lowest loss: {_epochs(lowest)})")
        else:
            without.append(f"no overfitting shows on the {device} within {longest} epochs")
    start = [f"overfitting begins {text.listed(begun)}, where the validation loss is lowest"] if begun else []
    sentence = "; ".join([*start, *without, *unknown])
    return f"{sentence[0].upper()}{sentence[1:]}"


def _epochs(numbers: Sequence[int]) -> str:
    low, high = min(numbers), max(numbers)
    return f"{'epoch' if low == high else 'epochs'} {format_range(str(low), str(high))}"


def _share(some: Sequence[object], curves: Sequence[object]) -> str:
    return f" in {len(some)} of {len(curves)} curves" if len(some) < len(curves) else ""


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
    means = [statistics.fmean(map(statistics.fmean, trainings.values())) for trainings in own]
    after = f" after only {format_count(min(few), 'epoch')}" if few else ""
    ladder = make_ladder(measured, [next((f.value for f in part.figures_at(measure, p)), None) for p in places])
    return f"{_extent(part, places, means)}{_averaged(own)}{after}{_order(ladder)}"


def _extent(part: PartSource, places: Sequence[Cell], means: Sequence[float]) -> str:
    ends = [end(zip(means, places, strict=True), key=itemgetter(0)) for end in (min, max)]
    if len(means) > 1 and ends[0] == ends[1]:
        return f"Best validation accuracy of {text.percent(means[0], 1)} with each network"
    low, high = (f"{text.percent(mean, 1)} ({part.network(place)})" for mean, place in ends)
    return f"Best validation accuracy of {low}" if len(means) == 1 else f"Best validation accuracy from {low} to {high}"


def _averaged(variants: Sequence[Trainings]) -> str:
    """Return which trainings the accuracies of variants are from, or "" if each is one value of one framework."""
    if any(trainings.keys() != variants[0].keys() for trainings in variants):
        return ", from different trainings"
    frameworks = {framework for framework, _ in variants[0]}
    if len(frameworks) == 1 and all(sum(map(len, trainings.values())) == 1 for trainings in variants):
        return ""
    word = "mean" if len(variants) == 1 else "means"
    several = len(frameworks) > 1
    return f", {word} over {format_count(len(frameworks), 'framework') if several else 'several trainings'}"


def _order(ladder: Ladder) -> str:
    """Return whether the order of the variants is the published one, as the end of a sentence."""
    if not ladder.pairs:
        return ""
    seeds = format_count(ladder.seeds, "seed")
    if not ladder.decided:
        return f"; the order of the variants cannot be told from so few trainings ({seeds})"
    order = f"and {ladder.agreeing} of these {ladder.decided} have the published order"
    if ladder.agreeing in {0, ladder.decided}:
        kind = "published" if ladder.agreeing else "opposite"
        order = f"and {'this pair has' if ladder.decided == 1 else 'all of these have'} the {kind} order"
    return (
        f"; in {ladder.decided} of {format_count(ladder.pairs, 'pair')}, variants differ by more than trainings of the "
        f"same variant do ({seeds}), {order}"
    )


# Kind of conclusion to the measure that it compares with published figures, and the function that makes the sentence.
ANSWERS: dict[Conclusion, tuple[str, Callable[[PartSource], str]]] = {
    "speedup": ("speedup", _speedup),
    "flattening": ("training_s", _flattening),
    "overfitting": ("test_loss", _overfitting),
    "accuracy": ("best_accuracy", _accuracy),
}
