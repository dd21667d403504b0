"""Show the cells of a prepared run, as a table or as JSON with its estimate."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from kit.cli.console import Column

if TYPE_CHECKING:
    from kit.execution.workflow import PreparedRun

COLUMNS = (Column("Cell"), Column("Launches", number=True), Column("Note"))


def rows(prepared: PreparedRun) -> list[list[str]]:
    """Return one row per cell in the order of the plan. See COLUMNS."""
    launches = prepared.plan.launches
    counts = Counter(launch.key for launch in launches)
    skipped = {launch.key for launch in launches if launch.environment_key in prepared.refusals}
    return [[key, str(count), "skipped" if key in skipped else ""] for key, count in counts.items()]


def as_json(prepared: PreparedRun) -> dict[str, Any]:
    """Return the plan with its estimate."""
    return {
        "engine": prepared.plan.engine,
        "engine_note": prepared.note,
        "profile": prepared.plan.profile,
        "base": prepared.base.run if prepared.base else None,
        "seconds": round(prepared.seconds),
        "disk_bytes": prepared.disk_bytes,
        "timeout_s": prepared.plan.timeout_s,
        "skipped": [
            {"framework": framework, "device": device, "reason": reason}
            for (framework, device), reason in prepared.refusals.items()
        ],
        "launches": [launch.model_dump() | {"key": launch.key} for launch in prepared.plan.launches],
    }
