"""Documents: versions, strictness, and that JSON gives back what went in."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from kit.model import document
from kit.model.errors import UsageError
from kit.model.machine import Machine
from kit.model.record import Record, reason
from scenarios.contract.reasons import Code, Status
from tests import examples


def test_a_record_comes_back_equal_with_the_worker_s_own_types():
    record = examples.record()
    again = Record.from_json(record.to_json(), "x.json")
    assert again == record
    assert again.result == examples.result(examples.request())
    assert json.loads(record.to_json())["schema"] == document.SCHEMA


def test_a_newer_version_is_refused():
    content = json.loads(examples.machine().to_json()) | {"schema": 99}
    with pytest.raises(UsageError, match=r"machine\.json was written by a newer kit \(schema 99"):
        Machine.from_json(json.dumps(content), "machine.json")


@pytest.mark.parametrize(
    "change",
    [
        {"status": "great"},
        {"surprise": 1},
        {"launch": "one"},
        {"result": {"key": "k"}},
        {"machine": {}},
        {"schema": "1"},
        {"schema": True},
        {"schema": 0},
        {"schema": None},
        {"result": None},
    ],
)
def test_what_is_no_record_is_refused_by_name(change):
    document = json.loads(examples.record().to_json()) | change
    with pytest.raises(UsageError, match=r"x\.json is not a valid record") as caught:
        Record.from_json(json.dumps(document), "x.json")
    assert "\n" not in caught.value.message
    assert "pydantic" not in caught.value.message


@pytest.mark.parametrize("part", ["training", "inference"])
@pytest.mark.parametrize("speed", [0.0, 1e-320, -1.0, 1.1e9, 1e308])
def test_an_ok_record_with_a_speed_of_no_machine_is_refused(part, speed):
    document = json.loads(examples.record().to_json())
    document["result"][part]["images_per_s"] = speed
    with pytest.raises(UsageError, match=r"x\.json is not a valid record: .*images_per_s"):
        Record.from_json(json.dumps(document), "x.json")
    failed = json.loads(examples.failed().to_json()) | {"result": document["result"]}
    assert Record.from_json(json.dumps(failed), "x.json").status is Status.FAILED


@pytest.mark.parametrize(
    ("name", "value"), [("ratios", [1.5, -1.0]), ("ratios", [0.0]), ("rates", [-1.0]), ("rates", [1.1e9])]
)
def test_a_search_that_tried_what_is_as_fast_as_no_machine_is_refused(name, value):
    document = json.loads(examples.record(replace(examples.request(), purpose="tune")).to_json())
    document["result"]["tuning"]["searches"][0]["tried"][1][name] = value
    with pytest.raises(UsageError, match=rf"x\.json is not a valid record: .*tuning\.searches\.tried\.{name}"):
        Record.from_json(json.dumps(document), "x.json")


@pytest.mark.parametrize("part", ["timings", "training", "inference", "proof", "evidence", "telemetry"])
def test_an_ok_record_has_every_part(part):
    document = json.loads(examples.record().to_json())
    document["result"][part] = None
    with pytest.raises(UsageError, match=rf"x\.json is not a valid record: it is ok, but lacks {part}\."):
        Record.from_json(json.dumps(document), "x.json")


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e999", "-1e999", "9223372036854775808", "9" * 400])
@pytest.mark.parametrize("place", ["cpus", "quota_cpus"])
def test_a_number_that_is_never_written_is_refused(place, number):
    text = json.dumps(json.loads(examples.machine().to_json()) | {place: "HERE"}).replace('"HERE"', number)
    with pytest.raises(UsageError, match=rf"not a valid machine: it holds the number {number[:20]}\.") as caught:
        Machine.from_json(text, "x.json")
    assert len(caught.value.message) < 100


@pytest.mark.parametrize("text", ["", "null", "[]", "{}", "[" * 100_000, b"\xff\xfe"])
def test_what_is_no_object_is_refused_by_name(text):
    with pytest.raises(UsageError, match=r"x\.json is not a valid record"):
        Record.from_json(text, "x.json")


def test_a_number_that_json_has_not_is_never_written():
    broken = replace(examples.result(examples.request()).training, final_loss=float("nan"))
    record = examples.record(result=replace(examples.result(examples.request()), training=broken))
    with pytest.raises(ValueError, match="not JSON compliant"):
        record.to_json()


def test_a_reason_is_one_line_of_text_each():
    told = reason(Code.WORKER_ERROR, "It\n  failed.", "Look\tat it.")
    assert (told.message, told.remedy) == ("It failed.", "Look at it.")
    assert Record.from_json(examples.record(status=Status.FAILED, reason=told).to_json(), "x").reason == told
