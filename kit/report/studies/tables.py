"""Make the tables of a study: published, here and ratio; causes; devices; and the state of the GPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kit.analysis.diagnosis import Diagnosis
from kit.analysis.step_parts import StepParts
from kit.analysis.study_values import GPU_MEASURES
from kit.model.formatting import DEVICES, format_range
from kit.planning.study_figures import Figure
from kit.planning.study_measures import MEASURES
from kit.report import text
from kit.report.elements import Table
from kit.report.rows import configuration_words
from kit.report.studies.part_source import PartSource, value_text
from scenarios.contract.cell import Cell, Device

SUSPECTED = ("waiting", "fixed")  # parts of a step: the input path, and a network that is too small
FEW_PLACES = 4  # CPU and GPU of two networks


def figures_tables(part: PartSource) -> tuple[Table, ...]:
    """Return tables with one row for each place and published figure, or nothing if nothing was measured.

    Each series has two columns: the value, and its ratio to the published one. With few places, all measures stand in
    one table.
    """
    published = {figure.measure for figure in part.figures}
    measures = [measure for measure in part.part.measures if part.has_values(measure) or measure in published]
    if not any(part.has_values(measure) for measure in measures):
        return ()
    together = len(part.places) <= FEW_PLACES
    groups = [measures] if together else [[measure] for measure in measures]
    return tuple(_figures_table(part, group, named=together and len(measures) > 1) for group in groups)


def published_tables(part: PartSource) -> tuple[Table, ...]:
    """Return the published figures of a part as a table, or nothing if it has none. Use it if nothing was measured."""
    rows = [
        (_label(part, measure, place, figure, named=True), published_text(figure))
        for measure in part.part.shown
        for place in part.places_of(measure)
        for figure in part.figures_at(measure, place)
    ]
    return (Table(("", "Published"), tuple(rows), caption=part.part.title, numeric=(1,)).limited(),) if rows else ()


def _figures_table(part: PartSource, measures: Sequence[str], *, named: bool) -> Table:
    """Return one table, without rows that have no value. named: whether each row names its measure."""
    rows = []
    for measure in measures:
        for place in part.places_of(measure):
            figures: list[Figure | None] = [*part.figures_at(measure, place)]
            rows += [_row(part, measure, place, figure, named=named) for figure in figures or [None]]
    published = ["Published"] if part.figures else []
    own = [header for one in part.series for header in (one.title, *(["ratio"] if part.figures else []))]
    return Table(
        caption=part.part.title if named else MEASURES[measures[0]].title,
        headers=("", *published, *own),
        rows=tuple(row for row in rows if set(row[1:]) != {text.MISSING}),
        numeric=tuple(range(1, 1 + len(published) + len(own))),
    ).limited()


def _row(part: PartSource, measure: str, place: Cell, figure: Figure | None, *, named: bool) -> tuple[str, ...]:
    of, cells = MEASURES[measure], []
    if part.figures:
        cells.append(published_text(figure) if figure else text.MISSING)
    for one in part.series:
        value = part.value(place, one, measure, _epoch(measure, figure))
        cells.append(value_text(of, value))
        if part.figures:
            early = value and value.epochs  # values after different numbers of epochs have no ratio
            cells.append(ratio_text(value.value, figure) if value and figure and not early else text.MISSING)
    return (_label(part, measure, place, figure, named=named), *cells)


def _label(part: PartSource, measure: str, place: Cell, figure: Figure | None, *, named: bool) -> str:
    """Return what a row is about. named: whether it names its measure."""
    epoch, words = _epoch(measure, figure), [MEASURES[measure].title] * named
    words += [part.label(place)] if len(part.places_of(measure)) > 1 or not words else []
    words += [f"epoch {epoch}"] if epoch and epoch < part.places[place] else []
    return " · ".join(words)


def _epoch(measure: str, figure: Figure | None) -> int | None:
    """Return the epoch at which a measure is compared with a figure, or None for the end of training."""
    return figure.epoch if figure and measure != "best_accuracy" else None


def published_text(figure: Figure) -> str:
    """Return a published figure with its hardware, if the study names it."""
    exact = MEASURES[figure.measure].exact(figure.low, figure.high)
    named = figure.hardware and "not named" not in figure.hardware
    return f"{exact} ({figure.hardware})" if named else exact


def ratio_text(value: float, figure: Figure) -> str:
    """Return what was measured divided by what was published, with three digits near 1, where they decide.

    For a published range, these are the ratios to both of its ends: `0.96 to 1.1×`, or `5.6× or more` if it
    begins at 0.
    """
    if figure.high <= 0:
        return text.MISSING
    low = text.factor(value / figure.high)
    if figure.low <= 0:
        return f"{low}× or more"
    high = text.factor(value / figure.low)
    return f"{format_range(low, high)}×"


def causes_table(part: PartSource) -> tuple[Table, ...]:
    """Return what limits each measured cell, with the evidence, or nothing if no cell has a diagnosis.

    Two shares of a step answer what authors often suspect: the input path (waiting), and a network that is too small
    for the device (a cost that does not depend on the batch size).
    """
    rows = []
    for name, _, diagnosis in _diagnosed(part):
        label = diagnosis.label[:1].upper() + diagnosis.label[1:]
        parts = diagnosis.parts
        shares = [text.percent(parts.share(share)) if parts else text.MISSING for share in SUSPECTED]
        rows.append((name, label, *shares, diagnosis.evidence))
    if not rows:
        return ()
    headers = ("Cell", "Limited by", "Waiting for data", "Fixed cost per step", "Evidence")
    return (Table(headers, tuple(rows), caption=part.part.title, numeric=(2, 3), wrap=True).limited(),)


def cause_findings(part: PartSource) -> tuple[str, ...]:
    """Return the extent of both shares on each device, one sentence each."""
    steps: dict[Device, list[StepParts]] = {}
    for _, device, diagnosis in _diagnosed(part):
        if diagnosis.parts:
            steps.setdefault(device, []).append(diagnosis.parts)
    found = []
    for device, own in steps.items():
        extents = [
            [text.percent(end([step.share(share) for step in own])) for end in (min, max)] for share in SUSPECTED
        ]
        waiting, fixed = (format_range(low, high) for low, high in extents)
        found.append(
            f"On the {DEVICES[device]}, waiting for data takes {waiting} of a step, and a cost that does not depend on "
            f"the batch size takes {fixed}."
        )
    return tuple(found)


def _diagnosed(part: PartSource) -> Iterator[tuple[str, Device, Diagnosis]]:
    """Yield name, device and diagnosis of each cell that has one."""
    found = {diagnosis.key: diagnosis for diagnosis in part.source.analysis.diagnoses}
    for place in part.places:
        for one in part.series:
            summary = part.summary(place, one)
            if summary and (diagnosis := found.get(summary.key)):
                yield f"{one.title} · {part.label(place)}", place.device, diagnosis


def devices_table(part: PartSource) -> tuple[Table, ...]:
    """Return the devices and builds that the frameworks report, one row for each framework, device, lane and precision.

    Each row is from the first launch, whose network it names. Older results do not say which devices the framework saw,
    and how it was built.
    """
    rows: dict[tuple[str, ...], tuple[str, ...]] = {}
    for record, result in part.source.results:
        evidence, cell = result.evidence, record.cell
        key = (cell.framework, cell.device, cell.lane, cell.precision)
        if not (record.ok and evidence) or key in rows:
            continue
        if cell not in {summary.cell for summary in part.summaries}:
            continue
        placement, build = evidence.placement, evidence.build
        versions = ", ".join(f"{name} {version}" for name, version in sorted(evidence.versions.items()))
        flags = ", ".join(f"{name}: {value}" for name, value in build.flags.items()) if build else text.MISSING
        nodes = ", ".join(f"{count} on {name}" for name, count in placement.nodes.items())
        tf32 = {True: "yes", False: "no", None: text.MISSING}[placement.tf32]
        title = part.source.framework_title(cell.framework)
        rows[key] = (
            f"{title} · {configuration_words(cell)}",
            ", ".join(build.devices) if build else text.MISSING,
            f"{placement.device} ({placement.device_name})",
            placement.provider,
            f"{nodes} ({cell.label})",
            tf32,
            flags,
            versions,
        )
    if not rows:
        return ()
    seen = ("Devices that it sees", "Device of the outputs", "Provider", "Nodes or parameters", "TF32")
    headers = ("Framework", *seen, "Build", "Versions")
    return (Table(headers, tuple(rows[key] for key in sorted(rows)), caption=part.part.title),)


def gpu_table(part: PartSource) -> tuple[Table, ...]:
    """Return what the GPU did while each network trained, with driver and CUDA version, or nothing without samples."""
    machine, rows = part.source.run.machine, []
    for place in part.places:
        for one in part.series:
            values = [part.value(place, one, measure) for measure in GPU_MEASURES]
            if place.device == "cuda" and any(values):
                name = " · ".join(filter(None, [one.title, part.label(place, without=("device",))]))
                texts = (value_text(MEASURES[m], value) for m, value in zip(GPU_MEASURES, values, strict=True))
                rows.append((name, *texts, machine.driver or text.MISSING, machine.cuda_driver or text.MISSING))
    if not rows:
        return ()
    headers = ("", "Busy", "Power", "Temperature", "Memory", "Driver", "Newest CUDA of the driver")
    return (Table(headers, tuple(rows), caption=f"{part.part.title}: means of the samples", numeric=(1, 2, 3, 4)),)
