"""Test the run folder: atomic writes, no overwriting, and clear errors for damaged files."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from kit.model.errors import DiskError, UsageError
from kit.storage import run_folder
from kit.storage.run_folder import RunFolder, file_stem
from kit.storage.run_names import find_run
from scenarios.contract.ceilings import Ceiling
from scenarios.contract.reasons import Code, Status
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


def test_a_saved_record_is_read_back_equal_and_named_after_its_key(folder):
    saved = record(1)
    file = folder.save(saved)
    assert file.name == "mnist-cnn__torch__cpu__stock__fp32__b64__001.json"
    again = RunFolder.open(folder.path)
    assert again.records() == [saved]
    assert (again.plan, again.machine) == (folder.plan, folder.machine)
    assert {"schema", "cell", "launch", "status", "reason", "request", "result", "machine", "image", "log_tail"} <= set(
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


def test_a_second_run_cannot_use_the_folder_of_the_first(folder):
    with pytest.raises(UsageError, match="--resume"):
        RunFolder.create(folder.path, folder.plan, folder.machine)


@pytest.mark.parametrize("purpose", ["measure", "tune"])
@pytest.mark.parametrize("change", [{"framework": "x" * 100_000}, {"batch": 65}, {"lane": "stock"}])
def test_a_record_with_the_request_of_another_cell_is_refused(folder, change, purpose):
    changed = replace(examples.request(replace(examples.cell(), lane="tuned")), purpose=purpose)
    file = folder.save(examples.record(changed))
    fields = json.loads(file.read_text())
    fields["request"]["cell"] |= change
    file.write_text(json.dumps(fields))
    with pytest.raises(UsageError, match="but the request is of"):
        folder.records() + folder.records("tune")


def test_missing_launches_are_in_the_order_of_the_plan(folder):
    folder.save(record(1, "tensorflow"))
    assert [(x.cell.framework, x.launch) for x in folder.missing()] == [("torch", 1), ("torch", 2), ("tensorflow", 2)]


def test_retries_replace_failed_launches_under_new_numbers(folder):
    assert folder.retries() == []
    folder.save(failed(1))
    folder.save(failed(1, "tensorflow", Status.SKIPPED, Code.NO_DEVICE))
    assert [(x.cell.framework, x.launch) for x in folder.retries()] == [("torch", 3)]
    folder.save(failed(2))
    assert [(x.cell.framework, x.launch) for x in folder.retries()] == [("torch", 3), ("torch", 4)]
    folder.save(record(3))
    folder.save(failed(4))
    assert [(x.cell.framework, x.launch) for x in folder.retries()] == [("torch", 5)]
    folder.save(record(5))
    assert folder.retries() == []


def test_leftovers_of_a_killed_writer_are_ignored_and_removed(folder):
    leftover = folder.path / "records" / f"{file_stem(record(1).key, 1)}.json.4711.new"
    leftover.write_text('{"schema": 1, "ke')
    page = folder.path / "index.html.4711.new"
    page.write_text("<html")
    scratch = folder.work(record(1).request)
    (scratch / "io").mkdir(parents=True)
    assert folder.records() == []
    assert len(folder.missing()) == 4
    folder.clean()
    assert not leftover.exists()
    assert not page.exists()
    assert not scratch.exists()


def test_only_temporary_files_in_the_folders_of_a_run_are_removed(folder, tmp_path):
    (tmp_path / "home").mkdir()
    (folder.path / "extra").symlink_to(tmp_path / "home")
    inside = [folder.path / place / "draft.new" for place in ("notes", "folder.new", "records/folder.new")]
    kept = [tmp_path / "home" / "draft.new", *inside]
    for path in kept:
        path.parent.mkdir(exist_ok=True)
        path.write_text("mine")
    folder.clean()
    assert [path.read_text() for path in kept] == ["mine"] * 4


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("plan.json", None, "plan.json cannot be read"),
        ("plan.json", "{", "not a valid plan"),
        ("plan.json", '{"schema": 99}', "has schema 99"),
        ("machine.json", '{"schema": 1}', "not a valid machine"),
    ],
)
def test_an_incomplete_run_folder_is_an_error_with_its_path(folder, name, content, message):
    file = folder.path / name
    file.unlink() if content is None else file.write_text(content)
    with pytest.raises(UsageError, match=message) as caught:
        RunFolder.open(folder.path)
    assert str(folder.path) in str(caught.value)


@pytest.mark.parametrize("content", ["", "{}", '{"schema": 1, "key": 7}', '{"schema": 2}'])
def test_a_damaged_record_is_an_error_with_its_file_name(folder, content):
    file = folder.save(record(1))
    file.write_text(content)
    with pytest.raises(UsageError, match=file.name):
        folder.records()


@pytest.mark.parametrize("content", ["", "{}", '{"schema": 1, "key": 7}', '{"schema": 2}', None])
def test_a_report_is_made_of_the_usable_records(folder, content):
    good, bad = folder.save(record(1)), folder.save(record(2))
    bad.write_text(content) if content is not None else bad.rename(bad.with_name("other.json"))
    run = folder.read_usable()
    assert [(r.key, r.launch) for r in run.records] == [(record(1).key, 1)]
    (found,) = run.unusable
    assert found.file == str((bad if content is not None else bad.with_name("other.json")).relative_to(folder.path))
    assert found.file in found.error
    assert str(folder.path) not in found.error
    assert found.remedy
    assert (f"{record(2).key} #2" in [planned.name for planned in run.not_run]) == (content is None)
    assert good.exists()


def test_a_record_under_another_name_is_refused(folder):
    file = folder.save(record(1))
    file.rename(file.with_name(f"{file_stem('other', 1)}.json"))
    with pytest.raises(UsageError, match="holds the record of"):
        folder.records()


def test_the_remedy_for_a_copied_record_does_not_overwrite_the_record(folder):
    file = folder.save(record(1))
    file.with_name("copy.json").write_bytes(file.read_bytes())
    with pytest.raises(UsageError, match="holds the record of") as caught:
        folder.records()
    assert caught.value.remedy == f"This launch already has a record, records/{file.name}. Move one of both away."


def test_clean_does_not_follow_links_and_makes_missing_folders(folder, tmp_path):
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
def test_a_record_that_is_not_a_plain_file_is_refused(folder, kind):
    file = folder.path / "records" / f"{file_stem(record(1).key, 1)}.json"
    {"folder": file.mkdir, "pipe": lambda: os.mkfifo(file), "dead link": lambda: file.symlink_to("/nowhere")}[kind]()
    with pytest.raises(UsageError, match=r"cannot be read: (not a plain file|No such file)"):
        folder.records()


def test_a_dead_link_is_not_taken_for_a_run_without_records(folder):
    (folder.path / "records").rmdir()
    (folder.path / "records").symlink_to("/nowhere")
    with pytest.raises(UsageError, match=r"records cannot be read: No such file"):
        folder.records()


def test_a_full_disk_is_a_disk_error_and_leaves_no_partial_file(folder, monkeypatch):
    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DiskError, match="No space left"):
        folder.save(record(1))
    assert list((folder.path / "records").iterdir()) == []


def test_too_little_space_is_an_error(folder, monkeypatch):
    folder.require_space()
    monkeypatch.setattr(run_folder, "MIN_FREE_BYTES", 1 << 62)
    with pytest.raises(DiskError, match=r"of free space, but a launch needs"):
        folder.require_space()


@pytest.mark.parametrize("purpose", ["measure", "probe"])
def test_a_record_in_the_wrong_folder_is_refused(folder, purpose):
    ceilings = [Ceiling("matmul", "fp32", "FLOP/s", 1e12, [1e12], "512")]
    changed = replace(request(1), purpose=purpose)
    file = folder.save(examples.record(changed, result=replace(examples.result(changed), ceilings=ceilings)))
    wrong = {"records": "probes", "probes": "records"}[file.parent.name]
    file.rename(folder.path / wrong / file.name)
    with pytest.raises(UsageError, match=rf"/{wrong}/mnist-cnn.* holds the record of") as caught:
        folder.records() if wrong == "records" else folder.records("probe")
    assert f"{file.parent.name}/{file.name}" in caught.value.remedy


def test_a_file_in_place_of_a_run_is_named_as_such(folder, tmp_path):
    with pytest.raises(UsageError, match=r"plan\.json is a file, not the folder of a run"):
        find_run(str(folder.path / "plan.json"), tmp_path)
    (tmp_path / "a run.tar.xz").write_bytes(b"")
    with pytest.raises(UsageError, match="is a file") as caught:
        find_run(str(tmp_path / "a run.tar.xz"), tmp_path)
    assert caught.value.remedy == f"Unpack it with `kit unpack '{tmp_path}/a run.tar.xz'`."


def run_log(folder):
    """Return the lines of a run's log without their times."""
    return [line.partition("+00:00 ")[2] for line in (folder.path / "run.log").read_text().splitlines()]


def test_progress_is_appended_to_the_log_without_personal_data(folder, monkeypatch):
    monkeypatch.setenv("USER", "ada-lovelace")
    folder.append_progress("first\nsecond of ada-lovelace")
    folder.append_progress(f"in {Path.home()}/reports")
    assert run_log(folder) == ["first", "second of <user>", "in ~/reports"]
    folder.plan = folder.plan.model_copy(update={"identify": True})
    folder.append_progress("third of ada-lovelace")
    assert run_log(folder)[-1] == "third of ada-lovelace"


@pytest.mark.parametrize("kind", ["full disk", "folder", "pipe", "link"])
def test_a_log_that_cannot_be_written_stops_nothing(folder, tmp_path, monkeypatch, kind):
    file, mine = folder.path / "run.log", tmp_path / "mine"
    mine.write_text("")
    make = {"folder": file.mkdir, "pipe": lambda: os.mkfifo(file), "link": lambda: file.symlink_to(mine)}
    make.get(kind, file.touch)()
    if kind == "full disk":
        file.unlink()
        monkeypatch.setattr(run_folder, "RUN_LOG", "/dev/full")
    folder.append_progress("a line")
    assert mine.read_text() == "", "nothing is written through a link"
