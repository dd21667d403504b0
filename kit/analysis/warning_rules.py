"""Define what makes the speed of a cell doubtful. No input or output.

Each rule gets the ok launches of one cell in the order of their numbers. It returns the cause in one sentence with
figures, or None if it does not apply.
"""

import math
import statistics
from collections.abc import Callable, Sequence

from scipy.special import stdtrit

from kit.analysis.measured_launch import MeasuredLaunch
from kit.analysis.robust import (
    ALL_SLOPES,
    mann_kendall,
    modified_z_scores,
    relative_spread,
    theil_sen,
    variance_factor,
)
from kit.model.formatting import format_percent as percent
from scenarios.contract.ranges import MIN_POSITIVE
from scenarios.contract.result import with_warm_up

# Of the machine's logical CPUs. This is twice the 2.5% to which intervals are narrowed. A parallel loop waits for its
# slowest thread, so losing this share of one CPU alone is as large as the differences that the interval should show.
OTHER_LOAD_SHARE = 0.05
MIN_OTHER_CPUS = 0.2  # less can come from clock ticks, the engine's daemon and the sampler itself
WHOLE_CPU = 0.9  # on any number of CPUs, a process that occupies one slows the thread that shares it
WITHHELD_SHARE = 0.02  # of the requested CPU time, by quota or hypervisor: more moves a result out of a 2.5% interval
HOT_C = 85.0  # NVIDIA's GPUs lower their clocks from 83 °C (GeForce) to about 90 °C (data center)
THERMAL = frozenset({"sw_thermal", "hw_thermal"})

# Spread of launches: twice the 2.5% at which Phoronix Test Suite stops repeating a test.
NOISY_LAUNCHES = 0.05
MIN_FOR_SPREAD = 3
# Logarithm of the ratio of two launches. Two normal launches with a standard deviation of NOISY_LAUNCHES are further
# apart in 1% of cases: 2.58 * sqrt(2) * 0.05.
MAX_APART = 0.18
# Spread of windows: at this spread the median of the 24 windows of a quick launch is uncertain by
# 1.2533 * 0.1 / sqrt(24) = 2.6% (standard error of the median of a normal sample).
NOISY_WINDOWS = 0.10
MIN_WINDOWS = 8  # also required by the Mann-Kendall test
# The meter measures a launch for longer to get this many (MIN_STEADY in scenarios.measuring.window_meter).
MIN_STEADY_WINDOWS = 5
UNSETTLED_SHARE = 0.48  # of the time after the first step: half of it, less the rounding to windows
TREND_P = 0.01  # one false alarm in a hundred series of independent values
# From first to last: two runs of an idle machine differ by 2 to 3% (faster-cpython, A/A runs).
TREND_CHANGE = 0.03
JUMP_P = 0.01  # for all launches of a cell together
JUMP_CHANGE = 0.10  # as NOISY_WINDOWS: a smaller jump is within what the windows of a usable launch differ by
OUTLIER_Z = 3.5  # Iglewicz and Hoaglin (1993)
MIN_FOR_OUTLIERS = 5
OUTLIER_CHANGE = 0.05  # without it, the rule would report irrelevant differences if launches agree closely
SLOW_FIRST_CHANGE = 0.02
SLOW_FIRST_CONFIDENCE = 0.99  # one-sided


def mixed_versions(cell: Sequence[MeasuredLaunch]) -> str | None:
    seen: dict[str, set[str]] = {}
    packages = {name for launch in cell for name in launch.evidence.versions}
    for launch in cell:
        image = launch.record.image
        versions = {
            "machine": launch.record.machine.id,
            "image": image.digest if image else "none",
            "data": launch.evidence.data_digest[:12],
        }
        versions |= {name: launch.evidence.versions.get(name, "none") for name in packages}
        for name, version in versions.items():
            seen.setdefault(name, set()).add(version)
    differing = [f"{name} ({', '.join(sorted(found))})" for name, found in sorted(seen.items()) if len(found) > 1]
    return f"The launches of this cell differ in {'; '.join(differing)}." if differing else None


