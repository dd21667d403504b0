"""The tables that let a reader check: what failed, the machine, the proof, where time went, provenance. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from kit.model.figures import counted, percent
from kit.model.machine import Machine
from kit.model.plan import Plan
from kit.model.record import Record
from kit.report import text
from kit.report.parts import Names, Table
from scenarios.contract.reasons import Status
from scenarios.contract.result import Result


def not_run(records: Sequence[Record], plan: Plan) -> list[str]:
    """The planned launches without a record, as `key #launch`, in the plan's order."""
    done = {(r.key, r.launch) for r in records}
    return [f"{p.key} #{p.launch}" for p in plan.launches if (p.key, p.launch) not in done]


def problems(records: Sequence[Record], plan: Plan, names: Names) -> Table | None:
    groups: dict[tuple[str, str, str, str], list[str]] = {}
    for record in records:
        if record.status is Status.OK:
            continue
        why = record.reason
        fields = (str(why.code), why.message, why.remedy) if why else ("", "", "")
        groups.setdefault((str(record.status), *fields), []).append(_launch(record, names))
    if missing := not_run(records, plan):
        remedy = f"Continue with kit run --resume {plan.run}."
        groups[("not run", "", "The run was stopped before these.", remedy)] = missing
    if not groups:
        return None
    return Table(
        caption="",
        headers=("Status", "Code", "What happened", "What to do", "Launches"),
        rows=tuple((*group, f"{len(names)}: " + ", ".join(names)) for group, names in groups.items()),
    )


def machine_table(machine: Machine) -> Table:
    quota = f", quota {machine.quota_cpus:g}" if machine.quota_cpus else ""
    rows = [
        ("CPU", f"{machine.cpu_model} ({machine.architecture})"),
        (
            "Cores",
            (
                f"{counted(machine.sockets, 'socket')}, {counted(machine.physical_cores, 'core')}, "
                f"{counted(machine.logical_cpus, 'logical CPU')}, {machine.cpus} usable{quota}"
            ),
        ),
        ("Caches", ", ".join(f"{level} {text.size(size)}" for level, size in machine.caches.items()) or text.MISSING),
        ("Instruction sets", ", ".join(machine.cpu_flags) or text.MISSING),
        ("Memory", text.size(machine.memory_bytes) + _limit(machine)),
    ]
    for gpu in machine.gpus:
        power = f", power limit {gpu.power_limit_w:g} W" if gpu.power_limit_w else ""
        capability = ".".join(map(str, gpu.compute_capability))
        rows.append((f"GPU {gpu.index}", f"{gpu.name}, {text.size(gpu.memory_bytes)}, capability {capability}{power}"))
    if machine.driver:
        rows.append(("NVIDIA driver", f"{machine.driver} (CUDA {machine.cuda_driver or 'unknown'})"))
    rows += [
        ("System", f"{machine.os}, kernel {machine.kernel}"),
        ("Virtualization", machine.virtualization or "none seen"),
        ("Engine", ", ".join(f"{k} {v}" for k, v in machine.container_runtime.items())),
        ("Machine id", machine.id),
    ]
    if machine.hostname:
        rows.append(("Host", f"{machine.hostname} ({machine.user})"))
    return Table(caption="", headers=("", ""), rows=tuple(rows))


def _limit(machine: Machine) -> str:
    return f", limited to {text.size(machine.memory_limit_bytes)}" if machine.memory_limit_bytes else ""


def _launch(record: Record, names: Names) -> str:
    return f"{names.get(record.key, record.key)} #{record.launch}"


def _results(records: Sequence[Record]) -> list[tuple[Record, Result]]:
    return [(r, r.result) for r in records if r.result is not None]


