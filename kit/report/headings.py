"""Make the headings of the sections: each is the answer to the section's question, in one sentence without a period."""

from collections import Counter
from collections.abc import Sequence

from kit.analysis.gpu_answer import missing_gpu
from kit.analysis.pairing import Measure
from kit.analysis.summaries import Contest, contest_noun, networks_of, too_few
from kit.model.formatting import DEVICES, format_count
from kit.report import text
from kit.report.section import ReportInput


def training_heading(source: ReportInput) -> str:
    """Return which framework trains fastest, or that this is not known."""
    found = _winners(source, source.contests[Measure.TRAINING])
    return _sentence(found) if found else "Training speed, without a comparison of frameworks"


def inference_heading(source: ReportInput) -> str:
    """Return which framework has the highest throughput and the lowest latency."""
    throughput = _winners(source, source.contests[Measure.INFERENCE])
    latency = _winners(source, source.contests[Measure.LATENCY])
    if not (throughput and latency):
        return "Speed of inference, without a comparison of frameworks"
    if throughput == latency:
        return f"Throughput and latency: {throughput}"
    return f"Throughput: {throughput}. Latency: {latency}"


def _sentence(words: str) -> str:
    """Return words as the start of a sentence, unless they start with a name."""
    return words[0].upper() + words[1:]


def _winners(source: ReportInput, contests: Sequence[Contest]) -> str:
    """Return which frameworks win how many contests on each device, or "" if there is none."""
    devices = sorted({contest.leader.cell.device for contest in contests}, reverse=True)
    parts = {d: _winners_of(source, [c for c in contests if c.leader.cell.device == d]) for d in devices}
    if len(parts) == 1:
        return parts.popitem()[1]
    return "; ".join(f"on the {DEVICES[device]}, {words}" for device, words in parts.items())


def _winners_of(source: ReportInput, contests: Sequence[Contest]) -> str:
    total = format_count(len(contests), contest_noun(networks_of(contests)))
    leaders = [contest for contest in contests if contest.named]
    single = all(contest.unknown for contest in contests)
    counts = Counter(contest.leader.cell.framework for contest in (contests if single else leaders))
    words = [f"{source.framework_title(name)} for {count}" for name, count in counts.most_common()]
    why = too_few(cell for contest in contests for cell in contest.cells)
    if len(contests) == 1 and (single or leaders):
        return f"{source.framework_title(contests[0].leader.cell.framework)}{f' is ahead {why}' if single else ''}"
    if single:
        return f"ahead {why}: {text.listed(words)} of {total}"
    if not leaders:
        return f"no clear winner{f' for any of {total}' if len(contests) > 1 else ''}"
    unclear = len(contests) - len(leaders)
    return f"{text.listed(words)} of {total}{f' ({unclear} without a clear winner)' if unclear else ''}"


def gpu_heading(source: ReportInput) -> str:
    """Return the range of the speedup of the GPU in training, and where the GPU is slower."""
    found = {row: source.best_gpu_ratio(row, Measure.TRAINING) for row in source.rows}
    ratios = {row: ratio for row, ratio in found.items() if ratio}
    if not ratios:
        speeds = [cell for cell in source.measured if cell.images_per_s]
        return f"Not measured: {missing_gpu(source.analysis, speeds)}"
    low, high = text.ratio(min(ratios.values())), text.ratio(max(ratios.values()))
    extent = low if low == high else f"{low} to {high}"
    slower = [source.network(source.rows[row][0].cell) for row, ratio in ratios.items() if ratio < 1]
    loses = f"; slower for {text.listed(list(dict.fromkeys(slower)))}" if slower else ""
    return f"Training on the GPU runs at {extent} the speed of the CPU, best cell against best cell{loses}"
