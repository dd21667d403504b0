"""How the numbers were measured, and what sampling and proving cost in this run."""

import math
import statistics

from kit.analysis import warning_rules as rules
from kit.analysis.intervals import MIN_LAUNCHES
from kit.analysis.reliability import NARROW
from kit.report import text
from kit.report.section import ReportInput, Section

METHOD = (
    (
        "Each launch is a fresh process that runs one cell: a scenario in one framework on one device. A container has "
        "no network and no privileges, and its file system is read-only."
    ),
    (
        "Before anything is timed, the launch must agree with a float64 reference on fixed weights: in the logits and "
        "in the weights after an epoch of the timed loop. The first launch of a cell must also agree in the gradients "
        "and the optimizer's update, and show the order of the images, the augmentation and the dropout. A launch that "
        "computes something else fails and has no speed."
    ),
    (
        "Training starts from weights that are equal in all frameworks. They are read back and compared by hash. The "
        "stock lane follows the framework's own tutorials. ONNX Runtime has no trainer: it runs one graph with forward "
        "pass, backward pass and update, which kit makes (“kit step graph”)."
    ),
    (
        "Time is measured in windows of about a quarter of a second. The device is synchronized at the end of a "
        "window, never after a single step. First step, warm-up and steady state are separate. The value of a launch "
        "is the number of images of an epoch divided by its time in the steady state, with stalls and the work between "
        "epochs. The samples decide where the steady state begins (MSER, White 1997). In the profile full, each whole "
        "epoch is a window, and all epochs count but the first one of a process."
    ),
    (
        "The value of a cell is the median of its launches; of two launches, their geometric mean. Its 95% interval "
        "is computed from the launches alone (order statistics, or Student's t on logarithms for fewer than five "
        "launches). Training, throughput and p50 have such an interval. The ratio of two cells is the geometric "
        "mean of their ratios in each round, with Student's interval on logarithms. It is widened, because a run "
        "may end as soon as its intervals are narrow. If the interval contains 1, the result is a tie, or undecided "
        "if the interval is wider than ± 10%. A winner is ahead of each other framework with p < 0.05, after a "
        "correction for several comparisons (Holm)."
    ),
    (
        "Ceilings are measured through the frameworks themselves, before the cells. Arithmetic is counted from the "
        "layers, with two operations per multiply-add. To find what holds a cell back, the first launch compares its "
        "training step with the ceilings, and with steps at a quarter, half and all of the batch size on data that is "
        "already on the device."
    ),
    (
        "Latency is measured at batch size 1, from host array to host array. Throughput is measured at a large batch "
        "size, which the table names."
    ),
    "A single launch has no interval. On a shared machine, the next launch can differ by tens of percent.",
    (
        f"A cell is not steady if its speed did not settle, jumped by {text.percent(rules.JUMP_CHANGE)} or drifted by "
        f"{text.percent(rules.TREND_CHANGE)} within its launches or over the run; if the windows of a launch vary by "
        f"more than {text.percent(rules.NOISY_WINDOWS)} (standard deviation, of short windows from the median absolute "
        f"deviation) or its launches by more than {text.percent(rules.NOISY_LAUNCHES)} (two launches by more than "
        f"{text.percent(math.expm1(rules.MAX_APART))}); if a launch is an outlier (modified z-score above "
        f"{rules.OUTLIER_Z}, and more than {text.percent(math.expm1(rules.OUTLIER_CHANGE))} off the median); or if "
        "other programs, a quota, the hypervisor or heat took a part of the machine away. The warnings have the "
        "figures."
    ),
    (
        f"A run with at least {MIN_LAUNCHES} launches of each cell is good for comparisons. It is good for publication "
        f"if also all intervals are within ± {text.percent(NARROW)}, all cells are steady, the data is real and no "
        "planned launch lacks a record (skipped and failed ones have one). With fewer launches it is a first look, and "
        "a smoke run only shows what works."
    ),
)
TUNED = (
    "The tuned lane computes the same function at the same batch size, with the settings that are fastest on this "
    "machine. A search alternates between stock, the best settings so far and a candidate, for a tenth of a second "
    "each. The leading candidate must agree with the reference. It is chosen if it is faster than stock in more turns "
    "than chance explains (sign test, 5%)."
)


def _data(source: ReportInput) -> tuple[str, ...] | None:
    if not source.measured:
        return None
    tuned = any(summary.cell.lane == "tuned" for summary in source.measured)
    return (*METHOD, *[TUNED] * tuned, *filter(None, [_costs(source)]))


def _costs(source: ReportInput) -> str:
    """Return what sampling and proving cost in this run, or "" if nothing ran."""
    sentences = []
    sampled = [(r.host_samples, r.seconds) for r in source.run.records if r.host_samples and r.seconds > 0]
    if sampled:
        share = sum(samples.cost_s for samples, _ in sampled) / sum(seconds for _, seconds in sampled)
        sentences.append(f"Sampling the host took {text.percent(share, 2)} of one CPU while launches ran.")
    proofs = [(record.launch == 1, result.proof.seconds) for record, result in source.results if result.proof]
    for first, which in ((True, "the first launch of a cell"), (False, "later launches")):
        if seconds := [each for is_first, each in proofs if is_first is first]:
            took = text.seconds(statistics.median(seconds))
            sentences.append(f"The check against the reference took {took} in {which} (median).")
    return " ".join(sentences)


SECTION = Section(170, "method", "Method", _data, "method.html")
