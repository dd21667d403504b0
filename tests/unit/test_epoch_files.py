"""Test what a launch writes after each epoch, and that training continues from it as if it had not stopped."""

from __future__ import annotations

import itertools
import os
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from scenarios import launch as launching
from scenarios.adapter import Arrays, Sums
from scenarios.catalog import mnist_cnn
from scenarios.contract import codec
from scenarios.contract.codec import from_json
from scenarios.contract.epochs import EpochProgress, KeptWeights
from scenarios.contract.request import EPOCHS_FOLDER, MAX_WEIGHTS_BYTES, PROGRESS_FILE, Budget
from scenarios.measuring import checkpoints, training
from scenarios.measuring.epoch_files import EpochFiles
from scenarios.measuring.training import train
from scenarios.measuring.window_meter import WindowMeter
from scenarios.prepare import Refused
from scenarios.weights import digest
from scenarios.weights_file import read
from tests import examples

SCENARIO = mnist_cnn.SCENARIO
EPOCHS = 5
ACCURACIES = (0.3, 0.8, 0.5, 0.8, 0.6)  # the second epoch is the best one, the first of equals
REQUEST = examples.request(budget=Budget(epochs=EPOCHS), keep_weights=True)
DATA = Arrays(np.zeros((128, 1, 1, 1), np.float32), np.zeros(128, np.int64))


class Model:
    """A model whose weights depend on all epochs and on their order. `slot` stands for the optimizer's state."""

    def __init__(self) -> None:
        self.load({"0/kernel": np.zeros((2, 3), np.float32), "0/bias": np.zeros(3, np.float32)})
        self.trained = list[int]()

    def load(self, weights):
        self._weights = {name: weights[name].copy() for name in ("0/kernel", "0/bias")}
        self._slot = np.array(1.0)

    def weights(self):
        return {name: value.copy() for name, value in self._weights.items()}

    def state(self):
        return self.weights() | {"slot": self._slot.copy()}

    def restore(self, state):
        self.load(state)
        self._slot = state["slot"].copy()

    def train_epoch(self, data, epoch, meter):
        meter.begin()
        self.trained.append(epoch)
        self._slot = 0.5 * self._slot + epoch
        for name, value in self._weights.items():
            self._weights[name] = (value / 3 + self._slot).astype(np.float32)
        for images in (64, 64):
            if meter.step(images):
                meter.mark()
        return Sums(128, 128.0, 64)


@pytest.fixture(autouse=True)
def accuracies(monkeypatch):
    """Let the test accuracy depend on the epoch alone."""
    monkeypatch.setattr(training, "evaluate", lambda model, *_: (1.0, ACCURACIES[model.trained[-1]]))


def bound(request=REQUEST, data="da7a"):
    return checkpoints.binding(request, data)


def launch(folder, *, fails_after=None, request=REQUEST, data="da7a"):
    """Train in a new process, so to speak. fails_after: the epoch after which it is killed."""
    model, files = Model(), EpochFiles(request, SCENARIO.label, folder, bound(request, data))
    if fails_after is not None:
        original = model.train_epoch

        def train_epoch(data, epoch, meter):
            if epoch == fails_after:
                raise KeyboardInterrupt
            return original(data, epoch, meter)

        model.train_epoch = train_epoch
    meter = WindowMeter(request.budget, 2)
    return model, files, train(model, SCENARIO, DATA, DATA, meter, files)


def name(kind, epoch, **training):
    """Return the name of a file of a training, see `bound`."""
    return f"{kind}-{epoch:05d}-{checkpoints.tag(bound(**training))}.safetensors"


def written(folder):
    return sorted(path.name for path in (folder / EPOCHS_FOLDER).iterdir())


