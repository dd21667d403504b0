"""An example of a section: how many launches each framework made."""

from collections import Counter

from kit.report.elements import Table
from kit.report.section import ReportInput, Section


def _launches(source: ReportInput) -> Table:
    counts = Counter(record.cell.framework for record in source.run.records)
    rows = tuple((name, str(count)) for name, count in counts.items())
    return Table(headers=("Framework", "Launches in this example"), rows=rows, numeric=(1,))


SECTION = Section(45, "example", "Example section", _launches)
