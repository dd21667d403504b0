"""Test that the quick reader of documents reads what kit writes, and leaves everything unusual to the slow one."""

from __future__ import annotations

import json

import pytest

from kit.model import document, quick_read
from kit.model.machine import Machine
from kit.model.plan import Plan
from kit.model.record import Record
from tests import example_run, examples

RUN = example_run.run()
MACHINE = examples.machine(gpus=[examples.gpu()])


def read(kind, text):
    reader = quick_read.QuickReader.of(kind.__pydantic_core_schema__, document.MAX_NAMES)
    return reader.read(text, document.SCHEMA)


@pytest.mark.parametrize(
    "written",
    [RUN.plan, MACHINE, *RUN.records[:2], *RUN.records[-2:], *RUN.probes, *RUN.tunings],
    ids=lambda written: type(written).__name__,
)
def test_what_kit_writes_is_read_as_by_the_slow_reader(written):
    text = written.to_json()
    found = read(type(written), text)
    assert found == written
    assert repr(found) == repr(type(written).model_validate_json(text, strict=True))
    assert read(type(written), text.encode()) == written


@pytest.mark.parametrize("kind", [Record, Plan, Machine])
@pytest.mark.parametrize("text", ["", "null", "[]", "{}", "[" * 100_000, b"\xff\xfe", b"\xef\xbb\xbf{}"])
def test_what_is_no_document_is_left_to_the_slow_reader(kind, text):
    with pytest.raises(quick_read.Unreadable):
        read(kind, text)


@pytest.mark.parametrize("field", ["memory_bytes", "quota_cpus"])
@pytest.mark.parametrize("value", ["NaN", "-Infinity", "1e999", "9223372036854775808", "9" * 400, '"1"', "true", "[1]"])
def test_unusual_numbers_are_left_to_the_slow_reader(field, value):
    text = json.dumps(json.loads(MACHINE.to_json()) | {field: "HERE"}).replace('"HERE"', value)
    with pytest.raises(quick_read.Unreadable):
        read(Machine, text)


def test_a_float_that_is_a_whole_number_above_the_largest_one_is_left_to_the_slow_reader():
    text = RUN.records[0].to_json()
    loss = f'"final_loss": {RUN.records[0].result.training.final_loss}'
    assert loss in text
    assert read(Record, text.replace(loss, '"final_loss": 1e18'))
    with pytest.raises(quick_read.Unreadable):
        read(Record, text.replace(loss, '"final_loss": 9223372036854775808'))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"cpus": 2', '"cpus": 2, "cpus": 2'),
        ('"L2": 1048576', '"L2": 1048576, "L2"\n : 1048576'),
        ('"name": "NVIDIA H200"', '"name": "NVIDIA H200", "name": "NVIDIA H200"'),
        ('"cpu_model": "Example CPU"', '"cpu_model": ": a text that looks like a name"'),
        ('"schema": 1', '"schema": 2'),
        ('"schema": 1', '"schema": true'),
        ('"schema": 1,', ""),
        ('"cpus": 2', '"cpus": 2, "surprise": 1'),
        ('"hostname": null', '"kit": "1"'),
    ],
)
def test_repeated_missing_and_unknown_names_are_left_to_the_slow_reader(old, new):
    text = MACHINE.to_json()
    assert old in text
    with pytest.raises(quick_read.Unreadable):
        read(Machine, text.replace(old, new, 1))


def test_a_record_with_contradictory_parts_is_left_to_the_slow_reader():
    changed = json.loads(RUN.records[0].to_json()) | {"launch": 9}
    with pytest.raises(quick_read.Unreadable):
        read(Record, json.dumps(changed))


@pytest.mark.parametrize(
    "written", [r"a\": \"b", r"\"\"", r"ends with \\", r"\\\"", r"\\\\\": 1, \"cpus\": 2", r"\n\u0022: "]
)
def test_texts_with_quotes_and_backslashes_are_read_quickly(written):
    text = MACHINE.to_json().replace("Example CPU", written)
    found = read(Machine, text)
    assert found == Machine.model_validate_json(text, strict=True)
    assert found.cpu_model == json.loads(f'"{written}"')
    with pytest.raises(quick_read.Unreadable):
        read(Machine, text.replace('"cpus": 2', '"cpus": 2, "cpus": 2', 1))


def test_a_name_that_ends_with_a_backslash_counts_once():
    text = MACHINE.to_json().replace('"L2"', r'"L2\\"')
    assert read(Machine, text) == Machine.model_validate_json(text, strict=True)
    with pytest.raises(quick_read.Unreadable):
        read(Machine, text.replace(r'"L2\\": 1048576', r'"L2\\": 1048576, "L2\\": 1048576'))
