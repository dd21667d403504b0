"""What a reader must know before trusting the numbers of a run: each with cause and remedy. Pure."""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from operator import itemgetter

from kit.analysis import warning_rules
from kit.analysis.measured_launch import Launch, capped, measured
from kit.analysis.warning_rules import trend, values
from kit.model.figures import percent, signed_percent
from kit.model.machine import Machine
from kit.model.plan import Plan
from kit.model.record import Record
from scenarios.contract.reasons import Status


class WarningCode(StrEnum):
    """In the order in which warnings are shown: first what may make a number wrong, then what makes it uncertain, then
    what limits how it may be read."""

    MIXED_VERSIONS = "mixed_versions"
    OTHER_LOAD = "other_load"
    OTHER_GPU_PROCESSES = "other_gpu_processes"
    QUOTA = "quota"
    HOT_GPU = "hot_gpu"
    POWER_CAP = "power_cap"
    STEAL = "steal"
    NO_STEADY_STATE = "no_steady_state"
    DRIFT = "drift"
    NOISY = "noisy"
    SLOW_FIRST_LAUNCH = "slow_first_launch"
    OUTLIERS = "outliers"
    FEW_LAUNCHES = "few_launches"
    UNDER_QUOTA = "under_quota"
    SYNTHETIC_DATA = "synthetic_data"
    DIFFERENT_LIBRARIES = "different_libraries"
    OLD_DRIVER = "old_driver"
    NO_CEILING = "no_ceiling"
    ENGINE_REMARK = "engine_remark"


@dataclass(frozen=True)
class RunWarning:
    """about: key of a cell, or "" for the whole run. cause: what was seen, with figures; remedy: what to do about it;
    one sentence each."""

    code: WarningCode
    about: str
    cause: str
    remedy: str


CUDA_13_DRIVER = 580  # NVIDIA, CUDA Toolkit release notes: least driver of CUDA 13 on Linux

REMEDIES: Mapping[WarningCode, str] = {
    WarningCode.MIXED_VERSIONS: "Measure these again in one run, on one machine, with one set of images.",
    WarningCode.OTHER_LOAD: "End what else runs on this machine, then measure again.",
    WarningCode.OTHER_GPU_PROCESSES: "End the other processes, or choose an idle GPU with --gpus, then measure again.",
    WarningCode.QUOTA: "Raise the CPU quota of the container or service that kit runs in, or ask for fewer --threads.",
    WarningCode.HOT_GPU: "Improve the cooling, or let the GPU cool down, then measure again.",
    WarningCode.POWER_CAP: "Restore the default with nvidia-smi --power-limit, or state the cap with the numbers.",
    WarningCode.STEAL: "Take an instance with dedicated CPUs, or measure when its host is less busy.",
    WarningCode.NO_STEADY_STATE: "Measure for longer (--profile standard), and look for what does not settle.",
    WarningCode.DRIFT: "Look for what heats up or fills up (clocks, temperature, memory, other load); measure again.",
    WarningCode.NOISY: "Leave the machine idle, fix its clocks where possible, or take more launches.",
    WarningCode.SLOW_FIRST_LAUNCH: "Measure once more: files and caches are warm then.",
    WarningCode.OUTLIERS: "Compare these launches' host samples and logs with the others', then measure again.",
    WarningCode.UNDER_QUOTA: "To measure all of the machine, lift the quota of the container or service kit runs in.",
    WarningCode.SYNTHETIC_DATA: "Get the real data set with kit data, then measure again; speeds stay a good estimate.",
    WarningCode.DIFFERENT_LIBRARIES: "Take the difference for one between stacks, not between frameworks alone.",
    WarningCode.OLD_DRIVER: f"Update NVIDIA's driver to {CUDA_13_DRIVER} or newer.",
    WarningCode.ENGINE_REMARK: "Make sure that this does not matter for the numbers; the launch's log may say more.",
}

CELL_RULES: Mapping[WarningCode, Callable[[Sequence[Launch]], str | None]] = {
    WarningCode.MIXED_VERSIONS: warning_rules.mixed_versions,
    WarningCode.OTHER_LOAD: warning_rules.other_load,
    WarningCode.OTHER_GPU_PROCESSES: warning_rules.other_gpu_processes,
    WarningCode.QUOTA: warning_rules.quota,
    WarningCode.HOT_GPU: warning_rules.hot_gpu,
    WarningCode.STEAL: warning_rules.steal,
    WarningCode.NO_STEADY_STATE: warning_rules.no_steady_state,
    WarningCode.DRIFT: warning_rules.drift_of_windows,
    WarningCode.NOISY: warning_rules.noisy,
    WarningCode.SLOW_FIRST_LAUNCH: warning_rules.slow_first_launch,
    WarningCode.OUTLIERS: warning_rules.outliers,
    WarningCode.SYNTHETIC_DATA: warning_rules.synthetic_data,
}

