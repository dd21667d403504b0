"""One launch: every way it can end becomes one record with the right status and reason."""

from __future__ import annotations

import json
import os
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from kit.execution.launch import Job, RunContext, log_tail, record_without_launch, run_launch
from kit.model.environment import Environment
from kit.model.errors import DiskError, EngineError
from kit.model.launch import Completion, Limits
from kit.storage import reference_cache
from kit.storage.reference_cache import ReferenceCache
from scenarios.contract import codec, result
from scenarios.contract.reasons import Code, Reason, Status
from scenarios.contract.request import REFERENCE_FILE, RESULT_FILE, Budget
from scenarios.contract.result import Check, Evidence, Timings
from tests import examples, fakes

DONE = Completion(exit_code=0, seconds=1.0)


@pytest.fixture
def setting(tmp_path):
    return RunContext(
        run="r1",
        profile="quick",
        identify=False,
        machine=examples.machine(),
        engine=fakes.FakeEngine(),
        references=ReferenceCache(tmp_path / "cache"),
    )


@pytest.fixture
def job(tmp_path):
    (tmp_path / "logs").mkdir()
    return Job(
        request=examples.request(),
        environment=Environment("torch", "cpu", "image", "kit-torch:cpu", "sha256:0"),
        limits=Limits(600, 1 << 30, (0, 1)),
        data=None,
        data_note="synthetic: asked for",
        work=tmp_path / "work" / "launch",
        log=tmp_path / "logs" / "launch.log",
    )


def never():
    return False


def run(setting, job, worker):
    """The record of a launch whose process does this, checked for what holds for every record."""
    setting.engine.worker = worker
    record = run_launch(setting, job, never)
    assert (record.key, record.launch, record.request) == (job.request.key, job.request.launch, job.request)
    assert (record.status is Status.OK) == (record.reason is None)
    assert record.reason is None or (record.reason.message and record.reason.remedy)
    assert not job.work.exists()
    assert type(record).from_json(record.to_json(), "itself") == record
    return record


def leaves(*, completion=DONE, log="", **changes):
    """A worker that writes its `ok` result with these changes."""

    def worker(asked, folder):
        folder.log.write_text(log)
        codec.write(folder.scratch / RESULT_FILE, replace(examples.result(asked), **changes))
        return completion

    return worker


def writes(text, completion=DONE, log=""):
    """A worker that writes this result file (None: none)."""

    def worker(asked, folder):
        folder.log.write_text(log)
        if text is not None:
            (folder.scratch / RESULT_FILE).write_text(text)
        return completion

    return worker


def test_an_ok_launch_is_recorded_whole(setting, job):
    record = run(setting, job, fakes.works)
    assert record.status is Status.OK
    assert record.result == examples.result(job.request)
    assert (record.image.reference, record.image.digest) == ("kit-torch:cpu", "sha256:0")
    assert (record.engine, record.profile, record.data_note) == ("fake", "quick", "synthetic: asked for")
    assert record.seconds == 1.0
    assert record.log_tail == "working\n" == job.log.read_text()


# How the process ended, without a result: (completion, device) to the verdict and what the message says.
ENDINGS = [
    (Completion(0, 1), "cpu", Status.BROKEN_CONTRACT, Code.NO_RESULT, "exit code 0"),
    (Completion(1, 1), "cpu", Status.FAILED, Code.WORKER_ERROR, "ValueError: the last line"),
    (Completion(139, 1), "cpu", Status.FAILED, Code.WORKER_ERROR, "139"),
    (Completion(137, 1), "cpu", Status.FAILED, Code.WORKER_ERROR, "signal 9"),
    (Completion(None, 1), "cpu", Status.FAILED, Code.ENGINE_FAILED, "lost"),
    (Completion(137, 60, timed_out=True), "cpu", Status.TIMEOUT, Code.DEADLINE, "60 s"),
    (Completion(137, 5, out_of_memory=True), "cpu", Status.OUT_OF_MEMORY, Code.MEMORY_LIMIT, "137"),
    (Completion(137, 5, True, True), "cpu", Status.OUT_OF_MEMORY, Code.MEMORY_LIMIT, "memory"),
    (
        Completion(None, 0, not_started='could not select device driver "" with capabilities: [[gpu]]'),
        "cuda",
        Status.SKIPPED,
        Code.NO_GPU_RUNTIME,
        "could not select",
    ),
    (
        Completion(None, 0, not_started="CDI device injection failed: unresolvable CDI devices nvidia.com/gpu=0"),
        "cuda",
        Status.SKIPPED,
        Code.NO_GPU_RUNTIME,
        "CDI",
    ),
    (Completion(None, 0, not_started="nvidia hook"), "cpu", Status.FAILED, Code.ENGINE_FAILED, "hook"),
    (Completion(None, 0, not_started="bad mount"), "cuda", Status.FAILED, Code.ENGINE_FAILED, "bad mount"),
    (
        Completion(None, 0, not_started="write /x: no space left on device"),
        "cpu",
        Status.FAILED,
        Code.DISK_FULL,
        "no space",
    ),
]


