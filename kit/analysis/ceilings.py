"""Find the machine's measured ceilings: the best value of all probes for each quantity. No input or output."""

import math
from collections.abc import Mapping, Sequence

from kit.model.record import Record
from scenarios.contract.ceilings import Ceiling
from scenarios.contract.cell import Cell
from scenarios.spec import Scenario
from scenarios.spec.flops import training_flops

Ceilings = Mapping[tuple[str, str, str], Ceiling]

# How far a speed may be above its ceiling. A shared machine can be slow while the ceilings are measured.
MARGIN = 2.0


def best_ceilings(probes: Sequence[Record]) -> dict[tuple[str, str, str], Ceiling]:
    """Return the best value over all frameworks for each (device, name of the ceiling, precision).

    The best value is the highest one, except for `launch`: it is a time, so the lowest value counts. A ceiling is what
    the machine can do, so the framework that comes closest to it is the best measurement. The CPU decodes photos
    whatever the device of the probe is. Probes that are not ok are ignored.
    """
    found: dict[tuple[str, str, str], Ceiling] = {}
    for record in probes:
        if not record.ok or record.result is None:
            continue
        for ceiling in record.result.ceilings or []:
            device = "cpu" if ceiling.name == "jpeg" else record.cell.device
            key = (device, ceiling.name, ceiling.precision)
            if key not in found or _is_better(ceiling, found[key]):
                found[key] = ceiling
    return found


def ceiling_value(ceilings: Ceilings, device: str, name: str, precision: str = "") -> float | None:
    """Return the value of a ceiling in its own unit, or None if it was not measured."""
    found = ceilings.get((device, name, precision))
    return found.value if found else None


def max_training_rate(ceilings: Ceilings, cell: Cell, scenario: Scenario) -> float:
    """Return the images/s that no training of this cell can exceed, infinite if no arithmetic was measured.

    It is MARGIN times the rate at which the arithmetic of the steps reaches the best measured FLOP/s. All precisions
    count, because a framework may compute a lower precision by a higher one.
    """
    measured = [
        ceiling.value
        for (device, name, _), ceiling in ceilings.items()
        if device == cell.device and name in ("matmul", "convolution")
    ]
    return MARGIN * cell.devices * max(measured) / training_flops(scenario) if measured else math.inf


def _is_better(new: Ceiling, known: Ceiling) -> bool:
    return new.value < known.value if new.unit == "s" else new.value > known.value
