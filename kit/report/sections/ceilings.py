"""The measured ceilings of the machine, the roofline, and the evidence of what limits each cell."""

from __future__ import annotations

from dataclasses import dataclass

from kit.model.formatting import DEVICES
from kit.report import text
from kit.report.advised import advised, without_waiting
from kit.report.elements import Table
from kit.report.roofline import Roofline, roofline
from kit.report.section import ReportInput, Section

CEILING_NAMES = {
    "matmul": "Matrix product",
    "convolution": "Convolution, 3x3, 64 channels",
    "memory": "Memory, read and write",
    "upload": "Host to device",
    "launch": "Smallest kernel",
    "jpeg": "JPEG decoding, one core",
}
IN_SUMMARY = ("convolution", "matmul", "memory", "jpeg")


@dataclass(frozen=True)
class CeilingsData:
    """The content."""

    summary: str
    rooflines: tuple[Roofline, ...]
    ceilings: Table
    evidence: Table


def _data(source: ReportInput) -> CeilingsData | None:
    charts = (roofline(source, device, f"Roofline of the {title}") for device, title in DEVICES.items())
    found = CeilingsData(
        summary=" · ".join(
            f"{DEVICES.get(device, device)} {CEILING_NAMES[name].split(',')[0].lower()} {text.rate(c.value, c.unit)}"
            for (device, name, precision), c in sorted(source.analysis.ceilings.items())
            if name in IN_SUMMARY and precision in ("", "fp32")
        ).replace("jpeg", "JPEG"),
        rooflines=tuple(chart for chart in charts if chart),
        ceilings=_ceilings(source),
        evidence=_evidence(source),
    )
    return found if found.ceilings.rows or found.evidence.rows else None


def _ceilings(source: ReportInput) -> Table:
    return Table(
        caption="Measured ceilings of this machine, each from the framework that reached the best value",
        headers=("Ceiling", "Device", "Value", "Measured on"),
        rows=tuple(
            (
                f"{CEILING_NAMES[name]}{f', {precision}' if precision else ''}",
                DEVICES.get(device, device),
                text.rate(c.value, c.unit),
                c.detail,
            )
            for (device, name, precision), c in sorted(source.analysis.ceilings.items())
        ),
        numeric=(2,),
    )


def _evidence(source: ReportInput) -> Table:
    diagnoses = source.analysis.diagnoses
    has_peak = any(d.peak_share is not None for d in diagnoses)
    changes, rows = advised(source), []
    for d in diagnoses:
        shares = [text.percent(d.ceiling_share, 1)] + [text.percent(d.peak_share, 1)] * has_peak
        change = changes.get(d.key)
        what = f"{change.text} {without_waiting([('', change)])}".rstrip() if change else d.remedy
        arithmetic = text.rate(d.flops_per_s, "FLOP/s") if d.flops_per_s else text.MISSING
        rows.append(
            (
                source.name(d.key),
                d.label,
                arithmetic,
                *shares,
                d.evidence,
                what,
            )
        )
    share_headers = ("Share of the measured ceiling",) + ("Share of the data sheet’s peak",) * has_peak
    return Table(
        caption="Why a cell is limited",
        headers=("Cell", "Limited by", "Arithmetic", *share_headers, "Evidence", "What to change"),
        rows=tuple(rows),
        numeric=tuple(range(2, 3 + len(share_headers))),
    ).limited()


SECTION = Section(120, "ceilings", "Ceilings and roofline", _data, "ceilings.html")
