"""Looks at a machine before anything is built on it: what would fail, what would spoil the figures, and the remedy."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from kit.doctor.checks import judge
from kit.doctor.findings import Finding, Level, table
from kit.doctor.gather import gather_facts
from kit.environments.package_sources import Sources
from kit.host.privacy import redact

__all__ = ["Finding", "Level", "examine", "table"]


def examine(sources: Sources, out: Path) -> list[Finding]:
    """All checks on this machine, within five seconds. out: the folder that takes the runs. People show what doctor
    says to others, so it names neither user nor host nor home folder."""
    findings = judge(gather_facts(sources, out))
    return [replace(each, message=redact(each.message), remedy=redact(each.remedy)) for each in findings]
