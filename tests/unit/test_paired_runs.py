"""Test runs that are measured against the environments of an earlier run: order, records, interrupts, bad input."""

from __future__ import annotations

import itertools
import json
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from kit.datasets import service
from kit.datasets.service import ResolvedData
from kit.execution.campaign import exit_code_of_both
from kit.execution.paired_runs import open_pair
from kit.model.errors import DiskError, ImageError, Interrupted, UsageError
from kit.model.launch import Completion
from kit.planning.profiles import PROFILES
from kit.storage.run_folder import PLAN_FILE, RunFolder, file_stem
from scenarios.contract import codec
from scenarios.contract.reasons import Code, Status
from scenarios.contract.request import RESULT_FILE, Budget
from tests import examples, fakes
from tests.campaigns import execute, fails, identifiers, new_pair
from tests.command import Kit

RUN = ("run", "--scenario", "mnist-cnn", "--device", "cpu", "--profile", "smoke", "--data", "synthetic")
BOTH = ("--framework", "torch", "--framework", "tensorflow")
TORCH = "mnist-cnn/torch/cpu/stock/fp32/b64"
TUNED = "mnist-cnn/torch/cpu/tuned/fp32/b64"


def of_base(folder: Any) -> bool:
    """Return whether a launch belongs to the base. folder: what the engine gets."""
    return bool(folder.scratch.parents[2].name.endswith("-base"))


@pytest.fixture
def earlier(kit: Kit, engine: fakes.FakeEngine) -> Path:
    """Measure two cells. Then, other environments are prepared."""
    ended = kit(*RUN, *BOTH, "--json")
    assert ended.code == 0, ended.err
    engine.digest = "sha256:1"
    engine.calls.clear()
    return Path(json.loads(ended.out)["folder"])


def edit(file: Path, **changes: object) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def folders(earlier: Path) -> tuple[RunFolder, RunFolder]:
    """Return the new run and its base."""
    new, base = sorted(path for path in earlier.parent.iterdir() if path.is_dir() and path != earlier)
    return RunFolder.open(new), RunFolder.open(base)


def test_both_runs_are_measured_in_the_same_rounds_in_pairs(kit: Kit, engine: fakes.FakeEngine, earlier: Path) -> None:
    order: list[tuple[str, int, bool]] = []
    alive: set[str] = set()

    def worker(request: Any, folder: Any) -> Any:
        order.append((request.cell.key, request.launch, of_base(folder)))
        alive.update(engine.running)
        return fakes.works(request, folder)

    engine.worker = worker
    ended = kit("run", "--against", earlier.name, "--rounds", "6", "--data", "synthetic", "--profile", "smoke")
    assert ended.code == 0, ended.err
    new, base = folders(earlier)
    assert (base.plan.run, new.plan.against, base.plan.against) == (f"{new.plan.run}-base", base.plan.run, new.plan.run)
    pairs = list(zip(order[::2], order[1::2], strict=True))
    assert [first[:2] for first, _ in pairs] == [(launch.key, launch.launch) for launch in new.plan.launches]
    assert all(first[:2] == second[:2] and first[2] != second[2] for first, second in pairs)
    assert {first[2] for first, _ in pairs} == {True, False}, "the order within a pair is random"
    assert alive == {new.plan.run}, "`kit clean` takes launches of other ids for those of a dead run"
    assert {record.image and record.image.digest for record in new.records()} == {"sha256:1"}
    assert {record.image and record.image.digest for record in base.records()} == {"sha256:0"}
    assert len(new.records()) == len(base.records()) == 12
    assert new.index.is_file()
    assert base.index.is_file()
    assert f"Report of the base: {base.index}" in ended.out
    assert ended.out.count("2 cells: 2 tie") == 2
    assert 0 < ended.out.index("Training images/s") < ended.out.index("Inference images/s")
    assert "Not measured in the same rounds" not in ended.out
    assert "2 cells on the CPU, 6 launches each in both runs (smoke)." in ended.err


