"""Test the commands that use trained weights, with a fake engine: what they choose, send, show and refuse."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kit.engines import registry
from kit.environments.package_sources import Sources
from kit.execution import predict
from kit.execution.unmeasured import PICTURE_S, TIMEOUT_S, temporary_folder, work_folder
from kit.host import machine_lock
from kit.model.errors import DiskError
from kit.model.launch import Completion, LaunchFolder
from kit.model.prediction import PredictedPicture, Predictions
from kit.planning import catalog
from kit.report import render
from kit.report.predictions import render_predictions
from kit.storage.trained_weights import TrainedWeights, find_weights
from scenarios.contract import codec
from scenarios.contract.epochs import KeptWeights
from scenarios.contract.predictions import Prediction
from scenarios.contract.reasons import Code, Reason, Status
from scenarios.contract.request import (
    MAX_WEIGHTS_BYTES,
    PICTURES,
    RESULT_FILE,
    THUMBNAILS,
    WEIGHTS_FILE,
    Request,
    picture_name,
)
from scenarios.contract.result import Result
from scenarios.weights_file import read
from tests import fakes, faults
from tests.command import Kit
from tests.examples import cell
from tests.kept import exports, run_with_weights

ROOT = Path(__file__).parents[2]
CATDOG = ("--scenario", "catdog-cnn")
THUMBNAIL = b"\xff\xd8 a small picture"
DOG = {"cats": 0.25, "dogs": 0.75}


def answers(chances: list[float] | None = None, faults: dict[bytes, str] | None = None) -> fakes.Worker:
    """Return a worker that gives every picture these probabilities. faults: for pictures with this content."""

    def worker(request: Request, folder: LaunchFolder) -> Completion:
        names = [picture_name(index) for index in range(request.pictures)]
        contents = [(folder.scratch / PICTURES / name).read_bytes() for name in names]
        (folder.scratch / THUMBNAILS).mkdir()
        for name in names:
            (folder.scratch / THUMBNAILS / name).write_bytes(THUMBNAIL)
        found = [
            Prediction([], (faults or {})[content])
            if content in (faults or {})
            else Prediction(chances or [0.25, 0.75])
            for content in contents
        ]
        codec.write(folder.scratch / RESULT_FILE, Result(request.cell, 1, Status.OK, predictions=found))
        return Completion(exit_code=0, seconds=1.0)

    return worker


def refuses(reason: Reason, framework: str) -> fakes.Worker:
    """Return a worker that fails for this reason in one framework."""

    def worker(request: Request, folder: LaunchFolder) -> Completion:
        if request.cell.framework != framework:
            return answers()(request, folder)
        folder.log.write_text("the traceback\n")
        codec.write(folder.scratch / RESULT_FILE, Result(request.cell, 1, reason.code.status, reason))
        return Completion(exit_code=0, seconds=1.0)

    return worker


@pytest.fixture
def picture(tmp_path: Path) -> Callable[[str, bytes], str]:
    def make(name: str, content: bytes = b"any") -> str:
        (tmp_path / name).write_bytes(content)
        return name

    return make


def test_each_framework_with_weights_predicts_each_picture(kit: Kit, engine, picture, tmp_path) -> None:
    run_with_weights(tmp_path / "run", [cell("catdog-cnn", name) for name in ("torch", "onnxruntime")])
    engine.worker = answers()
    called = kit("predict", "run", *CATDOG, picture("a.jpg"), picture("b.png"))
    assert called.code == 0
    assert {limits.timeout_s for limits in engine.limits} == {TIMEOUT_S + 2 * PICTURE_S}
    lines = [re.split(r" {2,}", line) for line in called.out.splitlines()]
    assert lines[0] == ["Picture", "Framework", "Class", "Probability"]
    assert lines[1:5] == [
        [name, title, "dogs", "75.0%"] for name in ("a.jpg", "b.png") for title in ("ONNX Runtime", "PyTorch")
    ]
    assert "PyTorch used the weights of catdog-cnn/torch/cpu/stock/fp32/b32 (epoch 5)." in called.out
    assert not list((tmp_path / "KIT_CACHE_DIR").glob("work-*"))
    assert engine.used == [(f"catdog-cnn/{name}/cpu/stock/fp32/b32", 1) for name in ("onnxruntime", "torch")]


def test_weights_that_were_trained_on_synthetic_data_are_named_as_such(kit: Kit, engine, picture, tmp_path) -> None:
    run_with_weights(tmp_path / "run", [cell("catdog-cnn")], data="synthetic")
    engine.worker = answers()
    called = kit("predict", "run", *CATDOG, picture("a.jpg"))
    assert called.out.endswith("catdog-cnn/torch/cpu/stock/fp32/b32 (epoch 5, trained on synthetic data).\n")


def test_a_framework_without_weights_uses_those_of_another_one(kit: Kit, engine, picture, tmp_path) -> None:
    run_with_weights(tmp_path / "run", [cell("catdog-cnn", "torch"), cell("mnist-cnn", "tensorflow")])
    trained_in = []

    def worker(request: Request, folder: LaunchFolder) -> Completion:
        trained_in.append(read(folder.scratch / WEIGHTS_FILE)[1].framework)
        return answers()(request, folder)

    engine.worker = worker
    called = kit("predict", "run", *CATDOG, "--framework", "tensorflow", picture("a.jpg"), "--json")
    found = json.loads(called.out)
    assert (called.code, trained_in) == (0, ["torch"])
    assert found["weights"] == {"tensorflow": "catdog-cnn/torch/cpu/stock/fp32/b32 (epoch 5)"}
    predicted = {"class": "dogs", "probabilities": DOG}
    assert found["pictures"] == [{"picture": "a.jpg", "fault": "", "predictions": {"tensorflow": predicted}}]


def test_the_best_epoch_and_the_usual_cell_are_preferred(kit: Kit, engine, picture, tmp_path) -> None:
    usual = cell("fashion-mlp")
    others = [replace(usual, batch=8), replace(usual, hidden_layers=2), replace(usual, precision="bf16")]
    run_with_weights(tmp_path / "run", [*others, usual], "last", "best")
    engine.worker = answers([0.1] * 10)
    called = kit("predict", "run", "--scenario", "fashion-mlp", picture("a.png"), "--json")
    assert json.loads(called.out)["weights"] == {"torch": f"{usual.key} (epoch 3)"}


def test_a_picture_that_cannot_be_read_does_not_stop_the_others(kit: Kit, engine, picture, tmp_path) -> None:
    run_with_weights(tmp_path / "run", [cell("catdog-cnn")])
    engine.worker = answers(faults={b"broken": "It is damaged."})
    (tmp_path / "folder").mkdir()
    names = ["missing.jpg", picture("a.jpg"), "folder", picture("b.jpg", b"broken"), picture("c.jpg")]
    called = kit("predict", "run", *CATDOG, *names)
    assert called.code == 2
    assert [line.split()[0] for line in called.out.splitlines()[1:3]] == ["a.jpg", "c.jpg"]
    assert "missing.jpg: It cannot be read: No such file or directory." in called.out
    assert "folder: It cannot be read: not a plain file." in called.out
    assert "b.jpg: It is damaged." in called.out
    only = kit("predict", "run", *CATDOG, "missing.jpg", "--json")
    assert (only.code, json.loads(only.out)["pictures"][0]["predictions"]) == (2, {})
    assert len(engine.used) == 1, "nothing starts for a picture that is missing"


def test_a_picture_that_vanishes_while_an_environment_is_made_is_predicted(kit: Kit, engine, picture, tmp_path) -> None:
    run_with_weights(tmp_path / "run", [cell("catdog-cnn", name) for name in ("torch", "tensorflow")])
    engine.worker, name = answers(), picture("a.jpg")
    engine.on_call = lambda call: (tmp_path / name).unlink(missing_ok=True) if call.startswith("prepare") else None
    called = kit("predict", "run", *CATDOG, name)
    assert (called.code, called.out.count("dogs")) == (0, 2)
    assert not (tmp_path / name).exists()


def test_a_page_has_the_pictures_that_a_framework_predicted_and_the_faults(tmp_path) -> None:
    one = PredictedPicture("a.jpg", "It took too much memory.", {"torch": (0.25, 0.75)})
    none = PredictedPicture("b.jpg", "It is damaged.", {})
    found = Predictions("r", "catdog-cnn", "Photos", ("cats", "dogs"), {"torch": "w"}, [one, none], {})
    html = render_predictions(found)
    assert "The most likely class of 1 picture, with its probability." in html
    assert ("<b>dogs</b>75.0%" in html, html.count("<li>")) == (True, 2)
    empty = render_predictions(replace(found, pictures=[none]))
    assert ("most likely" in empty, "b.jpg: It is damaged." in empty) == (False, True)


def test_a_framework_that_fails_does_not_stop_the_others(kit: Kit, engine, picture, tmp_path) -> None:
    run_with_weights(tmp_path / "run", [cell("catdog-cnn", name) for name in ("torch", "tensorflow")])
    engine.worker = refuses(Reason.of(Code.WORKER_ERROR, "It broke."), "torch")
    called = kit("predict", "run", *CATDOG, picture("a.jpg"))
    assert called.code == 1
    log = tmp_path / "KIT_CACHE_DIR/logs/predict-torch.log"
    assert "PyTorch predicted nothing. It broke." in called.out
    assert "Predicting: ! 1 of 2 frameworks failed" in called.err
    assert f"The log is {log}." in called.out
    assert log.read_text() == "the traceback\n"
    assert re.search(r"^a\.jpg +TensorFlow +dogs", called.out, re.MULTILINE)
    engine.worker = refuses(Reason.of(Code.INVALID_WEIGHTS, f"{WEIGHTS_FILE} was altered."), "torch")
    refused = kit("predict", "run", *CATDOG, "a.jpg")
    file = "catdog-cnn__torch__cpu__stock__fp32__b32__001__last.safetensors"  # the page shows it, too, without folders
    assert refused.code == 2
    assert f"PyTorch predicted nothing. {file} was altered." in refused.out


LATE, FULL, KILLED_WORKER = (
    Completion(exit_code=None, seconds=1800.0, timed_out=True),
    Completion(exit_code=137, seconds=1.0, out_of_memory=True),
    Completion(exit_code=137, seconds=1.0),
)


@pytest.mark.parametrize("completion", [LATE, FULL, KILLED_WORKER])
def test_remedies_name_no_option_of_another_command(kit: Kit, engine, picture, tmp_path, completion) -> None:
    run_with_weights(tmp_path / "run", [cell("catdog-cnn")])
    engine.worker = lambda request, folder: completion
    predicted = kit("predict", "run", *CATDOG, picture("a.jpg"))
    exported = kit("weights", "export", "run", cell("catdog-cnn").key, "--onnx", "m.onnx")
    for called, text in ((predicted, predicted.out), (exported, exported.err)):
        assert called.code == 1
        assert "lose other programs" in text
        assert not {"--timeout", "--memory", "--batch"} & {*re.findall(r"--\w+", text)}


def test_a_worker_that_answers_something_else_is_not_believed(kit: Kit, engine, picture, tmp_path) -> None:
    run_with_weights(tmp_path / "run", [cell("catdog-cnn")])
    name = picture("a.jpg")
    for chances in ([0.5], [0.2, 0.3, 0.5], [-1.0, 2.0]):
        engine.worker = answers(chances)
        called = kit("predict", "run", *CATDOG, name, "--json")
        assert called.code == 1
        assert json.loads(called.out)["failures"]["torch"]["code"] == "invalid_result"


def test_the_page_shows_the_pictures_and_escapes_their_names(kit: Kit, engine, picture, tmp_path) -> None:
    run_with_weights(tmp_path / "run", [cell("catdog-cnn")])
    engine.worker = answers(faults={b"broken": "It is <b>damaged</b>."})
    names = [picture("<script>alert(1)<.jpg"), picture("b.jpg", b"broken")]
    called = kit("predict", "run", *CATDOG, *names, "--html", "page.html")
    page = Path("page.html").read_text()
    assert "Page: page.html" in called.out
    assert "<script" not in page
    assert "&lt;script&gt;alert(1)&lt;.jpg" in page
    assert "b.jpg: It is &lt;b&gt;damaged&lt;/b&gt;." in page
    assert page.count('<img src="data:image/jpeg;base64,/9gg') == 1
    assert "<b>dogs</b>75.0%" in page
    assert kit("predict", "run", *CATDOG, names[0], "--html", "page.html").code == 0, (
        "a page of predictions is replaced"
    )

    def refuse(path: Path, content: bytes) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(render, "write_atomic", refuse)
        lost = kit("predict", "run", *CATDOG, names[0], "--html", "other.html")
    assert (lost.code, "75.0%" in lost.out) == (DiskError.exit_code, True), "the answers are shown nevertheless"
    Path("own.html").write_text("my own page")
    refused = kit("predict", "run", *CATDOG, names[0], "--html", "own.html")
    assert (refused.code, Path("own.html").read_text()) == (2, "my own page")
    homeless = kit("predict", "run", *CATDOG, names[0], "--html", "nowhere/page.html")
    assert (homeless.code, "There is no folder nowhere." in homeless.err) == (2, True)
    assert len(engine.used) == 3, "nothing is predicted for a page that cannot be written"


def test_predicting_waits_for_no_run_that_measures(kit: Kit, engine, picture, tmp_path) -> None:
    run_with_weights(tmp_path / "run", [cell("catdog-cnn")])
    held = []

    def worker(request: Request, folder: LaunchFolder) -> Completion:
        held.append(machine_lock.is_alive("predict"))
        return answers()(request, folder)

    engine.worker = worker
    assert kit("predict", "run", *CATDOG, picture("a.jpg")).code == 0
    assert held == [True]
    with machine_lock.measuring("20261120-110210-ab12"):
        called = kit("predict", "run", *CATDOG, "a.jpg")
    assert called.code == 3
    assert "run 20261120-110210-ab12" in called.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--scenario", "mnist-cnn"), "has no trained weights of mnist-cnn.\nIt has those of catdog-cnn."),
        ((*CATDOG, "--variant", "deep"), "has no trained weights of catdog-cnn+deep"),
        ((*CATDOG, "--variant", "deeper"), "Unknown variant of catdog-cnn 'deeper'."),
        (("--scenario", "catdog"), "Unknown scenario 'catdog'.\nDid you mean 'catdog-cnn'?"),
        ((*CATDOG, "--framework", "jax"), "Unknown framework 'jax'."),
        ((), "Missing option '--scenario'"),
    ],
)
def test_weights_that_do_not_exist_are_named(kit: Kit, engine, picture, tmp_path, arguments, message) -> None:
    run_with_weights(tmp_path / "run", [cell("catdog-cnn")])
    called = kit("predict", "run", *arguments, picture("a.jpg"))
    assert (called.code, engine.used) == (2, [])
    assert message in called.err


def test_weights_behind_a_damaged_record_are_not_reported_as_missing(kit: Kit, engine, picture, tmp_path) -> None:
    folder = run_with_weights(tmp_path / "run", [cell("catdog-cnn"), cell("mnist-cnn")])
    damaged = folder.path / "records/catdog-cnn__torch__cpu__stock__fp32__b32__001.json"
    damaged.write_text("{")
    predict = ("predict", "run", *CATDOG, picture("a.jpg"))
    export = ("weights", "export", "run", cell("catdog-cnn").key, "--onnx", "m.onnx")
    for others in (True, False):
        if not others:
            next(folder.path.glob("records/mnist*")).unlink()
        for command, have in ((predict, "It has those of mnist-cnn."), (export, f"from: {cell('mnist-cnn').key}.")):
            called = kit(*command)
            text = " ".join(called.err.split())
            assert called.code == 2
            assert f"{damaged.name} is not a valid record" in text
            assert "Restore the file." in text
            assert (have in text) == others
            assert "--profile full" not in text


def test_the_engine_is_the_users_and_not_that_of_the_runs_folder(kit: Kit, engine, picture, tmp_path, monkeypatch):
    run_with_weights(tmp_path / "run", [cell("catdog-cnn")])
    plan = tmp_path / "run/plan.json"
    plan.write_text(json.dumps(json.loads(plan.read_text()) | {"engine": "local", "environment": "/stranger/python"}))
    asked = []

    def choose(name: str, environment: str, sources: Sources) -> tuple[fakes.FakeEngine, str]:
        asked.append((name, environment))
        return engine, "Using the fake engine."

    monkeypatch.setattr(registry, "choose", choose)
    engine.worker = answers()
    predicted = ("predict", "run", *CATDOG, picture("a.jpg"))
    assert [kit(*predicted, *options).code for options in ((), ("--engine", "local", "--env", "system"))] == [0, 0]
    engine.worker = exports(b"a model", hashlib.sha256(b"a model").hexdigest())
    assert kit("weights", "export", "run", cell("catdog-cnn").key, "--onnx", "m.onnx").code == 0
    assert asked == [("auto", ""), ("local", "system"), ("auto", "")]


def test_a_full_disk_ends_a_prediction_with_its_exit_code(kit: Kit, engine, picture, tmp_path) -> None:
    run_with_weights(tmp_path / "run", [cell("catdog-cnn")])
    engine.worker = answers()
    command = ("predict", "run", *CATDOG, picture("a.jpg"))
    with faults.record() as calls:
        assert kit(*command).code == 0
    places = [place for place in calls.places if re.match(r"(file\.write|open|os\.mkdir) in kit\.execution", place)]
    assert [place for place in places if place.startswith("file.write in kit.execution.unmeasured.work_folder")]
    for place in places:
        shutil.rmtree(tmp_path / "KIT_CACHE_DIR", ignore_errors=True)  # each command makes it
        with faults.at(place, faults.ERRORS["disk full"]()):
            called = kit(*command)
        assert called.code == DiskError.exit_code, place
        assert re.search(r"KIT_CACHE_DIR|safetensors cannot be read", called.err), "it names the file"
        assert "Free disk space" in called.err
    assert not list((tmp_path / "KIT_CACHE_DIR").glob("work-*"))
    weights = next((tmp_path / "run/weights").iterdir())
    opened = next(place for place in places if place.startswith("open in kit.execution.unmeasured.work_folder"))
    with faults.at(opened, faults.ERRORS["no permission"]()):
        called = kit(*command)
    assert (called.code, f"{weights.name} cannot be read" in called.err) == (DiskError.exit_code, True)


KILLED = """
import os, signal, sys
from pathlib import Path
from kit.execution.unmeasured import temporary_folder, work_folder
from kit.storage.run_folder import RunFolder
from kit.storage.trained_weights import find_weights

