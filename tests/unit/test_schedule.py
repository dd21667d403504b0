"""Test the rounds of the standard profile: which blocks get a further round, in which order, and when rounds end."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kit.analysis.intervals import is_narrow_ratio
from kit.analysis.pairing import Measure, pair, rates
from kit.execution.schedule import next_round
from scenarios.contract.reasons import Status
from tests.examples import cell, failed, plan, planned, record, request

NARROW = (1000.0, 1001.0, 999.0, 1000.5, 999.5)
WIDE = (1000.0, 1100.0, 900.0, 1050.0, 950.0)
WIDER = (1000.0, 1500.0, 600.0, 1200.0, 800.0)


def launches(values, of=None, seconds=10.0, first=1):
    base = request(of or cell())
    return [
        record(replace(base, launch=first + i), images_per_s=value, seconds=seconds) for i, value in enumerate(values)
    ]


def plan_of(*cells, budget_s=None):
    of_each = [planned(n + 1).model_copy(update={"cell": each}) for n in range(5) for each in cells]
    return plan(of_each).model_copy(update={"budget_s": budget_s})


def names(round_):
    return {(launch.cell.scenario, launch.cell.framework, launch.launch) for launch in round_}


TORCH, TENSORFLOW, OTHER = cell(), cell(framework="tensorflow"), cell("cifar-cnn")


def test_a_block_gets_a_round_if_the_ratio_of_two_of_its_cells_is_wide():
    records = [*launches(NARROW, TORCH), *launches(WIDE, TENSORFLOW), *launches(NARROW, OTHER)]
    found = next_round(plan_of(TORCH, TENSORFLOW, OTHER), records)
    assert names(found) == {("mnist-cnn", "torch", 6), ("mnist-cnn", "tensorflow", 6)}
    assert next_round(plan_of(TORCH, TENSORFLOW, OTHER), list(reversed(records))) == found


def test_only_cells_that_are_compared_ask_for_a_round():
    """The ratio of cells that differ in the framework and in a swept value may be wide."""
    torch, other = replace(TORCH, batch=128), replace(TENSORFLOW, batch=128)
    small, large = launches(WIDE, TORCH), launches(tuple(reversed(WIDE)), other)
    assert next_round(plan_of(TORCH, other), [*small, *large]) == []
    for between in (torch, TENSORFLOW):
        records = [*small, *large, *launches(WIDE, between)]
        assert len(next_round(plan_of(TORCH, other, between), records)) == 3


def test_a_drift_that_affects_all_cells_of_a_block_alike_needs_no_further_round():
    assert next_round(plan_of(TORCH, TENSORFLOW), [*launches(WIDER, TORCH), *launches(WIDER, TENSORFLOW)]) == []


def test_the_widest_block_comes_first_and_its_cells_are_in_random_order():
    cells = [TORCH, TENSORFLOW, OTHER, cell("cifar-cnn", "tensorflow")]
    records = [*launches(NARROW, cells[0]), *launches(WIDE, cells[1]), *launches(NARROW, cells[2])]
    records += launches(WIDER, cells[3])
    scenarios = [launch.cell.scenario for launch in next_round(plan_of(*cells), records)]
    assert scenarios == ["cifar-cnn"] * 2 + ["mnist-cnn"] * 2
    orders = {
        tuple(x.cell.framework for x in next_round(plan_of(*cells).model_copy(update={"seed": seed}), records)[:2])
        for seed in range(10)
    }
    assert len(orders) == 2


def test_a_round_that_was_interrupted_is_completed_first_so_that_its_launches_are_pairs():
    records = [*launches(NARROW, TORCH), *launches(WIDE, TENSORFLOW), *launches((1200.0,), TENSORFLOW, first=6)]
    assert names(next_round(plan_of(TORCH, TENSORFLOW), records)) == {("mnist-cnn", "torch", 6)}
    complete = [*records, *launches((1000.0,), TORCH, first=6)]
    assert {number for _, _, number in names(next_round(plan_of(TORCH, TENSORFLOW), complete))} == {7}


def test_a_block_of_one_cell_needs_a_narrow_cell_whose_launches_are_not_correlated():
    assert next_round(plan_of(TORCH), launches(NARROW)) == []
    assert names(next_round(plan_of(TORCH), launches(WIDE))) == {("mnist-cnn", "torch", 6)}
    in_time = [
        each.model_copy(update={"started_at": f"2026-01-01T00:00:{each.launch:02d}+00:00"})
        for each in launches([1000.0 + n // 10 for n in range(20)])
    ]
    assert names(next_round(plan_of(TORCH), in_time)) == {("mnist-cnn", "torch", 21)}


def test_a_cell_with_too_few_ok_launches_gets_one_more():
    records = [*launches(NARROW[:4]), failed(replace(request(cell()), launch=5))]
    assert names(next_round(plan_of(TORCH), records)) == {("mnist-cnn", "torch", 6)}


@pytest.mark.parametrize("others", [(), (TENSORFLOW,)], ids=["alone", "in a block"])
def test_cells_without_an_interval_skipped_or_always_failing_get_no_more(others):
    def failures(status, numbers):
        return [failed(replace(request(cell()), launch=n), status=status) for n in numbers]

    def more(records):
        records = [*records, *(each for other in others for each in launches((NARROW * 2)[: len(records)], other))]
        return [launch for launch in next_round(plan_of(TORCH, *others), records) if launch.cell == TORCH]

    assert more([]) == []
    assert more(launches(WIDE[:1])) == []
    assert more([*launches(WIDE), *failures(Status.SKIPPED, [6])]) == []
    assert more([*launches(WIDE), *failures(Status.FAILED, range(6, 10))]) != []
    assert more([*launches(WIDE), *failures(Status.FAILED, range(6, 11))]) == []


def test_rounds_of_blocks_that_would_exceed_the_budget_are_omitted():
    records = [*launches(WIDE, TORCH, seconds=10), *launches(NARROW, TENSORFLOW, seconds=5)]
    records += launches(WIDER, OTHER, seconds=30)
    spent = 5 * (10 + 5 + 30)
    blocks = (14.9, []), (15, ["mnist-cnn"] * 2), (30, ["cifar-cnn"]), (45, ["cifar-cnn", "mnist-cnn", "mnist-cnn"])
    for left, expected in blocks:
        found = next_round(plan_of(TORCH, TENSORFLOW, OTHER, budget_s=spent + left), records)
        assert [launch.cell.scenario for launch in found] == expected


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 99), spread=st.floats(0.001, 0.06), budget_s=st.one_of(st.none(), st.integers(150, 900)))
def test_rounds_end_with_narrow_ratios_or_a_spent_budget_even_if_interrupted(seed, spread, budget_s):
    generator = random.Random(seed)
    cells = (TORCH, TENSORFLOW, cell(framework="onnxruntime"))
    run_plan = plan_of(*cells, budget_s=budget_s)
    records, due = [], list(run_plan.launches)
    while due and len(records) < 1500:
        interrupted_after = generator.randint(1, len(due)) if len(records) >= 15 else len(due)
        for launch in due[:interrupted_after]:
            records += launches([1000 * generator.lognormvariate(0, spread)], launch.cell, first=launch.launch)
        due = next_round(run_plan, records)
    assert not due
    assert len({(r.key, r.launch) for r in records}) == len(records)
    spent = sum(r.seconds for r in records)
    assert budget_s is None or spent <= budget_s
    by_cell = [rates([r for r in records if r.cell == each], Measure.TRAINING) for each in cells]
    pairs = [pair(one, other).ratios for one, other in combinations(by_cell, 2)]
    assert all(map(is_narrow_ratio, pairs)) or spent + 30 > budget_s
