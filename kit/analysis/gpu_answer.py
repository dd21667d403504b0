"""Answer whether the GPU is worth it: the best GPU cell of each network against its best CPU cell."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from kit.analysis.answer import Answer, State
from kit.analysis.intervals import Verdict
from kit.analysis.pairing import Measure, Rates
from kit.analysis.run_analysis import RunAnalysis
from kit.analysis.summaries import CellSummary, Ratio, ratio, too_few
from kit.analysis.uncertainty import uncertainty
from kit.model.formatting import format_count, format_range, format_ratio
from scenarios.contract.cell import Cell
from scenarios.contract.reasons import Status


class Outcome(StrEnum):
    """How the GPU compares with the CPU. A ratio without an interval is taken as it is."""

    FASTER = "faster"
    SLOWER = "slower"
    TIE = "tie"
    UNDECIDED = "undecided"


def outcome(found: Ratio) -> Outcome:
    """Return the outcome of a ratio, GPU over CPU."""
    if found.interval is None:
        return Outcome.SLOWER if found.ratio < 1 else Outcome.FASTER
    if found.interval.tied:
        return Outcome.TIE
    decided = {Verdict.FASTER: Outcome.FASTER, Verdict.SLOWER: Outcome.SLOWER}
    return decided.get(found.interval.verdict, Outcome.UNDECIDED)


@dataclass(frozen=True)
class NetworkRatio:
    """The speed of the best GPU cell of a network over that of its best CPU cell. network: see `Cell.network`."""

    network: str
    ratio: Ratio

    @property
    def cells(self) -> tuple[CellSummary, CellSummary]:
        """Return the cell on the GPU and the one on the CPU."""
        return self.ratio.numerator, self.ratio.denominator


def best_ratios(analysis: RunAnalysis, measure: Measure) -> list[NetworkRatio]:
    """Return the ratio of each network that was measured on both devices, in the order of the cells."""
    by_round = analysis.rates[measure]
    networks: dict[str, list[CellSummary]] = {}
    for cell in analysis.cells:
        networks.setdefault(cell.cell.network, []).append(cell)
    found = ((label, best_ratio(cells, by_round, measure)) for label, cells in networks.items())
    return [NetworkRatio(label, best) for label, best in found if best]


def best_ratio(cells: Sequence[CellSummary], by_round: Mapping[str, Rates], measure: Measure) -> Ratio | None:
    """Return the ratio of the fastest of these cells on the GPU over the fastest one on the CPU, in any framework.

    by_round: from `rates_by_round`. Return None if one of both was not measured.
    """
    with_speed = [cell for cell in cells if cell.speed(measure)]
    sides = [[cell for cell in with_speed if cell.cell.device == device] for device in ("cuda", "cpu")]
    if not all(sides):
        return None
    over, under = (max(side, key=lambda cell: cell.speed(measure) or 0.0) for side in sides)
    return ratio("device", over, under, by_round, measure)


def gpu_answer(question: str, analysis: RunAnalysis, measured: Sequence[CellSummary]) -> Answer:
    """Return the answer. measured: the cells that have a training speed.

    The headline has the range of the networks that it is about. The details name all others, each with its ratio.
    """
    found = best_ratios(analysis, Measure.TRAINING)
    if not found:
        return Answer(question, State.NOT_MEASURED, f"Not measured: {missing_gpu(analysis, measured)}")
    faster, slower, tied, undecided = ([each for each in found if outcome(each.ratio) is kind] for kind in Outcome)
    networks = format_count(len(found), "network")
    if not (faster or slower):
        start = "Undecided in training, because launches differ" if undecided else "A tie in training"
        within = "" if undecided else _uncertainty(found)
        return Answer(question, State.TIE, f"{start}: {_speed(found)}{within}, in {networks}", _inference(analysis))
    single = any(each.ratio.verdict is Verdict.UNKNOWN for each in found)
    if not faster:
        start = "It is behind" if single else "No, not in training"
    elif len(faster) < len(found):
        start = f"For {len(faster)} of {networks}, in training"
    else:
        start = "It is ahead" if single else "Yes, in training"
    among = f", in {len(slower)} of {networks}" if len(slower) < len(found) and not faster else ""
    once = f" {too_few(cell for each in found for cell in each.cells)}" if single else ""
    details = [f"The GPU is slower for {_named(slower)}."] if faster and slower else []
    details += [f"It ties with the CPU for {_named(tied)}."] if tied else []
    details += [f"It is undecided for {_named(undecided)}, because launches differ."] if undecided else []
    state = State.SINGLE if single else State.MEASURED
    headline = f"{start}: {_speed(faster or slower)}{_uncertainty(faster or slower)}{among}{once}"
    return Answer(question, state, headline, (*details, *_inference(analysis)))


def _speed(found: Sequence[NetworkRatio]) -> str:
    return f"the best GPU cell trains {_range([each.ratio.ratio for each in found])} as fast as the best CPU cell"


def _uncertainty(found: Sequence[NetworkRatio]) -> str:
    return uncertainty(each.ratio.interval for each in found)


def _named(found: Sequence[NetworkRatio]) -> str:
    return ", ".join(f"{each.network} ({_times(each.ratio.ratio)})" for each in found)


def _inference(analysis: RunAnalysis) -> tuple[str, ...]:
    throughput, latency = (best_ratios(analysis, measure) for measure in (Measure.INFERENCE, Measure.LATENCY))
    if not throughput or not latency:
        return ()
    return (
        f"In inference with large batches, the best GPU cell is {_as_fast(throughput)}.",
        f"In inference with one image at a time, the best GPU cell is {_as_fast(latency)}.",
    )


def _as_fast(found: Sequence[NetworkRatio]) -> str:
    """Return how fast the GPU is compared with the CPU, with the networks that are slower on it."""
    slower = [each.network for each in found if outcome(each.ratio) is Outcome.SLOWER]
    loses = f" (slower for {', '.join(slower)})" if 0 < len(slower) < len(found) else ""
    return f"{_range([each.ratio.ratio for each in found])} as fast as the best CPU cell{loses}"


def _range(values: Sequence[float]) -> str:
    return format_range(*(_times(end) for end in (min(values), max(values))))


def _times(value: float) -> str:
    return f"{format_ratio(value)}×"


def missing_gpu(
    analysis: RunAnalysis, measured: Sequence[CellSummary], is_meant: Callable[[Cell], bool] = lambda _: True
) -> str:
    """Return why no network has a speed on both devices in the same framework, lane and precision.

    measured: the cells that have a training speed. is_meant: whether the sentence is about a cell.
    """

    def on_the_gpu(cell: Cell) -> bool:
        return cell.device == "cuda" and is_meant(cell)

    on_gpu = [record for record in analysis.run.records if on_the_gpu(record.cell)]
    if not on_gpu:
        planned = any(on_the_gpu(launch.cell) for launch in analysis.run.plan.launches)
        return "no launch on the GPU has run yet" if planned else "no cell on the GPU was selected"
    if any(cell.cell.device == "cuda" for cell in measured):
        return "no network was trained on both the GPU and the CPU in the same framework, lane and precision"
    skipped = all(record.status is Status.SKIPPED for record in on_gpu)
    reason = next((record.reason.message for record in on_gpu if record.reason), "")
    start = "the cells on the GPU were skipped" if skipped else "no launch on the GPU succeeded"
    return f"{start} ({reason.removesuffix('.')})" if reason else start
