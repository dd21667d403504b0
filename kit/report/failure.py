"""Why a run measured nothing, and what to do next."""

from collections import Counter
from dataclasses import dataclass

from kit.analysis.repeat_command import same_command
from kit.model.formatting import format_count
from kit.report.notices import Line
from kit.report.section import ReportInput
from scenarios.contract.reasons import Status

MAX_REASONS = 4  # the section of failed launches shows all


@dataclass(frozen=True)
class Failure:
    """A run without an `ok` launch. headline: a sentence without a period. reasons: the most frequent ones first."""

    headline: str
    reasons: tuple[str, ...]
    steps: tuple[Line, ...]


def find_failure(source: ReportInput) -> Failure | None:
    """Return why nothing was measured, or None if a launch is ok."""
    if source.measured:
        return None
    again = Line("Run the missing launches:", f"kit run --resume {source.run.plan.run}")
    records = [record for record in source.run.records if record.reason]
    if not records:
        return _without_records(source, again)
    reasons = Counter((str(record.status.words), record.reason.message) for record in records if record.reason)
    remedies = Counter(record.reason.remedy for record in records if record.reason and record.reason.remedy)
    shown = [
        f"{format_count(count, 'launch')} ({words}): {message}"
        for (words, message), count in reasons.most_common(MAX_REASONS)
    ]
    hidden = len(reasons) - len(shown)
    steps = [Line(remedy) for remedy, _ in remedies.most_common(MAX_REASONS)]
    steps.append(Line("Check this machine:", "kit doctor"))
    if source.run.not_run:
        steps.append(again)
    elif any(record.status is not Status.SKIPPED for record in records):
        # A retry continues a training after its last checkpoint. A new run starts it again.
        steps.append(Line("Retry the failed launches:", f"kit run --resume {source.run.plan.run} --retry-failed"))
    else:
        steps.append(Line("Run it again:", same_command(source.analysis)))
    return Failure(
        f"Nothing was measured: none of {len(records)} launches ended well"
        if len(records) > 1
        else "Nothing was measured: the launch did not end well",
        (*shown, *([f"{format_count(hidden, 'other reason')}, see “Failed or skipped”"] * bool(hidden))),
        tuple(steps),
    )


def _without_records(source: ReportInput, again: Line) -> Failure:
    unusable = source.run.unusable
    if not unusable and not source.run.plan.launches:
        return Failure("Nothing was measured, because the plan of the run has no launches", (), ())
    if not unusable:
        return Failure("Nothing was measured, because no launch has started", (), (again,))
    steps = tuple(Line(remedy) for remedy in dict.fromkeys(found.remedy for found in unusable[:MAX_REASONS]))
    counted = format_count(len(unusable), "file")
    return Failure(
        f"Nothing can be shown: {counted} of records cannot be used",
        tuple(found.error for found in unusable[:MAX_REASONS]),
        steps,
    )
