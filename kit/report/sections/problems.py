"""The launches that failed, were skipped or did not run."""

from kit.report.elements import Table
from kit.report.section import ReportInput, Section


def _data(source: ReportInput) -> Table | None:
    groups: dict[tuple[str, str, str, str], list[str]] = {}
    for record in source.run.records:
        if not record.ok:
            why = record.reason
            reason = (str(why.code), why.message, why.remedy) if why else ("", "", "")
            groups.setdefault((str(record.status), *reason), []).append(source.launch_name(record))
    if source.run.not_run:
        remedy = f"Continue with kit run --resume {source.run.plan.run}."
        groups[("not run", "", "The run stopped before these launches.", remedy)] = source.run.not_run
    if not groups:
        return None
    return Table(
        headers=("Status", "Code", "What happened", "What to do", "Launches"),
        rows=tuple((*group, f"{len(launches)}: " + ", ".join(launches)) for group, launches in groups.items()),
        wrap=True,
    )


SECTION = Section(60, "problems", "Failed or skipped", _data)
