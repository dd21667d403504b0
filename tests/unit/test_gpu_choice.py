"""Test which GPUs a run uses: those of --gpus, or else of CUDA_VISIBLE_DEVICES, which a scheduler sets."""

from __future__ import annotations

import pynvml
import pytest

from kit.analysis.measured_launch import measured_launches
from kit.engines import containers
from kit.execution.campaign import require_startable
from kit.execution.resume import require_possible
from kit.host import gpus
from kit.host.gpu_choice import visible_gpus
from kit.host.sampling.sampler import Sampler
from kit.model.errors import UsageError
from kit.planning.selection import Selection
from scenarios.contract.reasons import Code
from tests.campaigns import execute, fails, new_run
from tests.fakes import FakeEngine
from tests.fakes_nvml import UNSUPPORTED, FakeGpu, install

ON_CUDA = Selection(scenarios=("mnist-cnn",), frameworks=("torch",), devices=("cuda",))
ANYWHERE = Selection(scenarios=("mnist-cnn",), frameworks=("torch",))
ON_CPU = Selection(scenarios=("mnist-cnn",), frameworks=("torch",), devices=("cpu",))

pytestmark = pytest.mark.usefixtures("machine")


@pytest.fixture(autouse=True)
def three_gpus(monkeypatch):
    """Install three GPUs. The first one is busy, and the last one has two MIG instances."""
    busy = FakeGpu("GPU-aa0", processes=((4711,),))
    parts = [FakeGpu(f"MIG-{letter}", memory=(1 << 30,), power=(UNSUPPORTED,)) for letter in "xy"]
    install(monkeypatch, [busy, FakeGpu("GPU-aa1"), FakeGpu("GPU-bb2", instances=parts)])


def used(folder, selection=ON_CUDA, **options):
    """Return the GPUs of all launches, and the records."""
    engine = FakeEngine()
    records = execute(new_run(folder, selection, **options), engine)
    return {limits.gpus for limits in engine.limits}, records


@pytest.mark.parametrize(
    ("variable", "chosen"),
    [
        (None, "1"),  # the first idle one
        ("2", "MIG-x"),  # CUDA uses only the first instance of a GPU that has some
        ("0", "0"),  # busy, but the only one that the scheduler allows
        ("0,1", "1"),
        (" 2 , 1", "MIG-x"),
        ("1,-1,nonsense", "1"),  # CUDA ignores what follows -1
        ("GPU-bb2", "MIG-x"),
        ("GPU-aa0,GPU-aa1", "GPU-aa1"),
        ("GPU-b", "MIG-x"),  # engines need the whole UUID
        ("MIG-y", "MIG-y"),
    ],
)
def test_the_default_is_the_first_idle_gpu_of_the_variable(monkeypatch, tmp_path, variable, chosen):
    if variable is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)
    assert used(tmp_path / "run")[0] == {(chosen,)}


@pytest.mark.parametrize(
    ("wanted", "chosen"),
    [("0", ("0",)), ("all", ("0",)), ("GPU-bb2,0", ("MIG-x",)), ("GPU-aa1,0", ("GPU-aa1",)), ("MIG-x", ("MIG-x",))],
)
@pytest.mark.parametrize("variable", ["2", "", "7"])
def test_the_option_replaces_the_variable(monkeypatch, tmp_path, wanted, chosen, variable):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)
    assert used(tmp_path / "run", gpus=wanted)[0] == {chosen}


@pytest.mark.parametrize("variable", ["", "-1", "NoDevFiles", "-1,0"])
def test_a_variable_that_hides_every_gpu_skips_the_cells_on_cuda(monkeypatch, tmp_path, variable):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)
    chosen, records = used(tmp_path / "run", ANYWHERE)
    reasons = {record.cell.device: record.reason for record in records}
    assert (chosen, reasons["cpu"], reasons["cuda"].code) == ({()}, None, Code.NO_DEVICE)
    assert reasons["cuda"].message == f"CUDA_VISIBLE_DEVICES is {variable!r}, which hides every GPU."
    assert "choose a GPU with --gpus" in reasons["cuda"].remedy


@pytest.mark.parametrize("variable", ["3", "0,3", "GPU-cc3", "GPU-aa", "MIG-z", "-2"])  # GPU-aa are two
def test_a_variable_that_names_an_unknown_gpu_is_an_error_before_the_run(monkeypatch, tmp_path, variable):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)
    name = variable.split(",")[-1]
    folder = new_run(tmp_path / "run", ANYWHERE)
    for check in (
        lambda: require_startable(folder.plan, folder.machine, {}),
        lambda: require_possible(folder, folder.machine),
    ):
        with pytest.raises(UsageError) as caught:
            check()
        assert caught.value.message == f"CUDA_VISIBLE_DEVICES names the GPU {name!r}, but NVML does not list it."
        assert "0, 1, 2, GPU-aa0, GPU-aa1, GPU-bb2, MIG-x, MIG-y, or choose a GPU" in caught.value.remedy


