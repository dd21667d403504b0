"""Define a cell: one combination that the kit measures."""

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Literal

from scenarios.contract.ranges import Positive, Range

Device = Literal["cpu", "cuda"]
Lane = Literal["stock", "tuned"]
Precision = Literal["fp32", "tf32", "bf16"]

MAX_WORKERS = 256  # threads or processes that load photos
MAX_HIDDEN_LAYERS = 100
CEILINGS = "ceilings"  # used instead of a scenario by launches that measure the machine's ceilings


@dataclass(frozen=True)
class Cell:
    """One combination that the kit measures.

    scenario, variant: names from the catalog; the default variant is "". devices: number of devices. batch: global
    batch size. workers: threads or processes that load photos; None for the framework's default. hidden_layers: number
    of equal dense layers before the output; None for the scenario's. A probe of the machine's ceilings has the scenario
    `ceilings` and batch size 1.
    """

    scenario: str
    variant: str
    framework: str
    device: Device
    devices: Positive
    lane: Lane
    precision: Precision
    batch: Positive
    workers: Annotated[int, Range(1, MAX_WORKERS)] | None = None
    hidden_layers: Annotated[int, Range(1, MAX_HIDDEN_LAYERS)] | None = None

    @property
    def label(self) -> str:
        """Return `scenario` or `scenario+variant`."""
        return f"{self.scenario}+{self.variant}" if self.variant else self.scenario

    @property
    def device_label(self) -> str:
        """Return `cuda` for one device, or for example `cudax2`."""
        return self.device if self.devices == 1 else f"{self.device}x{self.devices}"

    @property
    def configuration(self) -> str:
        """Return `framework/device[xN]/lane/precision`."""
        return f"{self.framework}/{self.device_label}/{self.lane}/{self.precision}"

    @property
    def network(self) -> str:
        """Return the label, and the number of hidden layers if it is not the scenario's: `fashion-mlp/hidden3`."""
        return self.label if self.hidden_layers is None else f"{self.label}/hidden{self.hidden_layers}"

    @cached_property
    def key(self) -> str:
        """Return `scenario[+variant]/framework/device[xN]/lane/precision/bB[/workersN][/hiddenN]`."""
        parts = [self.label, self.configuration, f"b{self.batch}"]
        if self.workers is not None:
            parts.append(f"workers{self.workers}")
        if self.hidden_layers is not None:
            parts.append(f"hidden{self.hidden_layers}")
        return "/".join(parts)
