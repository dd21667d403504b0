"""Answer the questions of a reader of a run, each in one sentence. No input or output.

A winner is named only if the data support it (`Contest.named`). A single launch never names one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set

from kit.analysis.answer import Answer, Answers, State
from kit.analysis.gpu_answer import gpu_answer
from kit.analysis.limit_labels import count_limits
from kit.analysis.pairing import Measure
from kit.analysis.reliability import unsteady_cells
from kit.analysis.run_analysis import RunAnalysis
from kit.analysis.summaries import CellSummary, Contest, contest_noun, networks_of, too_few
from kit.analysis.uncertainty import WIDE, uncertainty
from kit.analysis.warnings import WarningCode
from kit.model.formatting import (
    DEVICES,
    format_count,
    format_list,
    format_number,
    format_percent,
    format_range,
    format_ratio,
)
from scenarios.contract.cell import Device
from scenarios.contract.reasons import Status

SPEED, FRAMEWORK, GPU, LIMIT = "How fast is it?", "Which framework?", "Is the GPU worth it?", "What limits it?"

WITHOUT_TRAINER = "onnxruntime"
CLOSE = 1.05  # launches of a cell differ by as much, so a single launch does not show a smaller lead
# Other programs or a change of speed can change an unsteady launch by as much.
UNSTEADY_CLOSE = 2.0


def answers(analysis: RunAnalysis, titles: Mapping[str, str]) -> Answers:
    """Return the answers of a run. titles: name of a framework to its display name."""
    measured = [cell for cell in analysis.cells if cell.images_per_s]
    if not measured:
        reason = _common_reason(analysis)
        return Answers(*(_unmeasured(analysis, question, reason) for question in (SPEED, FRAMEWORK, GPU, LIMIT)))
    return Answers(
        _speed(measured),
        _framework(analysis, measured, titles),
        gpu_answer(GPU, analysis, measured),
        _limit(analysis),
    )


def _unmeasured(analysis: RunAnalysis, question: str, reason: str) -> Answer:
    failed = any(record.status is not Status.SKIPPED for record in analysis.run.records)
    state = State.FAILED if failed else State.NOT_MEASURED
    return Answer(question, state, "Not measured: no launch succeeded" if failed else "Not measured", (reason,))


def _common_reason(analysis: RunAnalysis) -> str:
    """Return why most launches are not ok."""
    reasons = Counter(record.reason.message for record in analysis.run.records if record.reason)
    return reasons.most_common(1)[0][0] if reasons else "The run has no finished launch."


def _speed(measured: Sequence[CellSummary]) -> Answer:
    device: Device = "cuda" if any(cell.cell.device == "cuda" for cell in measured) else "cpu"
    candidates = [cell for cell in measured if cell.cell.device == device]
    best = _best_by_network(candidates)
    low, high = (pick(best, key=lambda cell: cell.images_per_s or 0.0) for pick in (min, max))
    single = any(cell.launches == 1 for cell in best)
    all_single = all(cell.launches == 1 for cell in best)
    once = "I" if not all_single else "In one launch, i" if len(best) == 1 else "In one launch each, i"
    within = uncertainty(cell.interval for cell in best)
    least, most = (format_number(cell.images_per_s or 0.0) for cell in (low, high))
    speeds = f"{least} images/s" if least == most else f"{least} to {most} images/s, depending on the network"
    network = f"{high.cell.network} at " if len(best) == 1 else ""
    headline = f"{once}t trains {network}{speeds}{within}"
    details = [f"These are the highest speeds of the networks on the {DEVICES[device]}."] if len(best) > 1 else []
    batches = len({cell.cell.batch for cell in candidates})
    if len(best) == 1 and batches > 1:
        details.append(f"This is its speed at batch {high.cell.batch:,}, the fastest of {batches} batch sizes.")
    if single and not all_single:
        details.append("Some of these speeds come from one launch.")
    if latencies := _best_latencies(candidates):
        between = format_range(*(format_number(value, 2) for value in (min(latencies), max(latencies))))
        several = len({cell.cell.framework for cell in candidates}) > 1
        of = "of any framework" if len(latencies) == 1 else "of each network"
        lowest = f", the lowest latency {of}" if several else ""
        details.append(f"A prediction for one image takes {between} ms on the {DEVICES[device]}{lowest}.")
    return Answer(SPEED, State.SINGLE if single else State.MEASURED, headline, tuple(details))


def _best_latencies(cells: Sequence[CellSummary]) -> list[float]:
    """Return the lowest latency of each network, in ms."""
    best: dict[str, float] = {}
    for cell in cells:
        if cell.p50_ms:
            best[cell.cell.network] = min(cell.p50_ms, best.get(cell.cell.network, cell.p50_ms))
    return list(best.values())


def _best_by_network(cells: Sequence[CellSummary]) -> list[CellSummary]:
    """Return the cell of each network that trains fastest."""
    best: dict[str, CellSummary] = {}
    for cell in sorted(cells, key=lambda cell: cell.images_per_s or 0.0):
        best[cell.cell.network] = cell
    return list(best.values())


def _framework(analysis: RunAnalysis, measured: Sequence[CellSummary], titles: Mapping[str, str]) -> Answer:
    """Answer for the GPU if frameworks were compared on it, else for the CPU."""
    frameworks = list(dict.fromkeys(titles.get(cell.cell.framework, cell.cell.framework) for cell in measured))
    if len(frameworks) == 1:
        return Answer(FRAMEWORK, State.NOT_MEASURED, f"Not compared: only {frameworks[0]} was measured")
    of_training = analysis.contests[Measure.TRAINING]
    devices = {contest.leader.cell.device for contest in of_training}
    if not devices:
        return Answer(FRAMEWORK, State.NOT_MEASURED, "Not compared: no network was measured in two frameworks")
    device: Device = "cuda" if "cuda" in devices else "cpu"
    training, of_latency, of_throughput = (
        [contest for contest in analysis.contests[each] if contest.leader.cell.device == device]
        for each in (Measure.TRAINING, Measure.LATENCY, Measure.INFERENCE)
    )
    unsteady, disturbed = (unsteady_cells(analysis, each).keys() for each in (Measure.TRAINING, Measure.INFERENCE))
    to_train, to_serve = _winners(training, titles, unsteady), _winners(of_latency, titles, disturbed)
    headline = f"To train, {to_train}; to serve one image at a time, {to_serve}"
    where = ""
    if {cell.cell.device for cell in measured} != {device}:
        where = f" on the {DEVICES[device]}"
        headline = f"On the {DEVICES[device]}: t{headline[1:]}"
    details = [
        *_ranges(training, f"In training{where}"),
        *_doubtful(analysis, training, where),
        *_ranges(of_latency, f"In inference with one image at a time{where}"),
    ]
    if of_throughput:
        lead = _lead(of_throughput)
        winners = f"{_winners(of_throughput, titles, disturbed)}{f', {lead}' if lead else ''}"
        details.append(f"In inference with large batches{where}: {winners}.")
    if on_cpu := [contest for contest in of_training if contest.leader.cell.device != device]:
        details.append(f"In training on the CPU: {_winners(on_cpu, titles, unsteady)}.")
    return Answer(FRAMEWORK, _state(training), headline, (*details, *_step_graphs(of_training, titles)))


def _step_graphs(of_training: Sequence[Contest], titles: Mapping[str, str]) -> list[str]:
    """Return a sentence if a framework without a trainer leads in training. Its users cannot train like this."""
    if all(contest.leader.cell.framework != WITHOUT_TRAINER for contest in of_training):
        return []
    return [f"{titles.get(WITHOUT_TRAINER, WITHOUT_TRAINER)} has no trainer: it runs a training graph that kit makes."]


def _doubtful(analysis: RunAnalysis, found: Sequence[Contest], where: str) -> list[str]:
    """Return a sentence if cells that win in training were not steady.

    found: the contests of training. where: the device after a space, or "" if there is only one.
    """
    unsteady = unsteady_cells(analysis)
    steady = [contest.leader.key not in unsteady for contest in found if contest.named]
    if all(steady):
        return []
    if len(steady) == 1:
        return [f"In training{where}, the winner was not steady."]
    count = steady.count(False)
    return [f"In training{where}, {count} of {len(steady)} winners {'was' if count == 1 else 'were'} not steady."]


def _state(found: Sequence[Contest]) -> State:
    if any(contest.named for contest in found):
        return State.MEASURED
    return State.SINGLE if all(contest.unknown for contest in found) else State.TIE


def is_ahead(contest: Contest, unsteady: Set[str]) -> bool:
    """Return whether a contest with an unknown result has a leader that is worth showing.

    unsteady: keys of the cells that are not steady.
    """
    second = contest.second
    doubtful = unsteady & {second.numerator.key, second.denominator.key}
    return second.ratio >= (UNSTEADY_CLOSE if doubtful else CLOSE)


def why_no_lead(found: Iterable[Contest]) -> str:
    """Return why no leader of these contests is shown. Only for contests that `is_ahead` rejects."""
    reasons = {"too unsteady to call" if is_ahead(contest, frozenset()) else "too close to call" for contest in found}
    return " or ".join(sorted(reasons))


def _winners(found: Sequence[Contest], titles: Mapping[str, str], unsteady: Set[str]) -> str:
    """Return which frameworks are the fastest and in how many networks. Ties and unknown networks name nobody."""
    count = format_count(len(found), contest_noun(networks_of(found)))
    if any(contest.named for contest in found):
        return _counted([contest for contest in found if contest.named], titles, count)
    if not all(contest.unknown for contest in found):
        return f"no clear winner (highest: {_counted(found, titles, count)})"
    ahead = [contest for contest in found if is_ahead(contest, unsteady)]
    if not ahead:
        return why_no_lead(found)
    why = too_few(cell for contest in ahead for cell in contest.cells)
    return f"ahead {why}: {_counted(ahead, titles, count)}"


def _counted(found: Sequence[Contest], titles: Mapping[str, str], count: str) -> str:
    leaders = Counter(contest.leader.cell.framework for contest in found)
    return format_list([f"{titles.get(name, name)} in {n}" for name, n in leaders.most_common()]) + f" of {count}"


def _ranges(found: Sequence[Contest], when: str) -> list[str]:
    """Return how far the fastest framework is ahead, and how many networks have no clear winner.

    when: the measure, with the device if there are several.
    """
    lead = _lead(found)
    if not lead:
        return []
    sentences = [f"{when}, the winner is {lead}."]
    if open_count := sum(not contest.named for contest in found):
        networks = format_count(open_count, contest_noun(networks_of(found)))
        sentences.append(f"{when}, {networks} {'has' if open_count == 1 else 'have'} no clear winner.")
    return sentences


def _lead(found: Sequence[Contest]) -> str:
    """Return how far the winners of contests are ahead, in words, or "" if there is no winner."""
    named = [contest.second for contest in found if contest.named]
    if not named:
        return ""
    leads = [second.ratio for second in named]
    intervals = [second.interval for second in named if second.interval]
    by = format_range(*(format_ratio(end) for end in (min(leads), max(leads))))
    if any(interval.half_width >= WIDE for interval in intervals):
        least = format_ratio(min(interval.low for interval in intervals))
        within = f" (95% interval{'s' * (len(named) > 1)}: at least {least} times)"
    else:
        within = uncertainty(intervals)
    return f"{by} times as fast as the second{within}"


def _limit(analysis: RunAnalysis) -> Answer:
    cells = {summary.key: summary.cell for summary in analysis.cells}
    known = [diagnosis for diagnosis in analysis.diagnoses if diagnosis.key in cells]
    on_gpu = [diagnosis for diagnosis in known if cells[diagnosis.key].device == "cuda"]
    found = on_gpu or known
    if not found:
        timed = any(record.ok and record.result and record.result.step_timing for record in analysis.run.records)
        changed = "the networks are unknown to this kit, or have changed since the run"
        why = changed if timed else "this profile does not time the parts of a step"
        return Answer(LIMIT, State.NOT_MEASURED, f"Not measured: {why}")
    headline = count_limits([(diagnosis.label, cells[diagnosis.key].network) for diagnosis in found])
    shares = [diagnosis.ceiling_share for diagnosis in found if diagnosis.ceiling_share is not None]
    details = []
    if busy := [diagnosis.gpu_use for diagnosis in found if diagnosis.gpu_use is not None]:
        between = format_range(*(format_percent(end) for end in (min(busy), max(busy))))
        depending = ", depending on the cell" if len(busy) > 1 else ""
        details.append(f"The GPU was busy during {between} of the training time{depending}.")
    if shares:
        between = format_range(*(format_percent(end) for end in (min(shares), max(shares))))
        subject = "cells reach" if len(found) > 1 else "cell reaches"
        device = DEVICES[cells[found[0].key].device]
        details.append(f"The {device} {subject} {between} of the arithmetic that the {device} was measured to do.")
    if any(warning.code is WarningCode.LOW_CEILING for warning in analysis.warnings):
        details.append("A cell exceeds a measured ceiling, which is therefore too low: take all limits as a hint.")
    doubtful = len(unsteady_cells(analysis).keys() & {diagnosis.key for diagnosis in found})
    if doubtful:
        verb, what = ("was", "it") if doubtful == 1 else ("were", "them")
        which = f"{doubtful} of {len(found)} cells" if len(found) > 1 else "The cell"
        details.append(f"{which} {verb} not steady, so take what limits {what} as a hint.")
    headline = f"On the GPU: {headline}" if len(found) < len(known) else headline[0].upper() + headline[1:]
    return Answer(LIMIT, State.MEASURED, headline, tuple(details))
