"""The command that measures the cells of a run again, read back by the command line itself."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
from typer.testing import CliRunner

from kit.analysis.repeat_command import repeat_command
from kit.analysis.run_analysis import analyze_run
from kit.cli import measure
from kit.model.plan import Plan
from kit.model.run import Run
from kit.planning import catalog
from kit.planning.plan import Options, make_plan
from kit.planning.selection import Selection
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
    """The options go through the parser of `kit plan`, and its selection must give the cells of the plan."""
    plan = plan_of(selection)
    parsed: list[Selection] = []

    def prepare(chosen: Selection, *_: object) -> None:
        parsed.append(chosen)
        raise KeyboardInterrupt  # nothing else of the command matters here

    monkeypatch.setattr("kit.execution.workflow.prepare", prepare)
    _, _, *arguments = shlex.split(command_of(plan))
    CliRunner().invoke(measure.app, ["plan", *arguments])
    again = plan_of(parsed[0])
    assert {launch.key for launch in again.launches} == {launch.key for launch in plan.launches}


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


def test_a_comparison_is_repeated_against_its_base() -> None:
    assert command_of(plan_of(Selection(), against="r1-base")) == "kit run --against r1-base"
