"""Show the results of a run on a terminal or as JSON. The report has the details."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from kit.analysis.answer import Answer, State
from kit.analysis.answers import answers
from kit.analysis.intervals import MIN_LAUNCHES
from kit.analysis.launch_windows import UNSTEADY as UNSTEADY_WARNINGS
from kit.analysis.pairing import Measure
from kit.analysis.reliability import reliability, unsteady_cells, warned_cells
from kit.analysis.summaries import ContestState, too_few
from kit.analysis.warnings import WarningCode
from kit.cli.tables import SINGLE, SYNTHETIC, UNSTEADY, Marks, tables
from kit.host import program
from kit.model.formatting import DEVICES, format_count, format_duration, printable, shortened
from kit.model.run import Run
from kit.storage import run_folder
from scenarios.contract.reasons import Status

if TYPE_CHECKING:
    from kit.analysis.run_analysis import RunAnalysis
    from kit.analysis.warnings import RunWarning
    from kit.execution.reporting import FinishedRun
    from kit.model.record import Record

WIDTH = 80  # notes are not wider, even on a wider terminal
MAX_NAMED = 3  # cells with the same failure; more are counted
NO_BREAK = "\N{NO-BREAK SPACE}"
LABEL = 13  # characters before a command or a path
REAL_DATA = " `kit data fetch` gets the real sets."

# What marks, the last column and the command for a better answer already say.
SAID = UNSTEADY_WARNINGS | {WarningCode.FEW_LAUNCHES, WarningCode.SYNTHETIC_DATA}
# What is shown instead of the figures of a warning, which the report has.
SHORT = {WarningCode.CORRELATED: "The speed of this machine changed during the run, so trust ratios more than speeds."}


def lines(outcome: FinishedRun, titles: Mapping[str, str], width: int, seconds: float | None = None) -> list[str]:
    """Return tables, caveats, failures, the verdict, the next command, and the path of the report.

    titles: of the frameworks. width: characters of a line; only a command or a path may be longer. seconds: duration of
    the run, None if it is unknown.
    """
    analysis, notes_width = outcome.analysis, min(width, WIDTH)
    marks = find_marks(analysis)
    shown_measures = (Measure.TRAINING, Measure.LATENCY)
    won = {str(measure): analysis.contests[measure] for measure in shown_measures}
    found = tables(analysis, titles, marks, won)
    shown = [line for table in found for line in (*table.lines(width), "")]
    single, undecided = (any(mark in line for line in shown) for mark in (SINGLE, ContestState.UNDECIDED))
    notes = [
        *caveats(analysis, marks, single=single, undecided=undecided),
        *failures(analysis.run.records, titles),
        *unusable(analysis.run),
    ]
    if not found:
        shown.append("Nothing was measured.")
    shown += _wrapped(map(program.in_messages, notes), notes_width)
    shown += ["", *_wrapped(_verdicts(analysis, titles), notes_width)]
    took = "" if seconds is None else f"(done in {format_duration(seconds)})"
    for label, text, note in (*_next(outcome), ("Report:", str(outcome.report), took)):
        shown += _labelled(label, text, note, notes_width)
    return shown


def find_marks(analysis: RunAnalysis) -> Marks:
    """Return which cells are not steady, and which ones use synthetic data while others do not."""
    measured = {cell.key for cell in analysis.cells if cell.images_per_s is not None}
    synthetic = {cell.key for cell in analysis.cells if cell.synthetic} & measured
    return Marks(
        frozenset(unsteady_cells(analysis)),
        frozenset(synthetic if synthetic != measured else ()),
        frozenset(unsteady_cells(analysis, Measure.LATENCY)),
    )


def caveats(analysis: RunAnalysis, marks: Marks, *, single: bool, undecided: bool) -> list[str]:
    """Return one line for each mark, for synthetic data, and for the most severe warning that no other line covers.

    single: whether a table shows a lead in a single launch. undecided: whether it shows that a contest is undecided.
    """
    measured = [cell for cell in analysis.cells if cell.images_per_s is not None]
    found = [f"{SINGLE}  {too_few(measured)}: no winner is claimed"] if single else []
    if marks.unsteady:
        share = f"{len(marks.unsteady)} of {format_count(len(measured), 'cell')}"
        found.append(f"{UNSTEADY}  not steady: {_disturbance(analysis, marks.unsteady)} ({share})")
    if synthetic := [cell for cell in measured if cell.synthetic]:
        mark = f"{SYNTHETIC}  synthetic data" if marks.synthetic else "   Synthetic data"
        real = "" if _as_requested(analysis, synthetic[0].key) else REAL_DATA
        found.append(f"{mark}: speeds are estimates.{real}")
    if (most := max((cell.launches for cell in measured), default=0)) > 1:
        kind = "geometric means" if most == 2 else "medians"
        few = (
            f", too few to be sure where it says {ContestState.UNDECIDED}" if undecided and most < MIN_LAUNCHES else ""
        )
        found.append(f"   Speeds are {kind} of up to {most} launches{few}. The report has their intervals.")
    return found + [f"   {line}" for line in warned(analysis.warnings)]


def _disturbance(analysis: RunAnalysis, unsteady: Collection[str]) -> str:
    """Return why these cells are not steady: the load of other programs if it is known, else what it can be."""
    cells = warned_cells(analysis, {WarningCode.OTHER_LOAD}).keys()
    loaded = (launch for key in cells for launch in analysis.launches[key])
    worst = max(loaded, key=lambda launch: launch.other_cpus or 0.0, default=None)
    if worst is None or worst.other_cpus is None:
        return "the speed changed, or other programs ran"
    cpus = format_count(worst.record.machine.logical_cpus, "CPU")
    used = f"other programs used up to {worst.other_cpus:.1f} of {cpus}"
    return used if cells >= set(unsteady) else f"{used} in {format_count(len(cells), 'cell')}, or the speed changed"


def failures(records: Sequence[Record], titles: Mapping[str, str]) -> list[str]:
    """Return one line for each reason why launches are not ok, with the cells and the remedy. Skipped cells come
    last."""
    reasons: dict[tuple[Status, str], dict[str, Record]] = {}
    counts: Counter[tuple[Status, str]] = Counter()
    for record in sorted(records, key=lambda record: record.status is Status.SKIPPED):
        if record.reason:
            reason = record.status, " ".join(f"{record.reason.message} {record.reason.remedy}".split())
            reasons.setdefault(reason, {})[record.key] = record
            counts[reason] += 1
    found = []
    for reason, cells in reasons.items():
        status, text = reason
        where = _where([*cells.values()], titles, most=1 if status is Status.SKIPPED else MAX_NAMED)
        repeated = counts[reason] > len(cells) and status is not Status.SKIPPED
        launches = f", {counts[reason]} launches" if repeated else ""
        found.append(f"{status.words.capitalize()}: {where}{launches}. {text}")
    return found


def unusable(run: Run) -> list[str]:
    """Return one line if files of records cannot be used, with the first one."""
    if not run.unusable:
        return []
    first, more = run.unusable[0], len(run.unusable) - 1
    others = f" {format_count(more, 'other file')} cannot be used either, see the report." if more else ""
    return [f"Not readable: {first.error} {first.remedy}{others}"]


def _next(outcome: FinishedRun) -> list[tuple[str, str, str]]:
    """Return the command that completes the run, or else the one for a more reliable answer: label, command, note."""
    command, not_run = run_folder.resume_command(outcome.folder), outcome.analysis.run.not_run
    if not_run:
        return [("To continue:", command, f"(incomplete: {format_count(len(not_run), 'launch')} without a record)")]
    if outcome.analysis.run.unusable:
        return []
    records = [record for each in (outcome, outcome.base) if each for record in each.analysis.run.records]
    if outcome.exit_code and any(record.status not in run_folder.SETTLED for record in records):
        return [("To repeat:", f"{command} --retry-failed", "(the launches that failed)")]
    better = reliability(outcome.analysis).next
    if not better:
        return []
    fetch = [f"before it, {program.as_called(better.fetch)}"] if better.fetch else []
    lacks = [f"this run lacks {better.lacks}"] if better.lacks else []
    note = "; ".join([better.note, *fetch, *lacks])
    return [("To be sure:", program.as_called(better.command), f"({note})")]


def warned(warnings: Sequence[RunWarning]) -> list[str]:
    """Return one line with the most severe warning that nothing else shows, and the number of others."""
    others = [warning for warning in warnings if warning.code not in SAID]
    if not others:
        return []
    first = others[0]
    about = f"{first.about}: " if first.about else ""
    more = f" {len(others) - 1} more in the report." if len(others) > 1 else ""
    return [f"Warning: {about}{SHORT.get(first.code, f'{first.cause} {first.remedy}')}{more}"]


def as_json(outcome: FinishedRun) -> dict[str, Any]:
    """Return paths, cells with their numbers and settings, diagnoses, warnings, and the status of each launch.

    Empty settings are those of the stock lane.
    """
    analysis, records = outcome.analysis, outcome.analysis.run.records
    settings = {record.key: record.request.settings if record.request else {} for record in records}
    return {
        "run": analysis.run.plan.run,
        "folder": str(outcome.folder),
        "report": str(outcome.report),
        "exit_code": outcome.exit_code,
        "cells": [
            asdict(summary) | {"key": summary.key, "settings": settings[summary.key]} for summary in analysis.cells
        ],
        "diagnoses": [asdict(diagnosis) for diagnosis in analysis.diagnoses],
        "warnings": [asdict(warning) for warning in analysis.warnings],
        "not_run": [planned.name for planned in analysis.run.not_run],
        "unusable": [
            {"file": found.file, "error": found.error, "remedy": found.remedy} for found in analysis.run.unusable
        ],
        "launches": [
            {
                "key": record.key,
                "launch": record.launch,
                "status": str(record.status),
                "reason": asdict(record.reason) if record.reason else None,
            }
            for record in records
        ],
    }


def _verdicts(analysis: RunAnalysis, titles: Mapping[str, str]) -> list[str]:
    """Return which framework to use, and whether the GPU is worth it if it was measured."""
    found = answers(analysis, titles)
    shown: list[Answer] = [found.framework]
    if found.gpu.state not in {State.NOT_MEASURED, State.FAILED}:
        shown.append(found.gpu)
    return [f"{answer.headline.removesuffix('.')}." for answer in shown]


def _as_requested(analysis: RunAnalysis, key: str) -> bool:
    return any(record.key == key and record.data_note.endswith("as requested") for record in analysis.run.records)


def _where(records: Sequence[Record], titles: Mapping[str, str], most: int) -> str:
    """Return the names of a few cells, or the number of more than `most` with what they have in common."""
    cells = [record.cell for record in records]
    if len(cells) <= most:
        names = [f"{cell.label} in {titles.get(cell.framework, cell.framework)}{_on(cell.device)}" for cell in cells]
        if len(set(names)) < len(names):  # cells of a sweep
            return ", ".join(cell.key for cell in cells)
        return ", ".join(names)
    frameworks, devices = {cell.framework for cell in cells}, {cell.device for cell in cells}
    of = f" in {titles.get(name, name)}" if len(frameworks) == 1 and (name := next(iter(frameworks))) else ""
    on = f" on the {DEVICES[next(iter(devices))]}" if len(devices) == 1 else ""
    return f"{len(cells)} cells{of}{on}"


def _on(device: str) -> str:
    return " on the GPU" if device == "cuda" else ""


def _wrapped(texts: Iterable[str], width: int) -> list[str]:
    """Break lines between words, but not inside a command. A line with a mark continues below its text."""
    found = []
    for text in texts:
        indent = " " * (3 if text[1:3] == "  " else 2)
        whole = re.sub(r"`[^`]*`", lambda command: command[0].replace(" ", NO_BREAK), printable(shortened(text)))
        found += [line.replace(NO_BREAK, " ") for line in _broken(whole, width, indent)]
    return found


def _broken(text: str, width: int, indent: str = "") -> list[str]:
    """Break a text between words, but not at a hyphen, which is part of many names. indent: of further lines."""
    return textwrap.wrap(text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _labelled(label: str, text: str, note: str, width: int) -> list[str]:
    """Return a command or a path after its label, with a note at the right end or on a line of its own.

    A long command is continued on the next line with a backslash, as in a shell.
    """
    *first, last = _continued(printable(text), width - LABEL)
    found = [f"{label if not place else '':<{LABEL}}{part}" for place, part in enumerate([*first, last])]
    if not note:
        return found
    if len(found[-1]) + len(note) + 2 <= width:
        return [*found[:-1], found[-1] + note.rjust(width - len(found[-1]))]
    return [*found, *(" " * LABEL + line for line in _broken(note, width - LABEL))]


def _continued(command: str, width: int) -> list[str]:
    """Break a command before options, so that its lines have at most `width` characters if possible."""
    found = [""]
    for part in re.split(r" (?=--)", command):
        if found[-1] and len(f"{found[-1]} {part} \\") > width:
            found[-1] += " \\"
            found.append(f"  {part}")
        else:
            found[-1] = f"{found[-1]} {part}" if found[-1] else part
    return found
