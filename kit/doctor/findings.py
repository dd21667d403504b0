"""Define a finding, and show findings as a table."""

import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from kit.model.formatting import format_count

LINE_CHARACTERS = 80
GAP = 2  # characters between two columns


class Level(StrEnum):
    """Severity of a finding. warning: kit works with limits. error: kit does not work until this is fixed."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True)
class Finding:
    """The outcome of one check. remedy: "" if there is nothing to do."""

    level: Level
    name: str
    message: str
    remedy: str = ""


def conclusion(findings: Sequence[Finding]) -> str:
    """Return in one sentence whether the machine is ready."""
    counts = Counter(finding.level for finding in findings)
    if errors := counts[Level.ERROR]:
        return f"This machine is not ready: {format_count(errors, 'error')}."
    warnings = counts[Level.WARNING]
    return f"This machine is ready, with {format_count(warnings, 'warning')}." if warnings else "This machine is ready."


def table(findings: Sequence[Finding]) -> list[list[str]]:
    """Return rows of level, check and text. A remedy starts on a new line.

    The text is wrapped to fit into LINE_CHARACTERS. Only a single long word can make a line longer.
    """
    named = max((len(finding.level) for finding in findings), default=0) + max(
        (len(f.name) for f in findings), default=0
    )
    wrapper = textwrap.TextWrapper(LINE_CHARACTERS - named - 2 * GAP, break_long_words=False, break_on_hyphens=False)
    rows = []
    for finding in findings:
        first, *others = [line for text in (finding.message, finding.remedy) for line in wrapper.wrap(text)] or [""]
        rows += [[finding.level, finding.name, first], *(["", "", line] for line in others)]
    return rows
