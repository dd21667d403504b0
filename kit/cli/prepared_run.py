"""Show a prepared run: its cells, its engine, and its estimated time and disk space."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kit.cli.console import Column
from kit.model.units import format_bytes, format_duration

if TYPE_CHECKING:
    from kit.execution.workflow import PreparedRun

COLUMNS = (Column("Cell"), Column("Launches", number=True), Column("Note"))


def rows(prepared: PreparedRun) -> list[list[str]]:
    """One row a cell in the order of the plan; see COLUMNS."""
    keys = [launch.key for launch in prepared.plan.launches]
    skipped = {
        launch.key for launch in prepared.plan.launches if (launch.framework, launch.device) in prepared.refusals
    }
    return [[key, str(keys.count(key)), "skipped" if key in skipped else ""] for key in dict.fromkeys(keys)]


def summary_lines(prepared: PreparedRun) -> list[str]:
    """Engine, reasons for what will be skipped, time and disk; a line each."""
    reasons: dict[str, list[str]] = {}
    for (framework, device), reason in prepared.refusals.items():
        reasons.setdefault(reason, []).append(f"{framework} on {device}")
    total = f"{format_duration(prepared.seconds)} and {format_bytes(prepared.disk_bytes)} of disk"
    return [
        prepared.note,
        *(f"Skipped: {', '.join(where)}. {reason}" for reason, where in reasons.items()),
        *prepared.estimate.lines,
        *prepared.downloads.lines,
        f"In all about {total}",
    ]


def as_json(prepared: PreparedRun) -> dict[str, Any]:
    """The plan with its estimate."""
    return {
        "engine": prepared.plan.engine,
        "engine_note": prepared.note,
        "profile": prepared.plan.profile,
        "seconds": round(prepared.seconds),
        "disk_bytes": prepared.disk_bytes,
        "timeout_s": prepared.plan.timeout_s,
        "skipped": [
            {"framework": framework, "device": device, "reason": reason}
            for (framework, device), reason in prepared.refusals.items()
        ],
        "launches": [launch.model_dump() for launch in prepared.plan.launches],
    }
