"""Test that a run keeps checkpoints until a launch is ok, hands them to what continues it, and keeps weights."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import tracemalloc
from contextlib import suppress
from dataclasses import replace

import pytest

from kit.execution import launch
from kit.execution.launch import run_launch
from kit.model.errors import DiskError, Interrupted
from kit.model.launch import Completion
from kit.planning.selection import Selection
from kit.storage.run_folder import RunFolder, file_stem
from kit.storage.safe_read import read_untrusted
from scenarios.contract import codec
from scenarios.contract.epochs import EpochProgress, KeptWeights
from scenarios.contract.reasons import Code, Reason, Status
from scenarios.contract.request import EPOCHS_FOLDER, PROGRESS_FILE, RESULT_FILE
from scenarios.contract.result import Result
from tests import examples, fakes, faults
from tests.campaigns import execute, new_run

pytestmark = pytest.mark.usefixtures("machine")

TORCH = Selection(scenarios=("mnist-cnn",), frameworks=("torch",), devices=("cpu",))
KEY = "mnist-cnn/torch/cpu/stock/fp32/b64"
CHECKPOINT = "checkpoint-00007.safetensors"


class Worker:
    """A worker that leaves a checkpoint, and then ends as it is told.

    seen: the names and contents of what each launch found. ends: called by the launches, one after the other.
    """

    def __init__(self, *ends):
        self.seen, self.ends, self.requests = [], list(ends), []

    def __call__(self, request, folder):
        if request.purpose != "measure":
            return fakes.works(request, folder)
        place = folder.scratch / EPOCHS_FOLDER
        self.seen.append({path.name: path.read_text() for path in place.glob("*")} if place.is_dir() else {})
        self.requests.append(request)
        place.mkdir(exist_ok=True)
        (place / CHECKPOINT).write_text(f"of launch {request.launch}")
        return self.ends.pop(0)(request, folder)


def interrupted(request, folder):
    raise KeyboardInterrupt


def killed(request, folder):
    return Completion(exit_code=137, seconds=1.0)


def works(*kinds, file="weights-00007.safetensors"):
    """Return a worker that succeeds with these weights."""

    def work(request, folder):
        for kind in kinds:
            (folder.scratch / EPOCHS_FOLDER / file).write_text(kind)
        weights = [KeptWeights(kind, file, 7, 0.9, "d19e57") for kind in kinds]
        codec.write(folder.scratch / RESULT_FILE, replace(examples.result(request, epochs=7), weights=weights))
        return Completion(exit_code=0, seconds=1.0)

    return work


def new_full_run(tmp_path, **options):
    return new_run(tmp_path / "run", TORCH, profile="full", **options)


def kept(folder, name):
    return {str(path.relative_to(folder.path / name)) for path in (folder.path / name).rglob("*") if path.is_file()}


def run(folder, worker, **options):
    return execute(RunFolder.open(folder.path), fakes.FakeEngine(worker), **options)


def test_weights_of_an_ok_launch_are_kept_and_its_checkpoints_are_not(tmp_path):
    folder, worker = new_full_run(tmp_path), Worker(works("last"))
    (record,) = run(folder, worker)
    name = f"{file_stem(KEY, 1)}__last.safetensors"
    assert record.result.weights == [KeptWeights("last", name, 7, 0.9, "d19e57")]
    assert (folder.path / "weights" / name).read_text() == "last"
    assert kept(folder, "checkpoints") == kept(folder, "work") == set()
    assert worker.requests[0].keep_weights
    assert worker.requests[0].environment_digest == "sha256:0"
    assert RunFolder.open(folder.path).records() == [record]


def test_weights_are_not_requested_with_no_weights_or_without_whole_epochs(tmp_path):
    for number, options in enumerate(({"profile": "full", "keep_weights": False}, {"profile": "smoke"})):
        worker = Worker(works())
        run(new_run(tmp_path / str(number), TORCH, **options), worker)
        assert not worker.requests[0].keep_weights


def test_an_interrupted_launch_continues_from_its_checkpoint(tmp_path):
    folder, worker = new_full_run(tmp_path), Worker(interrupted, interrupted, works("last"))
    for _ in range(2):
        with pytest.raises(Interrupted):
            run(folder, worker)
        assert kept(folder, "checkpoints") == {f"{file_stem(KEY, 1)}/{CHECKPOINT}"}
        assert kept(folder, "work") == set()
    (record,) = run(folder, worker)
    assert record.ok
    assert worker.seen == [{}, {CHECKPOINT: "of launch 1"}, {CHECKPOINT: "of launch 1"}]
    assert kept(folder, "checkpoints") == set()


@pytest.mark.parametrize("fault", [errno.EIO, errno.ESTALE, errno.EMFILE, errno.ENOTCONN])
def test_a_launch_whose_result_this_machine_cannot_read_continues_from_its_checkpoint(tmp_path, monkeypatch, fault):
    folder, worker = new_full_run(tmp_path), Worker(works("last"), works("last"))
    own = folder.path / "work" / file_stem(KEY, 1) / "io" / RESULT_FILE

    def broken(path, limit):
        if path == own:
            raise OSError(fault, os.strerror(fault))
        return read_untrusted(path, limit)

    with monkeypatch.context() as patched:
        patched.setattr(launch, "read_untrusted", broken)
        with pytest.raises(DiskError, match=r"result\.json cannot be read: (.|\n)*Then continue with `.*--resume"):
            run(folder, worker)
    assert folder.records() == []
    left = {f"{file_stem(KEY, 1)}/{name}" for name in (CHECKPOINT, "weights-00007.safetensors")}
    assert kept(folder, "checkpoints") == left
    (record,) = run(folder, worker)
    assert (record.ok, record.launch) == (True, 1)
    assert worker.seen[1][CHECKPOINT] == "of launch 1"


def test_a_result_that_the_worker_made_unreadable_is_not_valid(tmp_path, monkeypatch):
    def forbidden(path, limit):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    folder = new_full_run(tmp_path)
    monkeypatch.setattr(launch, "read_untrusted", forbidden)
    (record,) = run(folder, Worker(works("last")))
    assert record.reason.code is Code.INVALID_RESULT
    assert kept(folder, "checkpoints") == set()


def test_a_launch_whose_kit_was_killed_continues_from_its_checkpoint(tmp_path):
    folder, worker = new_full_run(tmp_path), Worker(works())
    left = folder.path / "work" / file_stem(KEY, 1) / "io" / EPOCHS_FOLDER
    left.mkdir(parents=True)
    (left / CHECKPOINT).write_text("left")
    engine = fakes.FakeEngine(worker, running=["dead"])

    def finish_writing(name):
        if name == "sweep":  # the container of the killed run is still there
            (left / CHECKPOINT).write_text("newest")

    engine.on_call = finish_writing
    execute(folder, engine)
    assert worker.seen == [{CHECKPOINT: "newest"}]


def test_a_retry_continues_from_the_checkpoint_of_the_failed_launch(tmp_path):
    folder, worker = new_full_run(tmp_path), Worker(killed, killed, works("last"))
    (record,) = run(folder, worker)
    assert record.status is Status.FAILED
    for number in (2, 3):
        records = run(folder, worker, retry_failed=True)
        assert worker.seen[-1] == {CHECKPOINT: f"of launch {number - 1}"}
    assert [record.ok for record in records] == [False, False, True]
    assert kept(folder, "checkpoints") == set()
    assert kept(folder, "weights") == {f"{file_stem(KEY, 3)}__last.safetensors"}


def test_two_retries_continue_from_two_failed_launches(tmp_path):
    folder, worker = new_full_run(tmp_path, rounds=2), Worker(killed, killed, works("last"), works("last"))
    run(folder, worker)
    records = run(folder, worker, retry_failed=True)
    assert [record.ok for record in records] == [False, False, True, True]
    assert worker.seen[2:] == [{CHECKPOINT: "of launch 1"}, {CHECKPOINT: "of launch 2"}]
    assert kept(folder, "checkpoints") == set()


def test_a_retry_does_not_continue_a_launch_that_ran_elsewhere(tmp_path):
    def elsewhere(request, folder):
        result = examples.result(request, epochs=7)
        placement = replace(result.evidence.placement, device="cuda:0")
        wrong = replace(result, evidence=replace(result.evidence, placement=placement))
        codec.write(folder.scratch / RESULT_FILE, wrong)
        return Completion(exit_code=0, seconds=1.0)

    folder, worker = new_full_run(tmp_path), Worker(elsewhere, works("last"))
    (record,) = run(folder, worker)
    assert record.status is Status.WRONG_DEVICE
    assert kept(folder, "checkpoints") == set()
    assert run(folder, worker, retry_failed=True)[-1].ok
    assert worker.seen == [{}, {}]


@pytest.mark.parametrize("code", [Code.WRONG_DEVICE, Code.MISSING_PROOF, Code.REFERENCE_MISMATCH])
def test_a_launch_that_is_refused_before_it_trains_leaves_the_checkpoint_that_it_got(tmp_path, code):
    def refused(request, folder):
        reason = Reason.of(code, "The GPU is gone.")
        codec.write(folder.scratch / RESULT_FILE, Result(request.cell, request.launch, code.status, reason))
        return Completion(exit_code=0, seconds=1.0)

    folder, worker = new_full_run(tmp_path), Worker(interrupted, refused, works("last"))
    with pytest.raises(Interrupted):
        run(folder, worker)
    (record,) = run(folder, worker)
    assert record.reason.code is code
    assert run(folder, worker, retry_failed=True)[-1].ok
    assert worker.seen[-1] == {CHECKPOINT: "of launch 1"}


def test_a_launch_that_leaves_a_damaged_result_keeps_no_checkpoint(tmp_path):
    """Nothing shows on what its epochs ran."""

    def damaged(request, folder):
        (folder.scratch / RESULT_FILE).write_text("{")
        return Completion(exit_code=0, seconds=1.0)

    folder = new_full_run(tmp_path)
    (record,) = run(folder, Worker(damaged))
    assert record.reason.code is Code.INVALID_RESULT
    assert kept(folder, "checkpoints") == set()


def test_a_signal_after_the_end_of_a_launch_costs_nothing(tmp_path):
    def ends_with_signal(request, folder):
        completion = works("last")(request, folder)
        os.kill(os.getpid(), signal.SIGTERM)
        return completion

    folder = new_full_run(tmp_path)
    with pytest.raises(Interrupted):
        run(folder, Worker(ends_with_signal))
    (record,) = folder.records()
    assert record.ok
    assert len(kept(folder, "weights")) == 1


def test_weights_are_copied_as_a_whole_where_there_are_no_hard_links(tmp_path, monkeypatch):
    def no_links(*_):
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(os, "link", no_links)
    folder = new_full_run(tmp_path)
    (record,) = run(folder, Worker(works("last", "best")))
    assert {(folder.path / "weights" / kept.file).read_text() for kept in record.result.weights} == {"best"}
    assert kept(folder, "checkpoints") == set()


def test_a_retry_leaves_the_checkpoint_of_a_launch_that_has_no_record(tmp_path):
    folder, worker = new_full_run(tmp_path), Worker(killed, works("last"))
    run(folder, worker)
    (folder.path / "records" / f"{file_stem(KEY, 1)}.json").unlink()
    request = replace(worker.requests[0], launch=2)
    assert folder.kept(request).resumed == folder.kept(request).checkpoints


def test_nothing_else_than_files_of_a_worker_is_lent(tmp_path):
    """The folder of a run may come from a stranger, and a local worker would write through a link."""
    folder, worker = new_full_run(tmp_path), Worker(interrupted, works("last"))
    with pytest.raises(Interrupted):
        run(folder, worker)
    place, precious = folder.path / "checkpoints" / file_stem(KEY, 1), tmp_path / "precious"
    precious.write_text("mine")
    for name in (".checkpoint-00008.safetensors.1", "weights-00009.safetensors"):
        (place / name).symlink_to(precious)
    (place / "folder").mkdir()
    (record,) = run(folder, worker)
    assert record.ok
    assert worker.seen[-1] == {CHECKPOINT: "of launch 1"}
    assert precious.read_text() == "mine"


def test_a_planned_launch_does_not_continue_another_one(tmp_path):
    folder, worker = new_full_run(tmp_path, rounds=2), Worker(killed, works())
    assert [record.ok for record in run(folder, worker)] == [False, True]
    assert worker.seen == [{}, {}]
    assert kept(folder, "checkpoints") == {f"{file_stem(KEY, 1)}/{CHECKPOINT}"}


@pytest.mark.parametrize("fault", faults.ERRORS)
def test_after_every_fault_of_the_disk_the_next_attempt_has_the_checkpoint(tmp_path, fault):
    begun = new_full_run(tmp_path)
    with pytest.raises(Interrupted):
        run(begun, Worker(interrupted))

    def copy(name):
        return RunFolder.open(shutil.copytree(begun.path, tmp_path / name))

    with faults.record() as calls:
        run(copy("clean"), Worker(works("last", "best")))
    places = [place for place in calls.places if "kept_files" in place]
    assert len(places) > 5
    for number, place in enumerate(places):
        folder, first, second = copy(str(number)), Worker(works("last")), Worker(works("last"))
        with suppress(DiskError, Interrupted, OSError), faults.at(place, faults.ERRORS[fault]()):
            run(folder, first)
        (record,) = run(folder, second, retry_failed=True)
        assert record.ok
        assert (seen := first.seen + second.seen)
        assert all(each[CHECKPOINT] == "of launch 1" for each in seen), place
        assert kept(folder, "checkpoints") == kept(folder, "work") == set()
        assert kept(folder, "weights") == {record.result.weights[0].file}


def test_checkpoints_are_not_moved_through_links(tmp_path):
    folder, worker = new_full_run(tmp_path), Worker(works())
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / CHECKPOINT).write_text("precious")
    work = folder.path / "work" / file_stem(KEY, 1) / "io"
    work.mkdir(parents=True)
    (work / EPOCHS_FOLDER).symlink_to(outside)
    (folder.path / "checkpoints" / file_stem(KEY, 1)).symlink_to(outside)
    scratch = tmp_path / "scratch"
    shutil.copytree(outside, scratch / EPOCHS_FOLDER)
    (folder.path / "work" / "other").mkdir()
    (folder.path / "work" / "other" / "io").symlink_to(scratch)
    (record,) = run(folder, worker)
    assert record.ok
    assert worker.seen == [{}]
    assert (outside / CHECKPOINT).read_text() == (scratch / EPOCHS_FOLDER / CHECKPOINT).read_text() == "precious"
    assert list((folder.path / "checkpoints").iterdir()) == []


@pytest.mark.parametrize("damage", ["missing", "link", "other folder", "linked folder"])
def test_weights_that_are_not_a_plain_file_are_refused(tmp_path, damage):
    secret = tmp_path / "secret"
    secret.write_text("secret")

    def work(request, folder):
        file = "../secret" if damage == "other folder" else "weights-00007.safetensors"
        completion, made = works("last", file=file)(request, folder), folder.scratch / EPOCHS_FOLDER
        if damage in {"missing", "link"}:
            (made / file).unlink()
        if damage == "link":
            (made / file).symlink_to(secret)
        if damage == "linked folder":
            made.rename(tmp_path / "elsewhere")
            made.symlink_to(tmp_path / "elsewhere")
        return completion

    folder = new_full_run(tmp_path)
    (record,) = run(folder, Worker(work))
    assert record.reason.code is Code.INVALID_RESULT
    assert kept(folder, "weights") == set()
    assert secret.read_text() == "secret"
    assert damage != "linked folder" or (tmp_path / "elsewhere/weights-00007.safetensors").exists()


def test_each_epoch_is_reported_once_while_the_launch_runs(tmp_path, context, ready):
    epochs = [EpochProgress(number, 3, number / 10, 60.0) for number in (1, 2, 3)]

    class Polling(fakes.FakeEngine):
        def launch(self, environment, folder, limits, variables, labels, stopped):
            for content in (*map(codec.to_json, epochs), "{}", "x" * 10_000):
                path = folder.scratch / PROGRESS_FILE
                path.with_suffix(".new").write_text(content)
                path.with_suffix(".new").replace(path)
                for _ in range(3):
                    stopped()
            return fakes.works(ready.request, folder)

    seen = []
    record = run_launch(replace(context, engine=Polling()), ready, lambda: False, seen.append)
    assert record.ok
    assert seen == epochs


def test_reading_a_small_file_needs_little_memory_although_a_large_one_would_be_allowed(tmp_path):
    (tmp_path / "small").write_bytes(b"small")
    tracemalloc.start()
    try:
        assert read_untrusted(tmp_path / "small", 1 << 30) == b"small"
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