def proof(records: Sequence[Record], names: Names) -> Table:
    rows = []
    for record, result in _results(records):
        if result.proof is None:
            continue
        # A worker may leave a proof without a check; its launch has failed then, and is shown like any other.
        worst = max(result.proof.checks, key=lambda c: c.error / c.tolerance if c.tolerance else c.error, default=None)
        placement = result.evidence.placement if result.evidence else None
        rows.append(
            (
                _launch(record, names),
                "equal" if result.proof.passed else "DIFFERENT",
                f"{sum(c.passed for c in result.proof.checks)} of {len(result.proof.checks)}",
                f"{worst.name}: {worst.error:.1e} of {worst.tolerance:.0e}" if worst else text.MISSING,
                f"{placement.device} ({placement.provider})" if placement else text.MISSING,
                str(placement.threads) if placement else text.MISSING,
                placement.layout if placement else text.MISSING,
                placement.training if placement else text.MISSING,
                placement.loader if placement else text.MISSING,
                result.evidence.data_digest[:12] if result.evidence else text.MISSING,
            )
        )
    return Table(
        caption="Proof: held against the float64 reference before timing, and what really ran",
        headers=(
            "Launch",
            "Function",
            "Checks",
            "Closest to its tolerance",
            "Device",
            "Threads",
            "Layout",
            "Training by",
            "Fed by",
            "Data digest",
        ),
        rows=tuple(rows),
        numeric=(5,),
    )


def _busiest_and_idlest(record: Record) -> str:
    """Of the machine's logical CPUs, over the whole launch."""
    busy = record.host_samples.core_busy if record.host_samples else []
    return f"{percent(max(busy))} / {percent(min(busy))}" if busy else text.MISSING


def launches(records: Sequence[Record], names: Names) -> Table:
    rows = []
    for record, result in _results(records):
        if result.timings is None or result.telemetry is None or result.training is None:
            continue
        t = result.timings
        own = (t.import_s, t.data_s, t.proof_s, t.build_s, t.first_step_s, t.warmup_s, t.training_s, t.inference_s)
        parts = (*own, t.step_timing_s)
        rows.append(
            (
                _launch(record, names),
                *(text.seconds(part) for part in parts),
                text.seconds(record.seconds),
                f"{result.training.steps:,}",
                text.size(result.telemetry.peak_rss_bytes),
                _busiest_and_idlest(record),
            )
        )
    return Table(
        caption="Where each launch's time went (first step and warm-up are part of training)",
        headers=(
            "Launch",
            "Import",
            "Data",
            "Proof",
            "Build",
            "First step",
            "Warm-up",
            "Training",
            "Inference",
            "StepTiming",
            "Whole process",
            "Steps",
            "Peak memory",
            "Busiest / idlest CPU",
        ),
        rows=tuple(rows),
        numeric=tuple(range(1, 14)),
    )


def provenance(plan: Plan, machine: Machine, records: Sequence[Record]) -> Table:
    rows = [
        ("Run", plan.run),
        ("Started", plan.created_at),
        ("Kit", f"{machine.kit} on Python {machine.python}"),
        ("Profile, seed", f"{plan.profile}, {plan.seed}"),
        ("Engine", plan.engine),
    ]
    for image in {r.image.digest: r.image for r in records if r.image}.values():
        name = image.reference if image.kind == "image" else image.kind
        rows.append(("Environment", f"{name} {image.digest} {text.size(image.size_bytes)}"))
    versions: dict[str, dict[str, None]] = {}
    data: dict[str, str] = {}
    for record, result in _results(records):
        if result.evidence:
            listing = ", ".join(f"{k} {v}" for k, v in sorted(result.evidence.versions.items()))
            versions.setdefault(f"{record.request.framework} {record.request.device}", {})[listing] = None
            kind = f"{result.evidence.data_kind} {record.request.scenario}"
            data[f"{kind}: {result.evidence.data_digest}"] = record.data_note
    rows += [(f"Versions, {name}", "; ".join(listings)) for name, listings in versions.items()]
    rows += [("Data", f"{name} ({note})" if note else name) for name, note in data.items()]
    return Table(caption="", headers=("", ""), rows=tuple(rows))
