"""The run folder: atomic, never overwritten, damage is named."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import replace

import pytest

from kit.model.errors import DiskError, UsageError
from kit.storage import run_folder
from kit.storage.run_folder import RunFolder, file_stem
from scenarios.contract.reasons import Code, Status
from scenarios.contract.result import Ceiling
from tests import examples


@pytest.fixture
def folder(tmp_path):
    launches = [examples.planned(n, framework=name) for n in (1, 2) for name in ("torch", "tensorflow")]
    return RunFolder.create(tmp_path / "run", examples.plan(launches), examples.machine())


def request(launch, framework="torch"):
    return examples.request(examples.cell(framework=framework), launch=launch)


def record(launch, framework="torch"):
    return examples.record(request(launch, framework))


def failed(launch, framework="torch", status=Status.FAILED, code=Code.WORKER_ERROR):
    return examples.failed(request(launch, framework), status, code)


def test_what_is_saved_is_read_back_equal_under_the_key_s_name(folder):
    saved = record(1)
    file = folder.save(saved)
    assert file.name == "mnist-cnn__torch__cpu__stock__fp32__b64__001.json"
    again = RunFolder.open(folder.path)
    assert again.records() == [saved]
    assert (again.plan, again.machine) == (folder.plan, folder.machine)
    assert {"schema", "key", "launch", "status", "reason", "request", "result", "machine", "image", "log_tail"} <= set(
        json.loads(file.read_text())
    )


@pytest.mark.parametrize("code", [None, errno.EPERM, errno.EOPNOTSUPP])
def test_a_record_is_never_overwritten(folder, monkeypatch, code):
    if code is not None:  # a file system without hard links

        def no_links(source, target):
            raise OSError(code, os.strerror(code))

        monkeypatch.setattr(os, "link", no_links)
    first = record(1)
    file = folder.save(first)
    with pytest.raises(UsageError, match="never overwritten"):
        folder.save(failed(1))
    assert folder.records() == [first]
    assert [entry.name for entry in file.parent.iterdir()] == [file.name]


def test_a_second_run_never_takes_the_folder_of_the_first(folder):
    with pytest.raises(UsageError, match="--resume"):
        RunFolder.create(folder.path, folder.plan, folder.machine)


@pytest.mark.parametrize("purpose", ["measure", "tune"])
@pytest.mark.parametrize("change", [{"framework": "x" * 100_000}, {"batch": 65}, {"lane": "stock"}])
def test_a_record_whose_request_is_of_another_cell_is_refused(folder, change, purpose):
    asked = replace(examples.request(replace(examples.cell(), lane="tuned")), purpose=purpose)
    file = folder.save(examples.record(asked))
    fields = json.loads(file.read_text())
    fields["request"] |= change
    file.write_text(json.dumps(fields))
    with pytest.raises(UsageError, match="but the request of"):
        folder.records() + folder.tunings()


def test_missing_keeps_the_plan_s_order(folder):
    folder.save(record(1, "tensorflow"))
    assert [(x.framework, x.launch) for x in folder.missing()] == [("torch", 1), ("torch", 2), ("tensorflow", 2)]


def test_retries_are_as_many_as_a_cell_lacks_and_take_new_numbers(folder):
    assert folder.retries() == []
    folder.save(failed(1))
    folder.save(failed(1, "tensorflow", Status.SKIPPED, Code.NO_DEVICE))
    assert [(x.framework, x.launch) for x in folder.retries()] == [("torch", 3)]
    folder.save(failed(2))
    assert [(x.framework, x.launch) for x in folder.retries()] == [("torch", 3), ("torch", 4)]
    folder.save(record(3))
    folder.save(failed(4))
    assert [(x.framework, x.launch) for x in folder.retries()] == [("torch", 5)]
    folder.save(record(5))
    assert folder.retries() == []


def test_what_a_killed_writer_left_is_no_record_and_is_cleaned(folder):
    leftover = folder.path / "records" / f"{file_stem(record(1).key, 1)}.json.4711.new"
    leftover.write_text('{"schema": 1, "ke')
    scratch = folder.work(folder.plan.launches[0])
    (scratch / "io").mkdir(parents=True)
    assert folder.records() == []
    assert len(folder.missing()) == 4
    folder.clean()
    assert not leftover.exists()
    assert not scratch.exists()


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("plan.json", None, "not the folder of a run"),
        ("plan.json", "{", "not a valid plan"),
        ("plan.json", '{"schema": 99}', "newer kit"),
        ("machine.json", '{"schema": 1}', "not a valid machine"),
    ],
)
def test_a_folder_that_is_no_whole_run_is_named(folder, name, content, told):
    file = folder.path / name
    file.unlink() if content is None else file.write_text(content)
    with pytest.raises(UsageError, match=told) as caught:
        RunFolder.open(folder.path)
    assert str(folder.path) in str(caught.value)


@pytest.mark.parametrize("content", ["", "{}", '{"schema": 1, "key": 7}', '{"schema": 2}'])
def test_a_damaged_record_is_named(folder, content):
    file = folder.save(record(1))
    file.write_text(content)
    with pytest.raises(UsageError, match=file.name):
        folder.records()


def test_a_record_under_another_name_is_refused(folder):
    file = folder.save(record(1))
    file.rename(file.with_name(f"{file_stem('other', 1)}.json"))
    with pytest.raises(UsageError, match="holds the record of"):
        folder.records()


def test_cleaning_removes_nothing_through_a_link_and_makes_what_is_missing(folder, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "photo").write_text("")
    (folder.path / "work" / "link").symlink_to(tmp_path / "mine")
    (folder.path / "work" / "file").write_text("")
    (folder.path / "records").rmdir()
    folder.clean()
    assert (folder.path / "records").is_dir()
    assert not list((folder.path / "work").iterdir())
    (folder.path / "work").rmdir()
    (folder.path / "work").symlink_to(tmp_path / "mine")
    with pytest.raises(UsageError, match="is a link"):
        folder.clean()
    assert (tmp_path / "mine" / "photo").exists()


@pytest.mark.parametrize("kind", ["folder", "pipe", "dead link"])
def test_a_record_that_is_no_plain_file_is_named(folder, kind):
    file = folder.path / "records" / f"{file_stem(record(1).key, 1)}.json"
    {"folder": file.mkdir, "pipe": lambda: os.mkfifo(file), "dead link": lambda: file.symlink_to("/nowhere")}[kind]()
    with pytest.raises(UsageError, match=r"cannot be read: (not a plain file|No such file)"):
        folder.records()


def test_a_full_disk_is_a_disk_error_and_leaves_nothing_half(folder, monkeypatch):
    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DiskError, match="No space left"):
        folder.save(record(1))
    assert list((folder.path / "records").iterdir()) == []


def test_too_little_space_for_a_launch_tells_how_to_go_on(folder, monkeypatch):
    folder.require_space()
    monkeypatch.setattr(run_folder, "MIN_FREE_BYTES", 1 << 62)
    with pytest.raises(DiskError, match="--resume"):
        folder.require_space()


@pytest.mark.parametrize("purpose", ["measure", "probe"])
def test_a_record_in_the_others_folder_is_refused(folder, purpose):
    found = [Ceiling("matmul", "fp32", "FLOP/s", 1e12, [1e12], "512")]
    asked = replace(request(1), purpose=purpose)
    file = folder.save(examples.record(asked, result=replace(examples.result(asked), ceilings=found)))
    elsewhere = {"records": "probes", "probes": "records"}[file.parent.name]
    file.rename(folder.path / elsewhere / file.name)
    with pytest.raises(UsageError, match=rf"/{elsewhere}/mnist-cnn.* holds the record of") as caught:
        folder.records() if elsewhere == "records" else folder.probes()
    assert f"({file.parent.name}/{file.name})" in caught.value.remedy