def tolerable_load(cpus: int) -> float:
    """Return how many of a machine's logical CPUs other programs may keep busy without affecting the results."""
    return min(WHOLE_CPU, max(MIN_OTHER_CPUS, OTHER_LOAD_SHARE * cpus))


def other_load(cell: Sequence[MeasuredLaunch]) -> str | None:
    cpus = cell[0].record.machine.logical_cpus
    worst, among = _worst(cell, lambda launch: launch.other_cpus, tolerable_load(cpus))
    if worst is None:
        return None
    return f"Other processes kept {worst:.1f} of the machine's {cpus} logical CPUs busy while the cell trained{among}."


def other_gpu_processes(cell: Sequence[MeasuredLaunch]) -> str | None:
    count, among = _worst(cell, lambda x: max(x.training_samples(r"gpu\d+_other_processes"), default=None), 1)
    return None if count is None else f"Other processes ({count:.0f} at once) computed on the cell's GPU{among}."


def quota(cell: Sequence[MeasuredLaunch]) -> str | None:
    share, among = _worst(cell, lambda launch: launch.throttled_share, WITHHELD_SHARE)
    if share is None:
        return None
    return f"The CPU quota withheld {percent(share)} of the CPU time that the cell requested while it trained{among}."


def hot_gpu(cell: Sequence[MeasuredLaunch]) -> str | None:
    hottest, among = _worst(cell, lambda x: max(x.training_samples(r"gpu\d+_temperature_c"), default=None), HOT_C)
    slowed, among_slowed = _worst(cell, lambda launch: launch.slowdown_share(THERMAL) or None, 0.0)
    parts = [f"reached {hottest:.0f} °C{among}"] if hottest is not None else []
    if slowed is not None:
        parts.append(f"lowered its clocks because of heat in {percent(slowed)} of the samples{among_slowed}")
    return f"The GPU {' and '.join(parts)}." if parts else None


def steal(cell: Sequence[MeasuredLaunch]) -> str | None:
    share, among = _worst(cell, lambda launch: launch.steal_share, WITHHELD_SHARE)
    if share is None:
        return None
    return f"The hypervisor gave {percent(share)} of the requested CPU time to other machines{among}."


def no_steady_state(cell: Sequence[MeasuredLaunch]) -> str | None:
    """Find a warm-up that did not end.

    The search for the end of the warm-up stops at half of the measurement, so an end there is not a real end. The rule
    applies if this happens in most of the launches, because in some launches it happens by chance.
    """
    waits = []
    for launch in cell:
        seconds = [window.seconds for window in launch.training.windows]
        before, after = sum(seconds[1 : launch.training.steady_from]), sum(seconds[launch.training.steady_from :])
        if launch.request.budget.seconds is not None and before >= UNSETTLED_SHARE * (before + after) > 0:
            waits.append(before)
    if len(waits) <= len(cell) / 2:
        return None
    return (
        f"The speed had not settled after {statistics.median(waits):.1f} s, the first half of the measurement"
        f"{_among(len(waits), len(cell))}."
    )


def few_windows(cell: Sequence[MeasuredLaunch]) -> str | None:
    """Find launches whose steps were too slow for enough steady windows. Whole epochs and steps need none."""
    counts = [
        len(launch.training.windows) - launch.training.steady_from
        for launch in cell
        if launch.request.budget.seconds is not None
    ]
    few = [count for count in counts if count < MIN_STEADY_WINDOWS]
    if not few:
        return None
    return (
        f"The speed comes from {min(few)} steady window{'s' * (min(few) != 1)}, but its spread cannot be judged from "
        f"fewer than {MIN_STEADY_WINDOWS}{_among(len(few), len(cell))}."
    )


def jump_of_windows(cell: Sequence[MeasuredLaunch]) -> str | None:
    """Find the largest jump of the speed within a launch. One launch is enough: its result mixes two speeds."""
    jumps = [jump for launch in cell if (jump := jump_of_launch(launch, len(cell)))]
    if not jumps:
        return None
    change, seconds = max(jumps, key=lambda jump: abs(jump[0]))
    moved = f"{'rose' if change > 0 else 'fell'} by {percent(abs(change))}"
    return (
        f"The speed suddenly {moved} within a launch, after {seconds:.1f} s of steady training"
        f"{_among(len(jumps), len(cell))} (maximum t-test, p < {JUMP_P})."
    )


