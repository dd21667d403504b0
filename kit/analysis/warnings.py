"""Find what makes the results of a run doubtful, each with its cause and remedy. No input or output."""

import re
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from operator import itemgetter
from types import MappingProxyType

from kit.analysis import warning_rules
from kit.analysis.correlation import correlation, speeds_in_time
from kit.analysis.measured_launch import MeasuredLaunch, power_capped
from kit.analysis.warning_rules import trend, values
from kit.model.formatting import format_percent as percent
from kit.model.machine import Machine
from kit.model.record import Record
from kit.model.run import Run
from scenarios.contract.reasons import Status


class WarningCode(StrEnum):
    """The cause of a warning, in the order of display.

    First come causes that can make a result wrong, then those that make it uncertain, then those that limit its
    interpretation.
    """

    MIXED_VERSIONS = "mixed_versions"
    OTHER_LOAD = "other_load"
    OTHER_GPU_PROCESSES = "other_gpu_processes"
    QUOTA = "quota"
    HOT_GPU = "hot_gpu"
    POWER_CAP = "power_cap"
    STEAL = "steal"
    NO_STEADY_STATE = "no_steady_state"
    FEW_WINDOWS = "few_windows"
    JUMP = "jump"
    DRIFT = "drift"
    CORRELATED = "correlated"
    NOISY = "noisy"
    SLOW_FIRST_LAUNCH = "slow_first_launch"
    OUTLIERS = "outliers"
    FEW_LAUNCHES = "few_launches"
    UNDER_QUOTA = "under_quota"
    SYNTHETIC_DATA = "synthetic_data"
    DIFFERENT_LIBRARIES = "different_libraries"
    OLD_DRIVER = "old_driver"
    LOW_CEILING = "low_ceiling"
    NO_CEILING = "no_ceiling"
    IGNORED_CHECKPOINT = "ignored_checkpoint"
    ENGINE_REMARK = "engine_remark"


@dataclass(frozen=True)
class RunWarning:
    """One warning.

    about: key of a cell, or "" for the whole run. cause: what was found, with figures. remedy: what to do about it.
    """

    code: WarningCode
    about: str
    cause: str
    remedy: str


MAX_CEILING_SHARE = 1.1  # of the measured ceiling: training and probe both vary by a few percent
CUDA_13_DRIVER = 580  # NVIDIA, CUDA Toolkit release notes: minimum driver for CUDA 13 on Linux

REMEDIES: Mapping[WarningCode, str] = {
    WarningCode.MIXED_VERSIONS: "Measure these cells again in one run, on one machine, with one set of environments.",
    WarningCode.OTHER_LOAD: "Stop other programs on this machine, then measure again.",
    WarningCode.OTHER_GPU_PROCESSES: "Stop the other processes, or choose an idle GPU with --gpus, then measure again.",
    WarningCode.QUOTA: "Raise the CPU quota of the container or service that runs kit, or use fewer --threads.",
    WarningCode.HOT_GPU: "Improve the cooling, or let the GPU cool down, then measure again.",
    WarningCode.POWER_CAP: "Restore the default with nvidia-smi --power-limit, or report the limit with the results.",
    WarningCode.STEAL: "Use an instance with dedicated CPUs, or measure when its host is less busy.",
    WarningCode.NO_STEADY_STATE: "Measure for longer (--profile standard), and find out what does not settle.",
    WarningCode.FEW_WINDOWS: "Measure for longer (--profile standard), or choose a smaller batch size.",
    WarningCode.JUMP: "Find out what changed at that time (other programs, clocks, power limit), then measure again.",
    WarningCode.DRIFT: "Find out what heats up or fills up (clocks, temperature, memory, load), then measure again.",
    WarningCode.CORRELATED: "Compare cells of one run by their ratios, which come from pairs. Measure again at another "
    "time to see how much the speeds change.",
    WarningCode.NOISY: "Leave the machine idle, fix its clocks if possible, or measure more launches.",
    WarningCode.SLOW_FIRST_LAUNCH: "Measure again, because files and caches are warm then.",
    WarningCode.OUTLIERS: "Compare the host samples and logs of these launches with the others, then measure again.",
    WarningCode.UNDER_QUOTA: "Remove the quota of the container or service that runs kit to measure all CPUs.",
    WarningCode.SYNTHETIC_DATA: "Get the real data with `kit data fetch` or `kit data add`, then measure again. Speeds "
    "are estimates.",
    WarningCode.DIFFERENT_LIBRARIES: "Treat the results as those of software stacks, not of frameworks alone.",
    WarningCode.OLD_DRIVER: f"Update the NVIDIA driver to {CUDA_13_DRIVER} or newer.",
    WarningCode.LOW_CEILING: "Do not rely on shares of the ceilings, or on what limits a cell. Measure again while no "
    "other program runs.",
    WarningCode.IGNORED_CHECKPOINT: "The results are right, but took longer. To continue a training, resume it on the "
    "same machine and GPU, with the same kit and packages.",
    WarningCode.ENGINE_REMARK: "Make sure that this does not affect the results. The launch's log may have details.",
}