def require_whole(folder, trained, resumed_from):
    """Check that a training that was resumed ends like one that never stopped."""
    model, files, result = trained
    with tempfile.TemporaryDirectory() as other:
        whole_model, whole_files, whole = launch(Path(other))
    assert digest(model.weights()) == digest(whole_model.weights())
    assert [epoch.index for epoch in result.epochs] == [1, 2, 3, 4, 5]
    assert [epoch.test_accuracy for epoch in result.epochs] == list(ACCURACIES)
    assert (result.steps, result.resumed_from) == (whole.steps, resumed_from)
    assert files.weights == whole_files.weights
    for kept in files.weights:
        weights, about = read(folder / EPOCHS_FOLDER / kept.file)
        assert (digest(weights), about.epoch, about.digest) == (kept.digest, kept.epoch, kept.digest)


def test_the_last_and_the_best_epoch_are_kept(tmp_path):
    _, files, result = launch(tmp_path)
    assert [(kept.kind, kept.epoch, kept.test_accuracy) for kept in files.weights] == [
        ("last", 5, 0.6),
        ("best", 2, 0.8),
    ]
    assert written(tmp_path) == [
        name("checkpoint", 4),
        name("weights", 2),
        name("weights", 5),
    ]
    progress = from_json(EpochProgress, (tmp_path / PROGRESS_FILE).read_bytes())
    assert (progress.epoch, progress.epochs, progress.test_accuracy) == (5, 5, 0.6)
    assert result.resumed_from == []


def test_if_the_last_epoch_is_the_best_one_there_is_one_file(tmp_path):
    _, files, _ = launch(tmp_path, request=replace(REQUEST, budget=Budget(epochs=2)))
    assert [(kept.kind, kept.epoch) for kept in files.weights] == [("last", 2)]


def test_without_weights_there_are_only_checkpoints(tmp_path):
    _, files, _ = launch(tmp_path, request=replace(REQUEST, keep_weights=False))
    assert files.weights == []
    assert written(tmp_path) == [name("checkpoint", 4)]


def test_what_a_killed_process_did_not_finish_is_removed(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        launch(tmp_path, fails_after=3)
    half = tmp_path / EPOCHS_FOLDER / f".{name('weights', 4)}.4711"
    half.write_bytes(b"half")
    launch(tmp_path)
    assert not half.exists()


@pytest.mark.parametrize("stops", [(1,), (3,), (4,), (2, 4), (1, 2, 3, 4)])
def test_a_killed_training_continues_after_its_last_epoch(tmp_path, stops):
    for done in stops:
        with pytest.raises(KeyboardInterrupt):
            launch(tmp_path, fails_after=done)
    trained = launch(tmp_path)
    assert trained[0].trained == list(range(stops[-1], EPOCHS))
    require_whole(tmp_path, trained, list(stops))


def test_a_training_killed_while_it_writes_continues(tmp_path, monkeypatch):
    """Whichever write or removal of a file is the last one, the rest is consistent."""
    replaced, unlinked = Path.replace, Path.unlink
    for last in itertools.count():
        work = tmp_path / str(last)
        work.mkdir()
        calls = itertools.count()

        def killed(function, calls=calls, last=last):
            def call(*arguments, **options):
                if next(calls) == last:
                    raise KeyboardInterrupt
                return function(*arguments, **options)

            return call

        with monkeypatch.context() as patched:
            patched.setattr(Path, "replace", killed(replaced))
            patched.setattr(Path, "unlink", killed(unlinked))
            try:
                launch(work)
                break
            except KeyboardInterrupt:
                pass
        model, files, result = launch(work)
        whole = model.trained == list(range(EPOCHS))
        require_whole(work, (model, files, result), [] if whole else [model.trained[0]])
        assert not [name for name in written(work) if name.startswith(".")]
    assert last > 15


def alter(path):
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


@pytest.mark.parametrize(
    "damage",
    [alter, lambda path: path.write_bytes(path.read_bytes()[:-9]), lambda path: path.write_bytes(b"")],
    ids=["altered", "truncated", "empty"],
)
def test_a_damaged_checkpoint_is_ignored_with_a_warning(tmp_path, damage, capsys):
    with pytest.raises(KeyboardInterrupt):
        launch(tmp_path, fails_after=3)
    newest = tmp_path / EPOCHS_FOLDER / name("checkpoint", 3)
    damage(newest)
    trained = launch(tmp_path)
    (why,) = trained[2].ignored_checkpoints
    assert why.startswith(f"A checkpoint was not continued: {newest.name} ")
    assert f"Warning: {why}" in capsys.readouterr().out
    require_whole(tmp_path, trained, [2])


def test_if_all_checkpoints_are_damaged_training_starts_from_the_beginning(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        launch(tmp_path, fails_after=3)
    for path in (tmp_path / EPOCHS_FOLDER).glob("checkpoint-*"):
        alter(path)
    require_whole(tmp_path, launch(tmp_path), [])


@pytest.mark.parametrize("error", [ValueError, TypeError])
def test_a_state_that_the_model_refuses_leaves_nothing_in_it(tmp_path, monkeypatch, error):
    with pytest.raises(KeyboardInterrupt):
        launch(tmp_path, fails_after=3)

    def refuse(model, state):
        model.load(state)
        raise error("half of it is missing")

    monkeypatch.setattr(Model, "restore", refuse)
    require_whole(tmp_path, launch(tmp_path), [])


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"seed": 1}, "seed"),
        ({"spec": "0"}, "cell"),
        ({"threads": 1}, "number of threads"),
        ({"settings": {"layout": "nhwc"}}, "choice of settings"),
        ({"environment_digest": "other"}, "version of the software"),
        ({"gpu_digest": "other"}, "GPU"),
        ({"batch": 32}, "cell"),
        ({"framework": "tensorflow"}, "cell"),
        ({"data": "real"}, "data set"),
        ({"data": "real", "gpu_digest": "other"}, "data set and another GPU"),
    ],
)
def test_a_checkpoint_belongs_to_one_training(tmp_path, changes, part):
    with pytest.raises(KeyboardInterrupt):
        launch(tmp_path, fails_after=3)
    other = examples.change(REQUEST, **changes)
    model, _, result = launch(tmp_path, request=other)
    assert (model.trained, result.resumed_from) == (list(range(EPOCHS)), [])
    assert [why.partition(".safetensors ")[2] for why in result.ignored_checkpoints] == [
        f"is of a training with another {part}."
    ] * 2