def jump_of_launch(launch: MeasuredLaunch, launches: int) -> tuple[float, float] | None:
    """Return the relative change of a jump within a launch and the seconds of steady training before it.

    launches: number of launches of the cell, which share JUMP_P. The change is that of the median. Return None if there
    is no jump of at least JUMP_CHANGE, or if a straight line fits better than a jump.
    """
    windows, rates = launch.comparable_windows, launch.steady_rates
    if len(rates) < MIN_WINDOWS:
        return None
    at, p = launch.change_point
    if p >= JUMP_P / launches:
        return None
    before, after = rates[:at], rates[at:]
    change = statistics.median(after) / statistics.median(before) - 1
    if abs(change) < JUMP_CHANGE:
        return None
    around_jump = sum(len(part) * statistics.pvariance(part) for part in (before, after))
    line = statistics.linear_regression(range(len(rates)), rates)
    around_line = sum((rate - line.intercept - line.slope * place) ** 2 for place, rate in enumerate(rates))
    return (change, windows[at].start_at - windows[0].start_at) if around_jump < around_line else None


def drift_of_windows(cell: Sequence[MeasuredLaunch]) -> str | None:
    """Apply the Mann-Kendall test within each launch, without those that `jump_of_windows` reports.

    The rule applies if most of the launches change in the same direction, because one may do so by chance.
    """
    changes = [
        change
        for launch in cell
        if not jump_of_launch(launch, len(cell)) and (change := trend(launch.steady_rates)) is not None
    ]
    for drifting in ([c for c in changes if c < 0], [c for c in changes if c > 0]):
        if len(drifting) > len(cell) / 2:
            median = percent(statistics.median(drifting), signed=True)
            return (
                f"The speed changed by {median} from the first to the last steady window"
                f"{_among(len(drifting), len(cell))} (Mann-Kendall test, p < {TREND_P})."
            )
    return None


def noisy(cell: Sequence[MeasuredLaunch]) -> str | None:
    """Find noise between the windows of a launch, and between launches, except those that another rule reports."""
    parts = []
    _, usual = outliers_and_others(cell)
    logs = _logs(usual)
    if len(logs) >= MIN_FOR_SPREAD and (spread := statistics.stdev(logs)) > NOISY_LAUNCHES:
        parts.append(f"by {percent(spread)} between {len(logs)} launches (standard deviation)")
    elif len(logs) == 2 and (apart := max(logs) - min(logs)) > MAX_APART:
        parts.append(f"by {percent(math.expm1(apart))} between its two launches")
    spreads = [own for launch in cell if (own := window_spread(launch)) is not None]
    if spreads and (spread := statistics.median(spreads)) > NOISY_WINDOWS:
        between = "windows of a launch (from the median absolute deviation)"
        if any(launch.training.epochs for launch in cell):
            between = "epochs of a launch (standard deviation)"
        parts.append(f"by {percent(spread)} between the {between}")
    return f"The speed of equal work varies {' and '.join(parts)}." if parts else None


def window_spread(launch: MeasuredLaunch) -> float | None:
    """Return the standard deviation of the speeds of a launch, relative to their median. Return None for too few.

    A few of many short windows may be far off without an effect on the result, so their deviation is estimated by the
    median absolute deviation. Whole epochs are few and long, and the result is their mean, so each of them counts.
    """
    training = launch.training
    if not training.epochs:
        return relative_spread(launch.steady_rates) if len(launch.steady_rates) >= MIN_WINDOWS else None
    slow = with_warm_up(training.resumed_from)
    timed = [e for e in training.epochs if e.images and e.seconds >= MIN_POSITIVE]  # a stranger's may have neither
    rates = [e.images / e.seconds for e in timed if e.index not in slow]
    return statistics.stdev(rates) / statistics.median(rates) if len(rates) >= MIN_FOR_SPREAD else None


