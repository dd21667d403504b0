"""Define one fixed run that fills every section of the report."""

from __future__ import annotations

from dataclasses import replace

from kit.model.plan import PlannedLaunch
from kit.model.record import HostSamples, Image, Record
from kit.model.run import Run
from scenarios.contract.cell import CEILINGS, Cell
from scenarios.contract.reasons import Status
from tests import examples
from tests.examples import cell, failed, record, request

IMAGE = Image(kind="image", reference="kit/torch-cpu:1", digest="sha256:0123456789abcdef", size_bytes=3 << 30)
SAMPLES = HostSamples(
    at=[1.0, 6.0, 11.0],
    series={
        "cpu_busy": [4.0, 4.0, 4.0],
        "cpu_steal": [0.0, 0.5, 0.0],
        "cpu_mhz": [3000.0, None, 2000.0],
        "cpu_energy_j": [0.0, 500.0, 1000.0],
        "gpu0_power_w": [100.0, 300.0, 310.0],
        "gpu0_temperature_c": [40.0, 60.0, 61.0],
    },
    core_busy=[1.0, 0.5],
    cost_s=0.002,
)


def run() -> Run:
    """Return the run. Every value in it is fixed."""
    tuned = replace(cell(), lane="tuned")
    speeds: dict[Cell, float] = {
        cell(): 1000.0,
        cell(framework="tensorflow"): 1005.0,
        cell(framework="onnxruntime"): 800.0,
        cell(device="cuda"): 2000.0,
        tuned: 1600.0,
        cell("fashion-mlp"): 6000.0,
        replace(cell("fashion-mlp"), hidden_layers=1): 20000.0,
    }
    records = [_sampled_record(of, n, speed * (1 + 0.01 * n)) for of, speed in speeds.items() for n in (1, 2, 3)]
    records.append(
        record(request(cell("cifar-cnn"), data="real"), images_per_s=250.0, epochs=4, data_note="downloaded")
    )
    broken = request(cell("cifar-cnn", "tensorflow"), data="real")
    records.append(failed(broken, Status.OUT_OF_MEMORY, message="The launch ran out of memory.", remedy="Use less."))
    planned = [PlannedLaunch(cell=r.cell, launch=r.launch, named=False) for r in records]
    planned.append(PlannedLaunch(cell=cell("cifar-mlp"), launch=1, named=False))
    probes = [record(request(scenario=CEILINGS, purpose="probe", batch=1, device=d)) for d in ("cpu", "cuda")]
    machine = examples.machine(gpus=[examples.gpu()], driver="580.1", cuda_driver="13.0", virtualization="kvm")
    return Run(examples.plan(planned), machine, records, probes, [record(request(tuned, purpose="tune"))])


def _sampled_record(of: Cell, launch: int, speed: float) -> Record:
    epochs = 3 if of.framework == "onnxruntime" else 0
    return record(request(of, launch=launch), speed, epochs=epochs, image=IMAGE, host_samples=SAMPLES, seconds=12.0)
