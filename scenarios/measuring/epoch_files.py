"""The files that a launch writes after each whole epoch: its progress, its weights and a checkpoint.

The names of weights and checkpoints have a tag of the training. So a launch that has to start again, for example on
another GPU, leaves the files of the earlier training, which can still continue where it began.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from scenarios import weights_file
from scenarios.adapter import Model
from scenarios.contract import codec
from scenarios.contract.epochs import EpochProgress, KeptWeights
from scenarios.contract.request import CHECKPOINT_PREFIX, EPOCHS_FOLDER, PROGRESS_FILE, Request
from scenarios.measuring import checkpoints
from scenarios.measuring.checkpoints import Binding, CheckpointError, History
from scenarios.weights import digest

KEPT_CHECKPOINTS = 2  # if the newest one is damaged, the one before it is used
SUFFIX = ".safetensors"


@dataclass
class EpochFiles:
    """The files of one launch with whole epochs.

    request: has the number of epochs. label: of the scenario. folder: of the launch. bound_to: the result of
    `checkpoints.binding`; None if there are no checkpoints. weights: the kept weights after the newest epoch.
    """

    request: Request
    label: str
    folder: Path
    bound_to: Binding | None
    clock: Callable[[], float] = time.monotonic
    weights: list[KeptWeights] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._began, self._epochs = self.clock(), 0
        self._place = self.folder / EPOCHS_FOLDER
        self._end = f"-{checkpoints.tag(self.bound_to)}{SUFFIX}" if self.bound_to else SUFFIX  # of names

    def restore(self, model: Model) -> History:
        """Continue from the newest checkpoint of this training that is valid. Return its history, or an empty one if
        there is none.

        The history says why a checkpoint is not used.
        """
        if self.bound_to is None:
            return History()
        initial, ignored = model.weights(), list[str]()
        found = self._place.glob(f"{CHECKPOINT_PREFIX}*")
        for path in sorted(found, key=lambda path: (path.name.endswith(self._end), path.name), reverse=True):
            try:
                state, history = checkpoints.read(path, self.bound_to)
                done = len(history.epochs)
                if not 0 < done < self._all_epochs:
                    raise CheckpointError(f"{path.name} has {done} of {self._all_epochs} epochs.")
                if any(name not in state or state[name].shape != value.shape for name, value in initial.items()):
                    raise CheckpointError(f"{path.name} has the weights of another network.")
                model.restore(state)
            except (OSError, ValueError, TypeError) as error:  # TypeError: a value of its state is not a number
                ignored.append(f"A checkpoint was not continued: {error}")
                _say(f"Warning: {ignored[-1]}")
                model.load(initial)  # the model may have a part of the state
                continue
            _say(f"resumed after epoch {done} of {self._all_epochs}")
            return replace(
                history,
                resumed_from=[*history.resumed_from, done],
                ignored=[*history.ignored, *ignored],
                best=self._still_there(history.best),
            )
        return History(ignored=ignored)

    def write(self, model: Model, history: History) -> History:
        """Write the files after an epoch, the last one of the history. Return the history with the best epoch.

        The last epoch has no checkpoint: a launch that reports a training has trained at least one epoch itself, so it
        can show what it ran on. Raise OSError.
        """
        newest, done, previous_best = history.epochs[-1], len(history.epochs), history.best
        self._place.mkdir(exist_ok=True)
        if self.request.keep_weights:
            history = self._write_weights(model, history)
        if self.bound_to is not None and done < self._all_epochs:
            checkpoints.write(self._place / self._name(CHECKPOINT_PREFIX, done), self.bound_to, model.state(), history)
        self._remove_older(done, previous_best)
        self._epochs += 1
        epoch_s = (self.clock() - self._began) / self._epochs
        progress = EpochProgress(done, self._all_epochs, newest.test_accuracy, epoch_s)
        codec.write(self.folder / PROGRESS_FILE, progress)
        _say(f"epoch {done} of {self._all_epochs}, {newest.test_accuracy:.1%} test accuracy")
        return history

    @property
    def _all_epochs(self) -> int:
        assert self.request.budget.epochs is not None, "these files belong to whole epochs"
        return self.request.budget.epochs

    def _write_weights(self, model: Model, history: History) -> History:
        """Write the weights of the newest epoch. Return the history with the best one."""
        newest, weights = history.epochs[-1], model.weights()
        file = self._name("weights-", newest.index)
        last = KeptWeights("last", file, newest.index, newest.test_accuracy, digest(weights))
        framework = self.request.cell.framework
        about = weights_file.About(self.label, self.request.spec, framework, last.epoch, last.digest)
        weights_file.write(self._place / file, weights, about)
        best, before = history.best, max((epoch.test_accuracy for epoch in history.epochs[:-1]), default=-1.0)
        if last.test_accuracy > before:
            best = replace(last, kind="best")
        # If the weights of the best epoch are lost, those of a worse one are not called the best.
        self.weights = [last, *([best] if best and best.epoch != last.epoch else [])]
        return replace(history, best=best)

    def _still_there(self, best: KeptWeights | None) -> KeptWeights | None:
        """Return the kept weights of the best epoch, or None, with a warning, if they are lost."""
        if best is None or not self.request.keep_weights:
            return None
        try:
            best.check()
            _, about = weights_file.read(self._place / best.file)
            if about.digest != best.digest:
                raise weights_file.WeightsError(f"{best.file} has other weights")
        except (OSError, ValueError) as error:
            _say(f"Warning: the weights of epoch {best.epoch}, the best one so far, are lost: {error}")
            return None
        return best

    def _remove_older(self, done: int, previous_best: KeptWeights | None) -> None:
        """Remove what no checkpoint of this training needs any more, also what a killed process did not finish."""
        needed = {self._name(CHECKPOINT_PREFIX, done - age) for age in range(KEPT_CHECKPOINTS)}
        needed |= {kept.file for kept in (*self.weights, previous_best) if kept}
        for path in self._place.iterdir():
            own = path.name.endswith(self._end) or path.name.startswith(".")
            if own and path.name not in needed:
                path.unlink()

    def _name(self, prefix: str, epoch: int) -> str:
        return f"{prefix}{epoch:05d}{self._end}"


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201
