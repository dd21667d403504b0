"""Test packs: whole and equal after a journey, without personal data, and refused if they are not as they were made."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import lzma
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kit.execution.reporting import report
from kit.host import machine_lock
from kit.model.errors import DiskError, EngineError, UsageError
from kit.model.progress import Silent
from kit.storage import packs, unpacking
from kit.storage.packs import write_pack
from kit.storage.run_folder import PICTURES, RunFolder
from kit.storage.unpacking import unpack
from tests import example_run, examples
from tests.command import Kit
from tests.study_runs import study_run

ROOT = Path(__file__).parents[2]
QUIET = Silent()
RUN = "r1"  # of the examples


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # no test cuts the power


def small_run(path: Path) -> RunFolder:
    """Make a run with one record, and with files that a pack does not need."""
    folder = RunFolder.create(path, examples.plan([examples.planned()]), examples.machine())
    folder.save(examples.record())
    (path / "logs" / "log").write_text("log")
    (path / "weights" / "w.safetensors").write_bytes(b"weights")
    return folder


def whole_run(path: Path) -> RunFolder:
    """Make the example run, which fills every section of the report, with a file that cannot be used."""
    run = example_run.run()
    folder = RunFolder.create(path, run.plan, run.machine)
    for record in (*run.records, *run.probes, *run.tunings):
        folder.save(record)
    (path / "records" / "broken.json").write_text("{")
    return folder


def packed(folder: RunFolder, target: Path) -> Path:
    write_pack(folder, target, QUIET)
    return target


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_pack_has_what_the_report_needs_and_is_equal_for_equal_runs(tmp_path: Path) -> None:
    folder = small_run(tmp_path / "run")
    first = packed(folder, tmp_path / "first.tar.xz").read_bytes()
    shutil.copytree(folder.path, tmp_path / "copy", copy_function=shutil.copyfile)
    (tmp_path / "copy" / "plan.json").chmod(0o600)
    os.utime(tmp_path / "copy" / "machine.json", (1, 1))
    assert packed(RunFolder.open(tmp_path / "copy"), tmp_path / "second.tar.xz").read_bytes() == first
    with tarfile.open(tmp_path / "first.tar.xz") as archive:
        names, owners = archive.getnames(), {(info.mtime, info.mode, info.uid, info.uname) for info in archive}
    record = "records/mnist-cnn__torch__cpu__stock__fp32__b64__001.json"
    assert names == [f"{RUN}/{name}" for name in ("manifest.json", "machine.json", "plan.json", record)]
    assert owners == {(0, 0o644, 0, "")}
    made = unpack(tmp_path / "first.tar.xz", tmp_path / "out", QUIET)
    assert made == tmp_path / "out" / RUN
    assert contents(made) == {name: (folder.path / name).read_bytes() for name in ("machine.json", "plan.json", record)}
    assert [path.name for path in (tmp_path / "out").iterdir()] == [RUN]


def report_bytes(folder: Path, cwd: Path, **variables: str) -> bytes:
    """Write the report of a run in a process of its own, and return it."""
    cwd.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "kit", "report", str(folder)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    subprocess.run(command, cwd=cwd, env=environment, check=False, capture_output=True)
    return (folder / "index.html").read_bytes()


def test_an_unpacked_run_has_the_same_report_in_another_place_and_home(tmp_path: Path) -> None:
    folder = whole_run(tmp_path / "here" / RUN)
    other = unpack(packed(folder, tmp_path / "run.tar.xz"), tmp_path / "there" / "runs", QUIET)
    here = report_bytes(folder.path, tmp_path / "a", HOME=str(tmp_path / "a"), PYTHONHASHSEED="1", TZ="UTC")
    there = report_bytes(
        other, tmp_path / "b", HOME=str(tmp_path / "b"), PYTHONHASHSEED="2", TZ="Asia/Tokyo", LC_ALL="C", COLUMNS="40"
    )
    assert b"broken.json" in here
    assert here == there


def test_the_pictures_of_a_run_are_packed_and_shown_again(tmp_path: Path) -> None:
    run = study_run("catdog-depth")
    folder = RunFolder.create(tmp_path / "run", run.plan, run.machine)
    for record in run.records:
        folder.save(record)
    for digest, content in run.pictures.items():
        (folder.path / PICTURES / f"{digest}.jpg").write_bytes(content)
    elsewhere = RunFolder.open(unpack(packed(folder, tmp_path / "x.tar.xz"), tmp_path / "out", QUIET))
    assert elsewhere.read().pictures == run.pictures
    assert b"data:image/jpeg" in report(elsewhere).report.read_bytes()


def test_packs_and_their_reports_go_through_the_commands(kit: Kit, tmp_path: Path) -> None:
    small_run(tmp_path / "reports" / RUN)
    assert kit("report", RUN).code == 0
    assert kit("pack", RUN).out == f"Pack: {RUN}.tar.xz\n"
    refused = kit("pack", RUN)
    assert (refused.code, refused.out) == (2, "")
    assert refused.err == f"{RUN}.tar.xz exists.\nChoose another file with --out.\n"
    called = kit("unpack", f"{RUN}.tar.xz", "--out", "other")
    assert called.code == 0
    assert called.out == f"Run: other/{RUN}\nReport: other/{RUN}/index.html\n"
    assert Path("other", RUN, "index.html").read_bytes() == Path("reports", RUN, "index.html").read_bytes()
    assert f'href="{RUN}/index.html"' in Path("other/index.html").read_text()
    again = kit("unpack", f"{RUN}.tar.xz", "--out", "other")
    assert (again.code, again.out) == (2, "")
    assert f"other/{RUN} exists.\nName another folder with --out." in again.err


@pytest.mark.parametrize("holder", [RUN, "r1-base"])
def test_a_run_that_is_being_measured_is_not_packed(tmp_path: Path, holder: str) -> None:
    folder = small_run(tmp_path / "run")
    folder.plan = folder.plan.model_copy(update={"against": "r1-base"})
    with machine_lock.measuring("another-run"):
        packed(folder, tmp_path / "fine.tar.xz")
    with machine_lock.measuring(holder), pytest.raises(EngineError, match="r1 is being measured now"):
        packed(folder, tmp_path / "run.tar.xz")
    assert not (tmp_path / "run.tar.xz").exists()


def test_a_run_that_changes_while_it_is_packed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = small_run(tmp_path / "run")
    make = packs._make

    def make_and_change(*arguments: Any) -> bytes:
        content = make(*arguments)
        folder.save(examples.record(examples.request(launch=2)))
        return content

    monkeypatch.setattr(packs, "_make", make_and_change)
    with pytest.raises(UsageError, match="changed while it was packed"):
        packed(folder, tmp_path / "run.tar.xz")
    assert not (tmp_path / "run.tar.xz").exists()


def test_a_pack_has_no_personal_data_unless_the_run_identifies_its_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "home", lambda: Path("/home/ada"))
    gpu = "GPU-01234567-89ab-cdef-0123-456789abcdef"
    for identify, words in ((False, ("~/bin/python", "<gpu>")), (True, ("/home/ada/bin/python", gpu))):
        path = tmp_path / f"run-{identify}"
        folder = small_run(path)
        changes = {"environment": "/home/ada/bin/python", "gpus": gpu, "identify": identify}
        (path / "plan.json").write_text(folder.plan.model_copy(update=changes).to_json())
        made = unpack(packed(RunFolder.open(path), tmp_path / f"{identify}.tar.xz"), tmp_path / f"o{identify}", QUIET)
        plan = RunFolder.open(made).plan
        assert (plan.environment, plan.gpus) == words


@pytest.mark.parametrize("kind", ["file", "folder", "pipe", "x\n.json", "x\udcff.json"])
def test_no_link_or_special_file_is_packed(tmp_path: Path, kind: str) -> None:
    folder = small_run(tmp_path / "run")
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "secret.json").write_text("secret")
    records = folder.path / "records"
    if kind == "folder":
        shutil.rmtree(records)
        records.symlink_to(tmp_path / "secrets")
    elif kind == "file":
        (records / "x.json").symlink_to(tmp_path / "secrets" / "secret.json")
    elif kind == "pipe":
        os.mkfifo(records / "x.json")
    else:
        (records / kind).write_text("{}")
    with pytest.raises(UsageError, match=r"is a link|cannot be packed|has a name"):
        packed(folder, tmp_path / "run.tar.xz")
    assert not (tmp_path / "run.tar.xz").exists()


def test_what_could_not_be_unpacked_is_not_packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = small_run(tmp_path / "run")
    limits = {"MAX_FILES": "3 files, more than 1", "MAX_FILE_BYTES": "larger than 1 bytes", "MAX_BYTES": "GiB"}
    for limit, words in limits.items():
        with monkeypatch.context() as patched:
            patched.setattr(packs, limit, 1)
            with pytest.raises(UsageError, match=words):
                packed(folder, tmp_path / "run.tar.xz")


@dataclass(frozen=True)
class Entry:
    """A member of a hostile pack. name: without the folder, unless `whole`."""

    name: str
    content: bytes = b"{}"
    kind: bytes = tarfile.REGTYPE
    whole: bool = False
    link: str = ""


def manifest_of(entries: list[Entry], **changes: object) -> Entry:
    files = [{"name": e.name, "size": len(e.content), "sha256": hashlib.sha256(e.content).hexdigest()} for e in entries]
    return Entry(
        "manifest.json", json.dumps({"schema": 1, "run": RUN, "kit": "0.1.0", "files": files} | changes).encode()
    )


def archive_of(entries: list[Entry], pad: int = 0) -> bytes:
    """Return a tar file, compressed with xz. pad: zeros at its end."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for entry in entries:
            info = tarfile.TarInfo(entry.name if entry.whole else f"{RUN}/{entry.name}")
            info.type, info.linkname = entry.kind, entry.link
            info.size = len(entry.content) if entry.kind == tarfile.REGTYPE else 0
            archive.addfile(info, io.BytesIO(entry.content))
    return lzma.compress(buffer.getvalue() + bytes(pad))


