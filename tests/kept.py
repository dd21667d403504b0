"""Make runs that kept weights, without training."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kit.model.plan import PlannedLaunch
from kit.planning import catalog
from kit.storage.kept_weights import WEIGHTS
from kit.storage.run_folder import RunFolder, file_stem
from scenarios import spec
from scenarios.catalog import scenario_of
from scenarios.contract.cell import Cell
from scenarios.spec import Scenario
from scenarios.weights import digest, initial_weights
from scenarios.weights_file import About, write
from tests import examples


def write_weights(path: Path, scenario: Scenario, framework: str = "torch", seed: int = 3) -> None:
    """Write a file of weights that were not trained."""
    weights = initial_weights(scenario, seed)
    write(path, weights, About(scenario.label, spec.digest(scenario), framework, 1, digest(weights)))


def run_with_weights(path: Path, cells: Sequence[Cell], epochs: Sequence[str] = ("last",)) -> RunFolder:
    """Return the folder of a run in which each cell has one `ok` launch that kept weights of these epochs."""
    plan = examples.plan([PlannedLaunch(cell=cell, launch=1, named=False) for cell in cells])
    folder = RunFolder.create(path, plan, examples.machine())
    (path / WEIGHTS).mkdir()
    for cell in cells:
        scenario = scenario_of(cell, catalog.scenarios())
        assert scenario is not None
        folder.save(examples.record(examples.request(cell)))
        for epoch in epochs:
            write_weights(path / WEIGHTS / f"{file_stem(cell.key, 1)}__{epoch}.safetensors", scenario, cell.framework)
    return folder
