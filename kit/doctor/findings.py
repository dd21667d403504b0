"""What an examination says, and how it is shown."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

LINE_CHARACTERS = 80
GAP = 2  # characters between two columns


class Level(StrEnum):
    """ok: good as it is. warning: kit works, with less. error: kit does not work until it is mended."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True)
class Finding:
    """One line of the examination. remedy: empty where there is nothing to do."""

    level: Level
    name: str
    message: str
    remedy: str = ""


def table(findings: Sequence[Finding]) -> list[list[str]]:
    """Rows of level, check and text, of which a line fits into LINE_CHARACTERS unless one word is longer than that;
    a remedy begins on a line of its own."""
    named = max((len(finding.level) for finding in findings), default=0) + max(
        (len(f.name) for f in findings), default=0
    )
    wrapper = textwrap.TextWrapper(LINE_CHARACTERS - named - 2 * GAP, break_long_words=False, break_on_hyphens=False)
    rows = []
    for finding in findings:
        first, *others = [line for text in (finding.message, finding.remedy) for line in wrapper.wrap(text)] or [""]
        rows += [[finding.level, finding.name, first], *(["", "", line] for line in others)]
    return rows