CELL_RULES: Mapping[WarningCode, Callable[[Sequence[MeasuredLaunch]], str | None]] = {
    WarningCode.MIXED_VERSIONS: warning_rules.mixed_versions,
    WarningCode.OTHER_LOAD: warning_rules.other_load,
    WarningCode.OTHER_GPU_PROCESSES: warning_rules.other_gpu_processes,
    WarningCode.QUOTA: warning_rules.quota,
    WarningCode.HOT_GPU: warning_rules.hot_gpu,
    WarningCode.STEAL: warning_rules.steal,
    WarningCode.NO_STEADY_STATE: warning_rules.no_steady_state,
    WarningCode.FEW_WINDOWS: warning_rules.few_windows,
    WarningCode.JUMP: warning_rules.jump_of_windows,
    WarningCode.DRIFT: warning_rules.drift_of_windows,
    WarningCode.NOISY: warning_rules.noisy,
    WarningCode.SLOW_FIRST_LAUNCH: warning_rules.slow_first_launch,
    WarningCode.OUTLIERS: warning_rules.outliers,
    WarningCode.SYNTHETIC_DATA: warning_rules.synthetic_data,
    WarningCode.IGNORED_CHECKPOINT: warning_rules.ignored_checkpoints,
}

LIBRARIES = {"CUDA": r"cuda|nvidia-cuda-runtime(-cu\d+)?", "cuDNN": r"cudnn|nvidia-cudnn(-cu\d+)?"}


def find_warnings(
    run: Run,
    cells: Mapping[str, Sequence[MeasuredLaunch]],
    ceiling_shares: Mapping[str, float] = MappingProxyType({}),
) -> list[RunWarning]:
    """Return all warnings of a run, the most serious first.

    cells: the launches of the run, from `launches_by_cell`. ceiling_shares: which share of the ceiling of arithmetic
    each cell reaches, by its key.

    There is one warning for each cause and cell, and one for the whole run if a cause is the same in all cells.
    """
    found = list(_of_run(run, [launch for own in cells.values() for launch in own], cells, ceiling_shares))
    planned = Counter(launch.key for launch in run.plan.launches)
    for key, cell in cells.items():
        found += [*_of_cell(key, cell), *_few_launches(run.plan.run, key, len(cell), planned[key])]
    order = list(WarningCode)
    return sorted(_merge(found, set(cells)), key=lambda warning: order.index(warning.code))


