"""Describe the speed of each launch over its windows, and what was not steady about it. No input or output."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kit.analysis import warning_rules as rules
from kit.analysis.measured_launch import MeasuredLaunch
from kit.analysis.warnings import RunWarning, WarningCode
from kit.model.formatting import format_percent as percent
from scenarios.contract.cell import Cell

# These warnings are about the whole launch or the machine, so they make each speed of a cell doubtful.
DISTURBED = frozenset(
    {
        WarningCode.OTHER_LOAD,
        WarningCode.OTHER_GPU_PROCESSES,
        WarningCode.QUOTA,
        WarningCode.HOT_GPU,
        WarningCode.STEAL,
    }
)
# These make the training speed of a cell doubtful. Those that DISTURBED lacks come from the speed of training alone.
# Other warnings concern the whole run, or only say that there are few launches.
UNSTEADY = DISTURBED | {
    WarningCode.NO_STEADY_STATE,
    WarningCode.JUMP,
    WarningCode.DRIFT,
    WarningCode.NOISY,
    WarningCode.OUTLIERS,
}


@dataclass(frozen=True)
class Doubt:
    """What was not steady about a launch. kind: without figures. words: a few words with figures."""

    kind: str
    words: str


@dataclass(frozen=True)
class LaunchWindows:
    """The speed of one launch in its windows.

    points: for each window the s from the start of training to its end, and its images/s relative to the median of the
    steady windows. steady_s, end_s: start and end of the steady windows. jump_s: time of the jump, None if there is
    none.
    """

    cell: Cell
    launch: int
    points: tuple[tuple[float, float], ...]
    steady_s: float
    end_s: float
    jump_s: float | None = None
    reasons: tuple[Doubt, ...] = ()


def launch_windows(
    cells: Mapping[str, Sequence[MeasuredLaunch]], warnings: Sequence[RunWarning]
) -> list[LaunchWindows]:
    """Return the windows of each launch. cells: from `launches_by_cell`.

    warnings: of the run. Only what they report about a cell is a reason for its launches, so that the marks of cells
    and launches agree. A warning about all cells is one about each of them.
    """
    codes: dict[str, set[WarningCode]] = {}
    for warning in warnings:
        codes.setdefault(warning.about, set()).add(warning.code)
    found = []
    for key, cell in cells.items():
        doubts = (codes.get(key, set()) | codes.get("", set())) & UNSTEADY
        apart = _apart(cell) if WarningCode.OUTLIERS in doubts else {}
        found += [_windows(launch, len(cell), doubts, apart.get(launch.record.launch, "")) for launch in cell]
    return found


def _windows(launch: MeasuredLaunch, launches: int, doubts: set[WarningCode], apart: str) -> LaunchWindows:
    """Describe a launch. launches: of its cell. apart: how far it is from the others if it is an outlier, or ""."""
    windows = launch.training.windows
    steady = windows[launch.training.steady_from :]
    start, middle = windows[0].start_at, statistics.median(launch.steady_rates)
    jump = rules.jump_of_launch(launch, launches) if WarningCode.JUMP in doubts else None
    return LaunchWindows(
        cell=launch.request.cell,
        launch=launch.record.launch,
        points=tuple((w.start_at + w.seconds - start, w.images / w.seconds / middle) for w in windows),
        steady_s=steady[0].start_at - start,
        end_s=windows[-1].start_at + windows[-1].seconds - start,
        jump_s=launch.comparable_windows[0].start_at + jump[1] - start if jump else None,
        reasons=(*_reasons(launch, doubts, jump), *([Doubt("off the median launch", apart)] if apart else [])),
    )


def _reasons(
    launch: MeasuredLaunch,
    doubts: set[WarningCode],
    jump: tuple[float, float] | None,
) -> list[Doubt]:
    found = [Doubt("jump", f"jump of {percent(jump[0], signed=True)}")] if jump else []
    for code, (kind, words_of) in REASONS.items():
        if code in doubts and (code is not WarningCode.DRIFT or not jump) and (words := words_of(launch)):
            found.append(Doubt(kind, words))
    return found


def _other_load(launch: MeasuredLaunch) -> str:
    used, limit = launch.other_cpus, rules.tolerable_load(launch.record.machine.logical_cpus)
    return f"other programs used {used:.1f} CPUs" if used is not None and used >= limit else ""


def _other_gpu_processes(launch: MeasuredLaunch) -> str:
    return "other programs on the GPU" if max(launch.training_samples(r"gpu\d+_other_processes"), default=0) else ""


def _quota(launch: MeasuredLaunch) -> str:
    share = launch.throttled_share or 0.0
    return f"CPU quota withheld {percent(share)}" if share >= rules.WITHHELD_SHARE else ""


def _steal(launch: MeasuredLaunch) -> str:
    share = launch.steal_share or 0.0
    return f"hypervisor withheld {percent(share)}" if share >= rules.WITHHELD_SHARE else ""


def _hot(launch: MeasuredLaunch) -> str:
    hottest = max(launch.training_samples(r"gpu\d+_temperature_c"), default=0.0)
    if launch.slowdown_share(rules.THERMAL):
        return "GPU slowed down by heat"
    return f"GPU at {hottest:.0f} °C" if hottest >= rules.HOT_C else ""


def _unsettled(launch: MeasuredLaunch) -> str:
    return "did not settle" if rules.no_steady_state([launch]) else ""


def _drift(launch: MeasuredLaunch) -> str:
    change = rules.trend(launch.steady_rates)
    return f"drift of {percent(change, signed=True)}" if change is not None else ""


def _noise(launch: MeasuredLaunch) -> str:
    spread = rules.window_spread(launch) or 0.0
    what = "epochs" if launch.training.epochs else "windows"
    return f"{what} vary by {percent(spread)}" if spread > rules.NOISY_WINDOWS else ""


def _apart(cell: Sequence[MeasuredLaunch]) -> dict[int, str]:
    """Return how far each outlier of a cell is from the median, by the number of the launch."""
    far, usual = rules.outliers_and_others(cell)
    middle = statistics.median(rules.values([*far, *usual]))
    changes = {launch.record.launch: launch.training.images_per_s / middle - 1 for launch in far}
    return {number: f"off the median launch by {percent(change, signed=True)}" for number, change in changes.items()}


# Kind of reason, and what a launch contributed to a warning about its cell, or "". Jumps and outliers are not among
# them: they have a place in the chart, or need the other launches.
REASONS: Mapping[WarningCode, tuple[str, Callable[[MeasuredLaunch], str]]] = {
    WarningCode.OTHER_LOAD: ("other programs", _other_load),
    WarningCode.OTHER_GPU_PROCESSES: ("other programs on the GPU", _other_gpu_processes),
    WarningCode.QUOTA: ("CPU time withheld by a quota", _quota),
    WarningCode.STEAL: ("CPU time withheld by the hypervisor", _steal),
    WarningCode.HOT_GPU: ("hot GPU", _hot),
    WarningCode.NO_STEADY_STATE: ("unsettled speed", _unsettled),
    WarningCode.DRIFT: ("drift", _drift),
    WarningCode.NOISY: ("varying windows", _noise),
}