(weights,) = find_weights(RunFolder.open(Path(sys.argv[1])))
with temporary_folder() as folder, work_folder(weights, folder):
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_clean_removes_the_folder_of_a_killed_prediction_but_not_one_in_use(kit: Kit, monkeypatch, tmp_path):
    run = run_with_weights(tmp_path / "run", [cell("catdog-cnn")])
    monkeypatch.setattr(registry, "entries", list)
    killed = subprocess.run([sys.executable, "-c", KILLED, str(run.path)], cwd=ROOT, check=False)
    assert killed.returncode == -signal.SIGKILL
    cache = tmp_path / "KIT_CACHE_DIR"
    (left,) = cache.glob("work-*")
    (copied,) = left.glob(f"*/io/{WEIGHTS_FILE}")
    assert copied.is_file()
    (cache / "work-link").symlink_to(run.path)
    (weights,) = find_weights(run)
    with temporary_folder() as folder, work_folder(weights, folder) as used:
        called = kit("clean")
        assert (called.code, called.out.splitlines()) == (0, [f"folder {left}"])
        assert (used / WEIGHTS_FILE).is_file()
    assert kit("clean").out == "Nothing was left behind.\n"
    assert run.records()


def test_weights_that_are_larger_than_those_of_every_network_are_not_copied(
    kit: Kit, engine, picture, monkeypatch, tmp_path
) -> None:
    trained = cell("catdog-cnn")
    (file,) = (run_with_weights(tmp_path / "run", [trained]).path / "weights").iterdir()
    os.truncate(file, MAX_WEIGHTS_BYTES + 1)
    monkeypatch.setattr(shutil, "copyfileobj", lambda source, copy: pytest.fail("the weights were copied"))
    export = ("weights", "export", "run", trained.key, "--onnx", "m.onnx")
    for command in (("predict", "run", *CATDOG, picture("a.jpg")), export):
        called = kit(*command)
        assert (called.code, engine.used) == (2, [])
        assert f"{file.name} is larger than 4 GiB." in " ".join((called.out + called.err).split())


def test_weights_of_a_framework_that_this_kit_lacks_are_used_by_all_of_it(monkeypatch, tmp_path):
    weights = TrainedWeights(
        cell(framework="jax"), 1, KeptWeights("last", "w.safetensors", 1, 0.9, "0"), tmp_path / "w", False
    )
    monkeypatch.setattr(predict, "find_weights", lambda folder: [weights])
    scenario = catalog.scenarios()[weights.cell.scenario][""]
    assert predict.choose_weights(tmp_path, scenario, None) == dict.fromkeys(catalog.frameworks(), weights)