def test_a_training_that_starts_again_leaves_the_files_of_the_earlier_one(tmp_path):
    """On another GPU, for example, a training starts again. Where it began, it still continues."""
    other = examples.change(REQUEST, gpu_digest="other")
    for request, done in ((REQUEST, 3), (other, 4), (other, 4)):
        with pytest.raises(KeyboardInterrupt):
            launch(tmp_path, request=request, fails_after=done)
    assert {name("checkpoint", 3), name("checkpoint", 4, request=other)} <= set(written(tmp_path))
    trained = launch(tmp_path)
    assert trained[0].trained == [3, 4]
    assert trained[2].ignored_checkpoints == []
    require_whole(tmp_path, trained, [3])
    again, _, result = launch(tmp_path, request=other)
    assert again.trained == [4]
    assert len(result.ignored_checkpoints) == 2, "each file of the earlier training is named once"


def test_the_tensors_of_a_huge_checkpoint_or_of_another_training_are_not_read(tmp_path, monkeypatch):
    with pytest.raises(KeyboardInterrupt):
        launch(tmp_path, fails_after=3)
    huge, other = (name("checkpoint", epoch) for epoch in (3, 2))
    os.truncate(tmp_path / EPOCHS_FOLDER / huge, MAX_WEIGHTS_BYTES + 1)
    monkeypatch.setattr(checkpoints, "read_tensors", lambda path: pytest.fail(f"{path.name} was read"))
    model, _, result = launch(tmp_path, data="other")
    assert model.trained == list(range(EPOCHS))
    assert result.ignored_checkpoints == [
        f"A checkpoint was not continued: {huge} is larger than 4 GiB.",
        f"A checkpoint was not continued: {other} is of a training with another data set.",
    ]


