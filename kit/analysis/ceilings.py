"""The machine's measured ceilings: of all probes the best value for each thing. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kit.model.record import Record
from scenarios.contract.reasons import Status
from scenarios.contract.result import Ceiling

Ceilings = Mapping[tuple[str, str, str], Ceiling]


def best(probes: Sequence[Record]) -> dict[tuple[str, str, str], Ceiling]:
    """The highest value over frameworks (of `launch`, a time, the least), keyed (device, ceiling name, precision).

    A ceiling is what the machine can do, so that the framework which comes closest to it tells it best. Photos are
    decoded by the CPU whatever the probe's device is. Probes that are not ok are left out.
    """
    found: dict[tuple[str, str, str], Ceiling] = {}
    for record in probes:
        if record.status is not Status.OK or record.result is None:
            continue
        for ceiling in record.result.ceilings or []:
            device = "cpu" if ceiling.name == "jpeg" else record.request.device
            key = (device, ceiling.name, ceiling.precision)
            if key not in found or _is_better(ceiling, found[key]):
                found[key] = ceiling
    return found


def _is_better(new: Ceiling, known: Ceiling) -> bool:
    return new.value < known.value if new.unit == "s" else new.value > known.value
