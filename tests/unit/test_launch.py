"""Test the execution of one launch: its record, log, privacy, reference values, and failures around the worker."""

from __future__ import annotations

import os
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from kit.execution.launch import UnstartedLaunch, log_tail, run_launch, unstarted_record
from kit.model.environment import Environment
from kit.model.errors import DiskError, EngineError
from kit.model.launch import Completion
from kit.storage import reference_cache
from kit.storage.reference_cache import ReferenceCache
from scenarios.contract import codec
from scenarios.contract.reasons import Code, Reason, Status
from scenarios.contract.request import REFERENCE_FILE, RESULT_FILE
from tests import examples, fakes
from tests.launches import SUCCESS, never_stopped, result_worker, run


def test_an_ok_launch_has_a_complete_record(context, ready):
    record = run(context, ready, fakes.works)
    assert record.status is Status.OK
    assert record.result == examples.result(ready.request)
    assert (record.image.reference, record.image.digest) == ("kit-torch:cpu", "sha256:0")
    assert (record.engine, record.profile, record.data_note) == ("fake", "quick", "synthetic: requested")
    assert record.seconds == 1.0
    assert record.log_tail == "working\n" == ready.log.read_text()


def test_a_result_file_that_is_a_link_a_pipe_or_too_large_is_not_read(context, ready, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text(codec.to_json(examples.result(examples.request())))

    def link(request, folder):
        (folder.scratch / RESULT_FILE).symlink_to(secret)
        return SUCCESS

    def pipe(request, folder):
        os.mkfifo(folder.scratch / RESULT_FILE)
        return SUCCESS

    def too_large(request, folder):
        (folder.scratch / RESULT_FILE).write_bytes(b" " * ((16 << 20) + 1))
        return SUCCESS

    for worker in (link, pipe, too_large):
        record = run(context, ready, worker)
        assert record.reason.code is Code.INVALID_RESULT
        assert RESULT_FILE in record.reason.message


def test_a_lost_engine_is_recorded_with_its_remedy(context, ready):
    def lost(request, folder):
        raise EngineError("The daemon is gone.", "Start it.")

    record = run(context, ready, lost)
    assert record.status is Status.FAILED
    assert record.reason == Reason(Code.ENGINE_FAILED, "The daemon is gone.", "Start it.")


def test_an_interrupted_launch_leaves_no_files(context, ready):
    killed = fakes.FakeEngine(lambda request, folder: Completion(exit_code=None, seconds=1.0))
    with pytest.raises(KeyboardInterrupt):
        run_launch(replace(context, engine=killed), ready, lambda: True)
    assert not ready.work.exists()
    assert not ready.log.exists()


def test_a_log_replaces_a_link_of_a_stranger(context, ready, tmp_path):
    (tmp_path / "mine").mkdir()
    ready.log.symlink_to(tmp_path / "mine")
    run(context, ready, fakes.works)
    assert list((tmp_path / "mine").iterdir()) == []
    assert ready.log.read_text() == "working\n"


def test_a_disk_that_cannot_be_written_is_a_disk_error(context, ready):
    ready.work.parent.write_text("a file where the folder should be")
    with pytest.raises(DiskError):
        run_launch(context, ready, never_stopped)


def test_a_work_folder_that_cannot_be_removed_is_a_warning(context, ready, monkeypatch):
    def denied(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("kit.execution.launch.shutil.rmtree", denied)
    record = run_launch(context, ready, never_stopped)
    assert record.status is Status.OK
    assert "could not be removed" in record.warnings[0]


def test_warnings_of_engine_and_run_are_kept(context, ready):
    context = replace(context, warnings=("The machine changed.",))
    record = run(context, ready, result_worker(completion=Completion(0, 1, warnings=("No swap limit.",))))
    assert record.warnings == ["The machine changed.", "No swap limit."]


def test_the_log_tail_is_plain_text_and_short(tmp_path):
    log = tmp_path / "log"
    assert log_tail(log, identify=False) == ""
    log.write_bytes(b"\x1b[31mred\x1b[0m\x07 \xff\n10%\r50%\r100%\r\nnext\x08\n\x1b]0;title\x07end\n")
    assert log_tail(log, identify=False) == "red �\n100%\nnext\nend\n"
    log.write_text("x" * 100_000 + "\nend")
    assert log_tail(log, identify=False) == "x" * 3996 + "\nend"


def test_records_are_anonymous_unless_identify_is_set(context, ready, monkeypatch):
    monkeypatch.setattr(socket, "gethostname", lambda: "carols-laptop.example.org")
    monkeypatch.setenv("HOME", "/home/carol")
    monkeypatch.setenv("USER", "carol")
    gpu = "GPU-3f1b6c1e-0a2b-4c3d-8e5f-0123456789ab"
    text = f"/home/carol/x.py on carols-laptop: carol (carols-laptop.example.org), caroline, {gpu}\n"
    ready = replace(ready, environment=Environment("torch", "cpu", "venv", "/home/carol/env/bin/python", "sha256:0"))
    reason = Reason(Code.WORKER_ERROR, text.strip(), text.strip())
    worker = result_worker(log=text, status=Status.FAILED, reason=reason)
    record = run(context, ready, worker)
    assert record.log_tail == "~/x.py on <host>: <user> (<host>), caroline, <gpu>\n"
    assert record.image.reference == "~/env/bin/python"
    stored = record.to_json()
    assert "carol/" not in stored
    assert "carols" not in stored
    identified = run(replace(context, identify=True), ready, worker)
    assert identified.log_tail == text
    assert identified.reason == reason


def test_reference_values_are_cached_and_reused(context, ready):
    seen = []

    def worker(request, folder):
        file = folder.scratch / REFERENCE_FILE
        seen.append(file.read_bytes() if file.exists() else None)
        file.write_bytes(b"values")
        return fakes.works(request, folder)

    run(context, ready, worker)
    run(context, ready, worker)
    run(context, replace(ready, request=examples.request(seed=1)), worker)
    assert seen == [None, b"values", None]


def test_reference_values_of_a_failed_launch_or_behind_a_link_are_not_cached(context, ready, tmp_path):
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret")
    seen = []

    def fails(request, folder):
        (folder.scratch / REFERENCE_FILE).write_bytes(b"wrong")
        return Completion(1, 1)

    def links(request, folder):
        file = folder.scratch / REFERENCE_FILE
        seen.append(file.exists())
        file.symlink_to(secret)
        return fakes.works(request, folder)

    run(context, ready, fails)
    record = run(context, ready, links)
    run(context, ready, links)
    assert seen == [False, False]
    assert record.status is Status.OK
    assert "not a plain file" in record.warnings[0]


def test_the_reference_cache_drops_the_oldest_entries(tmp_path, monkeypatch):
    monkeypatch.setattr(reference_cache, "MAX_FOLDER_BYTES", 25)
    cache = ReferenceCache(tmp_path / "cache")
    scratch = tmp_path / "scratch"
    for seed in range(4):
        scratch.mkdir()
        (scratch / REFERENCE_FILE).write_bytes(b"0123456789")
        cache.keep(examples.request(seed=seed), scratch)
        for file in (tmp_path / "cache").iterdir():
            os.utime(file, ns=(0, file.stat().st_mtime_ns - 10**9))
        (scratch / REFERENCE_FILE).unlink()
        scratch.rmdir()
    kept = []
    for seed in range(4):
        folder = tmp_path / str(seed)
        folder.mkdir()
        cache.lend(examples.request(seed=seed), folder)
        kept.append((folder / REFERENCE_FILE).exists())
    assert kept == [False, False, True, True]


def test_an_unstarted_launch_has_a_record(context):
    cause = Reason(Code.NO_DEVICE, f"No GPU according to {Path.home()}/x.", "Buy one.")
    record = unstarted_record(context, UnstartedLaunch(examples.planned(device="cuda"), cause))
    assert (record.status, record.seconds, record.key) == (Status.SKIPPED, 0, "mnist-cnn/torch/cuda/stock/fp32/b64")
    assert (record.request, record.result, record.image) == (None, None, None), "it had no data and no settings"
    assert record.reason.message == "No GPU according to ~/x."
