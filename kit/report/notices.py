"""What a reader must know before reading the figures: an incomplete run, skipped cells, the smoke profile."""

from collections import Counter
from dataclasses import dataclass

from kit.model.formatting import DEVICES, format_count
from kit.report.section import ReportInput
from scenarios.contract.reasons import Status


@dataclass(frozen=True)
class Line:
    """A sentence, and a command for a shell after it, or ""."""

    text: str
    command: str = ""


def notices(source: ReportInput) -> tuple[Line, ...]:
    """Return the notices of a run, one line each."""
    found = []
    if not_run := source.run.not_run:
        verb = "has" if len(not_run) == 1 else "have"
        found.append(
            Line(
                f"The run is incomplete: {format_count(len(not_run), 'planned launch')} {verb} no "
                "record. Continue with",
                f"kit run --resume {source.run.plan.run}",
            )
        )
    if unusable := source.run.unusable:
        counted = format_count(len(unusable), "file")
        found.append(
            Line(f"{counted} of records cannot be used, and {_missing(len(unusable))}. See “Failed or skipped”.")
        )
    found += _absent_studies(source)
    if source.run.plan.profile == "smoke":
        found.append(Line("The smoke profile trains 20 steps. It shows that everything works, not how fast it is."))
    if source.measured:
        found += skipped(source) + failed(source)
    return tuple(found)


def _absent_studies(source: ReportInput) -> list[Line]:
    """Return one line for each study of the plan whose file cannot be used."""
    missing = [name for name in dict.fromkeys(source.run.plan.studies) if name not in source.studies]
    why = {name: source.study_faults.get(name, "scenarios/studies has no file of this name.") for name in missing}
    return [Line(f"The chapter of the study {name} is missing. {reason}") for name, reason in why.items()]


def _missing(count: int) -> str:
    return "is missing here" if count == 1 else "are missing here"


def skipped(source: ReportInput) -> list[Line]:
    """Return one line for each reason for which cells were skipped."""
    cells = {r.key: r for r in source.run.records if r.status is Status.SKIPPED and r.reason}
    reasons = Counter((record.cell.device, record.reason.message) for record in cells.values() if record.reason)
    return [
        Line(f"Skipped: {format_count(count, 'cell')} on the {DEVICES[device]}. {message}")
        for (device, message), count in reasons.most_common()
    ]


def failed(source: ReportInput) -> list[Line]:
    """Return one line if launches failed."""
    count = sum(not record.ok and record.status is not Status.SKIPPED for record in source.run.records)
    return [Line(f"Failed: {format_count(count, 'launch')}. See “Failed or skipped”.")] * bool(count)
