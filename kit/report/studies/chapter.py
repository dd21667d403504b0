"""Make the chapter of a study: its answer, its tables and charts, and what was not run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kit.analysis.gpu_answer import missing_gpu
from kit.analysis.study_values import StudyValues
from kit.planning.studies import Study
from kit.planning.study_files import Kind
from kit.report.elements import Table
from kit.report.section import ReportInput
from kit.report.studies.answers import answer
from kit.report.studies.charts import learning_charts, sweep_charts
from kit.report.studies.heat import heat_maps
from kit.report.studies.part_source import PartSource
from kit.report.studies.strips import study_rows
from kit.report.studies.tables import causes_table, devices_table, figures_table, gpu_table


@dataclass(frozen=True)
class Lack:
    """What a part lacks, and the command that measures it, or ""."""

    text: str
    command: str = ""


@dataclass(frozen=True)
class Shown:
    """A table or chart of the chapter. form: which macro draws the content, or "" if there is none.

    figures: the same values as a table, for charts that have no text of their own.
    """

    title: str
    form: str
    content: Any
    lacks: tuple[Lack, ...]
    figures: Table | None = None


@dataclass(frozen=True)
class Chapter:
    """The content of a chapter.

    heading: the answer. legend: the measured frameworks. facts: label and text of what a reader must know of the study.
    """

    heading: str
    title: str
    name: str
    legend: tuple[str, ...]
    parts: tuple[Shown, ...]
    facts: tuple[tuple[str, str], ...]
    differs: tuple[str, ...]
    choices: tuple[str, ...]


# Kind of a part to the form of its content, and the function that makes it.
MAKERS: Mapping[Kind, tuple[str, Callable[[PartSource], Any]]] = {
    "table": ("table", figures_table),
    "bars": ("rows", study_rows),
    "dots": ("rows", study_rows),
    "lines": ("charts", sweep_charts),
    "curves": ("charts", learning_charts),
    "heat": ("heat", heat_maps),
    "causes": ("table", causes_table),
    "gpu": ("table", gpu_table),
    "devices": ("table", devices_table),
}


def make_chapter(source: ReportInput, study: Study) -> Chapter:
    """Return the chapter of a study."""
    values, file = StudyValues(source.analysis), study.file
    hardware = f"CPU: {file.hardware.cpu}. GPU: {file.hardware.cuda}"
    return Chapter(
        heading=answer(source, study, values),
        title=file.title,
        name=study.name,
        legend=tuple(source.frameworks),
        parts=tuple(_shown(PartSource(source, study, part, values)) for part in file.parts),
        facts=(("Published", file.source), ("Software", f"{file.software}."), ("Hardware", f"{hardware}.")),
        differs=tuple(file.differences),
        choices=tuple(file.choices),
    )


def _shown(part: PartSource) -> Shown:
    of = part.part
    if of.kind == "note":
        return Shown(of.title, "", None, (Lack(of.text, of.command),))
    form, make = MAKERS[of.kind]
    content = make(part) or None
    charted = content is not None and of.kind in {"lines", "bars", "dots", "heat"}
    return Shown(
        title=of.title,
        form=form if content is not None else "",
        content=content,
        lacks=_lacks(part, empty=content is None),
        figures=figures_table(part) if charted else None,
    )


def _lacks(part: PartSource, *, empty: bool) -> tuple[Lack, ...]:
    """Return what keeps the part from being complete."""
    command, needs = part.study.command, part.part.needs
    found = []
    trained = any(part.values.curve(summary) for summary in part.summaries)
    if "epochs" in needs and not trained:
        found.append(Lack("Accuracies and learning curves need whole epochs.", f"{command} --profile full"))
    elif "epochs" in needs and all(s.synthetic for s in part.summaries):
        found.append(Lack("The run used synthetic data, whose accuracy says nothing about the published one."))
    devices = {summary.cell.device for summary in part.summaries}
    if "cuda" not in devices and any(place.device == "cuda" for place in part.places):
        why = missing_gpu(part.source.analysis, part.source.measured).removesuffix(".")
        found.append(Lack(f"Not measured on a GPU: {why}.", f"{command} --device cuda"))
    own = [place for place in part.study.places_of(part.part) if place.device in devices or place.device == "cpu"]
    missing = [place for place in own if not any(part.summary(place, one) for one in part.series)]
    if missing and len(missing) == len(own):
        found.append(Lack("No cell of this part was measured.", command))
    elif missing:
        found.append(Lack(f"Not measured: {', '.join(map(part.label, missing))}.", command))
    if several := sorted({place.devices for place in part.places if place.devices > 1}):
        found.append(Lack(f"kit cannot measure {' or '.join(map(str, several))} GPUs yet. The figures are published."))
    if empty and not found:
        found.append(Lack("The run has no measurement for this part.", f"{command} --profile quick"))
    return tuple(found)
