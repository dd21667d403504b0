"""Looks at a machine before anything is built on it: what would fail, what would spoil the figures, and the remedy."""

from __future__ import annotations

from pathlib import Path

from kit.doctor.checks import judge
from kit.doctor.findings import Finding, Level, table
from kit.doctor.gather import gather_facts
from kit.sources import Sources

__all__ = ["Finding", "Level", "examine", "table"]


def examine(sources: Sources, out: Path) -> list[Finding]:
    """All checks on this machine, within five seconds. out: the folder that takes the runs."""
    return judge(gather_facts(sources, out))
