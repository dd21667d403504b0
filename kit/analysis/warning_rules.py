"""What speaks against trusting the number of one cell: each rule takes its ok launches in the order of their numbers
and tells the cause in one sentence with figures, or None. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence

from scipy.special import stdtrit

from kit.analysis.measured_launch import Launch
from kit.analysis.robust import mann_kendall, modified_z_scores, relative_spread, theil_sen
from kit.model.figures import percent, signed_percent

# Of the machine's logical CPUs. Twice the 2.5 % to which intervals are narrowed: a parallel loop waits for its slowest
# thread, so that this much less of one CPU would by itself be as large as what the interval is meant to show.
OTHER_LOAD_SHARE = 0.05
MIN_OTHER_CPUS = 0.2  # below it lie the clock ticks of the readings, the engine's daemon and the sampler itself
WHOLE_CPU = 0.9  # however many CPUs there are, one that is taken slows the thread that shares it
WITHHELD_SHARE = 0.02  # of the CPU time asked for, by quota or hypervisor: more moves a result out of a 2.5 % interval
HOT_C = 85.0  # NVIDIA's GPUs lower their clocks from 83 °C (GeForce) to about 90 °C (data centre)
THERMAL = frozenset({"sw_thermal", "hw_thermal"})

# Spread of launches: twice the 2.5 % at which Phoronix Test Suite stops repeating a test.
NOISY_LAUNCHES = 0.05
MIN_FOR_SPREAD = 3
# Of windows: at this spread the median of the 24 windows of a quick launch is itself uncertain by
# 1.2533 * 0.1 / sqrt(24) = 2.6 % (standard error of the median of a normal sample).
NOISY_WINDOWS = 0.10
MIN_WINDOWS = 8  # what the Mann-Kendall test needs, too
UNSETTLED_SHARE = 0.48  # of the time after the first step: half, less the rounding to windows
TREND_P = 0.01  # one false alarm in a hundred series of independent values
# From first to last: an idle machine against itself differs by 2 to 3 % (faster-cpython, A/A runs).
TREND_CHANGE = 0.03
OUTLIER_Z = 3.5  # Iglewicz and Hoaglin (1993)
MIN_FOR_OUTLIERS = 5
OUTLIER_CHANGE = 0.05  # where launches agree closely, the rule would call out what nobody minds
SLOW_FIRST_CHANGE = 0.02
SLOW_FIRST_CONFIDENCE = 0.99  # one-sided


def mixed_versions(cell: Sequence[Launch]) -> str | None:
    seen: dict[str, set[str]] = {}
    packages = {name for launch in cell for name in launch.evidence.versions}
    for launch in cell:
        image = launch.record.image
        told = {"machine": launch.record.machine.id, "image": image.digest if image else "none"}
        told |= {name: launch.evidence.versions.get(name, "none") for name in packages}
        for what, name in told.items():
            seen.setdefault(what, set()).add(name)
    differing = [f"{what} ({', '.join(sorted(names))})" for what, names in sorted(seen.items()) if len(names) > 1]
    return f"Launches of this cell differ in {'; '.join(differing)}." if differing else None


def tolerable_load(cpus: int) -> float:
    """How many of a machine's logical CPUs other programs may keep busy before figures suffer from it."""
    return min(WHOLE_CPU, max(MIN_OTHER_CPUS, OTHER_LOAD_SHARE * cpus))


def other_load(cell: Sequence[Launch]) -> str | None:
    cpus = cell[0].record.machine.logical_cpus
    worst, where = _worst(cell, lambda launch: launch.other_cpus, tolerable_load(cpus))
    if worst is None:
        return None
    return f"Other processes kept {worst:.1f} of the machine's {cpus} logical CPUs busy while it trained{where}."


def other_gpu_processes(cell: Sequence[Launch]) -> str | None:
    count, where = _worst(cell, lambda x: max(x.while_training(r"gpu\d+_other_processes"), default=None), 1)
    return None if count is None else f"Other processes ({count:.0f} at once) computed on its GPU{where}."


def quota(cell: Sequence[Launch]) -> str | None:
    share, where = _worst(cell, lambda launch: launch.held_back, WITHHELD_SHARE)
    if share is None:
        return None
    return f"The CPU quota withheld {percent(share)} of the CPU time that it asked for while it trained{where}."


def hot_gpu(cell: Sequence[Launch]) -> str | None:
    hottest, where = _worst(cell, lambda x: max(x.while_training(r"gpu\d+_temperature_c"), default=None), HOT_C)
    slowed, where_slowed = _worst(cell, lambda launch: launch.slowed(THERMAL) or None, 0.0)
    parts = [f"reached {hottest:.0f} °C{where}"] if hottest is not None else []
    if slowed is not None:
        parts.append(f"lowered its clocks for heat in {percent(slowed)} of the samples{where_slowed}")
    return f"The GPU {' and '.join(parts)}." if parts else None


def steal(cell: Sequence[Launch]) -> str | None:
    share, where = _worst(cell, lambda launch: launch.stolen, WITHHELD_SHARE)
    if share is None:
        return None
    return f"The hypervisor gave {percent(share)} of the CPU time asked for to other machines{where}."