LIBRARIES = {"CUDA": r"cuda|nvidia-cuda-runtime(-cu\d+)?", "cuDNN": r"cudnn|nvidia-cudnn(-cu\d+)?"}


def find_warnings(
    plan: Plan, machine: Machine, records: Sequence[Record], probes: Sequence[Record]
) -> list[RunWarning]:
    """All warnings of a run, gravest first: one for each cause and cell, and one for the whole run where a cause is
    the same in all cells. machine: of the run. probes: records of the launches that measured ceilings."""
    launches = measured(records)
    cells: dict[str, list[Launch]] = {}
    for launch in sorted(launches, key=lambda launch: launch.record.launch):
        cells.setdefault(launch.record.key, []).append(launch)
    found = list(_of_run(machine, records, probes, launches, cells))
    for key, cell in cells.items():
        planned = sum(launch.key == key for launch in plan.launches)
        found += [*_of_cell(key, cell), *_few_launches(plan, key, len(cell), planned)]
    order = list(WarningCode)
    return sorted(_fold(found, set(cells)), key=lambda warning: order.index(warning.code))


def _of_run(
    machine: Machine,
    records: Sequence[Record],
    probes: Sequence[Record],
    launches: Sequence[Launch],
    cells: Mapping[str, Sequence[Launch]],
) -> Iterator[RunWarning]:
    everything = [*records, *probes]
    causes = {
        WarningCode.MIXED_VERSIONS: _other_machine(machine, everything),
        WarningCode.POWER_CAP: _power_cap(machine, launches),
        WarningCode.DRIFT: _drift_of_run(cells),
        WarningCode.UNDER_QUOTA: _under_quota(machine, launches),
        WarningCode.OLD_DRIVER: _old_driver(machine, launches),
    }
    for code, cause in causes.items():
        if cause:
            yield RunWarning(code, "", cause, REMEDIES[code])
    for cause in _different_libraries(launches):
        yield RunWarning(WarningCode.DIFFERENT_LIBRARIES, "", cause, REMEDIES[WarningCode.DIFFERENT_LIBRARIES])
    yield from _without_ceilings(probes)
    yield from _remarks(everything)


def _of_cell(key: str, cell: Sequence[Launch]) -> Iterator[RunWarning]:
    for code, rule in CELL_RULES.items():
        if cause := rule(cell):
            yield RunWarning(code, key, cause, REMEDIES[code])


def _fold(found: Sequence[RunWarning], cells: set[str]) -> list[RunWarning]:
    """Cautions that are word for word the same for every one of several cells become one about the run."""
    groups: dict[tuple[WarningCode, str, str], dict[str, RunWarning]] = {}
    for warning in found:
        groups.setdefault((warning.code, warning.cause, warning.remedy), {})[warning.about] = warning
    folded: list[RunWarning] = []
    for (code, cause, remedy), by_cell in groups.items():
        everywhere = "" in by_cell or (len(cells) > 1 and by_cell.keys() == cells)
        folded += [RunWarning(code, "", cause, remedy)] if everywhere else by_cell.values()
    return folded


def _few_launches(plan: Plan, key: str, launches: int, planned: int) -> Iterator[RunWarning]:
    if launches < planned:
        cause = f"Of {planned} planned launches {launches} ended ok."
        remedy = f"Continue with kit run --resume {plan.run} --retry-failed."
        yield RunWarning(WarningCode.FEW_LAUNCHES, key, cause, remedy)
    elif launches == 1:
        cause = "A single launch has no interval: how far another would be from it is not known."
        yield RunWarning(
            WarningCode.FEW_LAUNCHES, key, cause, "Use --profile standard, which takes 5 launches and more."
        )


def _other_machine(machine: Machine, records: Sequence[Record]) -> str | None:
    strange = sum(record.machine.id != machine.id for record in records)
    if not strange:
        return None
    return f"{strange} of {len(records)} launches ran on a machine with other hardware or system software."


