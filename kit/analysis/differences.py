"""Find what differs between the launches of one cell in two runs, and decide whether they are comparable. No input or
output.

| Difference                                     | Effect                                                        |
|------------------------------------------------|---------------------------------------------------------------|
| scenario (digest of its specification)         | refused: different work                                       |
| kind of data, content of the data              | refused: different input, which differs in cost               |
| device on which the training step ran          | refused: not the cell that its key names                      |
| rounding of products (the TF32 probe)          | refused: different arithmetic                                 |
| images per call (inference)                    | refused: different work                                       |
| versions of framework, libraries and kit       | flagged: may be the subject of the comparison                 |
| image or environment, engine, kernels          | flagged: equal versions can be built or run in different ways |
| threads, loader workers, settings, denormals   | flagged: another share of the machine, or another use of it   |
| how much a launch measures                     | flagged: the same quantity, measured more or less carefully   |
| machine: processor, memory, quota, GPU, system | noted: expected if machines are compared                      |
| seed, initial and final weights                | none: speed does not depend on them                           |
| precision, lane, batch size, and so on         | none: they are part of the key, so these are different cells  |

A difference counts in training and in inference, unless the table names one of them.

Refused: no ratio is shown. Flagged: the ratio is shown with the difference. Launches of one run that differ among
themselves count as a difference, too. A value that a record does not have (for example a TF32 probe on a CPU) is not a
difference.
"""

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from enum import StrEnum

from kit.analysis.measured_launch import MeasuredLaunch
from kit.analysis.pairing import Measure
from kit.model.formatting import format_bytes, short_digests


class Severity(StrEnum):
    """The effect of a difference on the comparison of a cell."""

    REFUSED = "refused"
    FLAGGED = "flagged"
    NOTED = "noted"


@dataclass(frozen=True)
class Difference:
    """One field that differs. base, new: its values among the launches of each run. why: what the difference means."""

    field: str
    severity: Severity
    base: str
    new: str
    why: str

    def values(self, base: str, new: str) -> str:
        """Return both values behind the names of the runs, with short digests."""
        return f"{base} {short_digests(self.base)}, {new} {short_digests(self.new)}"


@dataclass(frozen=True)
class Rule:
    """One row of the table above.

    facts: fields of one launch with their values; a missing field is unknown. measures: what the difference affects.
    """

    severity: Severity
    why: str
    facts: Callable[[MeasuredLaunch], Mapping[str, str]]
    measures: Set[Measure] = frozenset(Measure)


def differences(base: Sequence[MeasuredLaunch], new: Sequence[MeasuredLaunch], measure: Measure) -> list[Difference]:
    """Return all differences between (or among) the launches of one cell in two runs, in the order of the table."""
    return [difference for rule in RULES if measure in rule.measures for difference in _apply(rule, base, new)]


def _apply(rule: Rule, base: Sequence[MeasuredLaunch], new: Sequence[MeasuredLaunch]) -> list[Difference]:
    runs = [rule.facts(launch) for launch in base], [rule.facts(launch) for launch in new]
    found = []
    for field in dict.fromkeys(name for facts in (*runs[0], *runs[1]) for name in facts):
        values = [dict.fromkeys(facts[field] for facts in run if field in facts) for run in runs]
        if len(values[0] | values[1]) > 1:
            of_base, of_new = (" and ".join(sorted(each)) or "unknown" for each in values)
            found.append(Difference(field, rule.severity, of_base, of_new, rule.why))
    return found


def _spec(launch: MeasuredLaunch) -> dict[str, str]:
    return {"scenario": launch.request.spec}


def _data_kind(launch: MeasuredLaunch) -> dict[str, str]:
    return {"kind of data": launch.request.data}


def _data_content(launch: MeasuredLaunch) -> dict[str, str]:
    return {"data": launch.evidence.data_digest}


def _device(launch: MeasuredLaunch) -> dict[str, str]:
    return {"device": launch.evidence.placement.device.partition(":")[0]}


