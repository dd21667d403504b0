"""Answer whether the GPU is worth it: the best GPU cell of each network against its best CPU cell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kit.analysis.answer import Answer, State
from kit.analysis.intervals import Verdict
from kit.analysis.pairing import Measure
from kit.analysis.run_analysis import RunAnalysis
from kit.analysis.summaries import CellSummary, Ratio, rates_by_round, ratio, too_few
from kit.model.formatting import format_count, format_number
from scenarios.contract.reasons import Status


@dataclass(frozen=True)
class NetworkRatio:
    """The speed of the best GPU cell of a network over that of its best CPU cell. network: see `Cell.network`."""

    network: str
    ratio: Ratio


def best_ratios(analysis: RunAnalysis, measure: Measure) -> list[NetworkRatio]:
    """Return the ratio of each network that was measured on both devices, in the order of the cells."""
    by_round = rates_by_round(analysis.run.records, measure)
    networks: dict[str, list[CellSummary]] = {}
    for cell in analysis.cells:
        if cell.speed(measure):
            networks.setdefault(cell.cell.network, []).append(cell)
    found = []
    for label, cells in networks.items():
        sides = [[cell for cell in cells if cell.cell.device == device] for device in ("cuda", "cpu")]
        if all(sides):
            over, under = (max(side, key=lambda cell: cell.speed(measure) or 0.0) for side in sides)
            found.append(NetworkRatio(label, ratio("device", over, under, by_round, measure)))
    return found


def gpu_answer(question: str, analysis: RunAnalysis, measured: Sequence[CellSummary]) -> Answer:
    """Return the answer. measured: the cells that have a training speed."""
    found = best_ratios(analysis, Measure.TRAINING)
    if not found:
        return Answer(question, State.NOT_MEASURED, f"Not measured: {missing_gpu(analysis, measured)}")
    ratios = [each.ratio for each in found]
    single = any(each.verdict is Verdict.UNKNOWN for each in ratios)
    losers = [
        each.network for each in found if each.ratio.verdict is Verdict.SLOWER or (single and each.ratio.ratio < 1)
    ]
    tied = [each.network for each in found if each.ratio.verdict is Verdict.TIE]
    networks = format_count(len(found), "network")
    speed = f"the best GPU cell trains {_range([each.ratio for each in ratios])} as fast as the best CPU cell"
    sides = (cell for each in ratios for cell in (each.numerator, each.denominator))
    once = f" {too_few(sides)}" if single else ""
    if len(tied) == len(found):
        return Answer(question, State.TIE, f"A tie in training: {speed}, in {networks}", _inference(analysis))
    if not losers:
        start = "It is ahead" if single else "Yes, in training"
    else:
        faster = len(found) - len(losers) - len(tied)
        start = f"For {faster} of {networks}, in training" if faster else "No, not in training"
    details = [f"The GPU is slower for {', '.join(losers)}."] if losers else []
    details += [f"It ties with the CPU for {', '.join(tied)}."] if tied else []
    state = State.SINGLE if single else State.MEASURED
    return Answer(question, state, f"{start}: {speed}{once}", (*details, *_inference(analysis)))


def _inference(analysis: RunAnalysis) -> tuple[str, ...]:
    throughput, latency = (best_ratios(analysis, measure) for measure in (Measure.INFERENCE, Measure.LATENCY))
    if not throughput or not latency:
        return ()
    many, one = (_range([each.ratio.ratio for each in found]) for found in (throughput, latency))
    slower = [each.network for each in latency if each.ratio.ratio < 1]
    loses = f" (slower for {', '.join(slower)})" if 0 < len(slower) < len(latency) else ""
    return (f"In inference, it is {many} as fast for large batches and {one} as fast for one image{loses}.",)


def _range(values: Sequence[float]) -> str:
    low, high = (f"{format_number(end, 2)}×" for end in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"


def missing_gpu(analysis: RunAnalysis, measured: Sequence[CellSummary]) -> str:
    """Return why there is no network with a speed on both devices. measured: the cells that have a training speed."""
    on_gpu = [record for record in analysis.run.records if record.cell.device == "cuda"]
    if not on_gpu:
        return "no cell on the GPU was selected"
    if any(cell.cell.device == "cuda" for cell in measured):
        return "no network was measured on both the GPU and the CPU"
    skipped = all(record.status is Status.SKIPPED for record in on_gpu)
    reason = next((record.reason.message for record in on_gpu if record.reason), "")
    start = "the cells on the GPU were skipped" if skipped else "no launch on the GPU succeeded"
    return f"{start}. {reason.removesuffix('.')}" if reason else start
