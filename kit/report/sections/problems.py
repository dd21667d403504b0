"""The launches that failed, were skipped or did not run, and files that cannot be used, grouped by reason."""

from collections import Counter

from kit.model.formatting import format_count
from kit.report import text
from kit.report.elements import Table
from kit.report.section import ReportInput, Section

NOT_READABLE = "not readable"  # files; all others are launches
MAX_LAUNCHES = 24  # named in a row


def _data(source: ReportInput) -> Table | None:
    groups: dict[tuple[str, str, str], list[str]] = {}
    for record in source.run.records:
        if not record.ok:
            why = record.reason
            reason = (why.message, why.remedy) if why else ("", "")
            groups.setdefault((record.status.words, *reason), []).append(source.launch_name(record))
    if source.run.not_run:
        remedy = f"Continue with kit run --resume {source.run.plan.run}."
        groups[("not run", "The run stopped before these launches.", remedy)] = [p.name for p in source.run.not_run]
    for found in source.run.unusable:
        groups.setdefault((NOT_READABLE, found.error, found.remedy), []).append(found.file)
    if not groups:
        return None
    counts: Counter[str] = Counter()
    for (status, _, _), launches in groups.items():
        counts[status] += len(launches)
    return Table(
        headers=("Status", "What happened", "What to do", "Launches"),
        rows=tuple((*group, _named(launches)) for group, launches in groups.items()),
        wrap=True,
        summary=", ".join(
            f"{format_count(count, 'file' if status == NOT_READABLE else 'launch')} {status}"
            for status, count in counts.most_common()
        ),
    ).limited()


def _named(launches: list[str]) -> str:
    return f"{len(launches)}: {text.listed(launches, MAX_LAUNCHES)}"


SECTION = Section(105, "problems", "Failed or skipped", _data)
