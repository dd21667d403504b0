"""Test the benchmarks: pairs, lines of JSON, measured processes, and interleaved runs."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import geometric_mean, median

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from benchmarks import against_itself, container, overhead, processes, proofs, slow_meter
from benchmarks.interleave import half_of, half_plan, half_records, interleaved
from benchmarks.pairs import Subject, exit_code, median_interval, ratios, summary
from benchmarks.processes import Command, Extent, compare, compare_in_one_process
from kit import assets
from kit.analysis.comparison import Run
from kit.analysis.intervals import Interval
from kit.engines.local import LocalEngine
from kit.environments.package_sources import Sources
from kit.model.environment import Environment
from kit.model.errors import KitError
from kit.model.plan import Plan
from kit.model.progress import Silent
from kit.storage.run_folder import RunFolder
from scenarios.contract.cell import Cell
from tests import examples

SUBJECT = Subject("overhead", "mnist-cnn", "torch")
CELLS = [examples.cell(), examples.cell("cifar-cnn"), examples.cell("cifar-mlp", "tensorflow")]
STEADY = (1000.0, 1004.0, 996.0, 1002.0, 998.0)

# A side with a simulated clock. An epoch takes `seconds`. The refresh before it takes 100 s, which must not count.
SIDE = """
import sys
from benchmarks import side

seconds = float(sys.argv[1])
parameters, epochs_left, other_parameters = map(int, sys.argv[2:])
now = 0.0

def refresh():
    global now
    now += 100

def epoch():
    global now, epochs_left
    now += seconds
    epochs_left -= 1
    if epochs_left < 0:
        sys.exit("no epochs left")

