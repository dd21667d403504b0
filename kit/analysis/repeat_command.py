"""Make the commands that measure all cells of a run, or one of them, again. No input or output."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence

from kit.analysis.run_analysis import RunAnalysis
from kit.analysis.sweeps import value_of
from kit.model.plan import Plan
from scenarios.catalog import Scenarios, scenario_of
from scenarios.contract.cell import Cell, Device
from scenarios.spec import Scenario

COMPARED_ROUNDS = 8  # of two runs; with noise of 5%, they show a loss of 10% in one cell (docs/gate-in-ci.md)
NARROWING = {"framework", "device", "lane", "precision"}  # options that narrow a study
SYNTHETIC = ("data", "synthetic")  # an option and its value
DEFAULT_ENGINES = {"docker"}  # those that --engine auto prefers


def repeat_command(analysis: RunAnalysis, *, real_data: bool = False) -> str:
    """Return the command for all cells, with the options of the run but without the number of launches.

    A file or an interpreter that the user named is only a placeholder, because a report names no folder of its machine.
    real_data: leave out the option that chose synthetic data.
    """
    plan = analysis.run.plan
    if plan.against:
        return " ".join(["kit run", "--against", shlex.quote(plan.against)])
    cells = [launch.cell for launch in plan.launches] or [record.cell for record in analysis.run.records]
    chosen = [*_selection(analysis, cells), *_conditions(plan)]
    if real_data:
        chosen = [each for each in chosen if each != SYNTHETIC]
    everything = not plan.studies and {cell.scenario for cell in cells} >= analysis.scenarios.keys()
    return " ".join(["kit run", *["--all"] * everything, *_options(chosen)])


def same_command(analysis: RunAnalysis) -> str:
    """Return the command that measures the same again: all cells, in the profile and with the epochs of the run."""
    plan = analysis.run.plan
    return " ".join([repeat_command(analysis), *_options([("profile", plan.profile)]), *_whole_epochs(plan)])


def study_command(
    analysis: RunAnalysis, study: str, profile: str, device: Device | None = None, *, real_data: bool = False
) -> str:
    """Return the command that measures a study in a profile, with the options of the run.

    device: the only one to measure, or None for all. real_data: leave out the option that chose synthetic data.
    """
    plan = analysis.run.plan
    narrowing = _selection(analysis, [launch.cell for launch in plan.launches])
    chosen = [("study", study), *([("device", device)] if device else [])]
    chosen += [(name, value) for name, value in narrowing if name in NARROWING - {"device"}]
    chosen += [each for each in _conditions(plan) if not (real_data and each == SYNTHETIC)]
    if profile not in {"smoke", "quick"}:  # a smoke run measures too little for a study
        chosen.append(("profile", profile))
    return " ".join(["kit run", *_options(chosen), *(_whole_epochs(plan) if profile == "full" else [])])


def _whole_epochs(plan: Plan) -> list[str]:
    """Return the options of the run that concern trainings of whole epochs, as words of a shell."""
    epochs = _options([("epochs", str(plan.epochs))]) if plan.epochs is not None else []
    return [*epochs, *["--no-weights"] * (plan.profile == "full" and not plan.keep_weights)]


def cell_command(cell: Cell, scenario: Scenario | None, plan: Plan, frameworks: Sequence[str]) -> str:
    """Return the command for a cell in these frameworks, in the conditions of a run.

    scenario: that of the cell, or None if unknown. frameworks: none for all of them.
    """
    changed = scenario is None or cell.batch != scenario.batch
    parts: list[tuple[str, str | int | None]] = [
        ("scenario", cell.scenario),
        ("variant", cell.variant or None),
        *(("framework", name) for name in frameworks),
        ("device", cell.device),
        ("lane", cell.lane if cell.lane != "stock" else None),
        ("precision", cell.precision if cell.precision != "fp32" else None),
        ("batch", cell.batch if changed else None),
        ("workers", cell.workers),
        ("hidden-layers", cell.hidden_layers),
    ]
    selection = [(name, str(value)) for name, value in parts if value is not None]
    applies = {"settings": cell.key in plan.pinned, "tune": cell.lane == "tuned" and cell.key not in plan.pinned}
    conditions = [each for each in _conditions(plan) if applies.get(each[0], True)]
    return " ".join(["kit run", *_options([*selection, *conditions])])


def _options(chosen: Iterable[tuple[str, str]]) -> list[str]:
    """Return options as words of a shell. A name in the plan of a stranger may hold a command."""
    return [f"--{name} {shlex.quote(value)}" for name, value in chosen]


def _selection(analysis: RunAnalysis, cells: list[Cell]) -> Iterator[tuple[str, str]]:
    """Yield the options that select these cells: name and value.

    A study selects its cells itself. Other options narrow it.
    """
    studies = analysis.run.plan.studies
    yield from (("study", name) for name in studies)
    kinds: dict[str, tuple[list[str], set[str]]] = {  # by option: the values of the cells, and those by default
        "scenario": ([cell.scenario for cell in cells], set(analysis.scenarios)),
        "variant": ([cell.variant or "default" for cell in cells], {"default"}),
        "framework": ([cell.framework for cell in cells], set(analysis.frameworks)),
        "device": ([cell.device for cell in cells], {"cpu", "cuda"}),
        "lane": ([cell.lane for cell in cells], {"stock"}),
        "precision": ([cell.precision for cell in cells], {"fp32"}),
    }
    for name, (values, default) in kinds.items():
        if set(values) != default and not (studies and name not in NARROWING):
            yield from ((name, value) for value in dict.fromkeys(values))
    if studies:
        return
    for name, numbers in _numbers(cells, analysis.scenarios).items():
        yield from ((name, str(number)) for number in sorted({number for number in numbers if number}))


def _numbers(cells: Sequence[Cell], scenarios: Scenarios) -> dict[str, list[int | None]]:
    """Return the values of the options that replace a number of a scenario or a framework, if they were given."""
    usual = {cell: scenario.batch for cell in cells if (scenario := scenario_of(cell, scenarios))}
    batches = any(cell.batch != usual.get(cell, cell.batch) for cell in cells)
    depths = any(cell.hidden_layers for cell in cells)
    return {
        "batch": [cell.batch for cell in cells if batches],
        "workers": [cell.workers for cell in cells],
        "hidden-layers": [value_of(cell, "hidden_layers", scenarios) for cell in cells if depths],
    }


def _conditions(plan: Plan) -> Iterator[tuple[str, str]]:
    """Yield the other options that differ from their defaults."""
    if plan.data != "auto":
        yield "data", plan.data
    if plan.seed:
        yield "seed", str(plan.seed)
    if plan.tune_s and any(launch.cell.lane == "tuned" for launch in plan.launches):
        yield "tune", f"{plan.tune_s:.3f}".rstrip("0").rstrip(".") + "s"
    if plan.pinned:
        yield "settings", "FILE"
    if plan.environment:
        yield "env", "PYTHON"
    elif plan.engine not in DEFAULT_ENGINES:
        yield "engine", plan.engine
    if plan.threads:
        yield "threads", str(plan.threads)
    if plan.memory_bytes:
        yield "memory", f"{plan.memory_bytes >> 20}m"
    if plan.gpus:
        yield "gpus", plan.gpus if re.fullmatch(r"all|[0-9,]+", plan.gpus) else "IDS"  # a UUID names the machine
