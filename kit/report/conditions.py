"""What held the cells back and under which conditions they were measured: diagnoses, ceilings, warnings, samples."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from kit.analysis.ceilings import Ceilings
from kit.analysis.diagnosis import Diagnosis
from kit.analysis.host_samples import joules_per_1000_images
from kit.analysis.warnings import RunWarning
from kit.model.record import Record
from kit.report import text
from kit.report.parts import Names, Sample, Table, Timeline
from scenarios.contract.reasons import Status

CEILING_NAMES = {
    "matmul": "Matrix product",
    "convolution": "Convolution, 3x3, 64 channels",
    "memory": "Memory, read and written",
    "upload": "Host to device",
    "launch": "Smallest kernel",
    "jpeg": "JPEG decoding, one core",
}
# Title of a chart (with unit) to the samples that it shows, each under its label. `#` stands for a GPU's number.
CHARTS = {
    "CPUs busy": {"cpu_busy": "all programs", "cpu_steal": "stolen by the host"},
    "CPU clock, MHz": {"cpu_mhz": "mean of the cores"},
    "GPU use": {"gpu#_use": "GPU #"},
    "GPU memory, GiB": {"gpu#_memory_gib": "GPU #"},
    "GPU power, W": {"gpu#_power_w": "GPU #"},
    "GPU temperature, °C": {"gpu#_temperature_c": "GPU #"},
    "GPU clock, MHz": {"gpu#_sm_mhz": "GPU #"},
}
MAX_GPUS = 16
MAX_POINTS = 240  # of a line: about one a pixel


def warnings_table(warnings: Sequence[RunWarning], names: Names) -> Table | None:
    """What a reader must know, the gravest first. None where there is nothing."""
    if not warnings:
        return None
    return Table(
        caption="",
        headers=("About", "What was seen", "What to do"),
        rows=tuple((names.get(c.about, c.about) or "the whole run", c.cause, c.remedy) for c in warnings),
    )


def diagnoses_table(diagnoses: Sequence[Diagnosis], names: Names) -> Table | None:
    """One row a cell: verdict, arithmetic against the ceiling, evidence, remedy."""
    if not diagnoses:
        return None
    sheet = any(d.peak_share is not None for d in diagnoses)
    rows = []
    for d in diagnoses:
        shares = [_share(d.ceiling_share)] + [_share(d.peak_share)] * sheet
        verdict = d.kind.value.replace("_bound", "-bound").replace("_", " ")
        arithmetic = text.rate(d.flops_per_s, "FLOP/s") if d.flops_per_s else text.MISSING
        rows.append((names.get(d.key, d.key), verdict, arithmetic, *shares, d.evidence, d.remedy))
    shares_headers = ("Of the measured ceiling",) + ("Of the data sheet's peak",) * sheet
    return Table(
        caption="",
        headers=("Cell", "Held back by", "Arithmetic", *shares_headers, "Evidence", "Remedy"),
        rows=tuple(rows),
        numeric=tuple(range(2, 3 + len(shares_headers))),
    )


def ceilings_table(ceilings: Ceilings) -> Table | None:
    """The most that this machine was measured to do."""
    if not ceilings:
        return None
    rows = [
        (f"{CEILING_NAMES[name]}{f', {precision}' if precision else ''}", device, text.rate(c.value, c.unit), c.detail)
        for (device, name, precision), c in sorted(ceilings.items())
    ]
    return Table(
        caption="The most that this machine was measured to do, through the framework that did best",
        headers=("Ceiling", "Device", "Value", "Measured on"),
        rows=tuple(rows),
        numeric=(2,),
    )


def energy_table(records: Sequence[Record], names: Names) -> Table | None:
    """Energy of training where this machine tells of it; None where it does not."""
    found: dict[str, dict[str, list[float]]] = {}
    for record in records:
        if record.status is Status.OK:
            for part, joules in joules_per_1000_images(record).items():
                found.setdefault(record.key, {}).setdefault(part, []).append(joules)
    if not found:
        return None
    parts = sorted({part for joules in found.values() for part in joules})
    rows = [
        (
            names.get(key, key),
            *(text.number(statistics.median(joules[part])) if part in joules else text.MISSING for part in parts),
        )
        for key, joules in found.items()
    ]
    return Table(
        caption="Energy of training, joules per 1,000 images (median over launches; CPU packages, whole GPUs)",
        headers=("Cell", *parts),
        rows=tuple(rows),
        numeric=tuple(range(1, 1 + len(parts))),
    )


def timelines(records: Sequence[Record]) -> tuple[Timeline, ...]:
    """The host's samples over the time of all launches, one after the other as they were started."""
    drawn = []
    for title, wanted in CHARTS.items():
        samples: list[Sample] = []
        for number in range(MAX_GPUS if any("#" in name for name in wanted) else 1):
            for name, label in wanted.items():
                samples += _line(records, name.replace("#", str(number)), label.replace("#", str(number)))
        if samples:
            drawn.append(Timeline(title, tuple(samples)))
    return tuple(drawn)


def costs(records: Sequence[Record]) -> str:
    """What watching and proving cost in this run, in one paragraph for the method. Empty where nothing ran."""
    told = []
    watched = [r for r in records if r.host_samples is not None and r.seconds > 0]
    if watched:
        share = sum(r.host_samples.cost_s for r in watched if r.host_samples) / sum(r.seconds for r in watched)
        told.append(f"Sampling the host took {100 * share:.2f} % of one CPU while launches ran.")
    proofs: Mapping[bool, list[float]] = {True: [], False: []}
    for record in records:
        if record.result is not None and record.result.proof is not None:
            proofs[record.result.proof.cached].append(record.result.proof.seconds)
    for cached, how in ((False, "with the reference computed anew"), (True, "with the reference's values kept")):
        if proofs[cached]:
            told.append(
                f"The check against the reference took {text.seconds(statistics.median(proofs[cached]))} {how}."
            )
    return " ".join(told)


def _share(value: float | None) -> str:
    return text.MISSING if value is None else f"{100 * value:.1f} %"


def _line(records: Sequence[Record], name: str, label: str) -> list[Sample]:
    """One series over all launches, in minutes since the first began; neighbouring samples are averaged where there
    are more than a chart can show."""
    points: list[tuple[float, float]] = []
    elapsed = 0.0
    for record in sorted(records, key=lambda r: r.started_at):
        context = record.host_samples
        if context is not None and context.at:
            values = context.series.get(name, [])
            points += [
                ((elapsed + at - context.at[0]) / 60, value)
                for at, value in zip(context.at, values, strict=False)
                if value is not None
            ]
        elapsed += record.seconds
    step = -(-len(points) // MAX_POINTS) or 1
    chunks = [points[i : i + step] for i in range(0, len(points), step)]
    return [Sample(label, statistics.fmean(x for x, _ in c), statistics.fmean(y for _, y in c)) for c in chunks]
