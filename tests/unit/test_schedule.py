"""Test the rounds of the standard profile: which cells get a further launch, in which order, and when rounds end."""

from __future__ import annotations

import random
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from kit.analysis.intervals import is_narrow
from kit.analysis.summaries import speeds
from kit.execution.schedule import next_round
from scenarios.contract.reasons import Status
from tests.examples import cell, failed, plan, planned, record, request

NARROW = (1000.0, 1001.0, 999.0, 1000.5, 999.5)
WIDE = (1000.0, 1100.0, 900.0, 1050.0, 950.0)
WIDER = (1000.0, 1500.0, 600.0, 1200.0, 800.0)
FRAMEWORKS = ("torch", "onnxruntime", "tensorflow")


def launches(framework, values, seconds=10.0, first=1):
    of = request(cell(framework=framework))
    return [
        record(replace(of, launch=first + i), images_per_s=value, seconds=seconds) for i, value in enumerate(values)
    ]


def plan_of(*frameworks, budget_s=None):
    planned_launches = [planned(n + 1, framework=name) for n in range(5) for name in frameworks]
    return plan(planned_launches).model_copy(update={"budget_s": budget_s})


def names(round_):
    return [(launch.cell.framework, launch.launch) for launch in round_]


def test_each_wide_cell_gets_one_more_launch_the_widest_first():
    records = [*launches("torch", WIDE), *launches("onnxruntime", NARROW), *launches("tensorflow", WIDER)]
    found = next_round(plan_of(*FRAMEWORKS), records)
    assert names(found) == [("tensorflow", 6), ("torch", 6)]
    assert found[0] == planned(6, framework="tensorflow")
    assert names(next_round(plan_of(*FRAMEWORKS), list(reversed(records)))) == names(found)


def test_a_cell_with_too_few_ok_launches_gets_one_more():
    records = [*launches("torch", NARROW[:4]), failed(replace(request(cell()), launch=5))]
    assert names(next_round(plan_of("torch"), records)) == [("torch", 6)]


def test_cells_without_an_interval_skipped_or_always_failing_get_no_more():
    def failures(status, numbers):
        return [failed(replace(request(cell()), launch=n), status=status) for n in numbers]

    assert next_round(plan_of("torch"), []) == []
    assert next_round(plan_of("torch"), launches("torch", WIDE[:1])) == []
    assert next_round(plan_of("torch"), [*launches("torch", WIDE), *failures(Status.SKIPPED, [6])]) == []
    assert names(next_round(plan_of("torch"), [*launches("torch", WIDE), *failures(Status.FAILED, range(6, 10))]))
    assert next_round(plan_of("torch"), [*launches("torch", WIDE), *failures(Status.FAILED, range(6, 11))]) == []


def test_launches_that_would_exceed_the_budget_are_omitted():
    records = [
        *launches("torch", WIDE, seconds=10),
        *launches("onnxruntime", NARROW, seconds=7),
        *launches("tensorflow", WIDER, seconds=30),
    ]
    spent = 5 * (10 + 7 + 30)
    for left, expected in ((9.9, []), (10, ["torch"]), (30, ["tensorflow"]), (40, ["tensorflow", "torch"])):
        found = next_round(plan_of(*FRAMEWORKS, budget_s=spent + left), records)
        assert [launch.cell.framework for launch in found] == expected


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 99), spread=st.floats(0.001, 0.06), budget_s=st.one_of(st.none(), st.integers(150, 900)))
def test_rounds_end_with_narrow_cells_or_a_spent_budget_even_if_interrupted(seed, spread, budget_s):
    generator = random.Random(seed)
    run_plan = plan_of("torch", "onnxruntime", budget_s=budget_s)
    records, due = [], list(run_plan.launches)
    while due and len(records) < 1000:
        interrupted_after = generator.randint(1, len(due)) if len(records) >= 10 else len(due)
        for launch in due[:interrupted_after]:
            records += launches(
                launch.cell.framework, [1000 * generator.lognormvariate(0, spread)], first=launch.launch
            )
        due = next_round(run_plan, records)
    assert not due
    assert len({(r.key, r.launch) for r in records}) == len(records)
    spent = sum(r.seconds for r in records)
    assert budget_s is None or spent <= budget_s
    cells = [[r for r in records if r.request.cell.framework == name] for name in ("torch", "onnxruntime")]
    assert all(is_narrow(speeds(each)) for each in cells) or spent + 10 > budget_s
