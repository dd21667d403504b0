"""Test the execution of a plan: order, limits, skipped cells, isolated failures, and exit codes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kit.cli.crash import describe
from kit.datasets.service import ResolvedData
from kit.execution.campaign import exit_code, resumable, run_campaign
from kit.model.errors import CorruptDataError, DataError, DiskError, EngineError, ImageError, KitError, UsageError
from kit.model.progress import Silent
from kit.planning import catalog
from kit.planning.selection import Selection
from kit.storage.run_folder import RunFolder
from scenarios.contract.reasons import Code, Reason, Status
from tests import examples, fakes
from tests.campaigns import FRAMEWORKS, NAMES, execute, fails, identifiers, new_run, synthetic_data

pytestmark = pytest.mark.usefixtures("machine")

NO_GPU = {(name, "cuda"): "No NVIDIA GPU is visible." for name in NAMES}


def test_launches_run_in_the_order_of_the_plan_and_each_has_a_record(tmp_path):
    folder, engine = new_run(tmp_path / "run", profile="standard"), fakes.FakeEngine()
    records = execute(folder, engine)
    assert engine.launched == [(launch.key, launch.launch) for launch in folder.plan.launches]
    assert {record.status for record in records} == {Status.OK}
    assert exit_code(folder.plan, records) == 0
    assert engine.calls[0] == "sweep"
    assert sorted(engine.calls[1:4]) == [f"prepare {name} cpu" for name in NAMES]  # all before the first measurement
    assert list((folder.path / "work").iterdir()) == []
    assert len(list((folder.path / "logs").iterdir())) == len(records) + len(folder.records("probe"))


def test_the_first_ok_launch_of_a_cell_does_the_full_proof(tmp_path):
    failing = {("torch", 1)}

    def works_later(request, folder):
        failed = (request.cell.framework, request.launch) in failing
        return (fails if failed and request.purpose == "measure" else fakes.works)(request, folder)

    selection = Selection(scenarios=("mnist-cnn",), frameworks=("torch", "tensorflow"))
    folder = new_run(tmp_path / "run", selection, profile="standard")
    records = execute(folder, fakes.FakeEngine(works_later))
    full = {("tensorflow", 1), ("torch", 1), ("torch", 2)}
    assert {(r.cell.framework, r.launch) for r in records if r.request.full_proof} == full
    file = next((folder.path / "records").glob("*torch*3.json"))
    file.unlink()
    resumed = execute(RunFolder.open(folder.path), fakes.FakeEngine())
    assert len(resumed) == len(records)
    assert {(r.cell.framework, r.launch) for r in resumed if r.request.full_proof} == full


def test_loader_workers_get_the_shared_memory_for_their_batches(tmp_path):
    """PyTorch's workers would end with a bus error."""
    selection = Selection(("catdog-cnn",), frameworks=("torch",), devices=("cpu",), batches=(512,), workers=(1, 64))
    engine = fakes.FakeEngine()
    execute(new_run(tmp_path, selection), engine)
    few, many = sorted({limits.shm_bytes for limits in engine.limits})
    assert (few, many) == (2 << 30, 64 * 3 * 512 * 64 * 64 * 3 * 4)


def test_launches_get_the_limits_of_the_plan(tmp_path):
    engine = fakes.FakeEngine()
    folder = new_run(tmp_path / "run", threads=1, memory_bytes=1 << 30, timeout_s=7.0)
    records = execute(folder, engine)
    assert {(len(x.cpus), x.memory_bytes, x.timeout_s, x.gpus) for x in engine.limits} == {(1, 1 << 30, 7.0, ())}
    assert {record.request.threads for record in records} == {1}


