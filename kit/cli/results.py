"""Summarize the results of a run for a terminal or as JSON. The report has the details."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from kit.analysis.intervals import CONFIDENCE, Interval
from kit.analysis.summaries import format_accuracy, short_names
from kit.cli.console import Column
from kit.model.formatting import format_percent
from kit.storage import run_folder
from scenarios.contract.reasons import Status

if TYPE_CHECKING:
    from kit.analysis.run_analysis import RunAnalysis
    from kit.analysis.warnings import RunWarning
    from kit.execution.workflow import FinishedRun

COLUMNS = (
    Column("Cell"),
    Column("Status"),
    Column("Images/s", number=True),
    Column("Epoch s", number=True),
    Column("Accuracy", number=True),
    Column("p50 ms", number=True),
)
SYNTHETIC, PROJECTED = "*", "~"


def table(analysis: RunAnalysis) -> list[list[str]]:
    """Return one row per cell, in the order in which cells first appear. See COLUMNS.

    Skipped cells have a row only if all cells were skipped. `notes` says how many were skipped, and why.
    """
    statuses: dict[str, list[Status]] = {}
    for record in analysis.run.records:
        statuses.setdefault(record.key, []).append(record.status)
    shown = [cell for cell in analysis.cells if set(statuses[cell.key]) != {Status.SKIPPED}] or analysis.cells
    return [
        [
            name + (SYNTHETIC if summary.synthetic else ""),
            _status(statuses[summary.key]),
            _estimate(summary.images_per_s, "{:,.0f}", summary.interval),
            _shown(summary.epoch_s, (PROJECTED if summary.projected else "") + "{:,.1f}"),
            format_accuracy(summary, ""),
            _estimate(summary.p50_ms, "{:.2f}", summary.p50_interval),
        ]
        for summary, name in zip(shown, short_names([summary.cell for summary in shown]), strict=True)
    ]


def notes(analysis: RunAnalysis) -> list[str]:
    """Return the meaning of the marks in the table, and each reason why launches are not `ok`."""
    summaries, records = analysis.cells, analysis.run.records
    found = []
    if any(summary.synthetic for summary in summaries):
        found.append(f"{SYNTHETIC} measured on synthetic data")
        found += dict.fromkeys(r.data_note for r in records if r.synthetic and r.data_note)
    if any(summary.projected for summary in summaries):
        found.append(f"{PROJECTED} projected from windows of steady training")
    trained = [summary for summary in summaries if summary.images_per_s is not None]
    if any(summary.early_accuracy is not None for summary in trained):
        found.append(
            "An accuracy after a number of images shows that the network learns. Use --profile full to compare."
        )
    elif trained and all(summary.test_accuracy is None for summary in trained):
        found.append("No accuracy is shown, because no cell was trained for its epochs. Use --profile full.")
    if any(summary.interval for summary in summaries):
        found.append(
            f"± half-width of the {format_percent(CONFIDENCE)} interval over launches (needs more than one launch)"
        )
    keys: dict[str, list[str]] = {}
    for record in records:
        if record.reason:
            text = " ".join(f"{record.status.words}: {record.reason.message} {record.reason.remedy}".split())
            keys.setdefault(text, []).append(record.key)
    for text, where in keys.items():
        found.append(f"{where[0] if len(where) == 1 else f'{len(where)} launches'} {text}")
    return found


def next_steps(outcome: FinishedRun) -> list[str]:
    """Return the commands that complete the run, if launches are missing or failed."""
    command, not_run = run_folder.resume_command(outcome.folder), outcome.analysis.run.not_run
    if not_run:
        return [f"The run is incomplete. Launches without a record: {len(not_run)}. Continue with `{command}`."]
    if outcome.exit_code:
        return [f"To repeat the launches that failed, use `{command} --retry-failed`."]
    return []


def warned(warnings: Sequence[RunWarning]) -> list[str]:
    """Return one line with the most severe warning and the number of others, or no line without warnings."""
    if not warnings:
        return []
    first = warnings[0]
    about = f"{first.about}: " if first.about else ""
    more = f" {len(warnings) - 1} more in the report." if len(warnings) > 1 else ""
    return [f"Warning: {about}{first.cause} {first.remedy}{more}"]


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
        "not_run": analysis.run.not_run,
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


def _estimate(value: float | None, form: str, interval: Interval | None) -> str:
    """Return for example `9,512 ±1.8 %`, or `9,512` without an interval."""
    return _shown(value, form) + (f" ±{format_percent(interval.half_width, 1)}" if interval else "")


def _status(statuses: Sequence[Status]) -> str:
    counts = Counter(statuses)
    if len(statuses) == 1 or set(counts) == {Status.OK}:
        return statuses[0].words
    return ", ".join(f"{count} {status.words}" for status, count in counts.most_common())


def _shown(value: float | None, form: str) -> str:
    return "" if value is None else form.format(value)
