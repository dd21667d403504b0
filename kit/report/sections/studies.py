"""One chapter for each published study that the run repeats."""

from functools import partial

from kit.report.section import Chapters, ReportInput, Section
from kit.report.studies.chapter import absent_chapter, make_chapter

FIRST = 90  # after the sections about the machine


def _chapters(source: ReportInput) -> tuple[Section, ...]:
    """Return the chapters of the studies of the plan. A run that was not started for a study has none."""
    names = dict.fromkeys(source.run.plan.studies)  # a stranger's plan may name one twice
    return tuple(_chapter(source, name) for name in names)


def _chapter(source: ReportInput, name: str) -> Section:
    study, anchor = source.studies.get(name), f"study-{name}"
    if study is None:
        question = f"What does the study {name} ask?"
        return Section(FIRST, anchor, name, partial(absent_chapter, name=name), "studies.html", question)
    data = partial(make_chapter, study=study)
    return Section(FIRST, anchor, name, data, "studies.html", study.file.question)


SECTION = Chapters(FIRST, _chapters)
