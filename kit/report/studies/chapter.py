"""Make the chapter of a study: its answer, its tables and charts, and what was not run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kit.analysis.repeat_command import study_command
from kit.analysis.study_values import StudyValues
from kit.planning.studies import Study
from kit.planning.study_cells import place_of
from kit.planning.study_files import Kind
from kit.report.elements import Table
from kit.report.section import ReportInput
from kit.report.studies.answers import answer
from kit.report.studies.charts import learning_charts, sweep_charts
from kit.report.studies.heat import heat_maps
from kit.report.studies.held_out import held_out_tables
from kit.report.studies.part_source import PartSource
from kit.report.studies.pictures import augmented_picture
from kit.report.studies.strips import study_rows
from kit.report.studies.tables import (
    cause_findings,
    causes_table,
    devices_table,
    figures_tables,
    gpu_table,
    published_tables,
)
from kit.report.text import day, listed, machine_title
from scenarios.contract.cell import Cell, Device


@dataclass(frozen=True)
class Lack:
    """What a part lacks, and the command that measures it, or ""."""

    text: str
    command: str = ""


@dataclass(frozen=True)
class Shown:
    """A table or chart of the chapter. form: which macro draws the content, or "" if there is none.

    figures: folded tables: those of the values of a chart, or further ones. folded: what they are. findings: what a
    table shows, one sentence each.
    """

    title: str
    form: str
    content: Any
    lacks: tuple[Lack, ...]
    figures: tuple[Table, ...] = ()
    folded: str = "Table"
    findings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Chapter:
    """The content of a chapter.

    heading: the answer. published_answer: that of the authors, or "". doubtful: whether it shows a doubtful value.
    legend: the measured frameworks. missing: what the shown parts lack. facts: label and text of what a reader must
    know of the study.
    """

    heading: str
    title: str
    published_answer: str
    doubtful: bool
    legend: tuple[str, ...]
    missing: tuple[Lack, ...]
    parts: tuple[Shown, ...]
    facts: tuple[tuple[str, str], ...]
    differs: tuple[str, ...]
    choices: tuple[str, ...]

    @property
    def pictured(self) -> bool:
        """Return whether the chapter contains a picture."""
        return any(part.form == "picture" for part in self.parts)

    @property
    def whiskers(self) -> bool:
        """Return whether a line chart has the interval of a value."""
        charts = [chart for part in self.parts if part.form == "charts" for chart in part.content.charts]
        return any(mark.whisker for chart in charts for line in chart.lines for mark in line.marks)


# Kind of a part to the form of its content, and the function that makes it.
MAKERS: Mapping[Kind, tuple[str, Callable[[PartSource], Any]]] = {
    "table": ("table", figures_tables),
    "bars": ("rows", study_rows),
    "dots": ("rows", study_rows),
    "lines": ("charts", sweep_charts),
    "curves": ("charts", learning_charts),
    "heat": ("heat", heat_maps),
    "causes": ("table", causes_table),
    "gpu": ("table", gpu_table),
    "devices": ("table", devices_table),
    "augmented": ("picture", augmented_picture),
    "predictions": ("table", held_out_tables),
}
CHARTED = ("bars", "dots", "lines", "heat")  # kinds whose values can also stand in a table


def make_chapter(source: ReportInput, study: Study) -> Chapter:
    """Return the chapter of a study."""
    values, file = StudyValues(source.analysis), study.file
    sources = [PartSource(source, study, part, values) for part in file.parts]
    parts = [_shown(part) for part in sources]
    missing = {lack.text: lack for shown in parts if shown.form for lack in shown.lacks}
    return Chapter(
        heading=answer(source, study, values),
        title=file.title,
        published_answer=file.published_answer,
        doubtful=any(part.doubtful for part in sources),
        legend=tuple(source.frameworks),
        missing=tuple(missing.values()),
        parts=tuple(parts),
        facts=(
            ("Published", file.source),
            ("Software", f"{file.software}."),
            ("Hardware", f"CPU: {file.hardware.cpu}. GPU: {file.hardware.cuda}."),
            ("Here", _here(source)),
        ),
        differs=tuple(file.differences),
        choices=tuple(file.own_choices),
    )


def _here(source: ReportInput) -> str:
    """Return the machine, the day, the profile and the versions of the frameworks."""
    run = source.run
    measured = [(record.cell.framework, result.evidence) for record, result in source.results if record.ok]
    versions = {name: evidence.versions.get(name, "") for name, evidence in measured if evidence}
    named = [name for name in source.frameworks if name in versions]
    titles = [f"{source.framework_title(name)} {versions[name]}".strip() for name in named]
    frameworks = f" with {listed(titles)}" if titles else ""
    when = f"Measured on {day(run.plan.created_at)} in the profile {run.plan.profile}"
    return f"{machine_title(run.machine)}. {when}{frameworks}."


def absent_chapter(source: ReportInput, name: str) -> Chapter:
    """Return the chapter of a study of the plan whose file this kit does not have, or cannot use."""
    fault = source.study_faults.get(name)
    heading = f"Not shown: the file of the study is {'not valid' if fault else 'missing'}"
    fact = fault or f"The run repeats {name}, but scenarios/studies has no file of this name."
    return Chapter(heading, name, "", False, (), (), (), (("Study", fact),), (), ())


def _shown(part: PartSource) -> Shown:
    of = part.part
    if of.kind == "note":
        return Shown(of.title, "", None, (Lack(of.text, of.command),))
    form, make = MAKERS[of.kind]
    content = make(part) or None
    lacks = _lacks(part, empty=content is None)
    if of.kind == "predictions" and content is not None:  # one table is enough to see, and there may be many
        title = f"{of.title}: {content[0].caption}"
        return Shown(title, form, content[:1], lacks, content[1:], folded="Other networks and devices")
    if content is None:
        return Shown(of.title, "", None, lacks, published_tables(part), folded="Published figures")
    figures = figures_tables(part) if of.kind in CHARTED else ()
    findings = cause_findings(part) if of.kind == "causes" else ()
    return Shown(of.title, form, content, lacks, figures, findings=findings)


def _lacks(part: PartSource, *, empty: bool) -> tuple[Lack, ...]:
    """Return what keeps a part from being complete. empty: whether it has nothing to show."""
    devices = {summary.cell.device for summary in part.summaries}
    # A speedup compares with the CPU. All else that needs a GPU is about the GPU alone.
    gpu_alone = part.part.needs == ("gpu",) and "speedup" not in part.part.shown
    wanted = devices - {"cpu"} if gpu_alone else devices | {"cpu"}
    own = [place for place in part.study.places_of(part.part) if place.device in wanted]
    missing = [place for place in own if not any(part.summary(place, one) for one in part.series)]
    found = [*_quality_lacks(part)]
    if empty and part.part.kind == "causes" and part.summaries:
        found.append(Lack("This profile does not time the parts of a step.", _command(part)))
    if empty and part.part.kind == "augmented" and part.summaries:
        found.append(_picture_lack(part))
    on_gpu = [place for place in part.study.places_of(part.part) if place.device == "cuda"]
    if "cuda" not in devices and on_gpu:
        why = part.missing_gpu.removesuffix(".")
        compared = any("speedup" in each.shown for each in part.study.file.parts)  # needs both devices in one run
        found.append(Lack(f"Not measured on a GPU: {why}.", _command_for(part, on_gpu, None if compared else "cuda")))
    if part.changed:
        found.append(Lack(f"Defined differently since the run: {', '.join(part.changed)}.", _command(part)))
    elif missing and len(missing) == len(own):
        found.append(Lack("No cell of this part was measured.", _command_for(part, missing)))
    elif missing:
        found.append(Lack(f"Not measured: {', '.join(map(part.label, missing))}.", _command_for(part, missing)))
    if several := sorted({place.devices for place in part.places if place.devices > 1}):
        counts = " or ".join(map(str, several))
        found.append(Lack(f"kit measures one GPU, so only published figures are shown for {counts} GPUs."))
    if empty and not found:
        found.append(Lack("The run has no measurement for this part.", _command(part)))
    return tuple(found)


def _picture_lack(part: PartSource) -> Lack:
    """Return why there is no picture of augmented photos."""
    if any(part.values.augmented(summary) for summary in part.summaries):
        text = "The picture of augmented photos is missing in the folder of the run, or has changed."
    else:
        text = "The run has no picture of augmented photos."
    return Lack(text, _command(part))


def _quality_lacks(part: PartSource) -> Iterator[Lack]:
    """Yield why accuracies and losses are missing."""
    if "epochs" not in part.part.needs or not part.summaries:
        return
    if not any(part.values.curve(summary, 1) for summary in part.summaries):
        yield Lack("Accuracies, learning curves and predictions need whole epochs.", _command(part))
    elif all(summary.synthetic for summary in part.summaries):
        yield Lack("The data is synthetic, so accuracies say nothing about the published ones.", _command(part))
    elif made := [part.network(s.cell) for s in part.summaries if s.synthetic]:
        networks = listed([*dict.fromkeys(made)])
        what = f"The data of {networks} is synthetic, so accuracies on it say nothing about the published ones."
        yield Lack(what, _command(part))


def _command_for(part: PartSource, missing: Sequence[Cell], device: Device | None = None) -> str:
    """Return the command that measures these places: it resumes the run if that measures all of them.

    device: the only one of a new run, or None for all.
    """
    plan, left = part.source.run.plan, {place_of(planned.cell) for planned in part.source.run.not_run}
    enough = "epochs" not in part.part.needs or plan.profile == "full"
    return f"kit run --resume {plan.run}" if enough and left.issuperset(missing) else _command(part, device)


def _command(part: PartSource, device: Device | None = None) -> str:
    """Return the command that measures the part, in the full profile and with real data if it needs whole epochs."""
    epochs = "epochs" in part.part.needs
    profile = "full" if epochs else part.source.run.plan.profile
    return study_command(part.source.analysis, part.study.name, profile, device, real_data=epochs)
