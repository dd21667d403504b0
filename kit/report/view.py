"""Make the content of a report as plain data, without markup. No input or output except the discovery of sections."""

import importlib
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kit.analysis.run_analysis import RunAnalysis
from kit.model.errors import DiskError
from kit.report import sections, text
from kit.report.section import ReportInput, Section


@dataclass(frozen=True)
class View:
    """The content of a report. sections: those that have something to show, each with its data."""

    title: str
    subtitle: str
    sections: tuple[tuple[Section, Any], ...]


def make_view(analysis: RunAnalysis, titles: Mapping[str, str]) -> View:
    """Return the content of the report of one run. titles: name of a framework to its display name."""
    run, source = analysis.run, ReportInput(analysis, titles)
    found = [(section, section.data(source)) for section in discover()]
    return View(
        title="Deep learning on this machine",
        subtitle=f"{run.machine.description} · {run.plan.profile} profile · {text.moment(run.plan.created_at)}",
        sections=tuple((section, data) for section, data in found if data is not None),
    )


def discover() -> list[Section]:
    """Return the SECTION of each module of `kit.report.sections`, by position. Raise DiskError if there is none."""
    names = [module.name for module in pkgutil.iter_modules(sections.__path__)]
    if not names:  # `iter_modules` finds no module in a folder that it cannot read
        raise DiskError(f"{sections.__path__[0]} cannot be read.", "Check the permissions of kit's installed files.")
    found: list[Section] = [importlib.import_module(f"{sections.__name__}.{name}").SECTION for name in names]
    return sorted(found, key=lambda section: section.position)
