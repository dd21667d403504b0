"""One chapter for each published study that the run repeats."""

from functools import partial

from kit.report.section import Chapters, ReportInput, Section
from kit.report.studies.chapter import make_chapter

FIRST = 90  # after the sections about the machine


def _chapters(source: ReportInput) -> tuple[Section, ...]:
    """Return the chapters of the studies of the plan. A run that was not started for a study has none."""
    studies = [source.studies[name] for name in source.run.plan.studies if name in source.studies]
    return tuple(
        Section(
            FIRST + index / 100,
            f"study-{study.name}",
            study.name,
            partial(make_chapter, study=study),
            "studies.html",
            question=study.file.question,
        )
        for index, study in enumerate(studies)
    )


SECTION = Chapters(FIRST, _chapters)