@pytest.mark.parametrize(("completion", "device", "status", "code", "told"), ENDINGS)
def test_a_launch_without_result(setting, job, completion, device, status, code, told):
    job = replace(job, request=examples.request(device=device))
    record = run(setting, job, writes(None, completion, "trace\nValueError: the last line\n"))
    assert (record.status, record.reason.code, record.result) == (status, code, None)
    assert told in record.reason.message
    assert record.log_tail == "trace\nValueError: the last line\n"


@pytest.mark.parametrize(
    ("completion", "status", "code"),
    [
        (Completion(0, 1, out_of_memory=True), Status.OUT_OF_MEMORY, Code.MEMORY_LIMIT),
        (Completion(137, 60, timed_out=True), Status.TIMEOUT, Code.DEADLINE),
        (Completion(139, 1), Status.FAILED, Code.WORKER_ERROR),
    ],
)
def test_a_result_does_not_hide_how_the_process_ended(setting, job, completion, status, code):
    record = run(setting, job, leaves(completion=completion))
    assert (record.status, record.reason.code) == (status, code)
    assert record.result == examples.result(job.request)


def test_the_worker_s_own_reason_is_passed_on(setting, job):
    told = Reason(Code.DATA_CORRUPT, "A photo is broken.", "Fetch it again.")
    record = run(setting, job, leaves(status=Status.FAILED, reason=told, training=None))
    assert (record.status, record.reason) == (Status.FAILED, told)
    assert record.result.reason == told


def result_text(**changes):
    return codec.to_json(replace(examples.result(examples.request()), **changes))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[1]",
        result_text()[:500],
        result_text(key="another/key"),
        result_text(launch=2),
        result_text(schema=result.SCHEMA + 1),
        result_text(training=None),
        result_text(evidence=None),
        result_text(status=Status.FAILED),
        result_text(status=Status.FAILED, reason=Reason(Code.NO_DEVICE, "No GPU.", "Buy one.")),
        result_text(reason=Reason(Code.WORKER_ERROR, "It failed.", "Look.")),
        result_text().replace('"images_per_s": 1000.0', '"images_per_s": NaN'),
        result_text().replace('"images_per_s": 1000.0', '"images_per_s": 1e999'),
        result_text().replace('"images_per_s": 1000.0', '"images_per_s": -1.0'),
        result_text().replace('"images_per_s": 1000.0', f'"images_per_s": {10**400}'),
        result_text().replace('"epoch_images": ', '"epoch_images": 9223372036854775808'),
        "[" * 100_000,
        result_text().replace('"steady_from": 1', '"steady_from": 2'),
        result_text().replace(f'"schema": {result.SCHEMA}', f'"schema": {result.SCHEMA}, "extra": 0'),
    ],
)
def test_a_result_that_is_none_breaks_the_contract(setting, job, text):
    record = run(setting, job, writes(text))
    assert (record.status, record.reason.code) == (Status.BROKEN_CONTRACT, Code.INVALID_RESULT)


