"""Make the headings of the sections: each is the answer to the section's question, in one sentence without a period."""

from collections import Counter
from collections.abc import Sequence

from kit.analysis.pairing import Measure
from kit.analysis.summaries import Contest
from kit.model.formatting import format_count
from kit.report import text
from kit.report.section import ReportInput


def training_heading(source: ReportInput) -> str:
    """Return which framework trains fastest, or that this is not known."""
    return _winners(source, source.contests[Measure.TRAINING]) or "Training speed, without a comparison of frameworks"


def inference_heading(source: ReportInput) -> str:
    """Return which framework has the highest throughput and the lowest latency."""
    throughput = _winners(source, source.contests[Measure.INFERENCE])
    latency = _winners(source, source.contests[Measure.LATENCY])
    if not (throughput and latency):
        return "Speed of inference, without a comparison of frameworks"
    if throughput == latency:
        return f"Throughput and latency: {throughput}"
    return f"Throughput: {throughput}. Latency: {latency}"


def _winners(source: ReportInput, contests: Sequence[Contest]) -> str:
    """Return which frameworks win how many contests, or "" if there is none."""
    if not contests:
        return ""
    leaders = [contest for contest in contests if contest.named]
    total = format_count(len(contests), "comparison")
    if all(contest.unknown for contest in contests):
        counts = Counter(contest.leader.cell.framework for contest in contests)
        words = [f"{source.framework_title(name)} is ahead in {count}" for name, count in counts.most_common()]
        return f"{text.listed(words)} of {total}, in one launch each"
    counts = Counter(contest.leader.cell.framework for contest in leaders)
    words = [f"{source.framework_title(name)} is fastest in {count}" for name, count in counts.most_common()]
    unclear = len(contests) - len(leaders)
    words += [f"no framework is clearly the fastest in {unclear}"] * bool(unclear)
    found = f"{text.listed(words)} of {total}"
    return found[0].upper() + found[1:]


def gpu_heading(source: ReportInput) -> str:
    """Return the range of the speedup of the GPU in training, and where the GPU is slower."""
    found = {row: source.best_gpu_ratio(row, Measure.TRAINING) for row in source.rows}
    ratios = {row: ratio for row, ratio in found.items() if ratio}
    if not ratios:
        planned = any(launch.cell.device == "cuda" for launch in source.run.plan.launches)
        return f"Not measured: {'no cell on the GPU is ok' if planned else 'no cell on the GPU was planned'}"
    low, high = text.ratio(min(ratios.values())), text.ratio(max(ratios.values()))
    extent = low if low == high else f"{low} to {high}"
    slower = [source.network(source.rows[row][0].cell) for row, ratio in ratios.items() if ratio < 1]
    loses = f"; slower for {text.listed(slower)}" if slower else ""
    return f"Training on the GPU runs at {extent} the speed of the CPU, best cell against best cell{loses}"
