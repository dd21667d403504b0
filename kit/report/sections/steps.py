"""Where the time of a training step goes, what limits each cell, and what to change."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kit.analysis.advice import Advice
from kit.analysis.diagnosis import Diagnosis
from kit.analysis.diagnosis_rules import BUSY_SHARE
from kit.analysis.limit_labels import LIMIT_RULES, count_limits
from kit.analysis.reliability import unsteady_cells
from kit.analysis.step_parts import LABELS, StepParts
from kit.analysis.summaries import CellSummary
from kit.model.formatting import DEVICES
from kit.report import text
from kit.report.advised import advised, without_waiting
from kit.report.rows import cell_key, configuration_words
from kit.report.section import ReportInput, Section
from scenarios.contract.cell import Cell

MAX_BARS = 120  # in one report; the table of all figures has the others
LABELED = 0.06  # share of a bar from which on a part has room for its label


@dataclass(frozen=True)
class Part:
    """One part of a bar. kind: key of LABELS. at, width: in percent. label: the share in whole percent.

    size: how much room the label has: `wide`, `tight` (none on a phone), or "" (none).
    """

    kind: str
    at: float
    width: float
    label: str
    size: str
    text: str


@dataclass(frozen=True)
class StepBar:
    """The step of one cell. limit: the label of what limits it. unsteady: why the split is doubtful, or "".

    small: the busy share of the GPU, or "". label: the parts as text for screen readers.
    """

    framework: str
    device: str
    configuration: str
    label: str
    parts: tuple[Part, ...]
    step: str
    limit: str
    small: str
    unsteady: str


@dataclass(frozen=True)
class NetworkSteps:
    """The steps of one network. changes: for each device and label, the cells, what to change, and figures or ""."""

    name: str
    details: str
    bars: tuple[StepBar, ...]
    changes: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True)
class StepsData:
    """The content. configuration: of all cells, or "" if they differ. ceilings: of arithmetic, as text.

    busy: whether it is known how busy the GPU was. rules: label and condition of each limit, the first one
    that applies. disagreements: cells whose GPU was busy although most of their step does not compute.
    """

    heading: str
    legend: Mapping[str, str]
    configuration: str
    networks: tuple[NetworkSteps, ...]
    ceilings: str
    no_ceiling: bool
    unsteady: bool
    busy: bool
    rules: tuple[tuple[str, str], ...]
    disagreements: tuple[str, ...]
    omitted: int


def _data(source: ReportInput) -> StepsData | None:
    diagnoses = {d.key: d for d in source.analysis.diagnoses if d.parts and d.parts.total > 0}
    if not diagnoses:
        return None
    unsteady, changes = unsteady_cells(source.analysis), advised(source)
    networks, shown = [], 0
    for cells in source.rows.values():
        own = sorted((c for c in cells if c.key in diagnoses), key=cell_key)[: MAX_BARS - shown]
        if own:
            shown += len(own)
            networks.append(
                NetworkSteps(
                    name=source.network(own[0].cell),
                    details=source.details(own[0].cell),
                    bars=tuple(_bar(source, c, diagnoses[c.key], unsteady.get(c.key, "")) for c in own),
                    changes=_changes(source, own, diagnoses, changes),
                )
            )
    configurations = {bar.configuration for network in networks for bar in network.bars}
    return StepsData(
        heading=limits_heading(source, diagnoses),
        legend=LABELS,
        configuration=configurations.pop() if len(configurations) == 1 else "",
        networks=tuple(networks),
        ceilings=_ceilings(source),
        no_ceiling=any(d.parts and not d.parts.arithmetic for d in diagnoses.values()),
        unsteady=any(bar.unsteady for network in networks for bar in network.bars),
        busy=any(bar.small for network in networks for bar in network.bars),
        rules=LIMIT_RULES,
        disagreements=tuple(source.name(key) for key, d in diagnoses.items() if _disagrees(d)),
        omitted=len(diagnoses) - shown,
    )


def limits_heading(source: ReportInput, diagnoses: Mapping[str, Diagnosis]) -> str:
    """Return in how many cells of each device each label applies. diagnoses: by the key of the cell."""
    limits: dict[str, list[tuple[str, str]]] = {}
    for summary in source.measured:
        if diagnosis := diagnoses.get(summary.key):
            limits.setdefault(summary.cell.device, []).append((diagnosis.label, summary.cell.network))
    return ". ".join(
        f"{DEVICES.get(device, device)}: {count_limits(found)}" for device, found in sorted(limits.items())
    )


def _bar(source: ReportInput, summary: CellSummary, diagnosis: Diagnosis, unsteady: str) -> StepBar:
    assert diagnosis.parts
    cell, parts = summary.cell, bar_parts(diagnosis.parts)
    shares = ", ".join(f"{LABELS[part.kind]} {part.label}" for part in parts)
    name = f"{source.network(cell)}, {source.framework_title(cell.framework)}, {configuration_words(cell)}"
    return StepBar(
        framework=cell.framework,
        device=cell.device,
        configuration=configuration_words(cell),
        label=f"{name}: {shares}.",
        parts=parts,
        step=text.seconds(diagnosis.parts.total),
        limit=diagnosis.label,
        small=_load(summary, diagnosis),
        unsteady=unsteady,
    )


def _load(summary: CellSummary, diagnosis: Diagnosis) -> str:
    """Return how busy GPU and CPUs were in a cell on the GPU, or "" if this is not known."""
    if diagnosis.gpu_use is None:
        return ""
    cpus = f", {text.number(summary.cpu_cores, 2)} CPUs" if summary.cpu_cores else ""
    return f"busy: GPU {text.percent(diagnosis.gpu_use)}{cpus}"


def bar_parts(parts: StepParts) -> tuple[Part, ...]:
    """Return the parts of a bar that are not empty, from 0 to 100 percent. Their labels add up to 100%."""
    shares = {kind: parts.share(kind) for kind in LABELS if parts.share(kind) > 0}
    whole = {kind: math.floor(100 * share) for kind, share in shares.items()}
    by_rest = sorted(shares, key=lambda kind: 100 * shares[kind] - whole[kind], reverse=True)
    for kind in by_rest[: 100 - sum(whole.values())]:
        whole[kind] += 1
    found, at = [], 0.0
    for kind, share in shares.items():
        label = f"{whole[kind]}%" if whole[kind] else "<1%"
        size = "wide" if share >= 3 * LABELED else "tight" if share >= LABELED else ""
        seconds = text.seconds(getattr(parts, kind))
        found.append(
            Part(kind, round(at, 2), round(100 * share, 2), label, size, f"{LABELS[kind]}: {seconds}, {label}")
        )
        at += 100 * share
    return tuple(found)


def _changes(
    source: ReportInput, cells: Sequence[CellSummary], diagnoses: Mapping[str, Diagnosis], changes: Mapping[str, Advice]
) -> tuple[tuple[str, str, str], ...]:
    """Return the cells that a change is about, for example `GPU, PyTorch`, what to change, and what it can gain.

    Cells of a device with the same label and the same advice are one entry.
    """
    groups: dict[tuple[str, str, str], list[tuple[Cell, Advice]]] = {}
    for summary in cells:
        cell, change = summary.cell, changes[summary.key]
        device = DEVICES.get(cell.device, cell.device)
        groups.setdefault((device, diagnoses[summary.key].label, change.text), []).append((cell, change))
    several = len({device for device, _, _ in groups}) > 1
    found = []
    for (device, label, words), members in groups.items():
        alone = len([1 for other, _, _ in groups if other == device]) == 1
        names = list(dict.fromkeys(source.framework_title(cell.framework) for cell, _ in members))
        about = [device] * several + [text.listed(names)] * (not alone) + [label]
        gain = without_waiting([(_title(source, cell, len(names) < len(members)), change) for cell, change in members])
        found.append((", ".join(about), words, gain))
    return tuple(found)


def _title(source: ReportInput, cell: Cell, configured: bool) -> str:
    """Return the title of a cell's framework, with the configuration of the cell if frameworks occur several times."""
    title = source.framework_title(cell.framework)
    return f"{title} ({configuration_words(cell)})" if configured else title


def _disagrees(diagnosis: Diagnosis) -> bool:
    parts, use = diagnosis.parts, diagnosis.gpu_use
    return bool(parts and use is not None and use >= BUSY_SHARE < parts.share("fixed") + parts.share("waiting"))


def _ceilings(source: ReportInput) -> str:
    """Return the ceilings of arithmetic, for example `CPU 455 GFLOP/s (convolution, fp32)`."""
    names = {"matmul": "matrix product", "convolution": "convolution"}
    return "; ".join(
        f"{DEVICES.get(device, device)} {text.rate(ceiling.value, ceiling.unit)} ({names[name]}, {precision})"
        for (device, name, precision), ceiling in sorted(source.analysis.ceilings.items())
        if name in names and any((c.cell.device, c.cell.precision) == (device, precision) for c in source.measured)
    )


SECTION = Section(50, "steps", "Bottlenecks", _data, "steps.html", question="Where does the time of a step go?")
