"""The warnings, grouped by cause, the most serious first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kit.analysis.warnings import RunWarning, WarningCode
from kit.model.formatting import format_count
from kit.report import text
from kit.report.section import ReportInput, Section

MAX_CELLS = 12  # named in a row
MAX_FIGURES = 60  # of a row
TITLES: Mapping[WarningCode, str] = {
    WarningCode.MIXED_VERSIONS: "Launches differ in versions, machine or data",
    WarningCode.OTHER_LOAD: "Other programs used the CPUs",
    WarningCode.OTHER_GPU_PROCESSES: "Other programs used the GPU",
    WarningCode.QUOTA: "A CPU quota withheld time",
    WarningCode.HOT_GPU: "The GPU was hot",
    WarningCode.POWER_CAP: "The GPU's power limit was lowered",
    WarningCode.STEAL: "The hypervisor withheld CPU time",
    WarningCode.NO_STEADY_STATE: "The speed did not settle",
    WarningCode.FEW_WINDOWS: "Few windows",
    WarningCode.JUMP: "The speed jumped",
    WarningCode.DRIFT: "The speed drifted",
    WarningCode.CORRELATED: "Launches are correlated",
    WarningCode.NOISY: "The speed varied",
    WarningCode.SLOW_FIRST_LAUNCH: "The first launch was slow",
    WarningCode.OUTLIERS: "Some launches are outliers",
    WarningCode.FEW_LAUNCHES: "Few launches",
    WarningCode.UNDER_QUOTA: "A CPU quota applies",
    WarningCode.SYNTHETIC_DATA: "Synthetic data",
    WarningCode.DIFFERENT_LIBRARIES: "Frameworks use different libraries",
    WarningCode.OLD_DRIVER: "The NVIDIA driver is old",
    WarningCode.LOW_CEILING: "A ceiling is too low",
    WarningCode.NO_CEILING: "A ceiling was not measured",
    WarningCode.IGNORED_CHECKPOINT: "A checkpoint was not continued",
    WarningCode.ENGINE_REMARK: "Remark of the engine",
}


@dataclass(frozen=True)
class WarningGroup:
    """The warnings with the same cause and remedy.

    where: the number of cells or probes, for example `3 cells`, or `the whole run`. cause: that of all, or "" if their
    figures differ. figures: pairs of a cell and its cause, then. more: number of those that are not shown.
    """

    title: str
    where: str
    cells: str
    cause: str
    figures: tuple[tuple[str, str], ...]
    more: int
    remedy: str


@dataclass(frozen=True)
class WarningsData:
    """The content."""

    summary: str
    groups: tuple[WarningGroup, ...]


def _data(source: ReportInput) -> WarningsData | None:
    if not source.analysis.warnings:
        return None
    found: dict[tuple[WarningCode, str], list[RunWarning]] = {}
    for warning in source.analysis.warnings:
        found.setdefault((warning.code, warning.remedy), []).append(warning)
    groups = tuple(_group(source, code, remedy, warnings) for (code, remedy), warnings in found.items())
    counts: dict[str, int] = {}
    for (code, _), warnings in found.items():
        counts[TITLES[code]] = counts.get(TITLES[code], 0) + len(warnings)
    return WarningsData(" · ".join(f"{title}: {count}" for title, count in counts.items()), groups)


def _group(source: ReportInput, code: WarningCode, remedy: str, warnings: list[RunWarning]) -> WarningGroup:
    names = [source.name(warning.about) for warning in warnings if warning.about]
    probes = code is WarningCode.NO_CEILING
    where = ["the whole run"] if any(not warning.about for warning in warnings) else []
    where += [format_count(len(set(names)), "probe" if probes else "cell")] * bool(names)
    causes = {warning.cause for warning in warnings}
    figures = [(source.name(w.about) or "the whole run", w.cause) for w in warnings] if len(causes) > 1 else []
    return WarningGroup(
        title=TITLES[code],
        where=text.listed(where),
        cells=text.listed(names, MAX_CELLS),
        cause=causes.pop() if len(causes) == 1 else "",
        figures=tuple(figures[:MAX_FIGURES]),
        more=max(0, len(figures) - MAX_FIGURES),
        remedy=remedy,
    )


SECTION = Section(110, "warnings", "Warnings", _data, "warnings.html")
