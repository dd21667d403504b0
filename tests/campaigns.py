"""Plan and execute runs in unit tests. The fixture `machine` isolates them from the real machine."""

from __future__ import annotations

from pathlib import Path

from kit.datasets.service import ResolvedData
from kit.execution.campaign import resumable, run_campaign
from kit.execution.paired_runs import paired
from kit.model.device_code import DeviceCode
from kit.model.environment import Framework
from kit.model.launch import Completion
from kit.model.progress import Silent
from kit.planning import catalog
from kit.planning.plan import Options, make_plan
from kit.planning.selection import Selection
from kit.storage.run_folder import RunFolder
from tests import examples

NAMES = ("onnxruntime", "tensorflow", "torch")
CODE = {"example==1/libexample.so": (DeviceCode((7, 5)), DeviceCode((9, 0)))}
FRAMEWORKS = {name: Framework(name, name, ("cpu", "cuda"), (), 13, 580, CODE, Path()) for name in NAMES}
SMALL = Selection(scenarios=("mnist-cnn", "cifar-cnn"), devices=("cpu",))
ONE = Selection(scenarios=("mnist-cnn",), devices=("cpu",))


def synthetic_data(name, mode, progress):
    return ResolvedData("synthetic", None, "synthetic: for the test")


def new_run(path, selection=SMALL, **options):
    """Return the folder of a new run. If no profile is named, each cell has one launch."""
    rounds = {} if "profile" in options else {"rounds": 1}
    plan = make_plan(
        selection,
        Options("fake", **(rounds | options)),
        catalog.scenarios(),
        FRAMEWORKS,
        run="r1",
        created_at="2026-01-01T00:00:00+00:00",
    )
    return RunFolder.create(path, plan, examples.machine())


def new_pair(path, selection=ONE, **options):
    """Return the folder of a new run, and of a base that uses the environments of an earlier run."""
    plan = make_plan(
        selection, Options("fake", **options), catalog.scenarios(), FRAMEWORKS, run="r1", created_at="2026-01-01"
    )
    earlier = {"/".join(launch.environment_key): "sha256:0" for launch in plan.launches}
    plans = paired(plan, plan.model_copy(update={"environments": earlier}))
    return tuple(RunFolder.create(path / each.run, each, examples.machine()) for each in plans)


def execute(folder, engine, resolve=synthetic_data, **options):
    """Run what the plan of a folder still lacks, and return all its records."""
    with resumable(folder, retry_failed=options.get("retry_failed", False)):
        run_campaign(folder, engine, examples.machine(), resolve, Silent(), **options)
    return folder.records()


def identifiers(records):
    """Return (key, launch number) of each record."""
    return [(record.key, record.launch) for record in records]


def fails(request, folder):
    return Completion(exit_code=1, seconds=1.0)
