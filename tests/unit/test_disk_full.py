"""Test that a full disk ends a run with a DiskError, that its launch has no record, and that --resume repeats it."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import replace

import pytest

from kit.engines.local import LocalEngine
from kit.environments import build_context
from kit.environments.package_sources import Sources
from kit.execution.launch import run_launch
from kit.model.environment import Environment
from kit.model.errors import DiskError
from kit.model.launch import Completion
from kit.planning.selection import Selection
from kit.storage import files, run_folder
from kit.storage.run_folder import RunFolder
from scenarios import worker
from scenarios.contract import codec
from scenarios.contract.reasons import Code, Reason, Status
from scenarios.contract.request import RESULT_FILE
from scenarios.contract.result import Search, Tried, Tuning
from tests import examples, fakes, launches
from tests.campaigns import FRAMEWORKS, execute, identifiers, new_run
from tests.launches import never_stopped, result_worker, text_worker
from tests.workers import copy_assets

pytestmark = pytest.mark.usefixtures("machine")

TUNED = Selection(scenarios=("mnist-cnn",), frameworks=("torch",), devices=("cpu",), lanes=("stock", "tuned"))
FULL = os.strerror(errno.ENOSPC)


def wrapped(cause: OSError, text: str) -> Exception:
    """Return an exception with a cause, as `raise ... from` makes it."""
    error = RuntimeError(text)
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (OSError(errno.ENOSPC, FULL), Code.DISK_FULL),
        (OSError(errno.EDQUOT, os.strerror(errno.EDQUOT)), Code.DISK_FULL),
        (RuntimeError("ResourceExhaustedError: /io/cache/x; No space left on device"), Code.DISK_FULL),
        (RuntimeError("disk quota exceeded (os error 122)"), Code.DISK_FULL),
        (wrapped(OSError(errno.ENOSPC, FULL), "The writer failed."), Code.DISK_FULL),
        (wrapped(OSError(errno.EIO, "Input/output error"), "The writer failed."), Code.WORKER_ERROR),
        (OSError(errno.EACCES, "Permission denied"), Code.WORKER_ERROR),
        (OSError(errno.ENOSPC, FULL, "/dev/shm/torch_1"), Code.WORKER_ERROR),  # noqa: S108 - it is not opened
        (RuntimeError(f"unable to write to file </torch_1_2_3>: {FULL} (28)"), Code.WORKER_ERROR),
        (OSError(errno.ENOSPC, "inotify watch limit reached"), Code.WORKER_ERROR),
    ],
)
def test_the_worker_recognizes_a_full_disk_in_what_frameworks_raise(error, code):
    assert worker.explain(error, examples.request()).code is code


@pytest.mark.parametrize(
    "text",
    [
        "CUDA out of memory. Tried to allocate 20.00 MiB",
        "ResourceExhaustedError: OOM when allocating tensor with shape[2048,512]",
        "RESOURCE_EXHAUSTED: Out of memory while trying to allocate",
        "Failed to allocate memory for requested buffer of size 1024",
        "CUBLAS failure 3: CUBLAS_STATUS_ALLOC_FAILED",
    ],
)
def test_the_worker_recognizes_a_full_gpu_in_what_frameworks_raise(text):
    on_gpu = examples.request(device="cuda")
    assert worker.explain(RuntimeError(text), on_gpu).code is Code.DEVICE_MEMORY
    assert worker.explain(RuntimeError("Zoom failed."), on_gpu).code is Code.WORKER_ERROR
    assert worker.explain(RuntimeError(text), examples.request()).code is Code.WORKER_ERROR


def test_an_exception_that_is_its_own_cause_is_explained():
    error = RuntimeError("It failed.")
    error.__cause__ = error
    assert worker.explain(error, examples.request()).code is Code.WORKER_ERROR


def raises(error: Exception) -> fakes.Worker:
    """Return a worker whose engine raises an error."""

    def work(request, folder):
        raise error

    return work


def fails_a_trial(request, folder):
    """Do as a search that continues without the candidate that hit the full disk."""
    completion = fakes.works(request, folder)
    if request.purpose == "tune":
        tried = [Tried({}, [], [1.0]), Tried({"layout": "nhwc"}, [], [], f"OSError: [Errno 28] {FULL}")]
        tuning = Tuning({}, [Search("training", {}, tried, 1.0)])
        codec.write(folder.scratch / RESULT_FILE, replace(examples.result(request), tuning=tuning))
    return completion


FULL_DISKS = {
    "the worker says so": result_worker(status=Status.FAILED, reason=Reason.of(Code.DISK_FULL, f"OSError: {FULL}")),
    "the worker cannot write its result": text_worker(
        None, Completion(1, 1.0), f"Traceback\nOSError: [Errno 28] {FULL}\nThere appear to be 1 leaked semaphores\n"
    ),
    "the engine cannot start the worker": text_worker(None, Completion(None, 0.0, not_started=f"mkdir /x: {FULL}")),
    "the log cannot be written": raises(DiskError(f"log cannot be written: {FULL}.", "Free disk space.")),
    "a trial of the search fails": fails_a_trial,
}


@pytest.mark.parametrize(
    ("disk", "purpose"),
    [
        *((disk, purpose) for purpose in ("measure", "probe", "tune") for disk in list(FULL_DISKS)[:-1]),
        ("a trial of the search fails", "tune"),
    ],
)
def test_a_launch_on_a_full_disk_leaves_no_record_and_is_repeated_by_resume(tmp_path, disk, purpose, monkeypatch):
    monkeypatch.setenv("KIT_CACHE_DIR", str(tmp_path / "cache"))  # without searches of other tests

    def full_at_the_last(request, folder):
        last = request.cell.lane == "tuned" or purpose == "probe"
        return (FULL_DISKS[disk] if request.purpose == purpose and last else fakes.works)(request, folder)

    folder, engine = new_run(tmp_path / "run", TUNED), fakes.FakeEngine(full_at_the_last)
    with pytest.raises(DiskError, match="No space left") as caught:
        execute(folder, engine)
    assert caught.value.remedy == f"Free disk space. Then continue with `{folder.resume_command}`."
    kept = {name: folder.records(name) for name in ("tune", "probe", "measure")}
    assert {name: len(records) for name, records in kept.items()} == {
        "tune": {"tune": 0}.get(purpose, 1),
        "probe": {"measure": 1}.get(purpose, 0),
        "measure": {"measure": 1}.get(purpose, 0),
    }
    assert list((folder.path / "work").iterdir()) == []

    engine.worker = fakes.works
    records = execute(RunFolder.open(folder.path), engine)
    assert {record.status for record in records} == {Status.OK}
    assert identifiers(records) == sorted((launch.key, launch.launch) for launch in folder.plan.launches)
    assert [len(folder.records(name)) for name in ("tune", "probe")] == [1, 1]
    for name, before in kept.items():
        assert all(record in folder.records(name) for record in before)


def test_a_record_that_finds_no_space_is_repeated_by_resume(tmp_path, monkeypatch):
    def full(path, content, **options):
        if path.parent.name == "records" and list(path.parent.iterdir()):
            raise OSError(errno.ENOSPC, FULL, str(path))
        files.write_atomic(path, content, **options)

    folder, engine = new_run(tmp_path / "run"), fakes.FakeEngine()
    with monkeypatch.context() as patched:
        patched.setattr(run_folder, "write_atomic", full)
        with pytest.raises(
            DiskError, match=r"No space left on device\.\nFree disk space\. Then continue with `.*--resume"
        ):
            execute(folder, engine)
    assert len(folder.records()) == 1
    assert len(execute(folder, fakes.FakeEngine())) == len(folder.plan.launches)


# What the adapter of the real worker does when it is imported. /dev/full has no space.
IMPORTS = {
    "the worker says so": "import pathlib; pathlib.Path('/dev/full').write_text('x')",
    "the worker cannot write its result": (
        "from scenarios.contract import codec; codec.open = lambda *a, **k: open('/dev/full', 'wb')"
    ),
}


class RealWorker(LocalEngine):
    """The local engine with the interpreter of the tests, and an adapter that executes a statement."""

    def __init__(self, assets, statement):
        copy_assets(assets)
        (assets / "scenarios/frameworks/torch/adapter.py").write_text(statement)
        super().__init__(Sources(), sys.executable, assets)

    def refusal(self, framework, device):
        return None

    def prepare(self, framework, device, progress):
        return Environment(framework.name, device, "venv", sys.executable, "digest")


@pytest.mark.parametrize("disk", IMPORTS)
def test_a_real_worker_on_a_full_disk_is_a_disk_error(tmp_path, disk):
    engine = RealWorker(tmp_path / "assets", IMPORTS[disk])
    environment = engine.prepare(FRAMEWORKS["torch"], "cpu", None)
    ready = replace(launches.ready_launch(tmp_path), environment=environment)
    with pytest.raises(DiskError, match=FULL):
        run_launch(replace(launches.run_context(tmp_path), engine=engine), ready, never_stopped)


@contextmanager
def small_disk(place, size):
    """Mount a file system of this size. Only root can."""
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(place)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"a file system cannot be mounted here: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", str(place)], check=True)


def test_a_run_on_a_disk_that_a_real_worker_fills_can_be_resumed(tmp_path, monkeypatch):
    monkeypatch.setattr(run_folder, "MIN_FREE_BYTES", 0)
    one = Selection(scenarios=("mnist-cnn",), frameworks=("torch",), devices=("cpu",))
    with small_disk(tmp_path / "disk", "8m"):
        folder = new_run(tmp_path / "disk/run", one, profile="smoke")
        engine = RealWorker(tmp_path / "assets", "open('filled', 'wb').write(bytes(16 << 20))")
        with pytest.raises(DiskError, match=r"Free disk space\. Then continue with"):
            execute(folder, engine)
        assert folder.records() == []
        assert list((folder.path / "work").iterdir()) == []
        assert [record.status for record in execute(folder, fakes.FakeEngine())] == [Status.OK]


def test_an_image_that_the_disk_of_temporary_files_cannot_hold_is_a_disk_error(tmp_path, monkeypatch):
    with small_disk(tmp_path / "disk", "64k"):
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "disk"))
        with (
            pytest.raises(DiskError, match=f"cannot be packed: .*{FULL}\nFree some space, or set TMPDIR"),
            build_context.archive({"wheel": bytes(1 << 20)}),
        ):
            pass