@pytest.mark.parametrize("there", [[], [FakeGpu()]])
def test_the_variable_does_not_matter_for_cells_on_the_cpu_or_without_a_gpu(monkeypatch, tmp_path, there):
    install(monkeypatch, there)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5")
    assert used(tmp_path / "run", ON_CPU if there else ON_CUDA)[0] == {()}


def test_an_unknown_gpu_of_the_option_is_an_error(monkeypatch, tmp_path):
    with pytest.raises(UsageError, match="Choose from: 0, 1, 2, GPU-aa0"):
        used(tmp_path / "unknown", gpus="3")
    install(monkeypatch, [])
    with pytest.raises(UsageError, match="no NVIDIA GPU is visible"):
        used(tmp_path / "none", gpus="0")


@pytest.mark.parametrize("there", [[], [FakeGpu("GPU-0")]])
def test_a_message_repeats_only_the_start_of_a_long_list(monkeypatch, tmp_path, there):
    install(monkeypatch, there)
    with pytest.raises(UsageError) as caught:
        used(tmp_path / "option", gpus="x" * 100_000 + ",0")
    assert len(str(caught.value)) < 300
    install(monkeypatch, [FakeGpu("GPU-0")])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "x" * 100_000)
    with pytest.raises(UsageError) as caught:
        visible_gpus()
    assert len(str(caught.value)) < 300


def test_only_the_gpu_that_computes_is_sampled(monkeypatch, tmp_path):
    install(monkeypatch, [FakeGpu("GPU-0", use=(90,)), FakeGpu("GPU-1", use=(0,))])
    (record,) = used(tmp_path / "run", gpus="all")[1]
    (launch,) = measured_launches([record])
    assert launch.gpus == {0}, "the use of idle GPUs would lower the mean in the diagnosis"


def test_a_mig_instance_without_code_in_the_wheels_is_skipped(monkeypatch, tmp_path):
    capabilities = {"GPU-old": (7, 0), "GPU-new": (9, 0), "MIG-old": None, "MIG-new": (7, 0)}
    old = FakeGpu("GPU-old", instances=[FakeGpu("MIG-old")])
    install(monkeypatch, [old, FakeGpu("GPU-new", instances=[FakeGpu("MIG-new")])])
    monkeypatch.setattr(pynvml, "nvmlDeviceGetCudaComputeCapability", lambda gpu: capabilities[gpu.uuid])
    (skipped,) = used(tmp_path / "old", gpus="MIG-old")[1]
    assert (skipped.reason.code, "GPU 0" in skipped.reason.message) == (Code.NOT_OFFERED, True)
    (measured,) = used(tmp_path / "new", gpus="MIG-new")[1]
    assert measured.ok, "an instance has the compute capability of its GPU"


def test_a_checkpoint_belongs_to_the_run_and_the_gpu_by_its_uuid(tmp_path):
    def digest(name, selection=ON_CUDA, **options):
        requests = []

        def worker(request, folder):
            requests.append(request)
            return fails(request, folder)

        execute(new_run(tmp_path / str(name), selection, **options), FakeEngine(worker))
        return next(request.gpu_digest for request in requests if request.purpose == "measure")

    full = {"profile": "full"}
    found = {gpu: digest(gpu, gpus=gpu, **full) for gpu in ("0", "GPU-aa0", "1", "2", "MIG-x", "MIG-y")}
    assert found["0"] == found["GPU-aa0"]
    assert found["2"] == found["MIG-x"]
    assert len(set(found.values())) == 4
    assert not any(gpu in text for gpu, text in found.items() if "-" in gpu)
    assert digest("cpu", ON_CPU, gpus="0", **full) == digest("quick", gpus="0") == ""
    gpu = gpus.named("0")
    assert (gpu.digest("r1"), gpu.digest("r2") == found["0"]) == (found["0"], False)


def test_a_mig_instance_is_sampled_under_the_index_of_its_gpu():
    sampler = Sampler(("MIG-y", "MIG-x"), interval_s=60)
    sampler.start()
    series = sampler.stop().series
    assert series["gpu2_memory_gib"] == [1, 1]
    assert "gpu2_power_w" not in series, "the whole GPU's power is not the launch's"
    assert not [name for name in series if name.startswith(("gpu0", "gpu1"))]


def test_a_container_gets_the_gpus_but_not_the_variable_because_it_numbers_them_anew(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2")
    assert visible_gpus() == ("2",)
    assert "CUDA_VISIBLE_DEVICES" not in containers.variables({})
    assert containers.gpu_request(containers.Host.of({}), ("2",))["DeviceIDs"] == ["2"]
