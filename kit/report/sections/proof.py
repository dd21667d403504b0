"""The proof of each launch, what really ran, and where the time went."""

from kit.model.record import Record
from kit.report import text
from kit.report.elements import Table
from kit.report.section import ReportInput, Section


def _data(source: ReportInput) -> dict[str, Table]:
    return {"proof": _proof(source), "launches": _launches(source)}


def _proof(source: ReportInput) -> Table:
    rows = []
    for record, result in source.results:
        if result.proof is None:
            continue
        # The proof of a failed launch may have no checks.
        worst = max(result.proof.checks, key=lambda c: c.error / c.tolerance if c.tolerance else c.error, default=None)
        placement = result.evidence.placement if result.evidence else None
        ran = (
            (
                f"{placement.device} ({placement.provider})",
                str(placement.threads),
                placement.layout,
                placement.training,
                placement.loader,
            )
            if placement
            else (text.MISSING,) * 5
        )
        rows.append(
            (
                source.launch_name(record),
                "equal" if result.proof.passed else "DIFFERENT",
                f"{sum(c.passed for c in result.proof.checks)} of {len(result.proof.checks)}",
                f"{worst.name}: {worst.error:.1e} of {worst.tolerance:.0e}" if worst else text.MISSING,
                *ran,
                result.evidence.data_digest[:12] if result.evidence else text.MISSING,
            )
        )
    return Table(
        caption="Check against the float64 reference before timing, and what really ran",
        headers=(
            "Launch",
            "Function",
            "Checks",
            "Closest to its tolerance",
            "Device",
            "Threads",
            "Layout",
            "Trained by",
            "Fed by",
            "Data digest",
        ),
        rows=tuple(rows),
        numeric=(5,),
    )


def _launches(source: ReportInput) -> Table:
    rows = []
    for record, result in source.results:
        if result.timings is None or result.telemetry is None or result.training is None:
            continue
        t = result.timings
        parts = (t.import_s, t.data_s, t.proof_s, t.build_s, t.first_step_s, t.warmup_s, t.training_s, t.inference_s)
        rows.append(
            (
                source.launch_name(record),
                *(text.seconds(part) for part in (*parts, t.step_timing_s, record.seconds)),
                f"{result.training.steps:,}",
                text.size(result.telemetry.peak_rss_bytes),
                _busiest_and_idlest(record),
            )
        )
    return Table(
        caption="Time of each launch (first step and warm-up are part of training)",
        headers=(
            "Launch",
            "Import",
            "Data",
            "Proof",
            "Build",
            "First step",
            "Warm-up",
            "Training",
            "Inference",
            "Step timing",
            "Whole process",
            "Steps",
            "Peak memory",
            "Busiest / idlest CPU",
        ),
        rows=tuple(rows),
        numeric=tuple(range(1, 14)),
    )


def _busiest_and_idlest(record: Record) -> str:
    """Return how busy two of the machine's logical CPUs were over the whole launch."""
    busy = record.host_samples.core_busy if record.host_samples else []
    return f"{text.percent(max(busy))} / {text.percent(min(busy))}" if busy else text.MISSING


SECTION = Section(80, "proof", "Proof and evidence", _data, "proof.html")
