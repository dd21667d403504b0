"""Test plans: the selected cells, their order, the refused options, and the estimates."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import groupby
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kit.model.environment import Framework
from kit.model.errors import UsageError
from kit.model.plan import MAX_S, block_of
from kit.planning import catalog
from kit.planning.estimates import PROBE_S, estimate, planned_seconds, start_seconds
from kit.planning.plan import Options, make_plan
from kit.planning.profiles import MAX_TUNE_S, PROFILES, budget
from kit.planning.selection import Selection
from scenarios.contract.request import Budget

SCENARIOS = catalog.scenarios()
FRAMEWORKS = {
    name: Framework(name, name, ("cpu", "cuda"), (), 13, 580, {}, Path())
    for name in ("onnxruntime", "tensorflow", "torch")
}


def plan(selection=Selection(), options=Options("fake")):  # noqa: B008 - both are frozen
    return make_plan(selection, options, SCENARIOS, FRAMEWORKS, run="r", created_at="2026-01-01T00:00:00+00:00")


def test_the_default_is_every_scenario_framework_and_device_in_stock_fp32_twice():
    launches = plan().launches
    keys = {launch.key for launch in launches}
    assert len(keys) == 6 * 3 * 2
    assert {(launch.key, launch.launch) for launch in launches} == {(key, number) for key in keys for number in (1, 2)}
    assert len(launches) == 2 * len(keys)
    cells = [launch.cell for launch in launches]
    assert {(x.variant, x.lane, x.precision, x.devices) for x in cells} == {("", "stock", "fp32", 1)}
    assert not any(launch.named for launch in launches)
    assert all(launch.cell.batch == SCENARIOS[launch.cell.scenario][""].batch for launch in launches)


def test_names_select_cells():
    chosen = plan(
        Selection(
            scenarios=("catdog-cnn",),
            variants=("deep",),
            frameworks=("torch",),
            devices=("cuda",),
            lanes=("tuned",),
            precisions=("bf16", "tf32"),
            batches=(64, 8),
        ),
        Options("fake", rounds=1),
    ).launches
    assert [launch.key for launch in chosen] == [
        f"catdog-cnn+deep/torch/cuda/tuned/{precision}/b{batch}" for precision in ("tf32", "bf16") for batch in (64, 8)
    ]
    assert all(launch.named for launch in chosen)


def test_variants_without_scenarios_select_the_scenarios_that_have_them():
    labels = {(x.cell.scenario, x.cell.variant) for x in plan(Selection(variants=("sigmoid",))).launches}
    assert labels == {("cifar-mlp", "sigmoid"), ("fashion-mlp", "sigmoid")}
    labels = {(x.cell.scenario, x.cell.variant) for x in plan(Selection(variants=("default", "deep"))).launches}
    assert labels == {(name, "") for name in SCENARIOS} | {("catdog-cnn", "deep")}


@pytest.mark.parametrize(
    ("selection", "options", "words"),
    [
        (Selection(scenarios=("mnist-cmm",)), Options("fake"), "'mnist-cnn'"),
        (Selection(frameworks=("pytorch",)), Options("fake"), "'torch'"),
        (Selection(devices=("gpu",)), Options("fake"), "cuda"),
        (Selection(lanes=("stok",)), Options("fake"), "'stock'"),
        (Selection(precisions=("fp16",)), Options("fake"), "'bf16'|'fp32'"),
        (Selection(variants=("deeep",)), Options("fake"), "'deep'"),
        (Selection(scenarios=("mnist-cnn",), variants=("deep",)), Options("fake"), "default"),
        (Selection(scenarios=("mnist-cnn", "catdog-cnn"), variants=("deep",)), Options("fake"), "of mnist-cnn"),
        (Selection(batches=(0,)), Options("fake"), "--batch"),
        (Selection(batches=(32, 8001)), Options("fake"), r"between 1 and 8,000 .*images of catdog-cnn\), but is 8,001"),
        (Selection(), Options("fake", seed=-1), "--seed"),
        (Selection(), Options("fake", seed=2**32), "--seed"),
        (Selection(), Options("fake", profile="fast"), "quick"),
        (Selection(), Options("fake", epochs=3), "--profile full"),
        (Selection(), Options("fake", keep_weights=False), "--no-weights does not apply to the profile quick"),
        (Selection(), Options("fake", profile="full", epochs=0), "--epochs must be between 1 and 10,000, but is 0"),
        (Selection(), Options("fake", profile="full", epochs=10_001), "between 1 and 10,000, but is 10,001"),
        (Selection(), Options("fake", timeout_s=-1), "--timeout"),
        (Selection(), Options("fake", timeout_s=0.9), r"between 1\.0 s and 8784 h 00 min, but is 0\.9 s"),
        (Selection(), Options("fake", timeout_s=8785 * 3600), "but is 8785 h 00 min"),
        (Selection(lanes=("tuned",)), Options("fake", tune_s=0.5), "--tune"),
        (Selection(), Options("fake", memory_bytes=(64 << 20) - 1), r"--memory must be between 64 MiB and 1024\.0 TiB"),
        (Selection(), Options("fake", memory_bytes=2 << 50), r"but is 2048\.0 TiB"),
        (Selection(), Options("fake", threads=0), "--threads"),
        (Selection(), Options("fake", threads=8193), "--threads"),
        (Selection(batches=tuple(range(1, 301))), Options("fake"), "has 21,600 launches, but a run has at most 10,000"),
    ],
)
def test_invalid_options_are_refused_with_a_remedy(selection, options, words):
    with pytest.raises(UsageError, match=words):
        plan(selection, options)


@given(
    frameworks=st.sets(st.sampled_from(sorted(FRAMEWORKS)), min_size=1),
    scenarios=st.sets(st.sampled_from(sorted(SCENARIOS)), min_size=1),
    seed=st.integers(0, 1000),
)
def test_each_round_of_standard_runs_block_by_block_in_an_order_drawn_by_seed(frameworks, scenarios, seed):
    selection = Selection(scenarios=tuple(scenarios), frameworks=tuple(frameworks))
    options = Options("fake", profile="standard", seed=seed)
    launches = plan(selection, options).launches
    cells = {launch.key for launch in launches}
    assert [launch.launch for launch in launches] == sorted(n for n in range(1, 6) for _ in cells)
    assert Counter((x.key, x.launch) for x in launches) == Counter((key, n) for key in cells for n in range(1, 6))
    visits = [where for where, _ in groupby(launches, key=lambda x: (x.launch, block_of(x.cell)))]
    assert len(visits) == len(set(visits))
    assert plan(selection, options).launches == launches


def test_the_seed_changes_only_the_order():
    one, other = (plan(options=Options("fake", profile="standard", seed=seed)).launches for seed in (1, 2))
    assert one != other
    assert Counter(x.key for x in one) == Counter(x.key for x in other)


def test_the_profile_sets_the_budget_of_a_launch():
    scenario = SCENARIOS["cifar-cnn"][""]
    assert budget(PROFILES["smoke"], None, scenario) == Budget(steps=20, test_images=200)
    assert budget(PROFILES["quick"], None, scenario) == Budget(seconds=3, test_images=1000)
    assert budget(PROFILES["standard"], None, scenario) == Budget(seconds=20)
    assert budget(PROFILES["full"], None, scenario) == Budget(epochs=15)
    assert budget(PROFILES["full"], 2, scenario) == Budget(epochs=2)


def test_later_launches_of_a_cell_take_less_time():
    rounds = plan(Selection(scenarios=("mnist-cnn",), frameworks=("torch",), devices=("cpu",))).launches
    first, second = (planned_seconds(launch, PROFILES["quick"], None, SCENARIOS) for launch in rounds)
    assert 3 < second < first - 1.5  # one and a half seconds are for the timing of steps


def test_the_estimate_counts_launches_and_environments():
    selection = Selection(scenarios=("mnist-cnn",), frameworks=("torch", "onnxruntime"))
    whole = plan(selection)
    cold = estimate(whole, SCENARIOS)
    warm = estimate(whole, SCENARIOS, ready=[launch.environment_key for launch in whole.launches])
    on_cpu = estimate(whole, SCENARIOS, left_out=[("torch", "cuda"), ("onnxruntime", "cuda")])
    assert warm.disk_bytes == 0 < on_cpu.disk_bytes < cold.disk_bytes
    assert warm.seconds < cold.seconds
    assert "8 launches" in cold.lines[0]
    assert "4 launches" in on_cpu.lines[0]
    assert "4 probes" in cold.lines[1]
    assert "8 probes" in estimate(plan(replace(selection, precisions=("fp32", "bf16"))), SCENARIOS).lines[1]
    assert "torch cuda" in cold.lines[2]
    assert "cuda" not in on_cpu.lines[2]


def test_the_estimate_counts_weights_and_checkpoints_of_whole_epochs():
    selection = Selection(scenarios=("cifar-mlp", "mnist-cnn"), frameworks=("torch",), devices=("cpu",))
    mlp, cnn = 48_920_040, 900_136  # bytes of the weights in float32

    def disk(**options):
        return estimate(plan(selection, Options("fake", **options)), SCENARIOS, ready=[("torch", "cpu")])

    checkpoints = 2 * mlp  # one launch runs at a time; SGD has no state
    assert disk(profile="full", keep_weights=False).disk_bytes == checkpoints
    kept = disk(profile="full")
    assert kept.disk_bytes == checkpoints + 2 * (mlp + cnn)
    assert any("Trained weights and checkpoints: 188 MiB of disk space" in line for line in kept.lines)
    assert disk(profile="quick").disk_bytes == 0
    adam = plan(replace(selection, scenarios=("mnist-cnn",)), Options("fake", profile="full", keep_weights=False))
    assert estimate(adam, SCENARIOS, ready=[("torch", "cpu")]).disk_bytes == 2 * 3 * cnn  # two moments of each weight


def test_the_time_budget_applies_to_the_standard_profile():
    selection = Selection(scenarios=("mnist-cnn",), frameworks=("torch",), devices=("cpu",))
    precise = plan(selection, Options("fake", profile="standard", budget_s=7200.0))
    assert precise.budget_s == 7200.0
    probing_s = PROBE_S + start_seconds("torch", "cpu")  # not part of the budget
    assert estimate(precise, SCENARIOS, ready=[("torch", "cpu")]).seconds == 7200.0 + probing_s
    assert plan(selection, Options("fake")).budget_s is None
    for wrong in (Options("fake", budget_s=60.0), Options("fake", profile="standard", budget_s=-1.0)):
        with pytest.raises(UsageError, match="--budget"):
            plan(selection, wrong)


def test_the_default_timeout_is_longer_than_the_longest_launch():
    selection = Selection(scenarios=("catdog-cnn",), variants=("deep",), devices=("cpu",), frameworks=("torch",))
    full = plan(selection, Options("fake", profile="full"))
    assert full.timeout_s > 3 * estimate(full, SCENARIOS, ready=[("torch", "cpu")]).seconds
    assert plan(selection, Options("fake", timeout_s=7)).timeout_s == 7
    assert plan(selection, Options("fake", profile="full", epochs=10_000)).timeout_s == MAX_S


@pytest.mark.parametrize(("device", "factor"), [("cpu", 1), ("cuda", 3)])
def test_estimate_and_timeout_allow_for_a_search_that_starts_slowly(device, factor):
    selection = Selection(scenarios=("mnist-cnn",), frameworks=("torch",), devices=(device,), lanes=("tuned",))
    default, exact = plan(selection, Options("fake")), plan(selection, Options("fake", tune_s=60.0))
    seconds = [estimate(each, SCENARIOS, ready=[("torch", device)]).seconds for each in (default, exact)]
    assert seconds[0] - seconds[1] == pytest.approx(60 * (factor - 1)), "fifteen starts of 12 s on a GPU"
    assert default.timeout_s >= 2 * MAX_TUNE_S
    hour = plan(selection, Options("fake", tune_s=3600.0))
    assert hour.timeout_s > 3600
    pinned = plan(selection, Options("fake", pinned={default.launches[0].key: {}}))
    assert pinned.timeout_s == plan(replace(selection, lanes=None), Options("fake")).timeout_s, "it needs no search"