def _rounding(launch: MeasuredLaunch) -> dict[str, str]:
    tf32 = launch.evidence.placement.tf32
    return {} if tf32 is None else {"rounding": "to TF32" if tf32 else "not to TF32"}


def _images_per_call(launch: MeasuredLaunch) -> dict[str, str]:
    return {"images per call": str(launch.inference.batch)}


def _versions(launch: MeasuredLaunch) -> dict[str, str]:
    packages = launch.evidence.versions
    return {f"{name} version": version for name, version in packages.items()} | {
        "kit version": launch.record.machine.kit
    }


def _environment(launch: MeasuredLaunch) -> dict[str, str]:
    image = {"environment": f"{launch.record.image.kind} {launch.record.image.digest}"} if launch.record.image else {}
    return image | {"engine": launch.record.engine}


def _kernels(launch: MeasuredLaunch) -> dict[str, str]:
    return {"kernels": launch.evidence.placement.provider}


def _threads(launch: MeasuredLaunch) -> dict[str, str]:
    placement = launch.evidence.placement
    workers = {} if placement.workers is None else {"loader workers": str(placement.workers)}
    return {"threads": str(placement.threads)} | workers


def _settings(launch: MeasuredLaunch) -> dict[str, str]:
    requested, denormals = launch.request.settings | launch.request.environment, launch.evidence.placement.denormals
    settings = " ".join(f"{name}={value}" for name, value in sorted(requested.items())) or "default"
    return {"settings": settings, "denormals": denormals}


def _profile(launch: MeasuredLaunch) -> dict[str, str]:
    limits = {name: value for name, value in vars(launch.request.budget).items() if value is not None}
    budget = ", ".join(f"{value:g} {name.replace('_', ' ')}" for name, value in limits.items())
    return {"profile": f"{launch.record.profile} ({budget})"}


def _machine(launch: MeasuredLaunch) -> dict[str, str]:
    machine = launch.record.machine
    facts = {
        "machine": machine.description,
        "memory": format_bytes(machine.memory_limit_bytes or machine.memory_bytes),
        "CPU quota": "none" if machine.quota_cpus is None else f"{machine.quota_cpus:g} CPUs",
        "virtualization": machine.virtualization or "none detected",
        "system": f"{machine.os}, kernel {machine.kernel}",
    }
    if launch.request.cell.device == "cuda":
        facts |= {"GPU": launch.evidence.placement.device_name, "driver": machine.driver or "unknown"}
    return facts


RULES = (
    Rule(Severity.REFUSED, "Another network, preprocessing or optimizer is different work.", _spec),
    Rule(Severity.REFUSED, "Real and synthetic images differ in the cost to read, decode and feed them.", _data_kind),
    Rule(Severity.REFUSED, "Different images differ in the cost to read, decode and feed them.", _data_content),
    Rule(Severity.REFUSED, "The training step ran on a different device.", _device),
    Rule(Severity.REFUSED, "Products rounded to TF32 are different arithmetic, which is faster.", _rounding),
    Rule(
        Severity.REFUSED,
        "A call with more images is faster per image.",
        _images_per_call,
        frozenset({Measure.INFERENCE}),
    ),
    Rule(Severity.FLAGGED, "It may cause the difference in speed.", _versions),
    Rule(Severity.FLAGGED, "Equal versions can be built or run in different ways.", _environment),
    Rule(Severity.FLAGGED, "Different kernels do the same work.", _kernels),
    Rule(Severity.FLAGGED, "The runs used different shares of their machines.", _threads),
    Rule(Severity.FLAGGED, "The framework had different settings.", _settings),
    Rule(Severity.FLAGGED, "One run was measured more carefully than the other.", _profile),
    Rule(Severity.NOTED, "This is expected if machines are compared.", _machine),
)


def facts(launch: MeasuredLaunch) -> dict[str, str]:
    """Return what may differ between comparable launches, field by field: the facts of all rules that do not refuse."""
    return {
        field: value
        for rule in RULES
        if rule.severity is not Severity.REFUSED
        for field, value in rule.facts(launch).items()
    }
