"""Export the trained network of a cell as an ONNX model."""

import os
from hashlib import sha256
from pathlib import Path

from kit.engines.base import Engine
from kit.execution.launch_requests import using_weights
from kit.execution.unmeasured import (
    as_error,
    environments,
    run_unmeasured,
    temporary_folder,
    too_large,
    work_folder,
)
from kit.host.machine import usable_cpus
from kit.model.errors import KitError, UsageError, unknown
from kit.model.progress import Outcome, Progress
from kit.planning import catalog
from kit.planning.selection import pick
from kit.storage.files import disk_errors, require_folder, write_atomic
from kit.storage.run_folder import RunFolder
from kit.storage.safe_read import read_untrusted
from kit.storage.trained_weights import TrainedWeights, find_weights, missing_weights
from scenarios.catalog import scenario_of
from scenarios.contract.reasons import REPORT, Reason
from scenarios.contract.request import MODEL_FILE

EXPORTER = "onnxruntime"  # its environment has the package onnx
MODEL_LIMIT = 2 << 30  # of an ONNX file without external data, which is one protobuf message
REMEDY = "Choose another file with --onnx."


def find_cell(folder: RunFolder, key: str) -> TrainedWeights:
    """Return the weights of a cell. Raise UsageError, which lists the cells with weights, if it has none."""
    kept = find_weights(folder)
    for each in kept:
        if each.cell.key == key:
            return each
    message, others = f"The run {folder.plan.run} has no trained weights of {key:.200}.", ""
    if kept:
        error = unknown("cell with weights", key, {each.cell.key for each in kept})
        message, others = error.message, error.remedy
    raise missing_weights(folder, lambda cell: cell.key == key, message, others)


def export(weights: TrainedWeights, target: Path, engine: Engine, progress: Progress) -> None:
    """Write the ONNX model of a trained network.

    Raise UsageError if `target` exists, if the weights are not valid or if the catalog lacks the scenario. Raise
    EngineError, ImageError, DiskError, KitError for another failure, and KeyboardInterrupt after a signal.
    """
    if os.path.lexists(target):
        raise UsageError(f"{target} exists.", REMEDY)
    require_folder(target, REMEDY)
    scenario = scenario_of(weights.cell, catalog.scenarios())
    if scenario is None:
        raise UsageError(f"The catalog has no {weights.cell.key}.", "Use the kit that trained it.")
    if refused := too_large(weights):
        raise as_error(refused)
    pick("framework", [EXPORTER], list(catalog.frameworks()), [])
    request = using_weights("export", weights, EXPORTER, scenario, len(usable_cpus()))
    with (
        environments("weights", engine, [EXPORTER], progress) as made,
        temporary_folder() as folder,
        work_folder(weights, folder) as scratch,
    ):
        with progress.phase("Export") as phase:
            result = run_unmeasured("weights", engine, made[EXPORTER], request, scratch, weights)
            if isinstance(result, Reason):
                phase.end(Outcome("failed", good=False))
                raise as_error(result)
            phase.end(Outcome("done"))
        model = _model(scratch / MODEL_FILE, result.model_digest)
    with disk_errors(target, REMEDY):
        write_atomic(target, model, overwrite=False)


def _model(path: Path, digest: str | None) -> bytes:
    """Return the file that the worker wrote. Raise KitError if it is not the one that its result names."""
    try:
        model = read_untrusted(path, MODEL_LIMIT)
    except (OSError, ValueError) as error:
        raise KitError(f"The worker's model cannot be read: {error}.", REPORT) from error
    if model is None or sha256(model).hexdigest() != digest:
        raise KitError("The worker's model is not the one that its result names.", REPORT)
    return model