def test_ceilings_are_probed_once_per_run_and_a_failed_probe_fails_no_cell(tmp_path):
    def fail_torch_probes(request, folder):
        if request.purpose == "probe" and request.cell.framework == "torch":
            return fails(request, folder)
        return fakes.works(request, folder)

    folder, engine = new_run(tmp_path / "run"), fakes.FakeEngine(fail_torch_probes)
    records = execute(folder, engine)
    assert {record.status for record in records} == {Status.OK}
    assert identifiers(records) == sorted((launch.key, launch.launch) for launch in folder.plan.launches)
    assert sorted(engine.probed) == [(f"ceilings/{name}/cpu/stock/fp32/b1", 1) for name in NAMES]
    assert {p.cell.framework: p.status for p in folder.records("probe")} == dict.fromkeys(NAMES, Status.OK) | {
        "torch": Status.FAILED
    }
    (folder.path / "records").joinpath(next((folder.path / "records").iterdir())).unlink()
    engine.worker = fakes.works
    execute(RunFolder.open(folder.path), engine)
    assert len(engine.probed) == len(NAMES) + 1
    assert [p.status for p in folder.records("probe") if p.cell.framework == "torch"] == [Status.FAILED, Status.OK]
    assert exit_code(folder.plan, folder.records()) == 0


def test_the_smoke_profile_runs_no_probes(tmp_path):
    engine = fakes.FakeEngine()
    execute(new_run(tmp_path / "run", profile="smoke"), engine)
    assert engine.probed == []
    assert engine.launched


def test_a_failed_environment_fails_only_its_own_launches(tmp_path):
    def broken(name):
        if name == "prepare torch cpu":
            raise ImageError("torch: no such wheel.", "Look at the log.")

    folder = new_run(tmp_path / "run")
    records = execute(folder, fakes.FakeEngine(on_call=broken))
    by_framework = {record.cell.framework: record for record in records}
    assert by_framework["torch"].reason == Reason(Code.IMAGE_FAILED, "torch: no such wheel.", "Look at the log.")
    assert {record.status for record in records if record.cell.framework != "torch"} == {Status.OK}
    assert len(records) == 6


@pytest.mark.parametrize(("error", "code"), [(DataError, Code.DATA_UNAVAILABLE), (CorruptDataError, Code.DATA_CORRUPT)])
def test_an_unavailable_data_set_fails_only_its_own_launches(tmp_path, error, code):
    calls = []

    def resolve(name, mode, progress):
        calls.append((name, mode))
        if name == "mnist":
            raise error("No mirror answers.", "Try again.")
        return ResolvedData("real", tmp_path, "already downloaded")

    folder, engine = new_run(tmp_path / "run", data="real"), fakes.FakeEngine()
    records = execute(folder, engine, resolve)
    assert calls == [("cifar-10", "real"), ("mnist", "real")]
    outcomes = {(record.cell.scenario, record.status, record.reason and record.reason.code) for record in records}
    assert outcomes == {("cifar-cnn", Status.OK, None), ("mnist-cnn", Status.FAILED, code)}
    assert {r.data_note for r in records if r.status is Status.OK} == {"already downloaded"}


def test_a_missing_framework_is_not_reported_as_a_missing_gpu(tmp_path):
    selection = Selection(scenarios=("mnist-cnn",), frameworks=("torch", "tensorflow"))
    missing = {("torch", device): "--env system lacks torch." for device in ("cpu", "cuda")}
    records = execute(
        new_run(tmp_path / "run", selection, environment="system"), fakes.FakeEngine(refused=NO_GPU | missing)
    )
    codes = {(r.cell.framework, r.cell.device): r.reason and r.reason.code for r in records}
    assert codes == {
        ("tensorflow", "cpu"): None,
        ("tensorflow", "cuda"): Code.NO_DEVICE,
        ("torch", "cpu"): Code.NOT_OFFERED,
        ("torch", "cuda"): Code.NO_DEVICE,
    }


