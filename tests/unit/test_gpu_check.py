"""Test the check of a GPU machine. Its commands are tried on the CPU in the slow tests."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from kit.storage.run_folder import RunFolder
from scenarios.contract.reasons import Status
from tests import examples, gpu_check
from tests.command import Kit
from tests.gpu_check import FAIL, PASS, SKIP, Check, Line


def perform(check: Check, out: Path, left_s: float = 600) -> Line:
    return gpu_check.perform(check, out, dict(os.environ), left_s)


def test_every_run_of_the_check_can_be_planned(kit: Kit) -> None:
    runs = [check.command[3:] for check in gpu_check.checks("cpu", "") if "run" in check.command]
    assert len(runs) >= 9
    for options in runs:
        called = kit("plan", *options)
        assert called.code == 0, called.err


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ([examples.record()], (PASS, "1 ok")),
        ([], (FAIL, "no launch has a record")),
        (
            [examples.record(), examples.failed(examples.request(launch=2), message="It broke.")],
            (FAIL, "1 ok, 1 failed\nmnist-cnn/torch/cpu/stock/fp32/b64: It broke."),
        ),
        (
            [examples.failed(status=Status.SKIPPED, message="No TF32.")],
            (SKIP, "1 skipped\nmnist-cnn/torch/cpu/stock/fp32/b64: No TF32."),
        ),
    ],
)
def test_a_run_passes_if_its_launches_are_ok_or_skipped_for_a_reason(tmp_path, records, expected):
    folder = RunFolder.create(tmp_path / "run", examples.plan([examples.planned()] * bool(records)), examples.machine())
    for record in records:
        folder.save(record)
    assert gpu_check.judge_records(tmp_path)[0] == FAIL
    folder.index.touch()
    assert gpu_check.judge_records(tmp_path) == expected


def test_a_run_with_a_missing_launch_fails(tmp_path):
    planned = [examples.planned(), examples.planned(2)]
    folder = RunFolder.create(tmp_path / "run", examples.plan(planned), examples.machine())
    folder.save(examples.record())
    folder.index.touch()
    assert gpu_check.judge_records(tmp_path) == (FAIL, "1 ok, but launches or the report are missing")


@pytest.mark.parametrize(
    ("program", "limit_s", "outcome", "remark"),
    [
        ("print(1)", 60, PASS, ""),
        ("exit(3)", 60, FAIL, "exit code 3, see b-c.log"),
        ("import time; time.sleep(1000)", 0.1, FAIL, "it took too long"),
    ],
)
def test_a_check_fails_by_its_exit_code_or_its_time(tmp_path, program, limit_s, outcome, remark):
    line = perform(Check("b, c", ("-c", program), limit_s), tmp_path)
    assert (line.name, line.outcome, line.remark) == ("b, c", outcome, remark)
    assert (tmp_path / "b-c.log").exists()


@pytest.mark.parametrize(
    ("code", "found", "outcome"), [(0, PASS, PASS), (1, SKIP, SKIP), (1, FAIL, FAIL), (3, PASS, FAIL)]
)
def test_exit_code_1_of_a_run_is_for_skipped_cells_if_its_records_pass(tmp_path, code, found, outcome):
    line = perform(Check("a", ("-c", f"exit({code})"), 60, lambda folder: (found, "")), tmp_path)
    assert line.outcome == outcome


def test_a_check_without_time_or_framework_does_not_start(tmp_path):
    check = Check("a", ("-c", "exit(3)"), 60)
    assert perform(check, tmp_path, left_s=1) == Line("a", FAIL, 0, "no time was left")
    assert perform(replace(check, skipped="no torch"), tmp_path) == Line("a", SKIP, 0, "no torch")
    assert not list(tmp_path.iterdir())


def test_the_page_has_one_line_per_check_and_the_reasons_of_what_failed():
    broken = Line("stock cells", FAIL, 61, "1 ok, 1 failed\nx: It broke.")
    lines = [Line("doctor", PASS, 3.2, ""), broken, Line("y", SKIP, 0, "no")]
    assert gpu_check.page(lines) == (
        "pass  doctor           3 s\n"
        "FAIL  stock cells     61 s  1 ok, 1 failed\n"
        "      x: It broke.\n"
        "skip  y                     no\n"
        "1 passed, 1 failed, 1 skipped\n"
    )
