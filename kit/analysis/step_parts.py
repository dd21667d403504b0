"""Split the time of one training step into four parts, which add up to the step. No input or output."""

from __future__ import annotations

from dataclasses import dataclass

from kit.analysis.step_breakdown import Step

# The name of each part is the same everywhere, in the order in which the parts are shown.
LABELS = {
    "arithmetic": "arithmetic (least possible time)",
    "kernels": "kernel time above that",
    "fixed": "fixed cost per step",
    "waiting": "waiting for data",
}


@dataclass(frozen=True)
class StepParts:
    """The parts of one training step, in s, each at least 0.

    arithmetic: its operations at the measured ceiling; 0 if the ceiling was not measured. kernels: the other time that
    grows with the batch size. fixed: the time that does not depend on the batch size. waiting: what the step takes
    longer than on a batch that is already on the device.
    """

    arithmetic: float
    kernels: float
    fixed: float
    waiting: float

    @property
    def total(self) -> float:
        """Return the time of the step, in s."""
        return self.arithmetic + self.kernels + self.fixed + self.waiting

    def share(self, part: str) -> float:
        """Return the share of a part in the step, from 0 to 1. part: a key of LABELS."""
        seconds: float = getattr(self, part)
        return seconds / self.total if self.total else 0.0


def step_parts(step: Step) -> StepParts:
    """Return the parts of a step.

    The fixed part and the ceiling have errors of measurement, so both are cut off where they would exceed the step.
    """
    waiting = step.waiting_s
    resident = step.step_s - waiting
    fixed = min(step.fixed_s, resident)
    least = step.flops / step.flops_ceiling if step.flops_ceiling else 0.0
    arithmetic = min(least, resident - fixed)
    return StepParts(arithmetic, resident - fixed - arithmetic, fixed, waiting)
