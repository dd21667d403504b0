"""The results of a run in few words, for a terminal and for programs; the report says the rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from kit.analysis import CellSummary, summarise
from kit.console import Column
from kit.records import Record
from kit.session import Outcome
from scenarios.contract import Status

COLUMNS = (
    Column("Cell"),
    Column("Status"),
    Column("Images/s", number=True),
    Column("Epoch s", number=True),
    Column("Accuracy", number=True),
    Column("p50 ms", number=True),
)
SYNTHETIC, PROJECTED = "*", "~"


def table(records: Sequence[Record]) -> list[list[str]]:
    """One row a cell, in the order in which cells first appear; see COLUMNS."""
    summaries = summarise(records)
    return [
        [
            name + (SYNTHETIC if summary.synthetic else ""),
            _status([record.status for record in records if record.key == summary.key]),
            _shown(summary.images_per_s, "{:,.0f}"),
            _shown(summary.epoch_s, (PROJECTED if summary.projected else "") + "{:,.1f}"),
            _shown(summary.test_accuracy, "{:.2%}"),
            _shown(summary.p50_ms, "{:.2f}"),
        ]
        for summary, name in zip(summaries, short_names(summaries), strict=True)
    ]


def notes(records: Sequence[Record]) -> list[str]:
    """What the table's marks mean, and why launches did not end ok: each reason once, with how often it came."""
    summaries = summarise(records)
    found = []
    if any(summary.synthetic for summary in summaries):
        found.append(f"{SYNTHETIC} measured on synthetic data")
        found += dict.fromkeys(r.data_note for r in records if r.request.data == "synthetic" and r.data_note)
    if any(summary.projected for summary in summaries):
        found.append(f"{PROJECTED} projected from windows of steady training")
    keys: dict[str, list[str]] = {}
    for record in records:
        if record.reason:
            text = f"{_words(record.status)}: {record.reason.message} {record.reason.remedy}".strip()
            keys.setdefault(text, []).append(record.key)
    for text, where in keys.items():
        found.append(f"{where[0] if len(where) == 1 else f'{len(where)} launches'} {text}")
    return found


def as_json(outcome: Outcome) -> dict[str, Any]:
    """Where everything is, cells with their numbers, and launches with status and reason."""
    return {
        "run": outcome.run,
        "folder": str(outcome.folder),
        "report": str(outcome.report),
        "exit_code": outcome.exit_code,
        "cells": [asdict(summary) for summary in summarise(outcome.records)],
        "launches": [
            {
                "key": record.key,
                "launch": record.launch,
                "status": str(record.status),
                "reason": asdict(record.reason) if record.reason else None,
            }
            for record in outcome.records
        ],
    }


def short_names(summaries: Sequence[CellSummary]) -> list[str]:
    """Keys without the parts that say nothing here: lane and precision where all cells have the same, the batch size
    where a scenario has only one."""

    def varies(value: Callable[[CellSummary], object], within: Sequence[CellSummary]) -> bool:
        return len({value(summary) for summary in within}) > 1

    lanes = varies(lambda s: (s.lane, s.precision), summaries)
    names = []
    for summary in summaries:
        device = summary.device if summary.devices == 1 else f"{summary.device}x{summary.devices}"
        parts = [summary.label, summary.framework, device]
        if lanes:
            parts += [summary.lane, summary.precision]
        if varies(lambda s: s.batch, [s for s in summaries if s.label == summary.label]):
            parts.append(f"b{summary.batch}")
        names.append("/".join(parts))
    return names


def _status(statuses: Sequence[Status]) -> str:
    counts = Counter(statuses)
    if len(statuses) == 1 or set(counts) == {Status.OK}:
        return _words(statuses[0])
    return ", ".join(f"{count} {_words(status)}" for status, count in counts.most_common())


def _words(status: Status) -> str:
    return status.replace("_", " ")


def _shown(value: float | None, form: str) -> str:
    return "" if value is None else form.format(value)