def test_cuda_without_a_gpu_is_skipped_if_it_was_not_requested(tmp_path):
    folder, engine = new_run(tmp_path / "run", Selection(scenarios=("mnist-cnn",))), fakes.FakeEngine(refused=NO_GPU)
    records = execute(folder, engine)
    skipped = [record for record in records if record.cell.device == "cuda"]
    assert {(r.status, r.reason.code, r.image) for r in skipped} == {(Status.SKIPPED, Code.NO_DEVICE, None)}
    assert len(skipped) == 3
    assert len(records) == 6
    assert not any("cuda" in call for call in engine.calls)
    assert exit_code(folder.plan, records) == 0
    assert execute(folder, engine, retry_failed=True) == records


def on_cuda_with(monkeypatch, *capabilities):
    """Give the machine GPUs of these compute capabilities. Return a selection of cells on the GPU."""
    found = [examples.gpu(index=i, uuid=f"GPU-{i}", compute_capability=own) for i, own in enumerate(capabilities)]
    monkeypatch.setattr("kit.host.gpus.gpus", lambda **options: found)
    return Selection(scenarios=("mnist-cnn",), frameworks=("torch",), devices=("cuda",))


def test_tf32_is_skipped_on_a_gpu_that_lacks_it_and_fp32_is_not(tmp_path, monkeypatch):
    selection = replace(on_cuda_with(monkeypatch, (7, 5)), precisions=("tf32", "fp32"))
    folder, engine = new_run(tmp_path / "run", selection), fakes.FakeEngine()
    records = {record.cell.precision: record for record in execute(folder, engine)}
    assert records["fp32"].status is Status.OK
    assert (records["tf32"].status, records["tf32"].reason) == (
        Status.SKIPPED,
        Reason(
            Code.NOT_OFFERED,
            "TF32 needs compute capability 8.0 or newer, but GPU 0 (NVIDIA H200) has 7.5.",
            "Use --precision fp32, or choose another GPU with --gpus.",
        ),
    )


@pytest.mark.parametrize(
    ("chosen", "environment", "status"), [("0", "", "ok"), ("GPU-1", "", "skipped"), ("1", "py", "ok")]
)
def test_a_chosen_gpu_without_code_in_the_wheels_is_skipped(tmp_path, monkeypatch, chosen, environment, status):
    selection = on_cuda_with(monkeypatch, (9, 0), (10, 0))
    folder, engine = new_run(tmp_path / "run", selection, gpus=chosen, environment=environment), fakes.FakeEngine()
    (record,) = {record.status: record for record in execute(folder, engine)}.values()
    assert record.status == status
    assert record.ok or record.reason == Reason(
        Code.NOT_OFFERED,
        "GPU 1 (NVIDIA H200) has compute capability 10.0, for which example==1 has no code. It has sm_75, sm_90.",
        "Choose another GPU with --gpus.",
    )


def test_requested_cuda_without_a_gpu_is_an_error(tmp_path):
    selection = Selection(scenarios=("mnist-cnn",), devices=("cpu", "cuda"))
    folder, engine = new_run(tmp_path / "run", selection), fakes.FakeEngine(refused=NO_GPU)
    with pytest.raises(EngineError, match="No NVIDIA GPU is visible"):
        execute(folder, engine)
    assert folder.records() == []
    assert engine.launched == []


def test_a_device_that_a_framework_does_not_offer_is_skipped(tmp_path, monkeypatch):
    folder = new_run(tmp_path / "run", Selection(scenarios=("mnist-cnn",), frameworks=("torch",)))
    on_cpu = replace(FRAMEWORKS["torch"], devices=("cpu",))
    monkeypatch.setattr(catalog, "frameworks", lambda: FRAMEWORKS | {"torch": on_cpu})
    records = execute(folder, fakes.FakeEngine())
    assert [r.reason and r.reason.code for r in records] == [None, Code.NOT_OFFERED]


