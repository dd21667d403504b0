"""Runs of the unit tests: planned and carried out on a machine that is theirs alone (fixture `machine`)."""

from __future__ import annotations

from pathlib import Path

from kit.datasets.service import Source
from kit.execution.campaign import run_campaign
from kit.model.environment import Framework
from kit.model.launch import Completion
from kit.model.progress import Silent
from kit.planning import catalog
from kit.planning.plan import Options, make_plan
from kit.planning.selection import Selection
from kit.storage.run_folder import RunFolder
from tests import examples

NAMES = ("onnxruntime", "tensorflow", "torch")
FRAMEWORKS = {name: Framework(name, name, ("cpu", "cuda"), (), 13, 580, (7, 5), Path()) for name in NAMES}
SMALL = Selection(scenarios=("mnist-cnn", "cifar-cnn"), devices=("cpu",))
ONE = Selection(scenarios=("mnist-cnn",), devices=("cpu",))


def synthetic(name, mode, progress):
    return Source("synthetic", None, "synthetic: for the test")


def new_run(path, selection=SMALL, **options):
    plan = make_plan(
        selection,
        Options("fake", **options),
        catalog.scenarios(),
        FRAMEWORKS,
        run="r1",
        created_at="2026-01-01T00:00:00+00:00",
    )
    return RunFolder.create(path, plan, examples.machine())


def go(folder, engine, resolve=synthetic, **options):
    return run_campaign(folder, engine, examples.machine(), resolve, Silent(), **options)


def fails(asked, folder):
    return Completion(exit_code=1, seconds=1.0)
