"""Predict the classes of pictures with the trained weights of a run, in one or several frameworks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kit.engines.base import Engine
from kit.execution.launch_requests import using_weights
from kit.execution.unmeasured import (
    DISK_REMEDY,
    environments,
    run_unmeasured,
    temporary_folder,
    too_large,
    work_folder,
)
from kit.host.machine import usable_cpus
from kit.model.environment import Environment
from kit.model.errors import unknown
from kit.model.formatting import format_count
from kit.model.prediction import PredictedPicture, Predictions
from kit.model.progress import Outcome, Progress
from kit.planning import catalog
from kit.planning.selection import DEFAULT_VARIANT, pick
from kit.storage.files import disk_errors
from kit.storage.run_folder import RunFolder
from kit.storage.safe_read import read_plain, read_untrusted
from kit.storage.trained_weights import TrainedWeights, find_weights, missing_weights
from scenarios.catalog import scenario_of
from scenarios.contract.cell import Cell
from scenarios.contract.predictions import Prediction
from scenarios.contract.reasons import Code, Reason
from scenarios.contract.request import PICTURES, THUMBNAILS, picture_name
from scenarios.contract.result import Result
from scenarios.spec import DATASETS, Scenario

THUMBNAIL_LIMIT = 1 << 20


@dataclass(frozen=True)
class _Answer:
    """What one framework answers: predictions and thumbnails of the readable files, in their order."""

    predictions: Sequence[Prediction]
    thumbnails: Sequence[bytes | None]


def choose_weights(
    folder: RunFolder, scenario: Scenario, frameworks: Sequence[str] | None
) -> dict[str, TrainedWeights]:
    """Return the weights that each framework uses: its own, or those of another framework if it has none.

    frameworks: None for those with weights in the run. If this kit has none of those frameworks, None means all. Of
    several launches, prefer the stock lane, fp32, and the published batch size and layers. Raise UsageError if the run
    has no weights of the scenario, or for an unknown framework.
    """
    kept = find_weights(folder)

    def is_wanted(cell: Cell) -> bool:
        return (cell.scenario, cell.variant) == (scenario.name, scenario.variant)

    own = [each for each in kept if is_wanted(each.cell)]
    if not own:
        have = sorted({each.cell.label for each in kept})
        message = f"The run {folder.plan.run} has no trained weights of {scenario.label}."
        raise missing_weights(folder, is_wanted, message, f"It has those of {', '.join(have)}." if have else "")
    own.sort(key=lambda each: _unusual(each, scenario))
    known = list(catalog.frameworks())
    trained = [name for name in known if any(each.cell.framework == name for each in own)]
    return {
        name: next((each for each in own if each.cell.framework == name), own[0])
        for name in pick("framework", frameworks, known, trained or known)
    }


def find_variant(name: str, variant: str) -> Scenario:
    """Return a scenario of the catalog. variant: `default` or "" for the default variant. Raise UsageError."""
    scenarios = catalog.scenarios()
    if name not in scenarios:
        raise unknown("scenario", name, scenarios)
    variants = {key or DEFAULT_VARIANT: scenario for key, scenario in scenarios[name].items()}
    if (wanted := variant or DEFAULT_VARIANT) not in variants:
        raise unknown(f"variant of {name}", wanted, variants)
    return variants[wanted]


def predict(
    folder: RunFolder,
    scenario: Scenario,
    frameworks: Sequence[str] | None,
    pictures: Sequence[Path],
    engine: Engine,
    progress: Progress,
) -> Predictions:
    """Predict the classes of pictures. A picture that cannot be read gets a fault, and a framework a failure.

    Raise UsageError if there are no weights, EngineError, ImageError, DiskError, and KeyboardInterrupt after a signal.
    """
    chosen = choose_weights(folder, scenario, frameworks)
    with temporary_folder() as temporary:
        faults = _copy(pictures, temporary / PICTURES)
        readable = len(pictures) - len(faults)
        found = _ask_all(engine, chosen, scenario, temporary, readable, progress) if readable else {}
    answers = {name: answer for name, answer in found.items() if isinstance(answer, _Answer)}
    return Predictions(
        run=folder.plan.run,
        label=scenario.label,
        title=scenario.title,
        classes=DATASETS[scenario.dataset].classes,
        weights={name: weights.words for name, weights in chosen.items()},
        pictures=_merge(pictures, faults, answers),
        failures={name: answer for name, answer in found.items() if isinstance(answer, Reason)},
    )


def _unusual(weights: TrainedWeights, scenario: Scenario) -> tuple[object, ...]:
    cell = weights.cell
    varied = cell.batch != scenario.batch, cell.hidden_layers is not None, cell.workers is not None
    return cell.lane != "stock", cell.precision != "fp32", *varied, cell.key, weights.launch


def _copy(pictures: Sequence[Path], folder: Path) -> dict[int, str]:
    """Copy the files that can be read, and return why the others cannot, by index. Their content is not examined.

    All frameworks get the same copies. They are made first, because files may change while environments are built.
    Raise DiskError.
    """
    faults: dict[int, str] = {}
    with disk_errors(folder, DISK_REMEDY):
        folder.mkdir()
    for index, path in enumerate(pictures):
        try:
            content = read_plain(path)
        except (OSError, ValueError) as error:  # ValueError: a name with a zero byte
            faults[index] = f"It cannot be read: {getattr(error, 'strerror', None) or error}."
            continue
        with disk_errors(folder, DISK_REMEDY):
            (folder / picture_name(index - len(faults))).write_bytes(content)
    return faults


def _ask_all(
    engine: Engine,
    chosen: Mapping[str, TrainedWeights],
    scenario: Scenario,
    folder: Path,
    count: int,
    progress: Progress,
) -> dict[str, _Answer | Reason]:
    """Let each framework predict. folder: has the copies of the pictures. count: their number."""
    found: dict[str, _Answer | Reason] = {}
    with (
        environments("predict", engine, list(chosen), progress) as made,
        progress.phase("Predicting", len(chosen)) as phase,
    ):
        for name, weights in chosen.items():
            phase.now(name)
            found[name] = _ask(engine, made[name], weights, scenario, folder, count)
            phase.advance(1)
        failed = sum(isinstance(answer, Reason) for answer in found.values())
        phase.end(
            Outcome(f"{failed} of {format_count(len(chosen), 'framework')} failed", good=False)
            if failed
            else Outcome(format_count(count, "picture"))
        )
    return found


def _ask(
    engine: Engine, environment: Environment, weights: TrainedWeights, scenario: Scenario, folder: Path, count: int
) -> _Answer | Reason:
    """Let one framework predict. Return its answer, or why there is none."""
    own = scenario_of(weights.cell, catalog.scenarios())
    if own is None:
        return Reason.of(Code.SPEC_MISMATCH, f"The catalog has no {weights.cell.key}.", "Use the kit that trained it.")
    if refused := too_large(weights):
        return refused
    threads = len(usable_cpus())
    request = using_weights("predict", weights, environment.framework, own, threads, count)
    with work_folder(weights, folder) as scratch:
        with disk_errors(scratch, DISK_REMEDY):
            (scratch / PICTURES).mkdir()
            for file in (folder / PICTURES).iterdir():  # no links, because the worker may write here
                (scratch / PICTURES / file.name).write_bytes(file.read_bytes())
        result = run_unmeasured("predict", engine, environment, request, scratch, weights)
        if isinstance(result, Reason):
            return result
        return _answer(result, scenario, scratch)


def _answer(result: Result, scenario: Scenario, scratch: Path) -> _Answer | Reason:
    """Return what the worker left. It decoded files of strangers, so nothing of it is trusted."""
    assert result.predictions is not None
    classes = len(DATASETS[scenario.dataset].classes)
    if any(len(each.probabilities) not in {0, classes} for each in result.predictions):
        return Reason.of(Code.INVALID_RESULT, f"The worker's result does not have {classes} classes.")
    names = [picture_name(index) for index in range(len(result.predictions))]
    return _Answer(result.predictions, [_thumbnail(scratch / THUMBNAILS / name) for name in names])


def _thumbnail(path: Path) -> bytes | None:
    try:
        return None if path.parent.is_symlink() else read_untrusted(path, THUMBNAIL_LIMIT)
    except (OSError, ValueError):  # not a plain file, or too large: the page shows no picture
        return None


def _merge(
    pictures: Sequence[Path], faults: Mapping[int, str], answers: Mapping[str, _Answer]
) -> list[PredictedPicture]:
    """Return all pictures in the order of the user, with what each framework answers."""
    found, place = [], 0
    for index, path in enumerate(pictures):
        if fault := faults.get(index, ""):
            found.append(PredictedPicture(str(path), fault, {}))
            continue
        own = {name: answer.predictions[place] for name, answer in answers.items()}
        fault = next((each.fault for each in own.values() if each.fault), "")
        thumbnail = next((image for a in answers.values() if (image := a.thumbnails[place]) is not None), None)
        chances = {name: each.probabilities for name, each in own.items() if not each.fault}
        found.append(PredictedPicture(str(path), fault, chances, thumbnail))
        place += 1
    return found