def doctored(place, value):
    """The text of an `ok` result of one whole epoch with another figure at this place."""
    document = json.loads(codec.to_json(examples.result(examples.request(), epochs=1)))
    *path, last = [int(step) if step.isdigit() else step for step in place.split(".")]
    part = document
    for step in path:
        part = part[step]
    assert last in part if isinstance(part, dict) else last < len(part)
    part[last] = value
    return json.dumps(document)


TIMES = [
    *(f"timings.{name}" for name in Timings.__dataclass_fields__),
    *(f"{part}.windows.0.{name}" for part in ("training", "inference") for name in ("start_at", "seconds")),
    *("training.epoch_s", "training.epochs.0.seconds", "telemetry.cpu_s", "inference.latency_ms.1"),
    *(f"inference.p{percent}_ms" for percent in (50, 90, 99)),
]
SPEEDS = ["training.images_per_s", "inference.images_per_s"]
SHARES = ["training.epochs.0.train_accuracy", "training.epochs.0.test_accuracy", "inference.test_accuracy"]
ABSURD = {
    **dict.fromkeys(TIMES, (-0.001, 1e308)),
    **dict.fromkeys(SPEEDS, (-1000.0, 1.1e9, 1e308)),
    **dict.fromkeys(SHARES, (-0.1, 1.1)),
}


@pytest.mark.parametrize(("place", "value"), [(place, value) for place, values in ABSURD.items() for value in values])
def test_a_figure_that_no_machine_measures_breaks_the_contract(setting, job, place, value):
    record = run(setting, job, writes(doctored(place, value)))
    assert (record.status, record.reason.code) == (Status.BROKEN_CONTRACT, Code.INVALID_RESULT)


@pytest.mark.parametrize(("place", "value"), [(SPEEDS[0], 1e9), (SHARES[2], 0.0), (SHARES[2], 1.0), (TIMES[0], 0.0)])
def test_a_figure_at_the_edge_of_what_is_possible_stands(setting, job, place, value):
    assert run(setting, job, writes(doctored(place, value))).status is Status.OK


