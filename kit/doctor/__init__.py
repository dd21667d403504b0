"""Check a machine before a run: find what would fail or distort the results, and name the remedy."""

from dataclasses import replace
from pathlib import Path

from kit.doctor.checks import judge
from kit.doctor.findings import Finding, Level, conclusion, table
from kit.doctor.gather import gather_facts
from kit.environments.package_sources import Sources
from kit.host.privacy import redact

__all__ = ["Finding", "Level", "conclusion", "examine", "table"]


def examine(sources: Sources, out: Path) -> list[Finding]:
    """Return the findings of all checks on this machine, within five seconds. out: folder for runs.

    Users share the output of doctor, so it does not name the user, the host or the home folder.
    """
    findings = judge(gather_facts(sources, out))
    return [replace(each, message=redact(each.message), remedy=redact(each.remedy)) for each in findings]