def no_steady_state(cell: Sequence[Launch]) -> str | None:
    """The search for the warm-up's end goes no further than half of the measurement, so an end there is none. Counts
    where it is so in most of the launches: by chance alone it happens in some."""
    waits = []
    for launch in cell:
        seconds = [window.seconds for window in launch.training.windows]
        before, after = sum(seconds[1 : launch.training.steady_from]), sum(seconds[launch.training.steady_from :])
        if launch.request.budget.seconds is not None and before >= UNSETTLED_SHARE * (before + after) > 0:
            waits.append(before)
    if len(waits) <= len(cell) / 2:
        return None
    return (
        f"Its speed had not settled after {statistics.median(waits):.1f} s, the first half of the measurement"
        f"{_among(len(waits), len(cell))}."
    )


def drift_of_windows(cell: Sequence[Launch]) -> str | None:
    """Mann-Kendall within each launch; counts where most of the launches change the same way, because the windows
    of one launch are not independent of each other."""
    changes = [change for launch in cell if (change := trend(launch.steady_rates)) is not None]
    for drifting in ([c for c in changes if c < 0], [c for c in changes if c > 0]):
        if len(drifting) > len(cell) / 2:
            told = signed_percent(statistics.median(drifting))
            return (
                f"Its speed changed by {told} from the first to the last steady window"
                f"{_among(len(drifting), len(cell))} (Mann-Kendall test, p < {TREND_P})."
            )
    return None


def noisy(cell: Sequence[Launch]) -> str | None:
    """Between launches, those left out that another rule tells of; and between the windows of a launch."""
    parts = []
    _, usual = _odd_and_usual(cell)
    if len(usual) >= MIN_FOR_SPREAD and (spread := statistics.stdev(_logs(usual))) > NOISY_LAUNCHES:
        parts.append(f"{len(usual)} of its launches by {percent(spread)} (standard deviation)")
    spreads = [relative_spread(x.steady_rates) for x in cell if len(x.steady_rates) >= MIN_WINDOWS]
    if spreads and (spread := statistics.median(spreads)) > NOISY_WINDOWS:
        parts.append(f"the windows within a launch by {percent(spread)} (from the median absolute deviation)")
    return f"The same work differs in speed: {' and '.join(parts)}." if parts else None


def slow_first_launch(cell: Sequence[Launch]) -> str | None:
    """Launch 1 below the 99 % prediction interval that the others give for one more launch (normal, on the log scale):
    mean - t * s * sqrt(1 + 1/n)."""
    if cell[0].record.launch != 1 or len(cell) <= MIN_FOR_SPREAD:
        return None
    first, *others = _logs(cell)
    n, mean = len(others), statistics.fmean(others)
    reach = float(stdtrit(n - 1, SLOW_FIRST_CONFIDENCE)) * statistics.stdev(others) * math.sqrt(1 + 1 / n)
    if first > mean - max(reach, SLOW_FIRST_CHANGE):
        return None
    slower = 1 - math.exp(first - mean)
    return f"Launch 1 was {percent(slower)} slower than the {n} others, beyond their spread (99 % prediction interval)."


def outliers(cell: Sequence[Launch]) -> str | None:
    odd, usual = _odd_and_usual(cell)
    if not odd:
        return None
    middle = statistics.median(values([*odd, *usual]))
    told = (f"{launch.record.launch} ({signed_percent(launch.training.images_per_s / middle - 1)})" for launch in odd)
    return (
        f"Launches far from the median of {len(odd) + len(usual)}: {', '.join(told)} "
        f"(modified z-score above {OUTLIER_Z})."
    )


def _odd_and_usual(cell: Sequence[Launch]) -> tuple[list[Launch], list[Launch]]:
    """The outliers by the rule of Iglewicz and Hoaglin, and the others; a slow first launch is neither."""
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


def synthetic_data(cell: Sequence[Launch]) -> str | None:
    if all(launch.evidence.data_kind != "synthetic" for launch in cell):
        return None
    return "Measured on synthetic data, so that accuracies say nothing about the real task."


def values(cell: Sequence[Launch]) -> list[float]:
    """Training images/s of each launch."""
    return [launch.training.images_per_s for launch in cell]


def _logs(cell: Sequence[Launch]) -> list[float]:
    return [math.log(value) for value in values(cell)]


def trend(series: Sequence[float]) -> float | None:
    """Relative change from first to last by the Theil-Sen slope, where the Mann-Kendall test finds a trend."""
    if len(series) < MIN_WINDOWS or mann_kendall(series) >= TREND_P:
        return None
    change = theil_sen(series) * (len(series) - 1) / statistics.median(series)
    return change if abs(change) >= TREND_CHANGE else None


def _worst(
    cell: Sequence[Launch], value_of: Callable[[Launch], float | None], limit: float
) -> tuple[float | None, str]:
    """The largest value among the launches that reach the limit, and how many those are; None where none does."""
    hits = [value for launch in cell if (value := value_of(launch)) is not None and value >= limit]
    return (max(hits), _among(len(hits), len(cell))) if hits else (None, "")


def _among(hits: int, launches: int) -> str:
    return f" (in {hits} of {launches} launches)" if launches > 1 else ""
