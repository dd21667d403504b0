"""Make the headings of the sections: each is the answer to the section's question, in one sentence without a period."""

from collections import Counter
from collections.abc import Sequence, Set

from kit.analysis.answers import is_ahead, why_no_lead
from kit.analysis.gpu_answer import Outcome, best_ratios, missing_gpu, outcome
from kit.analysis.intervals import Verdict
from kit.analysis.pairing import Measure
from kit.analysis.reliability import unsteady_cells
from kit.analysis.summaries import Contest, contest_noun, networks_of, too_few
from kit.model.formatting import DEVICES, format_count, format_range
from kit.report import text
from kit.report.section import ReportInput


def training_heading(source: ReportInput) -> str:
    """Return which framework trains fastest, or that this is not known."""
    found = _winners(source, Measure.TRAINING)
    return _sentence(found) if found else "Training speed, without a comparison of frameworks"


def inference_heading(source: ReportInput) -> str:
    """Return which framework has the highest throughput and the lowest latency."""
    throughput, latency = (_winners(source, measure) for measure in (Measure.INFERENCE, Measure.LATENCY))
    if not (throughput and latency):
        return "Speed of inference, without a comparison of frameworks"
    if throughput == latency:
        return f"Throughput and latency: {throughput}"
    return f"Throughput: {throughput}. Latency: {latency}"


def _sentence(words: str) -> str:
    """Return words as the start of a sentence."""
    return words[0].upper() + words[1:]


def _winners(source: ReportInput, measure: Measure) -> str:
    """Return which frameworks win how many contests on each device, or "" if there is none."""
    contests, unsteady = source.analysis.contests[measure], unsteady_cells(source.analysis, measure).keys()
    devices = sorted({contest.leader.cell.device for contest in contests}, reverse=True)
    parts = {d: _winners_of(source, [c for c in contests if c.leader.cell.device == d], unsteady) for d in devices}
    if len(parts) == 1:
        return parts.popitem()[1]
    return "; ".join(f"on the {DEVICES[device]}, {words}" for device, words in parts.items())


def _winners_of(source: ReportInput, contests: Sequence[Contest], unsteady: Set[str]) -> str:
    total = format_count(len(contests), contest_noun(networks_of(contests)))
    single = all(contest.unknown for contest in contests)
    leaders = [contest for contest in contests if (is_ahead(contest, unsteady) if single else contest.named)]
    if not leaders:
        return why_no_lead(contests) if single else f"no clear winner{f' for any of {total}' * (len(contests) > 1)}"
    counts = Counter(contest.leader.cell.framework for contest in leaders)
    words = [f"{source.framework_title(name)} for {count}" for name, count in counts.most_common()]
    why = too_few(cell for contest in leaders for cell in contest.cells)
    if len(contests) == 1:
        return f"{source.framework_title(leaders[0].leader.cell.framework)}{f' is ahead {why}' if single else ''}"
    if single:
        return f"ahead {why}: {text.listed(words)} of {total}"
    unclear = len(contests) - len(leaders)
    return f"{text.listed(words)} of {total}{f' ({unclear} without a clear winner)' if unclear else ''}"


def gpu_heading(source: ReportInput) -> str:
    """Return the range of the speedup of the GPU in training, and where the GPU is slower.

    Without enough launches, no network is named.
    """
    found = [each.ratio for each in best_ratios(source.analysis, Measure.TRAINING)]
    if not found:
        speeds = [cell for cell in source.measured if cell.images_per_s]
        return f"Not measured: {missing_gpu(source.analysis, speeds)}"
    extent = format_range(*(text.ratio(pick(each.ratio for each in found)) for pick in (min, max)))
    compared = f"Training on the GPU runs at {extent} the speed of the CPU, best cell against best cell"
    if any(each.verdict is Verdict.UNKNOWN for each in found):
        return f"{compared}, {too_few(cell for each in found for cell in (each.numerator, each.denominator))}"
    slower = [source.network(each.numerator.cell) for each in found if outcome(each) is Outcome.SLOWER]
    return compared + (f"; slower for {text.listed(list(dict.fromkeys(slower)))}" if slower else "")