def _power_cap(machine: Machine, launches: Sequence[Launch]) -> str | None:
    used = {index for launch in launches for index in launch.gpus}
    lowered = [
        f"GPU {gpu.index} to {gpu.power_limit_w:.0f} W, {percent(share)} of its default"
        for gpu, share in capped(gpu for gpu in machine.gpus if gpu.index in used)
    ]
    return f"The power limit is lowered: {'; '.join(lowered)}." if lowered else None


def _drift_of_run(cells: Mapping[str, Sequence[Launch]]) -> str | None:
    """Mann-Kendall over the launches of all cells in the order of time, each relative to its cell's median."""
    relative = []
    for cell in cells.values():
        if len(cell) >= warning_rules.MIN_FOR_SPREAD:
            middle = statistics.median(values(cell))
            relative += [(launch.record.started_at, launch.training.images_per_s / middle) for launch in cell]
    change = trend([value for _, value in sorted(relative, key=itemgetter(0))])
    if change is None:
        return None
    return (
        f"Over its {len(relative)} launches the run changed in speed by {signed_percent(change)} "
        f"(Mann-Kendall test, p < {warning_rules.TREND_P})."
    )


def _under_quota(machine: Machine, launches: Sequence[Launch]) -> str | None:
    """Of the quota that the plan keeps to. One that it does not see throttles: see `cell_rules.quota`."""
    if not launches or machine.quota_cpus is None or machine.quota_cpus >= machine.logical_cpus:
        return None
    return (
        f"A CPU quota grants {machine.quota_cpus:g} of the machine's {machine.logical_cpus} logical CPUs: the figures "
        f"are those of the quota."
    )


def _old_driver(machine: Machine, launches: Sequence[Launch]) -> str | None:
    major = re.match(r"\d{1,9}", machine.driver or "")
    if major is None or int(major[0]) >= CUDA_13_DRIVER:
        return None
    newer = {launch.request.framework for launch in launches if _library(launch, "CUDA")[:1] >= (13,)}
    if not newer:
        return None
    return f"NVIDIA's driver is {machine.driver}; {', '.join(sorted(newer))} ran CUDA 13, made for {CUDA_13_DRIVER}."


def _different_libraries(launches: Sequence[Launch]) -> Iterator[str]:
    for library in LIBRARIES:
        seen = {x.request.framework: found for x in launches if (found := _library(x, library))}
        # A framework may tell the major version alone: what both tell is compared.
        told = min(map(len, seen.values()), default=0)
        if len({version[:told] for version in seen.values()}) > 1:
            names = (f"{name} {'.'.join(map(str, version))}" for name, version in sorted(seen.items()))
            yield f"The frameworks do not run on the same {library}: {', '.join(names)}."


def _library(launch: Launch, library: str) -> tuple[int, ...]:
    """Version of CUDA or cuDNN of a cuda launch, as its evidence has it; empty where it does not tell."""
    told = launch.evidence.versions if launch.request.device == "cuda" else {}
    text = next((version for name, version in told.items() if re.fullmatch(LIBRARIES[library], name)), "")
    parts = tuple(int(part) for part in re.findall(r"\d{1,9}", text))
    if library == "cuDNN" and len(parts) == 1 and parts[0] >= 1000:
        # cudnnGetVersion(): major * 10000 + minor * 100 + patch from version 9 on, major * 1000 before.
        major, rest = divmod(parts[0], 10000 if parts[0] >= 10000 else 1000)
        return major, *divmod(rest, 100)
    return parts


def _without_ceilings(probes: Sequence[Record]) -> Iterator[RunWarning]:
    known = {probe.key for probe in probes if probe.status is Status.OK}
    for probe in probes:
        if probe.key not in known and probe.status not in {Status.OK, Status.SKIPPED} and probe.reason:
            cause = f"A probe of the machine's ceilings ended as {probe.status}: {probe.reason.message}"
            yield RunWarning(WarningCode.NO_CEILING, probe.key, cause, probe.reason.remedy)


def _remarks(records: Sequence[Record]) -> Iterator[RunWarning]:
    """Each text that stands in records as a warning: about its cell, or the run where several cells have it."""
    where: dict[str, set[str]] = {}
    for record in records:
        for text in record.warnings:
            where.setdefault(text, set()).add(record.key)
    for text, keys in where.items():
        about = next(iter(keys)) if len(keys) == 1 else ""
        yield RunWarning(WarningCode.ENGINE_REMARK, about, text, REMEDIES[WarningCode.ENGINE_REMARK])