def slow_first_launch(cell: Sequence[MeasuredLaunch]) -> str | None:
    """Find a launch 1 that is below the 99% prediction interval of the other launches.

    The interval is mean - t * s * sqrt(1 + 1/n), for a normal distribution of the logarithms.
    """
    if cell[0].record.launch != 1 or len(cell) <= MIN_FOR_SPREAD:
        return None
    first, *others = _logs(cell)
    n, mean = len(others), statistics.fmean(others)
    reach = float(stdtrit(n - 1, SLOW_FIRST_CONFIDENCE)) * statistics.stdev(others) * math.sqrt(1 + 1 / n)
    if first > mean - max(reach, SLOW_FIRST_CHANGE):
        return None
    slower = percent(1 - math.exp(first - mean))
    return f"Launch 1 was {slower} slower than the {n} others, outside their 99% prediction interval."


def outliers(cell: Sequence[MeasuredLaunch]) -> str | None:
    far, usual = outliers_and_others(cell)
    if not far:
        return None
    middle = statistics.median(values([*far, *usual]))
    named = [f"launch {x.record.launch} ({percent(x.training.images_per_s / middle - 1, signed=True)})" for x in far]
    return (
        f"Some of {len(far) + len(usual)} launches are far from the median (modified z-score above {OUTLIER_Z}): "
        f"{', '.join(named)}."
    )


def outliers_and_others(cell: Sequence[MeasuredLaunch]) -> tuple[list[MeasuredLaunch], list[MeasuredLaunch]]:
    """Return the outliers by the rule of Iglewicz and Hoaglin, and the others, both without a slow first launch."""
    rest = list(cell[1:] if slow_first_launch(cell) else cell)
    if len(rest) < MIN_FOR_OUTLIERS:
        return [], rest
    logs = _logs(rest)
    middle = statistics.median(logs)
    far = [
        abs(z) > OUTLIER_Z and abs(value - middle) > OUTLIER_CHANGE
        for value, z in zip(logs, modified_z_scores(logs), strict=True)
    ]
    pairs = list(zip(rest, far, strict=True))
    return [launch for launch, is_far in pairs if is_far], [launch for launch, is_far in pairs if not is_far]


def synthetic_data(cell: Sequence[MeasuredLaunch]) -> str | None:
    if all(launch.evidence.data_kind != "synthetic" for launch in cell):
        return None
    return "The data is synthetic, so accuracies do not apply to the real task."


def ignored_checkpoints(cell: Sequence[MeasuredLaunch]) -> str | None:
    return " ".join(dict.fromkeys(why for launch in cell for why in launch.training.ignored_checkpoints)) or None


def values(cell: Sequence[MeasuredLaunch]) -> list[float]:
    """Return the training images/s of each launch."""
    return [launch.training.images_per_s for launch in cell]


def _logs(cell: Sequence[MeasuredLaunch]) -> list[float]:
    return [math.log(value) for value in values(cell)]


def trend(series: Sequence[float]) -> float | None:
    """Return the relative change from first to last by the Theil-Sen slope.

    Return None if the Mann-Kendall test finds no trend, or if the change is below TREND_CHANGE. The test allows for the
    autocorrelation of the series around the trend, because windows and launches that follow each other are similar.
    """
    if len(series) < MIN_WINDOWS:
        return None
    if len(series) > ALL_SLOPES and mann_kendall(series) >= TREND_P:  # autocorrelation only raises p
        return None  # without the millions of slopes of a long series
    slope = theil_sen(series)
    change = slope * (len(series) - 1) / statistics.median(series)
    if abs(change) < TREND_CHANGE:
        return None
    around = [value - slope * place for place, value in enumerate(series)]
    mean = statistics.fmean(around)
    return change if mann_kendall(series, variance_factor([value - mean for value in around])) < TREND_P else None


def _worst(
    cell: Sequence[MeasuredLaunch], value_of: Callable[[MeasuredLaunch], float | None], limit: float
) -> tuple[float | None, str]:
    """Return the largest value if it reaches the limit, else None, and in how many launches the limit is reached."""
    hits = [value for launch in cell if (value := value_of(launch)) is not None and value >= limit]
    return (max(hits), _among(len(hits), len(cell))) if hits else (None, "")


def _among(hits: int, launches: int) -> str:
    return f" (in {hits} of {launches} launches)" if launches > 1 else ""
