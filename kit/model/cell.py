"""The nouns of the orchestrator: cell, framework, environment, limits, completion. Plain frozen data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from kit.model.environment import Device
from scenarios.spec import Scenario

Scenarios = Mapping[str, Mapping[str, Scenario]]  # by name, then variant


@dataclass(frozen=True, order=True)
class Cell:
    """One thing to measure. batch: the global batch."""

    scenario: str
    variant: str
    framework: str
    device: Device
    devices: int
    lane: str
    precision: str
    batch: int

    @classmethod
    def of(cls, source: object) -> Cell:
        """The cell that a request or a planned launch is for: both have all of these fields."""
        return cls(**{field.name: getattr(source, field.name) for field in fields(cls)})

    @property
    def key(self) -> str:
        """`scenario[+variant]/framework/device[xN]/lane/precision/bB`."""
        label = f"{self.scenario}+{self.variant}" if self.variant else self.scenario
        device = self.device if self.devices == 1 else f"{self.device}x{self.devices}"
        return f"{label}/{self.framework}/{device}/{self.lane}/{self.precision}/b{self.batch}"
