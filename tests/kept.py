"""Make runs that kept weights, without training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from kit.model.launch import Completion, LaunchFolder
from kit.model.plan import PlannedLaunch
from kit.planning import catalog
from kit.storage.run_folder import RunFolder, file_stem
from scenarios import spec
from scenarios.catalog import scenario_of
from scenarios.contract import codec
from scenarios.contract.cell import Cell
from scenarios.contract.reasons import Status
from scenarios.contract.request import MODEL_FILE, RESULT_FILE, DataKind, Request
from scenarios.contract.result import KeptWeights, Result
from scenarios.spec import Scenario
from scenarios.weights import digest, initial_weights
from scenarios.weights_file import About, write
from tests import examples, fakes

EPOCHS: dict[Literal["last", "best"], int] = {"last": 5, "best": 3}


def write_weights(path: Path, scenario: Scenario, framework: str, epoch: int = EPOCHS["last"]) -> str:
    """Write a file of weights that were not trained. Return their digest."""
    weights = initial_weights(scenario, seed=epoch)
    write(path, weights, About(scenario.label, spec.digest(scenario), framework, epoch, digest(weights)))
    return digest(weights)


def run_with_weights(
    path: Path, cells: Sequence[Cell], *kinds: Literal["last", "best"], data: DataKind = "real"
) -> RunFolder:
    """Return the folder of a run in which each cell has one `ok` launch that kept weights, by default the last ones."""
    plan = examples.plan([PlannedLaunch(cell=cell, launch=1, named=False) for cell in cells])
    folder = RunFolder.create(path, plan, examples.machine())
    for cell in cells:
        scenario = scenario_of(cell, catalog.scenarios())
        assert scenario is not None
        kept = []
        for kind in kinds or ("last",):
            file = path / "weights" / f"{file_stem(cell.key, 1)}__{kind}.safetensors"
            written = write_weights(file, scenario, cell.framework, EPOCHS[kind])
            kept.append(KeptWeights(kind, file.name, EPOCHS[kind], 0.8, written))
        request = examples.request(cell, data=data)
        folder.save(examples.record(request, result=replace(examples.result(request), weights=kept)))
    return folder


def exports(content: bytes, digest: str) -> fakes.Worker:
    """Return a worker that exports this model. digest: the one that its result names."""

    def worker(request: Request, folder: LaunchFolder) -> Completion:
        (folder.scratch / MODEL_FILE).write_bytes(content)
        codec.write(folder.scratch / RESULT_FILE, Result(request.cell, 1, Status.OK, model_digest=digest))
        return Completion(exit_code=0, seconds=1.0)

    return worker
