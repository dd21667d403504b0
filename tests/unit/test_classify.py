"""Test that each way a launch can end becomes a record with the right status and reason."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from kit.model.launch import Completion
from scenarios.contract import codec
from scenarios.contract.evidence import Evidence
from scenarios.contract.reasons import Code, Reason, Status
from scenarios.contract.request import SCHEMA, Budget
from scenarios.contract.result import Check, Timings
from tests import examples
from tests.launches import result_worker, run, text_worker

# Without a result: completion, device, expected status, expected code, and a part of the message.
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
]


@pytest.mark.parametrize(("completion", "device", "status", "code", "message"), ENDINGS)
def test_the_cause_of_a_launch_without_a_result(context, ready, completion, device, status, code, message):
    ready = replace(ready, request=examples.request(device=device))
    record = run(context, ready, text_worker(None, completion, "trace\nValueError: the last line\n"))
    assert (record.status, record.reason.code, record.result) == (status, code, None)
    assert message in record.reason.message
    assert record.log_tail == "trace\nValueError: the last line\n"


@pytest.mark.parametrize(
    ("completion", "status", "code"),
    [
        (Completion(0, 1, out_of_memory=True), Status.OUT_OF_MEMORY, Code.MEMORY_LIMIT),
        (Completion(137, 60, timed_out=True), Status.TIMEOUT, Code.DEADLINE),
        (Completion(139, 1), Status.FAILED, Code.WORKER_ERROR),
    ],
)
def test_a_result_does_not_hide_how_the_process_ended(context, ready, completion, status, code):
    record = run(context, ready, result_worker(completion=completion))
    assert (record.status, record.reason.code) == (status, code)
    assert record.result == examples.result(ready.request)


def test_the_reason_of_the_worker_is_recorded(context, ready):
    reason = Reason(Code.DATA_CORRUPT, "A photo is broken.", "Download it again.")
    record = run(context, ready, result_worker(status=Status.FAILED, reason=reason, training=None))
    assert (record.status, record.reason) == (Status.FAILED, reason)
    assert record.result.reason == reason


def result_text(**changes):
    return codec.to_json(replace(examples.result(examples.request()), **changes))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[1]",
        result_text()[:500],
        result_text(cell=replace(examples.cell(), batch=1)),
        result_text(launch=2),
        result_text(schema=SCHEMA + 1),
        result_text(training=None),
        result_text(evidence=None),
        result_text(status=Status.FAILED),
        result_text(status=Status.FAILED, reason=Reason(Code.NO_DEVICE, "No GPU.", "Buy one.")),
        result_text(reason=Reason(Code.WORKER_ERROR, "It failed.", "Look.")),
        result_text().replace('"images_per_s": 1000.0', '"images_per_s": NaN'),
        result_text().replace('"images_per_s": 1000.0', '"images_per_s": 1e999'),
        result_text().replace('"images_per_s": 1000.0', '"images_per_s": -1.0'),
        result_text().replace('"images_per_s": 1000.0', f'"images_per_s": {10**400}'),
        result_text().replace('"steps": ', '"steps": 9223372036854775808'),
        "[" * 100_000,
        result_text().replace('"steady_from": 1', '"steady_from": 6'),
        result_text().replace(f'"schema": {SCHEMA}', f'"schema": {SCHEMA}, "extra": 0'),
    ],
)
def test_an_invalid_result_breaks_the_contract(context, ready, text):
    record = run(context, ready, text_worker(text))
    assert (record.status, record.reason.code) == (Status.BROKEN_CONTRACT, Code.INVALID_RESULT)


def result_with(path, value):
    """Return the JSON of an `ok` result with another value at this path. The result has one whole epoch."""
    document = json.loads(codec.to_json(examples.result(examples.request(), epochs=1)))
    *parents, last = [int(key) if key.isdigit() else key for key in path.split(".")]
    part = document
    for key in parents:
        part = part[key]
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
IMPOSSIBLE = {
    **dict.fromkeys(TIMES, (-0.001, 1e308)),
    **dict.fromkeys(SPEEDS, (-1000.0, 1.1e9, 1e308)),
    **dict.fromkeys(SHARES, (-0.1, 1.1)),
}


@pytest.mark.parametrize(("path", "value"), [(path, value) for path, values in IMPOSSIBLE.items() for value in values])
def test_an_impossible_value_breaks_the_contract(context, ready, path, value):
    record = run(context, ready, text_worker(result_with(path, value)))
    assert (record.status, record.reason.code) == (Status.BROKEN_CONTRACT, Code.INVALID_RESULT)


@pytest.mark.parametrize(("path", "value"), [(SPEEDS[0], 1e9), (SHARES[2], 0.0), (SHARES[2], 1.0), (TIMES[0], 0.0)])
def test_a_value_at_the_limit_of_the_possible_is_accepted(context, ready, path, value):
    assert run(context, ready, text_worker(result_with(path, value))).status is Status.OK


ENVIRONMENT = {"OMP_NUM_THREADS": "2"}


def evidence_with(**changes):
    """Return the evidence of an `ok` launch with other values. changes: fields of the evidence or of its placement."""
    evidence = examples.result(examples.request(environment=ENVIRONMENT)).evidence
    if "device" in changes:
        changes.setdefault("nodes", {changes["device"]: 4})
    of_placement = {name: changes.pop(name) for name in list(changes) if name not in Evidence.__dataclass_fields__}
    return replace(evidence, placement=replace(evidence.placement, **of_placement), **changes)


@pytest.mark.parametrize(
    ("evidence", "message"),
    [
        (evidence_with(threads=1), "2 threads, but 1"),
        (evidence_with(data_kind="real"), "synthetic data, but real"),
        (evidence_with(tf32=True), "TF32"),
        (evidence_with(versions={"python": "3.11"}), "versions"),
        (evidence_with(data_digest=""), "digests"),
        (evidence_with(final_weights_digest="1111"), "changed the weights"),
        (evidence_with(environment={"OMP_NUM_THREADS": "1"}), "environment"),
    ],
)
def test_evidence_that_contradicts_the_request_is_missing_proof(context, ready, evidence, message):
    ready = replace(ready, request=examples.request(environment=ENVIRONMENT))
    record = run(context, ready, result_worker(evidence=evidence))
    assert (record.status, record.reason.code) == (Status.FAILED, Code.MISSING_PROOF)
    assert message in record.reason.message


def test_the_evidence_must_show_the_requested_loader_workers(context, ready):
    asked = examples.request(scenario="catdog-cnn", workers=4)
    proven = examples.result(asked).evidence
    fewer = replace(proven, placement=replace(proven.placement, workers=2))
    assert run(context, replace(ready, request=asked), result_worker(evidence=proven)).ok
    record = run(context, replace(ready, request=asked), result_worker(evidence=fewer))
    assert record.reason.code is Code.MISSING_PROOF
    assert "4 loader workers, but 2" in record.reason.message


@pytest.mark.parametrize(("precision", "tf32"), [("fp32", True), ("fp32", None), ("tf32", False)])
def test_on_a_gpu_the_tf32_probe_must_match_the_precision(context, ready, precision, tf32):
    ready = replace(ready, request=examples.request(device="cuda", precision=precision))
    record = run(context, ready, result_worker(evidence=evidence_with(device="cuda:0", tf32=tf32)))
    assert (record.status, record.reason.code) == (Status.FAILED, Code.MISSING_PROOF)


def test_a_launch_on_another_device_is_the_wrong_device(context, ready):
    ready = replace(ready, request=examples.request(device="cuda"))
    record = run(context, ready, result_worker(evidence=evidence_with(device="cpu")))
    assert (record.status, record.reason.code) == (Status.WRONG_DEVICE, Code.WRONG_DEVICE)
    assert run(context, ready, result_worker(evidence=evidence_with(device="cuda:0", tf32=False))).status is Status.OK


@pytest.mark.parametrize(
    ("passed", "check", "code"),
    [
        (False, Check("logits", 0.1, 5e-4, passed=False), Code.REFERENCE_MISMATCH),
        (True, Check("logits", 0.1, 5e-4, passed=True), Code.INVALID_RESULT),
        (False, Check("logits", 0.0, 5e-4, passed=False), Code.INVALID_RESULT),
        (True, Check("logits", 0.1, 5e-4, passed=False), Code.INVALID_RESULT),
        (False, Check("logits", 0.0, 5e-4, passed=True), Code.INVALID_RESULT),
        (True, None, Code.INVALID_RESULT),
    ],
)
def test_a_launch_without_a_valid_proof_is_not_ok(context, ready, passed, check, code):
    proof = replace(examples.result(ready.request).proof, passed=passed, checks=[check] if check else [])
    record = run(context, ready, result_worker(proof=proof))
    assert (record.status, record.reason.code) == (code.status, code)


def test_a_search_with_invalid_settings_breaks_the_contract(context, ready):
    request = replace(ready.request, purpose="tune", budget=Budget(seconds=60.0))
    valid = examples.result(request).tuning
    invalid = replace(valid, settings={"allocator": "/opt/evil.so"})
    for tuning, code in ((valid, None), (invalid, Code.INVALID_RESULT)):
        record = run(context, replace(ready, request=request), result_worker(tuning=tuning))
        assert (record.reason and record.reason.code) == code


def test_the_evidence_must_show_the_tuned_number_of_threads(context, ready):
    for threads, status in (("1", Status.OK), ("2", Status.FAILED)):
        request = examples.change(ready.request, lane="tuned", settings={"threads": threads})
        evidence = examples.result(request).evidence
        evidence = replace(evidence, placement=replace(evidence.placement, threads=1))
        assert run(context, replace(ready, request=request), result_worker(evidence=evidence)).status is status