def test_a_result_file_that_is_a_link_a_pipe_or_endless_is_not_read(setting, job, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text(result_text())

    def link(asked, folder):
        (folder.scratch / RESULT_FILE).symlink_to(secret)
        return DONE

    def pipe(asked, folder):
        os.mkfifo(folder.scratch / RESULT_FILE)
        return DONE

    def endless(asked, folder):
        (folder.scratch / RESULT_FILE).write_bytes(b" " * ((16 << 20) + 1))
        return DONE

    for worker in (link, pipe, endless):
        record = run(setting, job, worker)
        assert record.reason.code is Code.INVALID_RESULT
        assert RESULT_FILE in record.reason.message


ENVIRONMENT = {"OMP_NUM_THREADS": "2"}


def changed(**changes):
    """The evidence of an ok launch with other values; those of placement by their own names."""
    evidence = examples.result(examples.request(environment=ENVIRONMENT)).evidence
    if "device" in changes:
        changes.setdefault("nodes", {changes["device"]: 4})
    inside = {name: changes.pop(name) for name in list(changes) if name not in Evidence.__dataclass_fields__}
    return replace(evidence, placement=replace(evidence.placement, **inside), **changes)


@pytest.mark.parametrize(
    ("evidence", "told"),
    [
        (changed(threads=1), "2 threads, not 1"),
        (changed(data_kind="real"), "synthetic data, not real"),
        (changed(tf32=True), "TF32"),
        (changed(versions={"python": "3.11"}), "versions"),
        (changed(data_digest=""), "digests"),
        (changed(final_weights_digest="1111"), "changed the weights"),
        (changed(environment={"OMP_NUM_THREADS": "1"}), "environment"),
    ],
)
def test_evidence_that_does_not_show_what_was_asked_for_is_missing_proof(setting, job, evidence, told):
    job = replace(job, request=examples.request(environment=ENVIRONMENT))
    record = run(setting, job, leaves(evidence=evidence))
    assert (record.status, record.reason.code) == (Status.FAILED, Code.MISSING_PROOF)
    assert told in record.reason.message


@pytest.mark.parametrize(("precision", "tf32"), [("fp32", True), ("fp32", None), ("tf32", False)])
def test_on_a_gpu_the_tf32_probe_must_fit_the_precision(setting, job, precision, tf32):
    job = replace(job, request=examples.request(device="cuda", precision=precision))
    record = run(setting, job, leaves(evidence=changed(device="cuda:0", tf32=tf32)))
    assert (record.status, record.reason.code) == (Status.FAILED, Code.MISSING_PROOF)


def test_a_launch_on_another_device_is_the_wrong_device(setting, job):
    job = replace(job, request=examples.request(device="cuda"))
    record = run(setting, job, leaves(evidence=changed(device="cpu")))
    assert (record.status, record.reason.code) == (Status.WRONG_DEVICE, Code.WRONG_DEVICE)
    assert run(setting, job, leaves(evidence=changed(device="cuda:0", tf32=False))).status is Status.OK


@pytest.mark.parametrize(
    ("passed", "check", "code"),
    [
        (False, Check("logits", 0.1, 5e-4, passed=False), Code.REFERENCE_MISMATCH),
        (True, Check("logits", 0.1, 5e-4, passed=True), Code.REFERENCE_MISMATCH),
        (True, None, Code.MISSING_PROOF),
    ],
)
def test_without_a_proof_that_holds_nothing_is_ok(setting, job, passed, check, code):
    proof = replace(examples.result(job.request).proof, passed=passed, checks=[check] if check else [])
    record = run(setting, job, leaves(proof=proof))
    assert (record.status, record.reason.code) == (Status.FAILED, code)


def test_a_lost_engine_is_a_record_with_its_remedy(setting, job):
    def lost(asked, folder):
        raise EngineError("The daemon is gone.", "Start it.")

    record = run(setting, job, lost)
    assert record.status is Status.FAILED
    assert record.reason == Reason(Code.ENGINE_FAILED, "The daemon is gone.", "Start it.")


def test_an_interrupted_launch_leaves_nothing(setting, job):
    with pytest.raises(KeyboardInterrupt):
        run_launch(setting, job, lambda: True)
    assert not job.work.exists()
    assert not job.log.exists()


def test_a_disk_that_cannot_be_written_is_a_disk_error(setting, job):
    job.work.parent.write_text("a file where the folder should be")
    with pytest.raises(DiskError):
        run_launch(setting, job, never)


def test_what_the_worker_makes_undeletable_is_a_warning(setting, job, monkeypatch):
    def denied(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("kit.execution.launch.shutil.rmtree", denied)
    record = run_launch(setting, job, never)
    assert record.status is Status.OK
    assert "could not be removed" in record.warnings[0]


def test_warnings_of_engine_and_run_are_kept(setting, job):
    setting = replace(setting, warnings=("The machine changed.",))
    record = run(setting, job, leaves(completion=Completion(0, 1, warnings=("No swap limit.",))))
    assert record.warnings == ["The machine changed.", "No swap limit."]


def test_the_log_s_tail_is_plain_text_and_short(tmp_path):
    log = tmp_path / "log"
    assert log_tail(log, identify=False) == ""
    log.write_bytes(b"\x1b[31mred\x1b[0m\x07 \xff\n10%\r50%\r100%\r\nnext\x08\n\x1b]0;title\x07end\n")
    assert log_tail(log, identify=False) == "red �\n100%\nnext\nend\n"
    log.write_text("x" * 100_000 + "\nend")
    assert log_tail(log, identify=False) == "x" * 3996 + "\nend"


def test_records_name_nobody_unless_asked_to(setting, job, monkeypatch):
    monkeypatch.setattr(socket, "gethostname", lambda: "carols-laptop.example.org")
    monkeypatch.setenv("HOME", "/home/carol")
    monkeypatch.setenv("USER", "carol")
    gpu = "GPU-3f1b6c1e-0a2b-4c3d-8e5f-0123456789ab"
    text = f"/home/carol/x.py on carols-laptop: carol (carols-laptop.example.org), caroline, {gpu}\n"
    job = replace(job, environment=Environment("torch", "cpu", "venv", "/home/carol/env/bin/python", "sha256:0"))
    told = Reason(Code.WORKER_ERROR, text.strip(), text.strip())
    worker = leaves(log=text, status=Status.FAILED, reason=told)
    record = run(setting, job, worker)
    assert record.log_tail == "~/x.py on <host>: <user> (<host>), caroline, <gpu>\n"
    assert record.image.reference == "~/env/bin/python"
    stored = record.to_json()
    assert "carol/" not in stored
    assert "carols" not in stored
    identified = run(replace(setting, identify=True), job, worker)
    assert identified.log_tail == text
    assert identified.reason == told


def test_reference_values_are_kept_and_lent(setting, job):
    seen = []

    def worker(asked, folder):
        file = folder.scratch / REFERENCE_FILE
        seen.append(file.read_bytes() if file.exists() else None)
        file.write_bytes(b"values")
        return fakes.works(asked, folder)

    run(setting, job, worker)
    run(setting, job, worker)
    run(setting, replace(job, request=examples.request(seed=1)), worker)
    assert seen == [None, b"values", None]


def test_reference_values_of_a_failed_launch_or_behind_a_link_are_not_kept(setting, job, tmp_path):
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret")
    seen = []

    def fails(asked, folder):
        (folder.scratch / REFERENCE_FILE).write_bytes(b"wrong")
        return Completion(1, 1)

    def links(asked, folder):
        file = folder.scratch / REFERENCE_FILE
        seen.append(file.exists())
        file.symlink_to(secret)
        return fakes.works(asked, folder)

    run(setting, job, fails)
    record = run(setting, job, links)
    run(setting, job, links)
    assert seen == [False, False]
    assert record.status is Status.OK
    assert "not a plain file" in record.warnings[0]


def test_the_cache_of_reference_values_stays_small(tmp_path, monkeypatch):
    monkeypatch.setattr(reference_cache, "FOLDER_LIMIT", 25)
    cache = ReferenceCache(tmp_path / "cache")
    scratch = tmp_path / "scratch"
    for seed in range(4):
        scratch.mkdir()
        (scratch / REFERENCE_FILE).write_bytes(b"0123456789")
        cache.keep(examples.request(seed=seed), scratch)
        for file in (tmp_path / "cache").iterdir():
            os.utime(file, ns=(0, file.stat().st_mtime_ns - 10**9))
        (scratch / REFERENCE_FILE).unlink()
        scratch.rmdir()
    kept = []
    for seed in range(4):
        folder = tmp_path / str(seed)
        folder.mkdir()
        cache.lend(examples.request(seed=seed), folder)
        kept.append((folder / REFERENCE_FILE).exists())
    assert kept == [False, False, True, True]


def test_a_launch_that_never_ran_has_a_record_too(setting):
    cause = Reason(Code.NO_DEVICE, f"No GPU, says {Path.home()}/x.", "Buy one.")
    record = record_without_launch(setting, examples.request(device="cuda"), cause)
    assert (record.status, record.result, record.image, record.seconds) == (Status.SKIPPED, None, None, 0)
    assert record.reason.message == "No GPU, says ~/x."


def test_a_search_that_chose_what_cannot_be_started_breaks_the_contract(setting, job):
    asked = replace(job.request, purpose="tune", budget=Budget(seconds=60.0))
    good = examples.result(asked).tuning
    evil = replace(good, settings={"allocator": "/opt/evil.so"})
    for tuning, code in ((good, None), (evil, Code.INVALID_RESULT)):
        record = run(setting, replace(job, request=asked), leaves(tuning=tuning))
        assert (record.reason and record.reason.code) == code


def test_threads_that_were_tuned_are_those_that_must_have_run(setting, job):
    for threads, status in (("1", Status.OK), ("2", Status.FAILED)):
        asked = replace(job.request, lane="tuned", settings={"threads": threads})
        evidence = examples.result(asked).evidence
        evidence = replace(evidence, placement=replace(evidence.placement, threads=1))
        assert run(setting, replace(job, request=asked), leaves(evidence=evidence)).status is status
