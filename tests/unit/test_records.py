"""Test documents: schema versions, strict validation, and lossless JSON."""

from __future__ import annotations

import functools
import json
import operator
from dataclasses import replace

import pytest
from pydantic import ValidationError

from kit.model import document
from kit.model.errors import CorruptDataError, DataError, DiskError, EngineError, ImageError, KitError, UsageError
from kit.model.machine import Machine
from kit.model.record import HostSamples, Record
from scenarios.contract.reasons import Code, Reason, Status
from tests import examples


def test_a_record_is_read_back_equal_with_the_types_of_the_contract():
    record = examples.record()
    again = Record.from_json(record.to_json(), "x.json")
    assert again == record
    assert again.result == examples.result(examples.request())
    assert json.loads(record.to_json())["schema"] == document.SCHEMA


def test_a_newer_version_is_refused():
    content = json.loads(examples.machine().to_json()) | {"schema": 99}
    with pytest.raises(UsageError, match=r"machine\.json has schema 99"):
        Machine.from_json(json.dumps(content), "machine.json")


@pytest.mark.parametrize(
    "change",
    [
        {"status": "great"},
        {"surprise": 1},
        {"launch": "one"},
        {"result": {"launch": 1}},
        {"machine": {}},
        {"schema": "1"},
        {"schema": True},
        {"schema": 0},
        {"schema": None},
        {"result": None},
    ],
)
def test_an_invalid_record_is_an_error_with_its_file_name(change):
    document = json.loads(examples.record().to_json()) | change
    with pytest.raises(UsageError, match=r"x\.json is not a valid record") as caught:
        Record.from_json(json.dumps(document), "x.json")
    assert "\n" not in caught.value.message
    assert "pydantic" not in caught.value.message


@pytest.mark.parametrize("part", ["training", "inference"])
@pytest.mark.parametrize("speed", [0.0, 1e-320, -1.0, 1.1e9, 1e308])
def test_an_ok_record_with_an_impossible_speed_is_refused(part, speed):
    document = json.loads(examples.record().to_json())
    document["result"][part]["images_per_s"] = speed
    with pytest.raises(UsageError, match=r"x\.json is not a valid record: .*images_per_s"):
        Record.from_json(json.dumps(document), "x.json")
    failed = json.loads(examples.failed().to_json()) | {"result": document["result"]}
    with pytest.raises(UsageError, match="images_per_s"):
        Record.from_json(json.dumps(failed), "x.json")


@pytest.mark.parametrize(
    ("name", "value"), [("ratios", [1.5, -1.0]), ("ratios", [0.0]), ("rates", [-1.0]), ("rates", [1.1e9])]
)
def test_a_search_with_impossible_speeds_is_refused(name, value):
    document = json.loads(examples.record(replace(examples.request(), purpose="tune")).to_json())
    document["result"]["tuning"]["searches"][0]["tried"][1][name] = value
    with pytest.raises(
        UsageError, match=rf"x\.json is not a valid record: .*tuning\.searches\[0\]\.tried\[1\]\.{name}"
    ):
        Record.from_json(json.dumps(document), "x.json")


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("seconds",), 1e308),
        (("seconds",), -1.0),
        (("host_samples", "at", 0), -1e308),
        (("host_samples", "at", -1), 1e308),
        (("host_samples", "series", "cpu_busy", 0), 1e308),
        (("host_samples", "series", "cpu_busy", 0), -1e308),
        (("host_samples", "core_busy", 0), 1e308),
        (("host_samples", "cost_s"), -5.0),
        (("machine", "cpus"), 0),
        (("machine", "physical_cores"), 10**9),
        (("machine", "memory_bytes"), -1),
        (("result", "training", "windows", 0, "seconds"), 0.0),
        (("result", "training", "windows", 0, "images"), 0),
        (("result", "inference", "latency_ms", 0), 0.0),
        (("result", "telemetry", "cpu_cores"), 1e7),
        (("result", "proof", "checks", 0, "error"), -1.0),
    ],
)
def test_impossible_times_and_samples_are_refused(place, value):
    samples = HostSamples(at=[1.0, 2.0], series={"cpu_busy": [1.0, None]}, core_busy=[0.5], cost_s=0.1)
    document = json.loads(examples.record(host_samples=samples).to_json())
    assert Record.from_json(json.dumps(document), "x.json").host_samples == samples
    *parents, last = place
    functools.reduce(operator.getitem, parents, document)[last] = value
    with pytest.raises(UsageError, match=rf"x\.json is not a valid record: {place[0]}"):
        Record.from_json(json.dumps(document), "x.json")


@pytest.mark.parametrize("part", ["timings", "training", "inference", "proof", "evidence", "telemetry"])
def test_an_ok_record_has_every_part(part):
    document = json.loads(examples.record().to_json())
    document["result"][part] = None
    with pytest.raises(UsageError, match=rf"x\.json is not a valid record: it is ok, but has no {part}\."):
        Record.from_json(json.dumps(document), "x.json")


