"""Tests of the plans of studies: which cells they have, and how many epochs each trains."""

from collections import defaultdict
from dataclasses import replace

import pytest

from kit.execution import launch_requests
from kit.model.errors import UsageError
from kit.planning import catalog, studies
from kit.planning.estimates import planned_seconds, weights_bytes
from kit.planning.plan import Options, make_plan
from kit.planning.profiles import PROFILES
from kit.planning.selection import Selection
from kit.planning.study_cells import place_of
from scenarios.contract.request import Budget

SCENARIOS, FRAMEWORKS = catalog.scenarios(), catalog.frameworks()
STUDIES = studies.load_all()


def plan(names, profile="full", known=STUDIES, epochs=None, **narrowed):
    return make_plan(
        Selection(studies=names, **narrowed),
        Options("fake", profile=profile, epochs=epochs),
        SCENARIOS,
        FRAMEWORKS,
        run="r",
        created_at="2026-01-01T00:00:00+00:00",
        studies=known,
    )


def test_the_plan_of_several_studies_has_each_cell_once_with_the_most_epochs():
    made = plan(tuple(STUDIES))
    cells = [launch.cell for launch in made.launches]
    assert len(cells) == len(set(cells)) == 42 + 6 + 84 + 72 + 6
    assert made.studies == list(STUDIES)
    by_key = {launch.key: launch.epochs for launch in made.launches}
    assert by_key["cifar-cnn/torch/cuda/stock/fp32/b32"] == 50
    assert by_key["cifar-cnn/torch/cpu/stock/fp32/b32"] is None  # 15, as in the scenario
    assert by_key["catdog-cnn+deep/torch/cpu/stock/fp32/b32"] == 0  # only its speed counts
    own = STUDIES["cifar-epochs"]
    longer = replace(
        own,
        file=own.file.model_copy(update={"cells": {"more": own.file.cells["gpu"].model_copy(update={"epochs": 60})}}),
    )
    for order in (("cifar-epochs", "longer"), ("longer", "cifar-epochs")):
        both = plan(order, known={"cifar-epochs": own, "longer": longer})
        assert len(both.launches) == 6
        assert {x.epochs for x in both.launches if x.cell.device == "cuda"} == {60}


def test_epochs_of_a_study_are_only_for_the_full_profile_and_options_override_them():
    assert {launch.epochs for launch in plan(("cifar-epochs",), "quick").launches} == {None}
    overridden = plan(("cifar-epochs",), epochs=2)
    assert {launch.epochs_in(overridden.epochs) for launch in overridden.launches} == {2}


@pytest.mark.parametrize(("option", "epochs"), [(None, 50), (2, 2)])
def test_a_launch_trains_the_epochs_of_the_study(option, epochs):
    made = plan(("cifar-epochs",), epochs=option)
    launch = next(launch for launch in made.launches if launch.cell.device == "cuda")
    asked = launch_requests.measuring(made, launch, SCENARIOS["cifar-cnn"][""], "synthetic", 2, {}, "")
    assert asked.budget.epochs == epochs


@pytest.mark.parametrize("option", [None, 2])
def test_cells_whose_speed_alone_counts_train_no_epochs(option):
    made = plan(("catdog-depth",), epochs=option, devices=("cpu",), frameworks=("torch",))
    budgets = defaultdict(set)
    for launch in made.launches:
        scenario = SCENARIOS[launch.cell.scenario][launch.cell.variant]
        asked = launch_requests.measuring(made, launch, scenario, "synthetic", 2, {}, "")
        budgets[launch.cell.variant].add(asked.budget)
        assert asked.keep_weights == (asked.budget.epochs is not None)
    assert budgets["deep"] == {PROFILES["standard"].budget}
    assert budgets["128"] == {Budget(epochs=option or 25)}
    deep = next(launch for launch in made.launches if launch.cell.variant == "deep")
    assert weights_bytes([deep], made, SCENARIOS) == 0 < weights_bytes(made.launches, made, SCENARIOS)
    assert planned_seconds(deep, PROFILES["full"], option, SCENARIOS) == planned_seconds(
        deep, PROFILES["standard"], None, SCENARIOS
    )


def test_the_estimate_knows_the_epochs_of_the_study():
    launch = next(launch for launch in plan(("cifar-epochs",)).launches if launch.cell.device == "cuda")
    seconds = {n: planned_seconds(launch, PROFILES["full"], n, SCENARIOS) for n in (None, 25, 50)}
    assert seconds[25] < seconds[None] == seconds[50]


def test_options_narrow_a_study():
    made = plan(("mnist-cpu-vs-gpu",), frameworks=("torch",), devices=("cpu",), lanes=("tuned",))
    assert [launch.key for launch in made.launches] == ["mnist-cnn/torch/cpu/tuned/fp32/b64"]
    assert made.launches[0].named
    assert place_of(made.launches[0].cell) in STUDIES["mnist-cpu-vs-gpu"].places["network"]
    with pytest.raises(UsageError, match="Unknown framework 'jax'"):
        plan(("mnist-cpu-vs-gpu",), frameworks=("jax",))
    with pytest.raises(UsageError, match="Unknown study 'x'"):
        plan(("x",))
    only_cpu = {
        "s": replace(
            STUDIES["cifar-epochs"],
            file=STUDIES["cifar-epochs"].file.model_copy(
                update={"cells": {"cpu": STUDIES["cifar-epochs"].file.cells["cpu"]}}
            ),
        )
    }
    with pytest.raises(UsageError, match=r"^No cell of s has the selected names"):
        plan(("s",), known=only_cpu, devices=("cuda",))


def test_a_run_has_no_more_studies_than_its_plan_can_name():
    many = {f"study-{number}": STUDIES["cifar-epochs"] for number in range(101)}
    assert len(plan(tuple(many)[:100], known=many).studies) == 100
    with pytest.raises(UsageError, match="101 studies are more than a run can have, 100"):
        plan(tuple(many), known=many)