side.time.monotonic = lambda: now
loop = side.Loop(parameters, 640, refresh, epoch)
side.serve({"epoch": loop, "twice": side.Loop(other_parameters, 640, lambda: None, lambda: (epoch(), epoch()))})
"""


def a_plan(cells: Sequence[Cell] = CELLS, **changes: object) -> Plan:
    plan = examples.plan([examples.planned(1, **asdict(cell)) for cell in cells])
    return plan.model_copy(update=changes)


def a_side(parameters: int = 7, seconds: float = 1.0, epochs: int = 99, other_parameters: int | None = None) -> Command:
    values = map(str, (seconds, parameters, epochs, other_parameters or parameters))
    return Command((sys.executable, "-c", SIDE, *values), {"PYTHONPATH": str(processes.ROOT)})


def printed_line(capsys) -> dict:
    return json.loads(capsys.readouterr().out)


@pytest.fixture(autouse=True)
def _no_settling(monkeypatch):
    monkeypatch.setattr(processes, "SETTLE_S", 0.0)


def test_sides_alternate_after_one_warm_up_epoch_each():
    order: list[str] = []

    def side(name: str, seconds: float) -> float:
        order.append(name)
        return seconds

    assert list(ratios(lambda: side("o", 2.0), lambda: side("b", 1.0), 3)) == [0.5, 0.5, 0.5]
    assert order == ["o", "b", "o", "b", "b", "o", "o", "b"]


@given(st.floats(0.8, 1.25), st.floats(0.5, 2), st.integers(1, 10))
def test_a_steady_drift_of_speed_favors_neither_side(drift, cost, half_of_pairs):
    speed = 1.0

    def epoch(seconds: float) -> float:
        nonlocal speed
        speed *= drift
        return seconds / speed

    found = list(ratios(lambda: epoch(1.0), lambda: epoch(cost), 2 * half_of_pairs))
    assert geometric_mean(found) == pytest.approx(cost)


def test_a_line_has_the_median_and_its_interval():
    line = SUBJECT.line(summary([0.99, 1.0, 0.97, 1.01, 40.0, 0.98, 1.02, 0.01], 24))
    assert line == {
        "bench": "overhead",
        "scenario": "mnist-cnn",
        "framework": "torch",
        "precision": "fp32",
        "ratio": 0.995,
        "interval": [0.01, 40.0],  # of eight values, the smallest and the largest
        "n": 24,
    }


def test_too_few_launches_for_an_interval_are_refused():
    with pytest.raises(ValueError, match="no interval"):
        summary([1.0] * 5, 20)
    with pytest.raises(SystemExit):
        overhead.options(["--launches", "5"])


@given(values=st.lists(st.floats(0.1, 10), min_size=6, max_size=60))
def test_the_median_interval_is_that_of_scipys_quantile_test(values):
    expected = stats.quantile_test(values, p=0.5).confidence_interval(0.95)
    interval = median_interval(values)
    assert (interval.low, interval.high) == (expected.low, expected.high)
    assert interval.estimate == median(values)


def test_the_median_interval_needs_six_values():
    assert median_interval([1.0, 2.0, 3.0, 4.0, 5.0]) is None
    assert median_interval([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]) == Interval(3.5, 1.0, 6.0)


def test_keras_is_compared_by_whole_fit_and_by_steps_and_torch_in_one_process(monkeypatch, capsys):
    def on_host(environment: Environment, home: Path, module: str, *arguments: str) -> Command:
        return a_side(seconds={"benchmarks.keras_recipes": 3, "benchmarks.kit_side": 1}.get(module, 2) / len(arguments))

    monkeypatch.setattr(overhead, "on_host", on_host)
    monkeypatch.setattr(overhead, "TORCH_LOOPS", ("epoch", "twice"))
    environments = {name: Environment(name, "cpu", "venv", name, "") for name in ("tensorflow", "torch")}
    choice = ["--scenario", "mnist-cnn", "--scenario", "cifar-cnn", "--launches", "6", "--pairs", "1"]
    overhead.measure(environments, overhead.options(choice), Silent())
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(line["bench"], line["scenario"], line["framework"]) for line in lines] == [
        ("overhead", "mnist-cnn", "tensorflow"),
        ("overhead-steps", "mnist-cnn", "tensorflow"),
        ("overhead", "cifar-cnn", "tensorflow"),
        ("overhead-steps", "cifar-cnn", "tensorflow"),
        ("overhead", "pooled", "tensorflow"),
        ("overhead-steps", "pooled", "tensorflow"),
        ("overhead", "mnist-cnn", "torch"),
        ("overhead", "cifar-cnn", "torch"),
        ("overhead", "pooled", "torch"),
    ]
    # The seconds depend on the number of arguments: 7 for the kit, 3 for plain Keras, 4 with --steps-only.
    assert [line["ratio"] for line in lines if line["scenario"] == "mnist-cnn"] == [7, 5.25, 2]


def test_the_pooled_ratio_weighs_all_scenarios_equally():
    line = overhead.pooled([0.9, 0.9, 1.0, 1.0, 1.0])
    assert (line["ratio"], line["n"]) == (0.9587, 5)
    assert line["interval"][0] < 0.9


def test_each_baseline_has_a_recipe_for_each_scenario():
    for module in overhead.BASELINES.values():
        source = ast.parse((processes.ROOT / f"{module.replace('.', '/')}.py").read_text())
        (table,) = (
            node.value
            for node in source.body
            if isinstance(node, ast.AnnAssign) and getattr(node.target, "id", "") == "RECIPES"
        )
        assert isinstance(table, ast.Dict)
        assert [ast.literal_eval(key) for key in table.keys if key] == list(overhead.SCENARIOS)


def test_two_processes_are_compared_by_their_answers(capsys):
    assert compare(SUBJECT, a_side(seconds=2), a_side(seconds=8), Extent(6, 2), Silent()) == 4
    line = printed_line(capsys)
    assert (line["ratio"], line["n"]) == (4, 12)


def test_two_loops_of_one_process_are_compared_with_both_commands_in_rotation(capsys):
    names = ("epoch", "twice")
    assert compare_in_one_process(SUBJECT, [a_side(), a_side(seconds=3)], names, Extent(6, 2), Silent()) == 2
    line = printed_line(capsys)
    assert (line["ratio"], line["interval"], line["n"]) == (2, [2, 2], 12)
    with pytest.raises(KitError, match="no epochs left"):
        compare_in_one_process(SUBJECT, [a_side(), a_side(epochs=0)], names, Extent(6, 2), Silent())
    with pytest.raises(KitError, match="do different work"):
        compare_in_one_process(SUBJECT, [a_side(other_parameters=8)], names, Extent(6, 2), Silent())


def test_each_launch_counts_once(monkeypatch, capsys):
    launches = iter([[1.0, 1.0, 0.5], [1.0, 0.6, 0.7], [1.1] * 3, [1.2] * 3, [1.3] * 3, [1.4] * 3])
    monkeypatch.setattr(processes, "ratios", lambda ours, baseline, pairs: next(launches))
    assert compare(SUBJECT, a_side(), a_side(), Extent(6, 3), Silent()) == pytest.approx(1.15)
    line = printed_line(capsys)
    assert (line["interval"], line["n"]) == ([0.7, 1.4], 18)


def test_sides_with_different_work_are_not_compared():
    with pytest.raises(KitError, match="Correct the recipe"):
        compare(SUBJECT, a_side(parameters=7), a_side(parameters=8), Extent(6, 1), Silent())


def test_the_error_for_a_dead_side_has_its_last_output():
    with pytest.raises(KitError, match="ended with 1:\nno epochs left"):
        compare(SUBJECT, a_side(epochs=2), a_side(), Extent(6, 9), Silent())


def test_without_docker_the_container_line_gives_the_reason(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["container"])
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    monkeypatch.setattr(container.shutil, "which", lambda program: f"/usr/bin/{program}")
    assert exit_code(container.main) == 0
    line = printed_line(capsys)
    assert line["bench"] == "container"
    assert "/nowhere/docker.sock" in line["skipped"]


@given(st.integers(0, 99), st.integers(1, 6))
def test_interleaved_launches_of_a_cell_are_adjacent_and_the_first_run_alternates(seed, rounds):
    plan = interleaved(a_plan(seed=seed), rounds)
    pairs = list(zip(plan.launches[::2], plan.launches[1::2], strict=True))
    assert all(first.key == second.key for first, second in pairs)
    for index, (first, second) in enumerate(pairs):
        number = index // len(CELLS) + 1
        assert {first.launch, second.launch} == {2 * number - 1, 2 * number}
        assert half_of(first.launch) == ("a" if number % 2 else "b")
    for cell in CELLS:
        assert sorted(x.launch for x in plan.launches if x.key == cell.key) == list(range(1, 2 * rounds + 1))


def test_the_order_of_cells_changes_each_round_and_no_launches_are_added():
    plan = interleaved(a_plan(budget_s=5400.0), 8)
    order = [launch.key for launch in plan.launches[::2]]
    assert len({tuple(order[i : i + len(CELLS)]) for i in range(0, len(order), len(CELLS))}) > 1
    assert plan.budget_s == 1.0
    assert interleaved(a_plan(), 8).budget_s is None  # the profile quick has no budget


def test_an_interleaved_run_is_split_into_two_complete_runs(tmp_path):
    plan = interleaved(a_plan(), 5)
    folder = RunFolder.create(tmp_path / plan.run, plan, examples.machine())
    for launch in plan.launches:
        folder.save(examples.record(examples.request(launch.cell, launch=launch.launch), 100.0 * launch.launch))
    for half, first in (("a", 1), ("b", 2)):
        run = against_itself.split(folder, half)
        saved = RunFolder.open(tmp_path / f"{plan.run}-{half}")
        assert saved.plan.run == f"{plan.run}-{half}"
        assert saved.missing() == []
        assert saved.records() == run.records
        for record in saved.records():
            assert record.result is not None
            assert record.result.training is not None
            assert record.launch == record.request.launch == record.result.launch
            assert record.result.training.images_per_s == 100 * (2 * record.launch - 2 + first)
    assert len(half_records(folder.records(), "a")) == len(half_plan(plan, "a").launches) == 15


def a_run(speeds: Sequence[float]) -> Run:
    requests = [examples.request(cell, launch=n) for cell in CELLS for n in range(1, len(speeds) + 1)]
    records = [examples.record(asked, speeds[asked.launch - 1]) for asked in requests]
    return Run(interleaved(a_plan(), len(speeds)), examples.machine(), records)


def test_the_lines_distinguish_ties_from_a_loss_of_ten_percent():
    base, same = a_run(STEADY), a_run(STEADY[::-1])
    slower = a_run([0.9 * speed for speed in STEADY])
    unchanged, inference = against_itself.unchanged_lines(base, same)
    assert unchanged == {"bench": "a-a", "profile": "quick", "measure": "training", "cells": 3, "ties": 3, "gate": 0}
    assert inference == unchanged | {"measure": "inference"}
    lost = {"ties": 0, "gate": 1}
    assert against_itself.unchanged_lines(base, slower) == [unchanged | lost, inference | lost]
    lines = json.loads(json.dumps(against_itself.slowed_lines(base, slower)))
    assert {line["cell"] for line in lines} == {cell.key for cell in CELLS}
    for line in lines:
        assert line | {"cell": "", "interval": []} == {
            "bench": "slowed",
            "profile": "quick",
            "cell": "",
            "ratio": 0.9,
            "interval": [],
            "compare": "slower",
            "gate": 1,
        }
        assert line["interval"][0] < 0.9 < line["interval"][1]


def test_only_launches_of_the_second_run_are_slowed(monkeypatch, tmp_path):
    monkeypatch.setattr(LocalEngine, "launch", lambda self, *arguments: self._root)
    engine = against_itself.HalfSlowed(Sources(), tmp_path)
    roots = [engine.launch(*(None,) * 4, {"launch": str(n)}, lambda: False) for n in (1, 2, 3, 4)]
    assert roots == [assets.ROOT, tmp_path, assets.ROOT, tmp_path]


def test_a_slowed_step_takes_a_ninth_longer(monkeypatch):
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += 1e-6
        return now

    class Meter:
        steps = 0

        def begin(self) -> None:
            pass

        def step(self, images: int) -> bool:
            self.steps += images
            return True

    monkeypatch.setattr(slow_meter.time, "monotonic", clock)
    slow_meter.slow(Meter)
    meter = Meter()
    meter.begin()
    for seconds in (0.09, 0.18):
        began = now
        now += seconds
        assert meter.step(32)
        assert now - began == pytest.approx(seconds * 10 / 9, abs=1e-5)
    assert meter.steps == 64


def test_the_slowed_copy_has_a_meter_that_waits():
    code = "from scenarios.measuring.window_meter import WindowMeter as M; print(M.begin.__module__, M.step.__module__)"
    with against_itself.slowed_copy() as copy:
        environ = {**os.environ, "PYTHONPATH": str(copy)}
        command = [sys.executable, "-P", "-c", code]
        output = subprocess.run(command, env=environ, cwd=copy, capture_output=True, text=True, check=True).stdout
    assert output.split() == ["scenarios.slow_meter"] * 2
    assert not Path(copy).exists()


def test_the_largest_error_of_each_check_is_found_in_proofs_of_several_processes(monkeypatch, capsys, tmp_path):
    def check(name: str, error: float, tolerance: float = 0.5) -> dict:
        return {"name": name, "error": error, "tolerance": tolerance, "passed": error <= tolerance}

    full = {
        0: [
            check("gradient 0/kernel", 0.1),
            check("update 1/bias at step 3", 0.2),
            check("dropout 4: rate", 0.25, 0.3),
        ],
        1: [check("gradient 3/bias", 0.3), check("update 0/kernel at step 2", 0.1), check("dropout 2: rate", 0.2, 0.4)],
    }

    def prove(subject, seed, *_):
        if subject.precision == "bf16":
            return {"not_offered": "It computes in float32."}
        later = len(_) > 3
        checks = [check("loop: weights 0/bias", 0.6 if seed else 0.4)] if later else full[seed]
        return {"passed": True, "checks": checks, "seconds": 0.25 if later else 1.5, "cached": True}

    monkeypatch.setattr(proofs, "prove", prove)
    args = proofs.options(["--scenario", "mnist-cnn"])
    found = list(proofs.proofs(args, Environment("torch", "cpu", "venv", "", ""), tmp_path, tmp_path))
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    cell = {"bench": "proof", "scenario": "mnist-cnn", "framework": "torch"}
    proven = cell | {"precision": "fp32", "cached": True, "full_s": 1.5, "later_s": 0.25}
    assert lines == [
        proven | {"seed": 0, "failed": []},
        proven | {"seed": 1, "failed": ["loop: weights 0/bias"]},
        cell | {"precision": "bf16", "skipped": "It computes in float32."},
    ]
    assert [proof["passed"] for _, _, proof in found] == [True, False]
    assert [(e["check"], e["tolerance"], e["error"], e["seed"]) for e in proofs.errors(found)] == [
        ("gradient", 0.5, 0.3, 1),
        ("update", 0.5, 0.2, 0),
        ("dropout: rate", 0.3, 0.25, 0),
        ("dropout: rate", 0.4, 0.2, 1),
    ]