def _of_run(
    run: Run,
    launches: Sequence[MeasuredLaunch],
    cells: Mapping[str, Sequence[MeasuredLaunch]],
    ceiling_shares: Mapping[str, float],
) -> Iterator[RunWarning]:
    causes = [
        (WarningCode.MIXED_VERSIONS, _other_machine(run)),
        (WarningCode.POWER_CAP, _power_cap(run.machine, launches)),
        (WarningCode.DRIFT, _drift_of_run(cells)),
        (WarningCode.CORRELATED, _correlated(run.records)),
        (WarningCode.UNDER_QUOTA, _under_quota(run.machine, launches)),
        (WarningCode.OLD_DRIVER, _old_driver(run.machine, launches)),
        (WarningCode.LOW_CEILING, _low_ceiling(ceiling_shares)),
        *((WarningCode.DIFFERENT_LIBRARIES, cause) for cause in _different_libraries(launches)),
    ]
    yield from (RunWarning(code, "", cause, REMEDIES[code]) for code, cause in causes if cause)
    yield from _failed_probes(run.probes)
    yield from _remarks([*run.records, *run.probes])


def _of_cell(key: str, cell: Sequence[MeasuredLaunch]) -> Iterator[RunWarning]:
    for code, rule in CELL_RULES.items():
        if cause := rule(cell):
            yield RunWarning(code, key, cause, REMEDIES[code])


def _merge(found: Sequence[RunWarning], cells: set[str]) -> list[RunWarning]:
    """Merge warnings that are identical in all of several cells into one about the run."""
    groups: dict[tuple[WarningCode, str, str], dict[str, RunWarning]] = {}
    for warning in found:
        groups.setdefault((warning.code, warning.cause, warning.remedy), {})[warning.about] = warning
    merged: list[RunWarning] = []
    for (code, cause, remedy), by_cell in groups.items():
        everywhere = "" in by_cell or (len(cells) > 1 and by_cell.keys() == cells)
        merged += [RunWarning(code, "", cause, remedy)] if everywhere else by_cell.values()
    return merged


def _few_launches(run: str, key: str, launches: int, planned: int) -> Iterator[RunWarning]:
    if launches < planned:
        cause = f"Only {launches} of {planned} planned launches are ok."
        remedy = f"Resume with kit run --resume {run} --retry-failed."
        yield RunWarning(WarningCode.FEW_LAUNCHES, key, cause, remedy)
    elif launches == 1:
        cause = "A single launch has no interval, so the variation between launches is unknown."
        remedy = "Use --profile standard, which measures at least 5 launches."
        yield RunWarning(WarningCode.FEW_LAUNCHES, key, cause, remedy)


def _other_machine(run: Run) -> str | None:
    records = [*run.records, *run.probes]
    foreign = sum(record.machine.id != run.machine.id for record in records)
    if not foreign:
        return None
    return f"{foreign} of {len(records)} launches ran on a machine with other hardware or system software."


def _power_cap(machine: Machine, launches: Sequence[MeasuredLaunch]) -> str | None:
    used = {index for launch in launches for index in launch.gpus}
    capped = [
        f"GPU {gpu.index} to {gpu.power_limit_w:.0f} W, {percent(share)} of its default"
        for gpu, share in power_capped(gpu for gpu in machine.gpus if gpu.index in used)
    ]
    return f"The power limit was lowered: {'; '.join(capped)}." if capped else None


def _drift_of_run(cells: Mapping[str, Sequence[MeasuredLaunch]]) -> str | None:
    """Apply the Mann-Kendall test to all launches in the order of time, each relative to the median of its cell."""
    relative = []
    for cell in cells.values():
        if len(cell) >= warning_rules.MIN_FOR_SPREAD:
            middle = statistics.median(values(cell))
            relative += [(launch.record.started_at, launch.training.images_per_s / middle) for launch in cell]
    change = trend([value for _, value in sorted(relative, key=itemgetter(0))])
    if change is None:
        return None
    return (
        f"The speed changed by {percent(change, signed=True)} over the {len(relative)} launches of the run "
        f"(Mann-Kendall test, p < {warning_rules.TREND_P})."
    )


def _correlated(records: Sequence[Record]) -> str | None:
    found = correlation(speeds_in_time(records))
    if found is None or not found.significant:
        return None
    return (
        f"Launches that follow each other have similar errors (lag-1 autocorrelation {found.value:.2f} over "
        f"{found.launches} launches). So the interval of a speed (±) describes only the period of this run."
    )