def test_a_lost_engine_stops_the_run_and_the_launch_is_recorded(tmp_path):
    def lost(request, folder):
        if request.purpose == "probe":
            return fakes.works(request, folder)
        raise EngineError("The daemon does not answer.", "Start it.")

    def gone(name):
        if name == "describe":
            raise EngineError("No daemon.", "Start it.")

    folder = new_run(tmp_path / "run")
    with pytest.raises(EngineError, match=r"No daemon\.\nStart it\..*--resume .* --retry-failed`\.$"):
        execute(folder, fakes.FakeEngine(worker=lost, on_call=gone))
    assert [record.reason.code for record in folder.records()] == [Code.ENGINE_FAILED]
    engine = fakes.FakeEngine(worker=lost)
    assert len(execute(folder, engine)) == 6  # the engine still answers, so the run continues


def test_a_full_disk_stops_the_run_and_keeps_its_records(tmp_path, monkeypatch):
    def full_after_one_record(folder):
        if folder.records():
            raise DiskError("The disk is full.", "Free some space.")

    monkeypatch.setattr(RunFolder, "require_space", full_after_one_record)
    folder = new_run(tmp_path / "run")
    with pytest.raises(DiskError, match=r"Free some space\. Then continue with `.* --resume"):
        execute(folder, fakes.FakeEngine())
    assert len(folder.records()) == 1


def test_a_changed_machine_is_a_warning_in_the_records(tmp_path):
    folder = new_run(tmp_path / "run")
    changed = examples.machine(id="fedcba9876543210", kernel="6.2")
    run_campaign(folder, fakes.FakeEngine(), changed, synthetic_data, Silent())
    assert all(record.machine == changed and "changed" in record.warnings[0] for record in folder.records())


def test_a_plan_with_an_unknown_scenario_is_refused(tmp_path, monkeypatch):
    folder = new_run(tmp_path / "run")
    fewer = {name: variants for name, variants in catalog.scenarios().items() if name != "cifar-cnn"}
    monkeypatch.setattr(catalog, "scenarios", lambda: fewer)
    with pytest.raises(UsageError, match="cifar-cnn"):
        execute(folder, fakes.FakeEngine())


def test_the_exit_code_is_that_of_the_only_cause(tmp_path):
    plan = new_run(tmp_path / "run", Selection(scenarios=("mnist-cnn",), frameworks=("torch", "tensorflow"))).plan
    requests = [examples.request(launch.cell) for launch in plan.launches]
    skipped = [examples.failed(x, Status.SKIPPED, Code.NO_DEVICE) for x in requests if x.cell.device == "cuda"]
    one, other = (x for x in requests if x.cell.device == "cpu")

    def code(*records):
        return exit_code(plan, [*records, *skipped])

    one_ok, other_ok = examples.record(one), examples.record(other)
    no_image, no_image_too = (examples.failed(x, code=Code.IMAGE_FAILED) for x in (one, other))
    corrupt, absent = examples.failed(one, code=Code.DATA_CORRUPT), examples.failed(other, code=Code.DATA_UNAVAILABLE)
    assert code(one_ok, other_ok) == 0
    assert code(no_image, no_image_too) == 4
    assert code(corrupt, absent) == 5
    assert code(no_image, examples.failed(other)) == 1
    assert code(no_image, other_ok) == 1
    assert code(one_ok) == 1
    named = plan.model_copy(update={"launches": [x.model_copy(update={"named": True}) for x in plan.launches]})
    assert exit_code(named, [one_ok, other_ok, *skipped]) == 1
    pinned = plan.model_copy(update={"pinned": {other.cell.key: {"layout": "nope"}}})
    not_offered = examples.failed(other, Status.SKIPPED, Code.NOT_OFFERED)
    assert exit_code(pinned, [one_ok, not_offered, *skipped]) == 1
    assert exit_code(plan, [one_ok, not_offered, *skipped]) == 0


@pytest.mark.parametrize("error", [KeyboardInterrupt(), DiskError("The disk is full.", "Free disk space.")])
def test_a_note_about_a_failed_cleanup_reaches_the_user(tmp_path, error):
    error.add_note("container kit-1 is left")
    with pytest.raises(KitError, match="--resume") as caught, resumable(new_run(tmp_path / "run")):
        raise error
    text, _ = describe(caught.value)
    assert "container kit-1 is left" in text