@pytest.mark.parametrize(("fact", "part"), [("_code_digest", "version of the software"), ("_processor", "processor")])
def test_a_checkpoint_belongs_to_one_worker_and_processor(tmp_path, fact, part, monkeypatch):
    with pytest.raises(KeyboardInterrupt):
        launch(tmp_path, fails_after=3)
    assert getattr(checkpoints, fact)(), "this machine has the fact"
    monkeypatch.setattr(checkpoints, fact, lambda: "another")
    model, _, result = launch(tmp_path)
    assert model.trained == list(range(EPOCHS))
    assert result.ignored_checkpoints[0].endswith(f"with another {part}.")


def test_a_checkpoint_belongs_to_one_data_set_but_not_to_one_launch(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        launch(tmp_path, fails_after=3)
    again = replace(REQUEST, launch=7, full_proof=False)
    with pytest.raises(KeyboardInterrupt):
        launch(tmp_path, request=again, fails_after=4)
    assert launch(tmp_path, request=again)[0].trained == [4]
    assert launch(tmp_path, data="other")[0].trained == list(range(EPOCHS))


def test_without_safetensors_weights_are_refused_before_anything_runs_and_there_are_no_checkpoints(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(launching, "has_safetensors", lambda: False)
    with pytest.raises(Refused, match="the package safetensors is missing") as refused:
        launching.check_environment(REQUEST)
    assert "--no-weights" in refused.value.reason.remedy
    request = replace(REQUEST, keep_weights=False)
    launching.check_environment(request)
    files = launching.epoch_files(request, SCENARIO, tmp_path, "da7a")
    train(Model(), SCENARIO, DATA, DATA, WindowMeter(request.budget, 2), files)
    assert written(tmp_path) == []
    assert "No checkpoints are written" in capsys.readouterr().out


def test_lost_weights_of_the_best_epoch_do_not_cost_the_training(tmp_path, capsys):
    with pytest.raises(KeyboardInterrupt):
        launch(tmp_path, fails_after=3)
    (tmp_path / EPOCHS_FOLDER / name("weights", 2)).unlink()
    model, files, _ = launch(tmp_path)
    assert model.trained == [3, 4]
    assert "Warning: the weights of epoch 2, the best one so far, are lost" in capsys.readouterr().out
    assert [(kept.kind, kept.epoch) for kept in files.weights] == [("last", 5)]  # no other epoch was the best one


def test_weights_that_a_forged_checkpoint_names_in_another_folder_are_not_read(tmp_path, capsys):
    with pytest.raises(KeyboardInterrupt):
        launch(tmp_path, fails_after=3)
    elsewhere = tmp_path / "elsewhere.safetensors"
    (tmp_path / EPOCHS_FOLDER / name("weights", 2)).rename(elsewhere)
    files = EpochFiles(REQUEST, SCENARIO.label, tmp_path, bound())
    best = KeptWeights("best", f"../{elsewhere.name}", 2, 0.8, read(elsewhere)[1].digest)
    assert files._still_there(best) is None
    assert "is not the name of a file of weights" in capsys.readouterr().out


def test_no_clock_of_an_epoch_includes_its_files_and_the_speed_leaves_out_each_first_epoch(tmp_path, monkeypatch):
    now = 0.0

    def clock():
        return now

    def slow(function, seconds):
        def call(*arguments, **options):
            nonlocal now
            now += seconds(*arguments) if callable(seconds) else seconds
            return function(*arguments, **options)

        return call

    # The first epoch of each process takes longer.
    monkeypatch.setattr(Model, "train_epoch", slow(Model.train_epoch, lambda model, *_: 2.0 if model.trained else 7.0))
    monkeypatch.setattr(codec, "write", slow(codec.write, 100.0))
    monkeypatch.setattr(checkpoints, "write", slow(checkpoints.write, 1000.0))
    monkeypatch.setattr(training.time, "monotonic", clock)
    with pytest.raises(KeyboardInterrupt):
        launch(tmp_path, fails_after=3)
    _, _, result = launch(tmp_path)
    assert [epoch.seconds for epoch in result.epochs] == [7.0, 2.0, 2.0, 7.0, 2.0]
    assert result.images_per_s == 64.0
