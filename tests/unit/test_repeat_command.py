"""The command that measures the cells of a run again, read back by the command line itself."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import Any

import pytest
from typer.testing import CliRunner

from kit.analysis.repeat_command import cell_command, repeat_command, same_command
from kit.analysis.run_analysis import analyze_run
from kit.cli import measure
from kit.model.plan import Plan
from kit.model.run import Run
from kit.planning import catalog
from kit.planning.plan import Options, make_plan
from kit.planning.selection import Selection
from scenarios.catalog import scenario_of
from tests import examples


def plan_of(selection: Selection, **options: Any) -> Plan:
    """Return the plan of a selection. options: other values of the plan."""
    made = make_plan(
        selection, Options(engine="docker"), catalog.scenarios(), catalog.frameworks(), run="r1", created_at="now"
    )
    return made.model_copy(update=options)


def command_of(plan: Plan) -> str:
    run = Run(plan, examples.machine(), [])
    return repeat_command(analyze_run(run, catalog.scenarios(), catalog.frameworks()))


@pytest.mark.parametrize(
    "selection",
    [
        Selection(),
        Selection(scenarios=("mnist-cnn",)),
        Selection(scenarios=("mnist-cnn", "cifar-cnn"), frameworks=("torch",), devices=("cpu",)),
        Selection(scenarios=("mnist-cnn",), batches=(16, 64)),
        Selection(scenarios=("catdog-cnn",), variants=("default", "conv")),
        Selection(lanes=("stock", "tuned"), precisions=("bf16",)),
    ],
    ids=str,
)
def test_the_command_selects_the_same_cells(selection: Selection, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_of(selection)
    assert cells_of(command_of(plan), monkeypatch) == {launch.key for launch in plan.launches}


def cells_of(command: str, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Return the keys of the cells that a command selects. Its options go through the parser of `kit plan`."""
    parsed: list[Selection] = []

    def prepare(chosen: Selection, *_: object) -> None:
        parsed.append(chosen)
        raise KeyboardInterrupt  # nothing else of the command matters here

    monkeypatch.setattr("kit.execution.workflow.prepare", prepare)
    _, _, *arguments = shlex.split(command)
    CliRunner().invoke(measure.app, ["plan", *arguments])
    return {launch.key for launch in plan_of(parsed[0]).launches}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"scenario": "catdog-cnn", "variant": "conv", "batch": 32, "workers": 4},
        {"device": "cuda", "precision": "bf16", "lane": "tuned", "batch": 16},
        {"scenario": "fashion-mlp", "batch": 32, "hidden_layers": 3},
    ],
    ids=str,
)
def test_the_command_of_a_cell_selects_it_alone(changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    cell = replace(examples.cell(framework="tensorflow"), **changes)
    command = cell_command(cell, scenario_of(cell, catalog.scenarios()), plan_of(Selection()), ["tensorflow"])
    assert cells_of(command, monkeypatch) == {cell.key}
    assert ("--batch" in command) == (changes.get("batch") == 16)


def test_the_command_of_a_cell_repeats_the_conditions_of_its_run() -> None:
    cell = examples.cell("catdog-cnn", device="cuda")
    tuned = replace(cell, lane="tuned")
    plan = plan_of(Selection(), threads=1, engine="podman", pinned={tuned.key: {}})
    scenario = scenario_of(cell, catalog.scenarios())
    start = "kit run --scenario catdog-cnn --framework torch --device cuda"
    own, end = [cell.framework], "--engine podman --threads 1"
    assert cell_command(cell, scenario, plan, own) == f"{start} {end}"
    assert cell_command(tuned, scenario, plan, own) == f"{start} --lane tuned --settings FILE {end}"
    searched = plan_of(Selection(lanes=("tuned",)), pinned={tuned.key: {}}, tune_s=30.0)
    assert cell_command(tuned, scenario, searched, own) == f"{start} --lane tuned --settings FILE", "no search"


def test_the_command_of_a_cell_names_the_frameworks_that_share_it() -> None:
    cell, plan = examples.cell("catdog-cnn"), plan_of(Selection())
    scenario = scenario_of(cell, catalog.scenarios())
    start, end = "kit run --scenario catdog-cnn", "--device cpu"
    two = cell_command(cell, scenario, plan, ["torch", "tensorflow"])
    assert two == f"{start} --framework torch --framework tensorflow {end}"
    assert cell_command(cell, scenario, plan, ()) == f"{start} {end}"


def test_real_data_need_no_option() -> None:
    plan = plan_of(Selection(scenarios=("mnist-cnn",)), data="synthetic")
    analysis = analyze_run(Run(plan, examples.machine(), []), catalog.scenarios(), catalog.frameworks())
    assert repeat_command(analysis) == "kit run --scenario mnist-cnn --data synthetic"
    assert repeat_command(analysis, real_data=True) == "kit run --scenario mnist-cnn"


def test_the_cells_of_a_study_are_selected_by_its_name() -> None:
    plan = plan_of(Selection(scenarios=("mnist-cnn",), devices=("cpu",)), studies=["mnist-cpu-vs-gpu"])
    assert command_of(plan) == "kit run --study mnist-cpu-vs-gpu --device cpu"


def test_everything_needs_no_names() -> None:
    assert command_of(plan_of(Selection())) == "kit run --all"


def test_conditions_are_repeated_without_names_of_this_machine() -> None:
    plan = plan_of(
        Selection(scenarios=("mnist-cnn",)),
        data="synthetic",
        seed=3,
        threads=1,
        memory_bytes=4 << 30,
        gpus="GPU-1234",
        environment="/home/somebody/python",
        engine="local",
    )
    assert command_of(plan) == (
        "kit run --scenario mnist-cnn --data synthetic --seed 3 --env PYTHON --threads 1 --memory 4096m --gpus IDS"
    )


def test_the_same_work_has_the_profile_the_epochs_and_the_time_of_the_search() -> None:
    plan = plan_of(
        Selection(scenarios=("mnist-cnn",), lanes=("stock", "tuned")),
        profile="full",
        epochs=2,
        keep_weights=False,
        tune_s=30.0,
    )
    start = "kit run --scenario mnist-cnn --lane stock --lane tuned --tune 30s"
    assert command_of(plan) == start, "another profile may follow, to which the epochs do not apply"
    analysis = analyze_run(Run(plan, examples.machine(), []), catalog.scenarios(), catalog.frameworks())
    assert same_command(analysis) == f"{start} --profile full --epochs 2 --no-weights"
    assert "--tune 1234567.5s" in command_of(plan.model_copy(update={"tune_s": 1234567.5}))
    stock, tuned = (replace(examples.cell(), lane=lane) for lane in ("stock", "tuned"))
    assert "--tune" not in cell_command(stock, None, plan, ())
    assert "--tune 30s" in cell_command(tuned, None, plan, ())


OTHER_VALUES: dict[str, Any] = {  # of each field of a plan that comes from an option
    "profile": "quick",
    "engine": "podman",
    "environment": "python3",
    "seed": 1,
    "data": "real",
    "epochs": 2,
    "memory_bytes": 1 << 30,
    "threads": 1,
    "gpus": "0",
    "tune_s": 5.0,
    "pinned": {"key": {}},
    "against": "r1-base",
    "keep_weights": False,
    "studies": ["mnist-cpu-vs-gpu"],
}


@pytest.mark.parametrize("field", OTHER_VALUES)
def test_the_same_work_has_each_option_of_the_plan(field: str) -> None:
    plan = plan_of(Selection(scenarios=("mnist-cnn",), lanes=("stock", "tuned")), profile="full", tune_s=30.0)
    changed = plan.model_copy(update={field: OTHER_VALUES[field]})
    commands = {
        same_command(analyze_run(Run(each, examples.machine(), []), catalog.scenarios(), catalog.frameworks()))
        for each in (plan, changed)
    }
    assert len(commands) == 2


def test_each_field_of_a_plan_has_another_value_above_or_needs_no_option() -> None:
    of_the_run = {"schema_", "run", "created_at", "environments", "identify", "launches"}
    by_profile = {"rounds", "budget_s", "timeout_s"}  # the command that uses them has its own, or the default
    assert set(Plan.model_fields) == {*OTHER_VALUES, *of_the_run, *by_profile}


def test_a_comparison_is_repeated_against_its_base() -> None:
    assert command_of(plan_of(Selection(), against="r1-base")) == "kit run --against r1-base"
