"""What holds each cell back, and the ceilings of the machine."""

from kit.report import text
from kit.report.elements import Table
from kit.report.section import ReportInput, Section

CEILING_NAMES = {
    "matmul": "Matrix product",
    "convolution": "Convolution, 3x3, 64 channels",
    "memory": "Memory, read and write",
    "upload": "Host to device",
    "launch": "Smallest kernel",
    "jpeg": "JPEG decoding, one core",
}


def _data(source: ReportInput) -> dict[str, Table] | None:
    tables = {"diagnoses": _diagnoses(source), "ceilings": _ceilings(source)}
    return tables if any(table.rows for table in tables.values()) else None


def _diagnoses(source: ReportInput) -> Table:
    diagnoses = source.analysis.diagnoses
    has_peak = any(d.peak_share is not None for d in diagnoses)
    rows = []
    for d in diagnoses:
        shares = [text.percent(d.ceiling_share, 1)] + [text.percent(d.peak_share, 1)] * has_peak
        verdict = d.bottleneck.value.replace("_bound", "-bound").replace("_", " ")
        arithmetic = text.rate(d.flops_per_s, "FLOP/s") if d.flops_per_s else text.MISSING
        rows.append((source.name(d.key), verdict, arithmetic, *shares, d.evidence, d.remedy))
    share_headers = ("Share of the measured ceiling",) + ("Share of the data sheet's peak",) * has_peak
    return Table(
        headers=("Cell", "Held back by", "Arithmetic", *share_headers, "Evidence", "Remedy"),
        rows=tuple(rows),
        numeric=tuple(range(2, 3 + len(share_headers))),
    )


def _ceilings(source: ReportInput) -> Table:
    return Table(
        caption="Measured ceilings of this machine, each from the framework that reached the best value",
        headers=("Ceiling", "Device", "Value", "Measured on"),
        rows=tuple(
            (
                f"{CEILING_NAMES[name]}{f', {precision}' if precision else ''}",
                device,
                text.rate(c.value, c.unit),
                c.detail,
            )
            for (device, name, precision), c in sorted(source.analysis.ceilings.items())
        ),
        numeric=(2,),
    )


SECTION = Section(40, "limits", "What holds it back", _data, "limits.html")
