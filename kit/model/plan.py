"""The files of a run as types: record, plan, machine. Versioned JSON; older versions are upgraded, newer refused.

A record holds the worker's own request and result unchanged, and beside them what the orchestrator knows: status,
reason, environment, machine, the log's tail. Records and machine name no host, user, home folder, serial or UUID
unless the run was made with `--identify`; the plan repeats what was typed, as the path given to `--env`.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field

from kit.model.document import Document, Part
from scenarios.contract import allocators

TUNE_S = 60.0  # of the search for one tuned cell's settings, where nobody said


def check_settings(settings: dict[str, str]) -> dict[str, str]:
    """Raise ValueError where a launch cannot even be started with these settings; the rest is the framework's."""
    if (allocator := settings.get(allocators.AXIS, allocators.STOCK)) not in allocators.VARIABLES:
        known = ", ".join(allocators.VARIABLES)
        raise ValueError(f"it has the allocator {allocator!r}; known are: {known}")
    return settings


Settings = Annotated[dict[str, str], AfterValidator(check_settings)]


class PlannedLaunch(Part):
    """One launch to be. named: asked for by name, not only swept up by --all or a default."""

    key: str
    launch: int
    scenario: str
    variant: str
    framework: str
    device: Literal["cpu", "cuda"]
    devices: int
    lane: Literal["stock", "tuned"]
    precision: Literal["fp32", "tf32", "bf16"]
    batch: int
    named: bool


class Plan(Document):
    """What a run set out to do, in order; written before the first launch, so that --resume knows what is missing.
    budget_s: seconds of launches in all, the planned ones included, after which a profile that goes on until intervals
    are narrow makes no more of them; None: no limit. tune_s: of the search for a tuned cell's settings. pinned:
    settings by cell for which nothing is searched."""

    run: str
    created_at: str
    profile: str
    engine: str
    environment: str
    seed: int
    data: Literal["auto", "real", "synthetic"]
    epochs: int | None
    timeout_s: float
    memory_bytes: int | None
    threads: int | None
    gpus: str | None
    identify: bool
    launches: list[PlannedLaunch]
    budget_s: float | None = None
    tune_s: float = TUNE_S
    pinned: dict[str, Settings] = Field(default_factory=dict)


class Pins(Document):
    """Settings by cell, to be measured with: what `kit settings` writes, and `kit run --settings` reads."""

    noun: ClassVar[str] = "file of settings"
    remedy: ClassVar[str] = "Name a file that `kit settings` wrote."

    cells: dict[str, Settings] = Field(min_length=1)