@pytest.mark.parametrize("threads", ["auto", "0", "-1", ""])
def test_an_ok_record_has_a_number_of_threads(threads):
    document = json.loads(examples.record().to_json())
    document["request"]["settings"] = {"threads": threads}
    with pytest.raises(UsageError, match="it is ok, but its setting threads is"):
        Record.from_json(json.dumps(document), "x.json")


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e999", "-1e999", "9223372036854775808", "9" * 400])
@pytest.mark.parametrize("field", ["memory_bytes", "quota_cpus"])
def test_a_number_out_of_range_is_refused(field, number):
    text = json.dumps(json.loads(examples.machine().to_json()) | {field: "HERE"}).replace('"HERE"', number)
    with pytest.raises(UsageError, match=rf"not a valid machine: {field}: the number is NaN, infinite or ") as caught:
        Machine.from_json(text, "x.json")
    assert len(caught.value.message) < 100


@pytest.mark.parametrize("text", ["", "null", "[]", "{}", "[" * 100_000, b"\xff\xfe"])
def test_content_that_is_not_a_json_object_is_refused(text):
    with pytest.raises(UsageError, match=r"x\.json is not a valid record"):
        Record.from_json(text, "x.json")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({f"k{n}": n for n in range(20_000)}, "an object has more than 10,000 names"),
        ({"gpus": [{}] * 100_000}, r"gpus\.0"),
        ({"cpu_flags": [0] * 100_000}, r"cpu_flags\.0"),
    ],
)
def test_a_document_with_very_many_errors_is_refused_at_the_first_one(change, message):
    text = json.dumps(json.loads(examples.machine().to_json()) | change)
    with pytest.raises(UsageError, match=f"not a valid machine: {message}") as caught:
        Machine.from_json(text, "x.json")
    cause = caught.value.__cause__
    assert not isinstance(cause, ValidationError) or cause.error_count() < 100


def test_nan_is_never_written():
    broken = replace(examples.result(examples.request()).training, final_loss=float("nan"))
    record = examples.record(result=replace(examples.result(examples.request()), training=broken))
    with pytest.raises(ValueError, match="not JSON compliant"):
        record.to_json()


def test_each_text_of_a_reason_is_one_line():
    reason = Reason.of(Code.WORKER_ERROR, "It\n  failed.", "Look\tat it.")
    assert (reason.message, reason.remedy) == ("It failed.", "Look at it.")
    assert Record.from_json(examples.record(status=Status.FAILED, reason=reason).to_json(), "x").reason == reason


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("dial tcp: lookup example.org: no such host", "dial tcp: lookup example.org: no such host."),
        ("(see 'log')", "(see 'log')."),
        ("It failed.", "It failed."),
        ('Its last output was "Killed."', 'Its last output was "Killed."'),
        ("Why?\n", "Why?"),
        ("", ""),
    ],
)
def test_the_message_of_a_reason_ends_like_a_sentence(message, expected):
    assert Reason.of(Code.IMAGE_FAILED, message).message == expected


def test_every_code_has_a_status_an_exit_code_and_a_remedy():
    for code in Code:
        assert code.status is not Status.OK
        assert 1 <= code.exit_code <= 6
        assert Reason.of(code, "It failed.").remedy == code.remedy
        assert code.remedy.endswith(".")


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (Code.INVALID_WEIGHTS, UsageError),
        (Code.ENGINE_FAILED, EngineError),
        (Code.IMAGE_FAILED, ImageError),
        (Code.DATA_UNAVAILABLE, DataError),
        (Code.DATA_CORRUPT, CorruptDataError),
        (Code.DISK_FULL, DiskError),
    ],
)
def test_runs_and_commands_have_the_same_exit_code_for_the_same_reason(code, error):
    assert code.exit_code == error.exit_code != KitError.exit_code


@pytest.mark.parametrize(
    "change",
    [
        {"launch": 2},
        {"purpose": "tune"},
        {"cell": json.loads(examples.record().to_json())["cell"] | {"batch": 1}},
        {"status": "failed"},
        {"status": "ok", "result": json.loads(examples.record().to_json())["result"] | {"launch": 2}},
        {"request": None},
    ],
)
def test_a_record_with_contradictory_parts_is_refused(change):
    document = json.loads(examples.record().to_json()) | change
    with pytest.raises(UsageError, match=r"x\.json is not a valid record: \S"):
        Record.from_json(json.dumps(document), "x.json")


@pytest.mark.parametrize("change", [{"error": 1.0}, {"passed": False}])
def test_a_record_whose_proof_contradicts_its_errors_is_refused(change):
    document = json.loads(examples.record().to_json())
    document["result"]["proof"]["checks"][0] |= change
    with pytest.raises(UsageError, match=r"the check \w+ (passed|failed) with an error of"):
        Record.from_json(json.dumps(document), "x.json")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"checks": []}, "its proof has no checks"),
        ({"passed": False}, "its proof failed, but its checks did not"),
    ],
)
def test_a_record_whose_proof_contradicts_its_checks_is_refused(change, message):
    document = json.loads(examples.record().to_json())
    document["result"]["proof"] |= change
    with pytest.raises(UsageError, match=message):
        Record.from_json(json.dumps(document), "x.json")


def test_a_launch_that_only_predicts_leaves_no_record():
    text = examples.record().to_json().replace('"measure"', '"predict"')
    with pytest.raises(UsageError, match="launches to predict leave no record"):
        Record.from_json(text, "x.json")