@pytest.mark.parametrize(
    ("measured", "named", "used"),
    [
        (("synthetic", "synthetic"), (), "synthetic"),
        (("real", "real"), (), "real"),
        (("real", "synthetic"), (), "auto"),
        (("synthetic", "synthetic"), ("--data", "real"), "real"),
    ],
)
def test_both_runs_use_the_kind_of_data_of_the_earlier_one_unless_the_user_names_one(
    kit: Kit, earlier: Path, measured: tuple[str, str], named: tuple[str, ...], used: str, monkeypatch: Any
) -> None:
    for file, kind in zip(sorted(earlier.glob("records/*")), measured, strict=True):
        file.write_text(file.read_text().replace('"data": "synthetic"', f'"data": "{kind}"'))
    monkeypatch.setattr(service, "resolve", lambda name, kind, progress: ResolvedData("synthetic", None, kind))
    ended = kit("run", "--against", str(earlier), "--profile", "smoke", *named)
    assert ended.code == 0, ended.err
    new, base = folders(earlier)
    assert (new.plan.data, base.plan.data) == (used, used)
    said = f"All use {used} data, as {earlier.name} did"
    assert (said in ended.err.splitlines()[0]) is (not named and used != "auto")


def test_a_comparison_with_an_earlier_run_as_json(kit: Kit, earlier: Path) -> None:
    ended = kit(*RUN, "--framework", "torch", "--against", str(earlier), "--rounds", "2", "--json")
    document = json.loads(ended.out)
    assert (ended.code, ended.err) == (0, "")
    assert document["base"]["run"] == document["run"] + "-base"
    assert [comparison["measure"] for comparison in document["comparisons"]] == ["training", "inference"]
    for comparison in document["comparisons"]:
        assert [cell["key"] for cell in comparison["cells"]] == [TORCH]
        assert comparison["cells"][0]["pairs"] == {"ratios": [1.0, 1.0], "dropped": 0}


def test_the_estimate_of_two_runs_is_twice_as_long(kit: Kit, earlier: Path) -> None:
    options = ("--rounds", "3", "--profile", "quick", "--data", "synthetic", "--json")
    alone = json.loads(kit("plan", *RUN[1:5], *BOTH, *options).out)
    both = json.loads(kit("plan", "--against", str(earlier), *options).out)
    building_s = 2 * alone["seconds"] - both["seconds"]  # only once: the earlier environments exist
    assert 0 < building_s < alone["seconds"]
    assert both["base"].endswith("-base")
    assert len(both["launches"]) == len(alone["launches"]) == 6


def test_settings_of_the_earlier_run_are_measured_again(kit: Kit, engine: fakes.FakeEngine, tmp_path: Path) -> None:
    tuned = (*RUN, "--framework", "torch", "--lane", "tuned")
    first = json.loads(kit(*tuned, "--json").out)
    (tmp_path / "s.json").write_text(json.dumps({"schema": 1, "cells": {TUNED: {"layout": "nchw"}}}))
    engine.tuned.clear()
    ended = kit(*tuned, "--against", first["run"], "--settings", "s.json", "--json")
    assert ended.code == 0, ended.err
    new, base = folders(Path(first["folder"]))
    assert [record.request and record.request.settings for record in new.records()] == [{"layout": "nchw"}]
    assert [record.request and record.request.settings for record in base.records()] == [examples.SETTINGS]
    assert engine.tuned == []


def test_cells_whose_speed_alone_counted_train_no_epochs_again(kit: Kit, earlier: Path) -> None:
    launches = json.loads((earlier / PLAN_FILE).read_text())["launches"]
    edit(earlier / PLAN_FILE, launches=[launch | {"epochs": 0 if "torch" in str(launch) else 3} for launch in launches])
    ended = kit("run", "--against", str(earlier), "--rounds", "1", "--data", "synthetic", "--profile", "full")
    assert ended.code == 0, ended.err
    for folder in folders(earlier):
        trained = {record.cell.framework: record.request and record.request.budget for record in folder.records()}
        assert trained == {"torch": PROFILES["standard"].budget, "tensorflow": Budget(epochs=3)}


def test_the_epochs_of_the_earlier_run_are_trained_again(kit: Kit, earlier: Path) -> None:
    launches = json.loads((earlier / PLAN_FILE).read_text())["launches"]
    launches = [launch | {"epochs": 0 if "torch" in str(launch) else None} for launch in launches]
    edit(earlier / PLAN_FILE, profile="full", epochs=7, launches=launches)
    again = ("run", "--against", str(earlier), "--rounds", "1", "--data", "synthetic", "--profile", "full")
    seen = [earlier]
    for options, epochs in (((), 7), (("--epochs", "4"), 4)):
        ended = kit(*again, *options)
        assert ended.code == 0, ended.err
        made = [path for path in earlier.parent.iterdir() if path.is_dir() and path not in seen]
        assert len(made) == 2
        for folder in map(RunFolder.open, made):
            trained = {record.cell.framework: record.request and record.request.budget for record in folder.records()}
            assert trained == {"torch": PROFILES["standard"].budget, "tensorflow": Budget(epochs=epochs)}
        seen += made


