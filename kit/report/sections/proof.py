"""The proof of each cell, what really ran, and where the time of its launches went."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from kit.model.formatting import format_count
from kit.model.record import Record
from kit.report import text
from kit.report.elements import Table
from kit.report.section import ReportInput, Section
from scenarios.contract.result import Check, Result

TIMES = ("Import", "Data", "Proof", "Build", "First step", "Warm-up", "Training", "Inference", "Step timing")
SERVED_BY = "Served by"  # early records do not have it


@dataclass(frozen=True)
class ProofData:
    """The content."""

    summary: str
    proof: Table
    launches: Table


def _data(source: ReportInput) -> ProofData | None:
    proved = [(record, result) for record, result in source.results if result.proof]
    if not proved:
        return None
    equal = sum(bool(result.proof and result.proof.passed) for _, result in proved)
    checks = [check for _, result in proved for check in (result.proof.checks if result.proof else ())]
    summary = f"{equal} of {format_count(len(proved), 'launch')} equal to the reference"
    passed = [_closeness(check) for check in checks if check.passed]
    if passed:
        summary += f"; the largest error is {text.percent(max(passed), 1)} of its tolerance"
    return ProofData(summary, _proof(source, proved), _launches(source))


def _closeness(check: Check) -> float:
    """Return the error as a share of its tolerance."""
    return check.error / check.tolerance if check.tolerance else check.error


def _proof(source: ReportInput, proved: list[tuple[Record, Result]]) -> Table:
    """Return one row for the launches of a cell that ran in the same way and had the same outcome."""
    groups: dict[tuple[str, ...], list[tuple[Record, Result]]] = {}
    for record, result in proved:
        assert result.proof
        outcome = "equal" if result.proof.passed else "DIFFERENT"
        groups.setdefault((source.name(record.key), outcome, *_ran(result)), []).append((record, result))
    rows = []
    for (name, outcome, *ran), launches in groups.items():
        proofs = [result.proof for _, result in launches if result.proof]
        worst = max((check for proof in proofs for check in proof.checks), key=_closeness, default=None)
        fewest = min(proofs, key=lambda proof: sum(check.passed for check in proof.checks))
        numbers = ", ".join(str(record.launch) for record, _ in launches)
        rows.append(
            (
                name,
                numbers if len(launches) <= 8 else f"{len(launches)} launches",
                outcome,
                f"{sum(check.passed for check in fewest.checks)} of {len(fewest.checks)}",
                f"{worst.name}: {worst.error:.1e} of {worst.tolerance:.1e}" if worst else text.MISSING,
                *ran,
            )
        )
    headers = (
        "Cell",
        "Launches",
        "Function",
        "Checks",
        "Largest error and its tolerance",
        "Device",
        "Threads",
        "Layout",
        "Trained by",
        "Fed by",
        SERVED_BY,
        "Data digest",
    )
    served = headers.index(SERVED_BY)
    known = [at for at in range(len(headers)) if at != served or any(row[at] != text.MISSING for row in rows)]
    return Table(
        caption="Check against the float64 reference before timing, and what really ran",
        headers=tuple(headers[at] for at in known),
        rows=tuple(tuple(row[at] for at in known) for row in rows),
        numeric=(6,),
    ).limited()


def _ran(result: Result) -> tuple[str, ...]:
    if result.evidence is None:
        return (text.MISSING,) * 7
    placement = result.evidence.placement
    return (
        f"{placement.device} ({placement.provider})",
        str(placement.threads),
        placement.layout,
        placement.training,
        placement.loader,
        placement.serving or text.MISSING,
        result.evidence.data_digest[:12],
    )


def _launches(source: ReportInput) -> Table:
    cells: dict[str, list[tuple[Record, Result]]] = {}
    for record, result in source.results:
        if result.timings and result.telemetry and result.training:
            cells.setdefault(record.key, []).append((record, result))
    return Table(
        caption="Time of a launch, medians over the launches of a cell that have the part (first step and warm-up are "
        "part of training). Peak memory and how busy CPUs were are those of the whole process, not of training",
        headers=("Cell", *TIMES, "Whole process", "Steps", "Peak memory", "Busiest / idlest CPU"),
        rows=tuple((source.name(key), *_times(launches)) for key, launches in cells.items()),
        numeric=tuple(range(1, 5 + len(TIMES))),
    ).limited()


def _times(launches: list[tuple[Record, Result]]) -> tuple[str, ...]:
    times, steps, memory = [], [], []
    for record, result in launches:
        t = result.timings
        assert t
        assert result.training
        assert result.telemetry
        parts = (t.import_s, t.data_s, t.proof_s, t.build_s, t.first_step_s, t.warmup_s, t.training_s, t.inference_s)
        times.append((*parts, t.step_timing_s, record.seconds))
        steps.append(result.training.steps)
        memory.append(result.telemetry.peak_rss_bytes)
    return (
        *(text.seconds(statistics.median([s for s in part if s] or [0.0])) for part in zip(*times, strict=True)),
        f"{statistics.median(steps):,.0f}",
        text.size(max(memory)),
        _busiest_and_idlest([record for record, _ in launches]),
    )


def _busiest_and_idlest(records: list[Record]) -> str:
    """Return how busy two of the machine's logical CPUs were, as medians over the launches."""
    busy = [
        record.host_samples.core_busy for record in records if record.host_samples and record.host_samples.core_busy
    ]
    if not busy:
        return text.MISSING
    ends = (statistics.median(map(max, busy)), statistics.median(map(min, busy)))
    return " / ".join(text.percent(end) for end in ends)


SECTION = Section(150, "proof", "Proof and evidence", _data, "proof.html")
