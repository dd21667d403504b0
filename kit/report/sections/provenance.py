"""The run, the environments, the versions and the data behind the numbers."""

from kit.report import text
from kit.report.elements import Table
from kit.report.section import ReportInput, Section


def _data(source: ReportInput) -> Table:
    plan, machine, records = source.run.plan, source.run.machine, source.run.records
    rows = [
        ("Run", plan.run),
        ("Started", plan.created_at),
        ("Kit", f"{machine.kit} on Python {machine.python}"),
        ("Profile, seed", f"{plan.profile}, {plan.seed}"),
        ("Engine", plan.engine),
    ]
    for image in {r.image.digest: r.image for r in records if r.image}.values():
        name = image.reference if image.kind == "image" else image.kind
        rows.append(("Environment", f"{name} {image.digest} {text.size(image.size_bytes)}"))
    versions: dict[str, dict[str, None]] = {}
    data: dict[str, str] = {}
    for record, result in source.results:
        if result.evidence:
            listing = ", ".join(f"{k} {v}" for k, v in sorted(result.evidence.versions.items()))
            versions.setdefault(f"{record.cell.framework} {record.cell.device}", {})[listing] = None
            kind = f"{result.evidence.data_kind} {record.cell.scenario}"
            data[f"{kind}: {result.evidence.data_digest}"] = record.data_note
    rows += [(f"Versions, {name}", "; ".join(listings)) for name, listings in versions.items()]
    rows += [("Data", f"{name} ({note})" if note else name) for name, note in data.items()]
    versions_of = {name: found for name in source.frameworks if (found := _version(source, name))}
    summary = " · ".join(f"{source.framework_title(name)} {found}" for name, found in versions_of.items())
    return Table(headers=("", ""), rows=tuple(rows), wrap=True, summary=summary)


def _version(source: ReportInput, framework: str) -> str:
    """Return the versions of a framework in this run."""
    found = {
        version: None
        for record, result in source.results
        if record.cell.framework == framework and result.evidence
        for name, version in result.evidence.versions.items()
        if name.split("-")[0] == framework
    }
    return ", ".join(found)


SECTION = Section(180, "provenance", "Versions and digests", _data)