def _under_quota(machine: Machine, launches: Sequence[MeasuredLaunch]) -> str | None:
    """Find a quota that the plan respects.

    A quota that the plan does not know causes throttling: see `warning_rules.quota`.
    """
    if not launches or machine.quota_cpus is None or machine.quota_cpus >= machine.logical_cpus:
        return None
    return (
        f"A CPU quota grants {machine.quota_cpus:g} of the machine's {machine.logical_cpus} logical CPUs, so the "
        f"results apply to the quota."
    )


def _old_driver(machine: Machine, launches: Sequence[MeasuredLaunch]) -> str | None:
    major = re.match(r"\d{1,9}", machine.driver or "")
    if major is None or int(major[0]) >= CUDA_13_DRIVER:
        return None
    newer = {launch.request.cell.framework for launch in launches if _library(launch, "CUDA")[:1] >= (13,)}
    if not newer:
        return None
    frameworks = ", ".join(sorted(newer))
    return f"The NVIDIA driver is {machine.driver}, but {frameworks} ran CUDA 13, which needs {CUDA_13_DRIVER}."


def _low_ceiling(shares: Mapping[str, float]) -> str | None:
    """Find a ceiling that a cell exceeds: the machine was slower while it was measured."""
    above = {key: share for key, share in shares.items() if share > MAX_CEILING_SHARE}
    if not above:
        return None
    key = max(above, key=above.__getitem__)
    others = f" (and {len(above) - 1} more)" if len(above) > 1 else ""
    return (
        f"{key}{others} trained at {percent(above[key])} of the measured ceiling, so this ceiling is too low: the "
        f"machine was slower while the ceilings were measured."
    )


def _different_libraries(launches: Sequence[MeasuredLaunch]) -> Iterator[str]:
    for library in LIBRARIES:
        versions = {x.request.cell.framework: found for x in launches if (found := _library(x, library))}
        # A framework may report only the major version, so only the parts that all report are compared.
        common = min(map(len, versions.values()), default=0)
        if len({version[:common] for version in versions.values()}) > 1:
            names = (f"{name} {'.'.join(map(str, version))}" for name, version in sorted(versions.items()))
            yield f"The frameworks use different versions of {library}: {', '.join(names)}."


def _library(launch: MeasuredLaunch, library: str) -> tuple[int, ...]:
    """Return the version of CUDA or cuDNN of a cuda launch, or () if its evidence has none."""
    versions = launch.evidence.versions if launch.request.cell.device == "cuda" else {}
    text = next((version for name, version in versions.items() if re.fullmatch(LIBRARIES[library], name)), "")
    parts = tuple(int(part) for part in re.findall(r"\d{1,9}", text))
    if library == "cuDNN" and len(parts) == 1 and parts[0] >= 1000:
        # cudnnGetVersion(): major * 10000 + minor * 100 + patch from version 9 on, major * 1000 before.
        major, rest = divmod(parts[0], 10000 if parts[0] >= 10000 else 1000)
        return major, *divmod(rest, 100)
    return parts


def _failed_probes(probes: Sequence[Record]) -> Iterator[RunWarning]:
    known = {probe.key for probe in probes if probe.ok}
    for probe in probes:
        if probe.key not in known and probe.status is not Status.SKIPPED and probe.reason:
            cause = f"A probe of the machine's ceilings has the status {probe.status}: {probe.reason.message}"
            yield RunWarning(WarningCode.NO_CEILING, probe.key, cause, probe.reason.remedy)


def _remarks(records: Sequence[Record]) -> Iterator[RunWarning]:
    """Return each distinct warning in the records, about its cell, or about the run if several cells have it."""
    keys_of: dict[str, set[str]] = {}
    for record in records:
        for text in record.warnings:
            keys_of.setdefault(text, set()).add(record.key)
    for text, keys in keys_of.items():
        about = next(iter(keys)) if len(keys) == 1 else ""
        yield RunWarning(WarningCode.ENGINE_REMARK, about, text, REMEDIES[WarningCode.ENGINE_REMARK])
