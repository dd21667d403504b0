"""The machine, the energy of training, and the host's samples over the run."""

import statistics
from dataclasses import dataclass

from kit.analysis.host_samples import joules_per_1000_images
from kit.model.formatting import format_count as counted
from kit.report import text
from kit.report.elements import Table
from kit.report.host_lines import HostChart, host_charts
from kit.report.line_charts import LineChart
from kit.report.section import ReportInput, Section

CHARTS = (
    HostChart(
        "CPUs busy",
        {"cpu_busy": "all programs", "cpu_steal": "stolen by the hypervisor"},
        lambda value: f"{value:.3g}",
    ),
    HostChart("CPU clock, MHz", {"cpu_mhz": "mean of the cores"}, lambda value: f"{value:,.0f}"),
)


@dataclass(frozen=True)
class MachineData:
    """The content. charts: of the CPUs, over the time of all launches."""

    summary: str
    machine: Table
    energy: Table
    charts: tuple[LineChart, ...]


def _data(source: ReportInput) -> MachineData:
    machine = source.run.machine
    return MachineData(
        summary=f"{machine.cpu_model} · {text.size(machine.memory_bytes)} · {machine.os}",
        machine=_machine(source),
        energy=_energy(source),
        charts=host_charts([*source.run.probes, *source.run.records], CHARTS),
    )


def _machine(source: ReportInput) -> Table:
    of = source.run.machine
    quota = f", quota {of.quota_cpus:g}" if of.quota_cpus else ""
    limit = f", limited to {text.size(of.memory_limit_bytes)}" if of.memory_limit_bytes else ""
    cores = (counted(of.sockets, "socket"), counted(of.physical_cores, "core"), counted(of.logical_cpus, "logical CPU"))
    rows = [
        ("CPU", f"{of.cpu_model} ({of.architecture})"),
        ("Cores", f"{', '.join(cores)}, {of.cpus} usable{quota}"),
        ("Caches", ", ".join(f"{level} {text.size(size)}" for level, size in of.caches.items()) or text.MISSING),
        ("Instruction sets", ", ".join(of.cpu_flags) or text.MISSING),
        ("Memory", text.size(of.memory_bytes) + limit),
    ]
    for gpu in of.gpus:
        power = f", power limit {gpu.power_limit_w:g} W" if gpu.power_limit_w else ""
        memory = "memory unknown" if gpu.memory_bytes is None else text.size(gpu.memory_bytes)
        capability = ".".join(map(str, gpu.compute_capability or ("unknown",)))
        rows.append((f"GPU {gpu.index}", f"{gpu.name}, {memory}, capability {capability}{power}"))
    if of.driver:
        rows.append(("NVIDIA driver", f"{of.driver} (CUDA {of.cuda_driver or 'unknown'})"))
    rows += [
        ("System", f"{of.os}, kernel {of.kernel}"),
        ("Virtualization", of.virtualization or "none found"),
        ("Engine", ", ".join(f"{k} {v}" for k, v in of.container_runtime.items())),
        ("Machine id", of.id),
    ]
    if of.hostname:
        rows.append(("Host", f"{of.hostname} ({of.user})"))
    return Table(headers=("", ""), rows=tuple(rows), wrap=True)


def _energy(source: ReportInput) -> Table:
    found: dict[str, dict[str, list[float]]] = {}
    for record in source.run.records:
        for part, joules in joules_per_1000_images(record).items() if record.ok else ():
            found.setdefault(record.key, {}).setdefault(part, []).append(joules)
    parts = sorted({part for joules in found.values() for part in joules})
    return Table(
        caption="Energy of training, joules per 1,000 images (median over launches; CPU packages, whole GPUs)",
        headers=("Cell", *parts),
        rows=tuple(
            (
                source.name(key),
                *(text.number(statistics.median(joules[part])) if part in joules else text.MISSING for part in parts),
            )
            for key, joules in found.items()
        ),
        numeric=tuple(range(1, 1 + len(parts))),
    ).limited()


SECTION = Section(160, "machine", "Machine", _data, "machine.html")
