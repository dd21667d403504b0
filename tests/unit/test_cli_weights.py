"""Test the command that exports trained weights, with a fake engine."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.command import Kit
from tests.examples import cell, failed, request
from tests.kept import exports, run_with_weights


def test_a_trained_network_is_exported_once(kit: Kit, engine, tmp_path) -> None:
    trained = replace(cell("fashion-mlp", "tensorflow"), hidden_layers=2)
    run_with_weights(tmp_path / "run", [trained])
    engine.worker = exports(b"a model", hashlib.sha256(b"a model").hexdigest())
    arguments = ("weights", "export", "run", trained.key, "--onnx", "model.onnx")
    called = kit(*arguments)
    assert (called.code, Path("model.onnx").read_bytes()) == (0, b"a model")
    assert called.out == f"Model of {trained.key} (epoch 5): model.onnx\n"
    assert engine.used == [("fashion-mlp/onnxruntime/cpu/stock/fp32/b32/hidden2", 1)]
    again = kit(*arguments)
    assert (again.code, again.err.splitlines()[-2]) == (2, "model.onnx exists.")
    homeless = kit(*arguments[:-1], "nowhere/model.onnx")
    assert (homeless.code, homeless.err.splitlines()[-2]) == (2, "There is no folder nowhere.")
    assert len(engine.used) == 1, "nothing is exported for a file that cannot be written"
    engine.worker = exports(b"half a mod", hashlib.sha256(b"a model").hexdigest())
    assert kit(*arguments[:-1], "other.onnx").code == 1
    assert not Path("other.onnx").exists()


def test_an_unknown_cell_lists_those_with_weights(kit: Kit, engine, tmp_path) -> None:
    run_with_weights(tmp_path / "run", [cell("catdog-cnn")])
    called = kit("weights", "export", "run", "catdog-cnn/torch/cpu", "--onnx", "m.onnx")
    assert called.code == 2
    assert "Unknown cell with weights 'catdog-cnn/torch/cpu'." in called.err
    assert "catdog-cnn/torch/cpu/stock/fp32/b32" in called.err


@pytest.mark.parametrize(
    ("lost", "profile", "advice"),
    [
        ("file", "full", "is missing or not a plain file. Restore the file from a copy, or train again."),
        ("launch", "full", "Train it with `kit run --resume run`."),
        ("failed", "full", "Train it with `kit run --resume run --retry-failed`."),
        ("failed", "quick", ""),
    ],
)
def test_weights_that_are_lost_or_can_still_be_trained_are_named(kit: Kit, engine, tmp_path, lost, profile, advice):
    own, other = cell("catdog-cnn"), cell("mnist-cnn")
    folder = run_with_weights(tmp_path / "run", [own, other])
    plan = folder.path / "plan.json"
    plan.write_text(json.dumps(json.loads(plan.read_text()) | {"profile": profile}))
    (weights,), (record,) = folder.path.glob("weights/catdog-cnn*"), folder.path.glob("records/catdog-cnn*")
    if lost == "file":
        weights.unlink()
        weights.symlink_to(tmp_path / "elsewhere")
    else:
        record.unlink()
    if lost == "failed":
        folder.save(failed(request(own)))
    predict = ("predict", "run", "a.jpg", "--scenario")
    export = ("weights", "export", "run", "--onnx", "m.onnx")
    for command, has in ((predict, "mnist-cnn"), (export, other.key)):
        called = kit(*command, "catdog-cnn" if command is predict else own.key)
        text = " ".join(called.err.split())
        assert (called.code, has in text) == (2, True)
        assert advice in text
        assert bool(advice) == any(words in text for words in ("Restore", "Train it"))
        elsewhere = kit(*command, "cifar-cnn" if command is predict else "cifar-cnn/torch/cpu")
        assert not any(words in elsewhere.err for words in ("Restore", "Train it")), (
            "these are not the weights asked for"
        )