PLAN = examples.plan([examples.planned()])
HONEST = [Entry("machine.json", examples.machine().to_json().encode()), Entry("plan.json", PLAN.to_json().encode())]
RECORD = Entry("records/a.json")
OTHER_PLAN = PLAN.model_copy(update={"run": "r2"}).to_json().encode()
HUGE = {"name": "records/a.json", "size": 1 << 62, "sha256": "0" * 64}


def listed(*more: dict[str, object]) -> dict[str, object]:
    """Return the change of a manifest that lists more files than the pack has."""
    return {"files": [*json.loads(manifest_of(HONEST).content)["files"], *more]}


def hostile(*more: Entry, at_first: bool = False, listed_too: bool = False) -> bytes:
    """Return an honest pack with more members. listed_too: whether its manifest lists them."""
    manifest = manifest_of([*HONEST, *more] if listed_too else HONEST)
    return archive_of([*more, manifest, *HONEST] if at_first else [manifest, *HONEST, *more])


HOSTILE: Mapping[str, tuple[bytes, str]] = {
    "empty": (b"", "not a pack, or is damaged or truncated"),
    "a zip file": (b"PK\3\4" + bytes(100), "not a pack, or is damaged or truncated"),
    "xz of something else": (lzma.compress(b"something else" * 1000), "not a pack, or is damaged or truncated"),
    "an empty tar file": (archive_of([]), "first file is not manifest.json"),
    "no manifest": (archive_of(HONEST), "first file is not manifest.json"),
    "a manifest at the end": (archive_of([*HONEST, manifest_of(HONEST)]), "first file is not manifest.json"),
    "a manifest without a folder": (
        archive_of([replace(manifest_of(HONEST), whole=True)]),
        "first file is not manifest.json",
    ),
    "a manifest that is a link": (
        archive_of([Entry("manifest.json", kind=tarfile.SYMTYPE, link="/etc/passwd")]),
        "is a link or a device",
    ),
    "another run's folder": (
        archive_of([replace(manifest_of(HONEST, run="r2")), *HONEST]),
        "folder 'r1' is not named after the run r2",
    ),
    "a run that leads out": (archive_of([manifest_of(HONEST, run="../r1")]), "not a valid manifest: run"),
    "a newer manifest": (archive_of([manifest_of(HONEST, schema=2)]), "has schema 2"),
    "an invalid manifest": (archive_of([Entry("manifest.json", b"{")]), "not a valid manifest"),
    "a manifest with a file outside": (
        archive_of([manifest_of([*HONEST, Entry("../outside.json")])]),
        r"'\.\./outside\.json' is not the name of a file of a run",
    ),
    "a manifest with a deep file": (
        archive_of([manifest_of([*HONEST, Entry("records/a/b.json")])]),
        "'records/a/b.json' is not the name of a file of a run",
    ),
    "a manifest with a name too long for a disk": (
        archive_of([manifest_of([*HONEST, Entry(f"records/{'é' * 125}a.json")])]),
        "is not the name of a file of a run",
    ),
    "a manifest with a file twice": (
        archive_of([manifest_of([*HONEST, RECORD, RECORD])]),
        "names records/a.json twice",
    ),
    "a manifest without a plan": (archive_of([manifest_of(HONEST[:1]), *HONEST[:1]]), "does not name plan.json"),
    "a huge file": (archive_of([manifest_of(HONEST, **listed(HUGE))]), "records/a.json has more than 64 MiB"),
    "too many bytes": (
        archive_of(
            [
                manifest_of(
                    HONEST, **listed(*(HUGE | {"name": f"records/{n}.json", "size": 60 << 20} for n in range(80)))
                )
            ]
        ),
        "its files have more than 4 GiB",
    ),
    "a file that is not listed": (hostile(RECORD), "its manifest lacks 'r1/records/a.json'"),
    "a name outside": (hostile(Entry("../outside.json")), "leads out of the folder"),
    "an absolute name": (hostile(Entry("/outside.json", whole=True)), "leads out of the folder"),
    "a backslash": (hostile(Entry("records\\..\\outside.json")), "leads out of the folder"),
    "another folder": (hostile(Entry("other/records/a.json", whole=True)), "its manifest lacks"),
    "another spelling": (hostile(Entry("./plan.json"), Entry("records//a.json")), "its manifest lacks"),
    "a name twice": (hostile(HONEST[1]), "it has 'r1/plan.json' twice"),
    "a missing file": (archive_of([manifest_of([*HONEST, RECORD]), *HONEST]), "records/a.json is missing"),
    "an altered file": (
        archive_of([manifest_of([*HONEST, RECORD]), *HONEST, replace(RECORD, content=b"[]")]),
        "records/a.json is not the file that its manifest describes",
    ),
    "a longer file": (
        archive_of([manifest_of([*HONEST, RECORD]), *HONEST, replace(RECORD, content=b"{}{}")]),
        "records/a.json is not the file that its manifest describes",
    ),
    "a folder in place of a file": (
        archive_of([manifest_of([*HONEST, RECORD]), *HONEST, replace(RECORD, kind=tarfile.DIRTYPE)]),
        "records/a.json is not the file that its manifest describes",
    ),
    **{
        name: (
            archive_of([manifest_of([*HONEST, RECORD]), *HONEST, replace(RECORD, kind=kind, link="/etc/passwd")]),
            "is a link or a device",
        )
        for name, kind in {
            "a link": tarfile.SYMTYPE,
            "a hard link": tarfile.LNKTYPE,
            "a character device": tarfile.CHRTYPE,
            "a block device": tarfile.BLKTYPE,
            "a pipe": tarfile.FIFOTYPE,
        }.items()
    },
    "a pack in a pack": (hostile(replace(RECORD, content=hostile()), listed_too=True), "is a pack inside the pack"),
    "packed twice": (lzma.compress(hostile()), "not a pack, or is damaged or truncated"),
    "the plan of another run": (
        archive_of([manifest_of(other := [HONEST[0], Entry("plan.json", OTHER_PLAN)]), *other]),
        "its plan is that of the run r2",
    ),
    "an invalid plan": (
        archive_of([manifest_of(broken := [HONEST[0], Entry("plan.json")]), *broken]),
        "plan.json is not a valid plan",
    ),
    "something after the end": (hostile() + b"more", "something follows its end"),
    "a second stream": (hostile() + lzma.compress(b"more"), "something follows its end"),
    "a bomb of zeros": (
        archive_of([manifest_of(HONEST), *HONEST], pad=unpacking.CHUNK_BYTES * 20),
        "not a pack, or is damaged or truncated",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_pack_is_refused_and_leaves_nothing(kit: Kit, tmp_path: Path, name: str) -> None:
    content, message = HOSTILE[name]
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "x.tar.xz").write_bytes(content)
    called = kit("unpack", "in/x.tar.xz", "--out", "a/b")
    assert (called.code, called.out) == (2, ""), called.err
    with pytest.raises(UsageError, match=message):
        unpack(tmp_path / "in" / "x.tar.xz", tmp_path / "a" / "b", QUIET)
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_an_unpacked_run_gets_its_name_when_a_power_cut_cannot_damage_it(
    tmp_path: Path, honest: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = set[str]()

    def fsync(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        synced.add(os.path.relpath(path, tmp_path / "out"))
        assert (tmp_path / "out" / "r1").exists() == (path == tmp_path / "out"), "only its name is synced afterwards"

    (tmp_path / "x.tar.xz").write_bytes(honest)
    monkeypatch.setattr(os, "fsync", fsync)
    run = unpack(tmp_path / "x.tar.xz", tmp_path / "out", QUIET)
    temporary = f".r1.{os.getpid()}.new"
    below = {f"{temporary}/{path.relative_to(run)}" for path in run.rglob("*")}
    assert synced == {temporary, ".", *below}


def test_a_run_whose_name_cannot_be_synced_is_not_left(
    tmp_path: Path, honest: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(folder: Path) -> None:
        if folder.name == "out":
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    (tmp_path / "x.tar.xz").write_bytes(honest)
    monkeypatch.setattr(unpacking, "sync_folder", broken)
    with pytest.raises(DiskError):
        unpack(tmp_path / "x.tar.xz", tmp_path / "out", QUIET)
    assert [path.name for path in tmp_path.iterdir()] == ["x.tar.xz"]


def test_the_honest_pack_of_these_tests_is_unpacked(tmp_path: Path) -> None:
    (tmp_path / "x.tar.xz").write_bytes(hostile(RECORD, listed_too=True))
    made = unpack(tmp_path / "x.tar.xz", tmp_path, QUIET)
    assert contents(made).keys() == {"machine.json", "plan.json", "records/a.json"}


def test_a_name_as_long_as_a_disk_allows_is_unpacked(tmp_path: Path) -> None:
    longest = Entry(f"records/{'é' * 125}.json")  # 255 bytes
    (tmp_path / "x.tar.xz").write_bytes(hostile(longest, listed_too=True))
    assert longest.name in contents(unpack(tmp_path / "x.tar.xz", tmp_path, QUIET))


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return packed(small_run(tmp_path_factory.mktemp("honest") / "run"), tmp_path_factory.mktemp("p") / "x").read_bytes()


def unpacked(content: bytes, folder: Path) -> dict[str, bytes] | None:
    """Return the files of a pack, None if it is refused. Fail if then something is left."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / "x.tar.xz").write_bytes(content)
    try:
        return contents(unpack(folder / "x.tar.xz", folder / "out", QUIET))
    except UsageError as error:
        refused = error
    assert "x.tar.xz" in refused.message
    assert refused.remedy
    assert [path.name for path in folder.iterdir()] == ["x.tar.xz"]
    return None


def flip(content: bytes, place: int, value: int) -> bytes:
    return content[:place] + bytes([content[place] ^ value]) + content[place + 1 :]


@given(data=st.data())
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_an_altered_byte_is_refused_or_changes_nothing(honest: bytes, tmp_path: Path, data: st.DataObject) -> None:
    """Alter the file, or the tar file inside, whose checksums are then valid again."""
    inside = data.draw(st.booleans(), "inside")
    content = lzma.decompress(honest) if inside else honest
    place, value = data.draw(st.integers(0, len(content) - 1), "place"), data.draw(st.integers(1, 255), "value")
    changes: dict[str, Callable[[], bytes]] = {
        "flip": lambda: flip(content, place, value),
        "remove": lambda: content[:place] + content[place + 1 :],
        "insert": lambda: content[:place] + bytes([value]) + content[place:],
        "truncate": lambda: content[:place],
    }
    altered = changes[data.draw(st.sampled_from(sorted(changes)), "change")]()
    found = unpacked(lzma.compress(altered) if inside else altered, tmp_path / "work")
    assert found in (None, unpacked(honest, tmp_path / "whole"))


def test_a_full_disk_or_an_interrupt_leaves_nothing(
    honest: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x.tar.xz").write_bytes(honest)
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "disk_usage", lambda place: shutil._ntuple_diskusage(1, 1, 0))  # type: ignore[attr-defined]
        with pytest.raises(DiskError, match="of free space, but the run needs"):
            unpack(tmp_path / "x.tar.xz", tmp_path / "a/b", QUIET)
    for error, expected in ((KeyboardInterrupt(), KeyboardInterrupt), (OSError(28, "No space left"), DiskError)):

        def fail(*_: object, error: BaseException = error) -> None:
            raise error

        with monkeypatch.context() as patched:
            patched.setattr(Path, "rename", fail)
            with pytest.raises(expected):
                unpack(tmp_path / "x.tar.xz", tmp_path / "a/b", QUIET)
        assert [path.name for path in tmp_path.iterdir()] == ["x.tar.xz"]


@pytest.mark.parametrize("kind", ["missing", "folder", "pipe", "a/b is a file"])
def test_what_is_no_file_is_bad_input(kit: Kit, honest: bytes, tmp_path: Path, kind: str) -> None:
    if kind == "folder":
        (tmp_path / "x").mkdir()
    elif kind == "pipe":
        os.mkfifo(tmp_path / "x")
    elif kind != "missing":
        (tmp_path / "x").write_bytes(honest)
        (tmp_path / "reports").write_text("mine")
    called = kit("unpack", "x")
    assert (called.code, called.out) == (2, "")
    assert ("x cannot be read" in called.err) == (kind != "a/b is a file")