def test_rounds_are_fixed_also_in_the_standard_profile(kit: Kit, engine: fakes.FakeEngine) -> None:
    def noisy(request: Any, folder: Any) -> Completion:
        assert request.launch <= 5, "a round was added"
        codec.write(folder.scratch / RESULT_FILE, examples.result(request, 1000.0 * (1 + 0.2 * (-1) ** request.launch)))
        return Completion(exit_code=0, seconds=1.0)

    engine.worker = noisy
    one = ("run", "--scenario", "mnist-cnn", "--framework", "torch", "--device", "cpu", "--data", "synthetic")
    ended = kit(*one, "--profile", "standard", "--rounds", "3", "--json")
    assert ended.code == 0
    assert [launch["launch"] for launch in json.loads(ended.out)["launches"]] == [1, 2, 3]
    against = ("run", "--against", json.loads(ended.out)["run"], "--profile", "standard", "--data", "synthetic")
    assert len(json.loads(kit(*against, "--json").out)["launches"]) == 5


def damaged_record(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    file = next(folder.glob("records/*torch*"))
    record = json.loads(file.read_text())
    change(record)
    file.write_text(json.dumps(record))


def other_machine(folder: Path) -> None:
    edit(folder / "machine.json", id="0123456789abcdef")


def other_engine(folder: Path) -> None:
    edit(folder / "plan.json", engine="podman")


def newer(folder: Path) -> None:
    edit(folder / "plan.json", schema=99)


def without_records(folder: Path) -> None:
    for file in folder.glob("records/*"):
        file.unlink()


def without_torch(folder: Path) -> None:
    next(folder.glob("records/*torch*")).unlink()


def path_as_digest(folder: Path) -> None:
    damaged_record(folder, lambda record: record["image"].update(digest="../../evil"))


def two_environments(folder: Path) -> None:
    file = next(folder.glob("records/*torch*"))
    record = json.loads(file.read_text().replace('"batch": 64', '"batch": 32'))
    record["image"]["digest"] = "sha256:2"
    (folder / "records" / file.name.replace("b64", "b32")).write_text(json.dumps(record))


@pytest.mark.parametrize(
    ("change", "options", "words"),
    [
        (other_machine, "", "Runs from two machines cannot be paired. Compare them with `kit compare`"),
        (other_engine, "--engine fake", "was measured with the engine podman, not with fake. Use --engine podman"),
        (newer, "", "has schema 99"),
        (without_records, "", "has no ok launch. Name another run."),
        (without_torch, "--framework torch", "no ok launch of a cell with --framework torch"),
        (lambda folder: None, "--framework onnxruntime", "no ok launch of a cell with --framework onnxruntime"),
        (lambda folder: None, "--scenario mnist-cnn --batch 32", "no ok launch of a cell with --batch 32"),
        (path_as_digest, "", "environments.torch/cpu"),
        (two_environments, "", "used more than one environment for torch/cpu"),
        (lambda folder: None, "--rounds 0", "--rounds must be between 1 and 1,000, but is 0"),
        (lambda folder: None, "--rounds -1", "but is -1"),
        (lambda folder: None, "--rounds 999999999", "but is 999,999,999"),
        (lambda folder: None, "--profile standard --budget 1h", "--budget does not apply to a fixed number of rounds"),
        (lambda folder: None, "--resume x", "which --against cannot change"),
    ],
)
def test_what_cannot_be_measured_again_is_refused_before_anything_runs(
    kit: Kit, engine: fakes.FakeEngine, earlier: Path, change: Callable[[Path], None], options: str, words: str
) -> None:
    change(earlier)
    launched = len(engine.launched)
    refused = kit("run", "--against", str(earlier), *options.split())
    assert (refused.code, refused.out, len(engine.launched)) == (2, "", launched)
    assert words in " ".join(refused.err.split())
    assert [path for path in earlier.parent.iterdir() if path.is_dir()] == [earlier]


def test_a_run_that_does_not_exist_is_refused(kit: Kit, engine: fakes.FakeEngine) -> None:
    assert "There is no run 'nothing'" in kit("run", "--against", "nothing").err


def test_an_environment_that_is_gone_is_an_error_before_anything_runs(
    kit: Kit, engine: fakes.FakeEngine, earlier: Path
) -> None:
    engine.gone = {"sha256:0"}
    for command in ("run", "plan"):
        refused = kit(command, "--against", str(earlier))
        assert refused.code == ImageError.exit_code
        words = " ".join(refused.err.split())
        assert "that the earlier run used is gone: sha256:0. Build it again with the kit version of that run" in words
    assert [path for path in earlier.parent.iterdir() if path.is_dir()] == [earlier]


def test_the_folder_of_the_base_is_not_overwritten(
    kit: Kit, engine: fakes.FakeEngine, earlier: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kit.execution.workflow.new_run_id", lambda: "r2")
    for taken in ("r2", "r2-base"):
        earlier.rename(earlier.with_name(taken))
        earlier = earlier.with_name(taken)
        before = sorted(path.read_bytes() for path in earlier.rglob("*.json"))
        refused = kit("run", "--against", str(earlier), "--data", "synthetic", "--profile", "smoke")
        assert (refused.code, "already holds a run" in refused.err) == (2, True)
        assert [path for path in earlier.parent.iterdir() if path.is_dir()] == [earlier], "no half of a pair is left"
        assert sorted(path.read_bytes() for path in earlier.rglob("*.json")) == before


def test_a_full_disk_in_the_middle_keeps_both_and_either_name_continues(
    kit: Kit, engine: fakes.FakeEngine, earlier: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(folder: RunFolder) -> None:
        if folder.plan.run.endswith("-base") and folder.records():
            raise DiskError("The disk is full.", "Free some space.")

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "require_space", full)
        ended = kit("run", "--against", str(earlier), "--rounds", "2", "--data", "synthetic", "--profile", "smoke")
    assert ended.code == DiskError.exit_code
    new, base = folders(earlier)
    assert f"--resume {new.path}" in " ".join(ended.err.split())
    assert len(base.records()) == 1
    engine.gone = {"sha256:0"}
    left = sum(len(each.missing()) for each in (new, base))
    resumed = kit("run", "--resume", base.plan.run, "--json")
    assert f"Left to measure in {new.plan.run}: {left} launches, " in (new.path / "run.log").read_text()
    assert resumed.code == 1, "the base's image is gone by now, and the new run is ok"
    assert json.loads(resumed.out)["run"] == new.plan.run
    assert {record.status for record in new.records()} == {Status.OK}
    lost = [record.reason.code for record in base.records() if record.reason]
    assert lost == [Code.IMAGE_FAILED] * 3
    engine.gone = set()
    retried = kit("run", "--resume", new.plan.run, "--retry-failed", "--json")
    assert retried.code == 0
    fresh = {record.launch for record in base.records() if record.ok and record.launch > 2}
    assert fresh
    assert fresh <= {record.launch for record in new.records() if record.ok}, "a retry is a pair, too"


def test_a_pair_is_resumed_from_within_its_folder(kit: Kit, earlier: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert kit("run", "--against", str(earlier), "--data", "synthetic", "--profile", "smoke").code == 0
    new, _ = folders(earlier.absolute())
    (new.path / "deeper").mkdir()
    index = new.path.parent / "index.html"
    for place, name in ((new.path, "."), (new.path / "deeper", "..")):
        index.unlink()
        monkeypatch.chdir(place)
        resumed = kit("run", "--resume", name)
        assert resumed.code == 0, resumed.err
        assert index.exists()
        assert not (new.path / "deeper" / "index.html").exists()


def test_one_folder_of_a_pair_cannot_be_resumed_alone(kit: Kit, engine: fakes.FakeEngine, earlier: Path) -> None:
    assert kit("run", "--against", str(earlier), "--data", "synthetic", "--profile", "smoke").code == 0
    new, base = folders(earlier)
    edit(base.path / "plan.json", against="other")
    assert "is not the plan of a run that is measured in the same rounds" in kit("run", "--resume", new.plan.run).err
    base.path.rename(base.path.with_name("moved"))
    refused = kit("run", "--resume", new.plan.run)
    assert (refused.code, "Move both folders to the same place" in refused.err) == (2, True)


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize("kind", [KeyboardInterrupt, signal.SIGTERM])
def test_a_pair_that_is_interrupted_anywhere_can_be_resumed(tmp_path: Path, kind: Any) -> None:
    for place in itertools.count():
        engine, calls = fakes.FakeEngine(), itertools.count()

        def interrupt(name: str, calls: Any = calls, place: int = place) -> None:
            if next(calls) == place:
                if isinstance(kind, signal.Signals):
                    os.kill(os.getpid(), kind)
                else:
                    raise kind

        engine.on_call = interrupt
        new, base = new_pair(tmp_path / str(place), rounds=2)
        with suppress(Interrupted):
            execute(new, engine, base=base)
        if next(calls) <= place:
            break  # the interrupt came after the end
        engine.on_call = lambda name: None
        new, other = open_pair(RunFolder.open((new, base)[place % 2].path))
        assert other is not None
        assert other.path == base.path
        execute(new, engine, base=other)
        planned = sorted((launch.key, launch.launch) for launch in new.plan.launches)
        for folder in (new, base):
            assert identifiers(folder.records()) == planned
            assert {record.status for record in folder.records()} == {Status.OK}
            assert list((folder.path / "work").iterdir()) == []
            assert len(folder.records("probe")) == 3
        assert engine.running == []
    assert place > 24, "12 launches have two places each"


@pytest.mark.usefixtures("machine")
def test_both_runs_use_the_same_kind_of_data(tmp_path: Path) -> None:
    asked: list[str] = []

    def resolve(name: str, mode: str, progress: object) -> ResolvedData:
        asked.append(name)
        return ResolvedData("real" if len(asked) > 1 else "synthetic", None, "no mirror has it")

    new, base = new_pair(tmp_path)
    execute(new, fakes.FakeEngine(), resolve, base=base)
    assert asked == ["mnist"]
    assert {record.synthetic for folder in (new, base) for record in folder.records()} == {True}


@pytest.mark.usefixtures("machine")
def test_a_failed_launch_is_retried_in_both_runs(tmp_path: Path) -> None:
    def fail_one(request: Any, folder: Any) -> Any:
        broken = of_base(folder) and request.cell.framework == "torch" and request.launch == 1
        return (fails if broken else fakes.works)(request, folder)

    new, base = new_pair(tmp_path, rounds=2)
    execute(new, fakes.FakeEngine(fail_one), base=base)
    engine = fakes.FakeEngine()
    execute(new, engine, base=base, retry_failed=True)
    assert engine.launched == [(TORCH, 3), (TORCH, 3)]
    for folder in (new, base):
        assert [r.launch for r in folder.records() if r.key == TORCH] == [1, 2, 3]
    engine.launched.clear()
    execute(new, engine, base=base, retry_failed=True)
    assert engine.launched == []


@pytest.mark.usefixtures("machine")
def test_a_retry_that_was_interrupted_in_the_middle_of_a_pair_is_completed(tmp_path: Path) -> None:
    def fail_one(request: Any, folder: Any) -> Any:
        broken = of_base(folder) and request.cell.framework == "torch" and request.launch == 1
        return (fails if broken else fakes.works)(request, folder)

    for last_is_base in (True, False):
        new, base = new_pair(tmp_path / str(last_is_base), rounds=2)
        execute(new, fakes.FakeEngine(fail_one), base=base)
        execute(new, fakes.FakeEngine(), base=base, retry_failed=True)
        last = base if last_is_base else new
        (last.path / "records" / f"{file_stem(TORCH, 3)}.json").unlink()  # as if the retry was interrupted before it
        engine = fakes.FakeEngine()
        execute(new, engine, base=base, retry_failed=True)
        assert engine.launched == [(TORCH, 3)]
        for folder in (new, base):
            assert [r.launch for r in folder.records() if r.key == TORCH] == [1, 2, 3]
        execute(new, engine, base=base, retry_failed=True)
        assert len(engine.launched) == 1


def test_a_plan_of_a_stranger_names_no_path() -> None:
    plan = examples.plan([examples.planned()])
    for digest in ("../../bin/python", "/bin/sh", "sha256:0/..", "latest", ""):
        text = plan.model_copy(update={"environments": {"torch/cpu": digest}}).to_json()
        with pytest.raises(UsageError, match="environments"):
            type(plan).from_json(text, "plan.json")


@pytest.mark.parametrize(("one", "other", "both"), [(0, 0, 0), (0, 4, 4), (4, 0, 4), (4, 4, 4), (1, 4, 1), (3, 4, 1)])
def test_the_exit_code_of_two_runs_is_that_of_the_only_cause(one: int, other: int, both: int) -> None:
    assert exit_code_of_both(one, other) == both
