"""What differs between the launches of one cell in two runs, and what that means for a comparison. Pure.

| What                                           | Then                                                           |
|------------------------------------------------|----------------------------------------------------------------|
| scenario (digest of its specification)         | refused: other work                                            |
| kind of data, content of the data              | refused: other input; real and synthetic images cost otherwise |
| device on which the training step ran          | refused: not the cell that its key names                       |
| rounding of products (the TF32 probe)          | refused: other arithmetic                                      |
| versions of framework and libraries; kit       | flagged: may be the very thing to find out                     |
| image or environment, engine, kernels          | flagged: the same versions may be built or run in another way  |
| threads, settings, denormals                   | flagged: another share of the machine, or another way to use it|
| how much a launch measures                     | flagged: the same quantity, measured with less or more care    |
| machine: processor, memory, quota, GPU, system | named: expected where machines are compared                    |
| seed, initial and final weights                | nothing: speed does not depend on them                         |
| precision, lane, batch size, count of devices  | nothing: part of the key, so that they are other cells         |

Refused: no ratio is shown. Flagged: compared, with the difference beside it. Launches of one run that differ among
themselves count as a difference, too. What a record could not say (a TF32 probe on a CPU, denormals in records of
version 1) is held against nobody.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from kit.model.figures import counted
from kit.model.machine import Machine
from kit.model.record import Record
from kit.model.units import format_bytes
from scenarios.contract.result import Evidence


class Severity(StrEnum):
    """What a difference does to the comparison of a cell."""

    REFUSED = "refused"
    FLAGGED = "flagged"
    NAMED = "named"


@dataclass(frozen=True)
class Difference:
    """One field that differs. base, new: its values among the launches of each side. why: what it means."""

    field: str
    severity: Severity
    base: str
    new: str
    why: str


@dataclass(frozen=True)
class Rule:
    """facts: field to value, of one launch; a field that it lacks is unknown."""

    severity: Severity
    why: str
    facts: Callable[[Record], Mapping[str, str]]


def differences(base: Sequence[Record], new: Sequence[Record]) -> list[Difference]:
    """All that differs between (or among) the ok launches of one cell in two runs, in the order of the table above."""
    return [difference for rule in RULES for difference in _found(rule, base, new)]


def describe(machine: Machine) -> str:
    """As `Example CPU, 8 CPUs, 2 x Example GPU`."""
    gpus = Counter(gpu.name for gpu in machine.gpus)
    cpus = counted(machine.cpus, "CPU")
    return ", ".join([machine.cpu_model, cpus, *(f"{n} x {name}" for name, n in gpus.items())])


def _found(rule: Rule, base: Sequence[Record], new: Sequence[Record]) -> list[Difference]:
    sides = [rule.facts(record) for record in base], [rule.facts(record) for record in new]
    found = []
    for field in dict.fromkeys(name for facts in (*sides[0], *sides[1]) for name in facts):
        values = [dict.fromkeys(facts[field] for facts in side if field in facts) for side in sides]
        if len(values[0] | values[1]) > 1:
            of_base, of_new = (" and ".join(sorted(each)) or "unknown" for each in values)
            found.append(Difference(field, rule.severity, of_base, of_new, rule.why))
    return found


def _evidence(record: Record) -> Evidence:
    """Of an `ok` record, which always has it (see `Record`)."""
    assert record.result
    assert record.result.evidence
    return record.result.evidence


def _spec(record: Record) -> dict[str, str]:
    return {"scenario": record.request.spec}


def _data_kind(record: Record) -> dict[str, str]:
    return {"kind of data": record.request.data}


def _data_content(record: Record) -> dict[str, str]:
    return {"data": _evidence(record).data_digest}


def _device(record: Record) -> dict[str, str]:
    return {"device": _evidence(record).placement.device.partition(":")[0]}


def _rounding(record: Record) -> dict[str, str]:
    tf32 = _evidence(record).placement.tf32
    return {} if tf32 is None else {"rounding": "to TF32" if tf32 else "not to TF32"}


def _versions(record: Record) -> dict[str, str]:
    packages = _evidence(record).versions
    return {f"{name} version": version for name, version in packages.items()} | {"kit version": record.machine.kit}


def _environment(record: Record) -> dict[str, str]:
    image = {"environment": f"{record.image.kind} {record.image.digest}"} if record.image else {}
    return image | {"engine": record.engine}


def _kernels(record: Record) -> dict[str, str]:
    return {"kernels": _evidence(record).placement.provider}


def _share(record: Record) -> dict[str, str]:
    return {"threads": str(_evidence(record).placement.threads)}


def _way(record: Record) -> dict[str, str]:
    asked, denormals = record.request.settings | record.request.environment, _evidence(record).placement.denormals
    facts = {"settings": " ".join(f"{name}={value}" for name, value in sorted(asked.items())) or "default"}
    return {**facts, "denormals": denormals}


def _care(record: Record) -> dict[str, str]:
    limits = {name: value for name, value in vars(record.request.budget).items() if value is not None}
    measured = ", ".join(f"{value:g} {name.replace('_', ' ')}" for name, value in limits.items())
    return {"profile": f"{record.profile} ({measured})"}


def _machine(record: Record) -> dict[str, str]:
    machine = record.machine
    facts = {
        "machine": describe(machine),
        "memory": format_bytes(machine.memory_limit_bytes or machine.memory_bytes),
        "CPU quota": "none" if machine.quota_cpus is None else f"{machine.quota_cpus:g} CPUs",
        "virtualization": machine.virtualization or "none seen",
        "system": f"{machine.os}, kernel {machine.kernel}",
    }
    if record.request.device == "cuda":
        facts |= {"GPU": _evidence(record).placement.device_name, "driver": machine.driver or "unknown"}
    return facts


RULES = (
    Rule(Severity.REFUSED, "Another network, preprocessing or optimizer is other work.", _spec),
    Rule(Severity.REFUSED, "Real and synthetic images cost otherwise to read, decode and feed.", _data_kind),
    Rule(Severity.REFUSED, "Other images cost otherwise to read, decode and feed.", _data_content),
    Rule(Severity.REFUSED, "The training step ran elsewhere than the other one.", _device),
    Rule(Severity.REFUSED, "Products rounded to TF32 are other arithmetic, and faster.", _rounding),
    Rule(Severity.FLAGGED, "It may be the cause of what differs.", _versions),
    Rule(Severity.FLAGGED, "The same versions may be built or run in another way.", _environment),
    Rule(Severity.FLAGGED, "Other kernels do the same work.", _kernels),
    Rule(Severity.FLAGGED, "Each had another share of its machine.", _share),
    Rule(Severity.FLAGGED, "The framework was told to work in another way.", _way),
    Rule(Severity.FLAGGED, "One was measured with more care than the other.", _care),
    Rule(Severity.NAMED, "Expected where machines are compared.", _machine),
)
