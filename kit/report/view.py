"""Make the content of a report as plain data, without markup. No input or output except the discovery of sections."""

import importlib
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from kit.analysis.answer import Answers, Level, Reliability
from kit.analysis.answers import answers
from kit.analysis.reliability import reliability
from kit.analysis.run_analysis import RunAnalysis
from kit.model.errors import DiskError
from kit.model.formatting import format_count
from kit.model.tariff import Tariff
from kit.planning.studies import Study
from kit.report import sections, text
from kit.report.failure import Failure, find_failure
from kit.report.marks import Mark, make_marks
from kit.report.notices import Line, notices
from kit.report.section import Chapters, ReportInput, Section


@dataclass(frozen=True)
class View:
    """The content of a report.

    eyebrow: version, date and profile. answers, reliability: None if the run failed. failure: None if something was
    measured. open, folded: the sections that have something to show, each with its data. marks: of all frameworks in
    the run. frameworks: the measured ones, which can be highlighted.
    """

    title: str
    eyebrow: str
    lede: str
    answers: Answers | None
    reliability: Reliability | None
    failure: Failure | None
    notices: tuple[Line, ...]
    open: tuple[tuple[Section, Any], ...]
    folded: tuple[tuple[Section, Any], ...]
    marks: Mapping[str, Mark]
    frameworks: tuple[str, ...]

    @property
    def pictured(self) -> bool:
        """Return whether the report contains a picture."""
        return any(getattr(data, "pictured", False) for _, data in (*self.open, *self.folded))

    @property
    def levels(self) -> tuple[tuple[str, bool, bool], ...]:
        """Return each level of reliability, whether the run has reached it, and whether it is the highest reached."""
        reached = self.reliability.level if self.reliability else None
        last = list(Level).index(reached) if reached else -1
        return tuple((level.value, index <= last, index == last) for index, level in enumerate(Level))


def make_view(
    analysis: RunAnalysis,
    titles: Mapping[str, str],
    studies: Mapping[str, Study] = MappingProxyType({}),
    study_faults: Mapping[str, str] = MappingProxyType({}),
    tariff: Tariff | None = None,
) -> View:
    """Return the content of the report of one run. For the other arguments, see `ReportInput`."""
    run, source = analysis.run, ReportInput(analysis, titles, studies, study_faults, tariff)
    failure = find_failure(source)
    every = [s for found in discover() for s in (found.sections(source) if isinstance(found, Chapters) else (found,))]
    found = [(section, section.data(source)) for section in every]
    shown = [(section, data) for section, data in found if data is not None]
    frameworks = {launch.cell.framework for launch in run.plan.launches} | {r.cell.framework for r in run.records}
    return View(
        title=text.machine_title(run.machine),
        eyebrow=f"kit {run.machine.kit} · {text.day(run.plan.created_at)} · {run.plan.profile} profile",
        lede=_lede(source),
        answers=None if failure else answers(analysis, titles),
        reliability=None if failure else reliability(analysis),
        failure=failure,
        notices=notices(source),
        open=tuple((section, data) for section, data in shown if not section.folded),
        folded=tuple((section, data) for section, data in shown if section.folded),
        marks=make_marks({name: source.framework_title(name) for name in sorted(frameworks | set(titles))}),
        frameworks=tuple(source.frameworks),
    )


def _lede(source: ReportInput) -> str:
    """Return what was measured, in one sentence. It says what a cell is, because the answers below it count cells."""
    if not source.measured:
        return "Nothing was measured."
    count = format_count(len({summary.cell.network for summary in source.measured}), "network")
    names = text.listed([source.framework_title(framework) for framework in source.frameworks])
    lanes = {summary.cell.lane for summary in source.measured}
    settings = {
        frozenset({"stock"}): "with the settings of each framework’s own tutorials",
        frozenset({"tuned"}): "with settings that kit tuned on this machine",
    }.get(frozenset(lanes), "with the settings of the tutorials and with tuned ones")
    total = len(source.measured)
    cells = f"{format_count(total, 'cell')}, {'each ' * (total > 1)}a network in one framework on one device"
    return f"{count}, trained and served in {names} {settings}: {cells}."


def discover() -> list[Section | Chapters]:
    """Return the SECTION of each module of `kit.report.sections`, by position. Raise DiskError if there is none."""
    names = [module.name for module in pkgutil.iter_modules(sections.__path__)]
    if not names:  # `iter_modules` finds no module in a folder that it cannot read
        raise DiskError(f"{sections.__path__[0]} cannot be read.", "Check the permissions of kit's installed files.")
    found: list[Section | Chapters] = [importlib.import_module(f"{sections.__name__}.{name}").SECTION for name in names]
    return sorted(found, key=lambda section: section.position)
