"""Test the index of runs: its rows, its links, what it overwrites, and that it reads no record."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import webbrowser
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from kit.execution import reporting
from kit.execution.reporting import refresh_index, report, update_index
from kit.host import machine_lock
from kit.model.errors import DiskError, UsageError
from kit.model.progress import PlainProgress, Silent
from kit.report import render
from kit.report.run_index import make_row, render_index, write_index
from kit.storage import files, run_list
from kit.storage.run_folder import RunFolder
from kit.storage.run_list import list_runs
from tests import examples, fakes, report_runs
from tests.command import RUN, Kit

HOSTILE = "<script>alert(1)</script>\"'&|\x1b[2J\ud800"


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # no test cuts the power


class Page(HTMLParser):
    """The rows of an index as texts, and its links."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.links: list[str] = []
        self.tags: set[str] = set()
        self.in_table = False
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.in_table = self.in_table or tag == "table"
        if tag == "tr":
            self.rows.append([])
        if tag in ("th", "td"):
            self.rows[-1].append("")
        if tag == "a":
            self.links.append(dict(attrs)["href"] or "")

    def handle_endtag(self, tag: str) -> None:
        self.in_table = self.in_table and tag != "table"

    def handle_data(self, data: str) -> None:
        if self.in_table and self.rows and self.rows[-1] and data.strip():
            self.rows[-1][-1] = f"{self.rows[-1][-1]} {' '.join(data.split())}".strip()


def make_run(out: Path, name: str, created_at: str = "2026-01-01T00:00:00+00:00", **machine: object) -> RunFolder:
    plan = examples.plan([examples.planned()]).model_copy(update={"created_at": created_at})
    folder = RunFolder.create(out / name, plan, examples.machine(**machine))
    folder.save(examples.record())
    return folder


def page_of(out: Path) -> Page:
    return Page(write_index(out).read_text())


def test_the_index_shows_each_run_with_links_the_newest_first(tmp_path: Path) -> None:
    report(make_run(tmp_path, "old"))
    run = report_runs.cuda()
    new = RunFolder.create(
        tmp_path / "new", run.plan.model_copy(update={"created_at": "2026-02-03T04:05:06+00:00"}), run.machine
    )
    for record in (*run.records, *run.probes):
        new.save(record)
    report(new)
    page = page_of(tmp_path)
    assert page.rows[0] == ["Machine", "Date", "Profile", "What it found", "Reliability", "Warnings"]
    first, second = page.rows[1:]
    assert first[0] == "Made-up CPU of a test, 2 cores, Made-up GPU new"
    assert first[1:3] == ["3 February 2026", "quick"]
    assert re.match(r"It trains [\d,]+ to [\d,]+ images/s, depending on the network", first[3])
    assert "On the GPU: to train" in first[3]
    assert first[4] == "First look"
    assert second[0] == "Example CPU, 1 core, no GPU old"
    assert second[1] == "1 January 2026"
    assert {"new/index.html", "new/index.html#training", "new/index.html#gpu", "new/index.html#warnings"} <= {
        *page.links
    }
    for link in page.links[1:]:
        file, _, anchor = link.partition("#")
        assert not anchor or f'id="{anchor}"' in (tmp_path / file).read_text(), link


def test_runs_without_a_current_report_and_broken_ones_are_listed_as_such(tmp_path: Path) -> None:
    make_run(tmp_path, "unreported")
    report(make_run(tmp_path, "outdated")).report.touch()
    RunFolder.open(tmp_path / "outdated").save(examples.record(examples.request(launch=2)))
    make_run(tmp_path, "broken")
    (tmp_path / "broken" / "plan.json").write_text("{")
    report(make_run(tmp_path, "spoiled"))
    (tmp_path / "spoiled" / "summary.json").write_text('{"schema": 1}')
    (tmp_path / ".r1.77.new").mkdir()  # is being unpacked
    (tmp_path / ".r1.77.new" / "plan.json").write_text("{}")
    (tmp_path / "no run").mkdir()
    rows = {row[0].split()[-1]: row[3] for row in page_of(tmp_path).rows[1:]}
    assert rows["unreported"] == "It has no summary yet: kit report unreported"
    assert "trains mnist-cnn at 1,000 images/s" in rows["outdated"]
    assert "Records were added since this report: kit report outdated" in rows["outdated"]
    assert rows["broken"].startswith("The run cannot be read plan.json is not a valid plan:")
    assert rows["spoiled"] == "It has no summary yet: kit report spoiled"
    assert len(rows) == 4
    assert str(tmp_path) not in write_index(tmp_path).read_text(), "the page names a folder of this machine"


def test_a_run_that_failed_says_so(tmp_path: Path) -> None:
    run = report_runs.failed()
    folder = RunFolder.create(tmp_path / "failed", run.plan, run.machine)
    for record in run.records:
        folder.save(record)
    report(folder)
    (row,) = page_of(tmp_path).rows[1:]
    assert row[3].startswith("Nothing was measured: none of 36 launches ended well")
    assert row[4] == "18 launches skipped, 6 launches failed, 6 launches out of memory, 6 launches timeout"


def test_the_index_reads_no_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report(make_run(tmp_path, "run"))
    monkeypatch.setattr(RunFolder, "_record", lambda *_: pytest.fail("a record was read"))
    assert "trains mnist-cnn" in page_of(tmp_path).rows[1][3]


def test_no_text_of_a_run_becomes_markup(tmp_path: Path) -> None:
    folder = make_run(tmp_path, "a <b>&'\udcff", cpu_model=HOSTILE[:-1])
    (found,) = list_runs(tmp_path)
    html = render_index(HOSTILE, [replace(found, created_at=HOSTILE, profile=HOSTILE)])
    page = Page(html)
    assert html.count("<script>") == 1
    assert html.count("</script>") == 1
    assert "\x1b" not in html
    assert page.tags.isdisjoint({"img", "iframe", "b"})
    assert page.rows[1][1].startswith("<script>alert(1)</script>")
    report(folder)
    assert page_of(tmp_path).links[1].startswith("a%20%3Cb%3E%26%27%FF/index.html")


def test_a_summary_of_a_stranger_stays_within_its_limits(tmp_path: Path) -> None:
    report(make_run(tmp_path, "run"))
    file = tmp_path / "run" / "summary.json"
    summary = json.loads(file.read_text())
    evil = summary | {"headline": HOSTILE[:-1], "sections": [{"anchor": 'x" onclick="1', "title": HOSTILE[:-1]}]}
    file.write_text(json.dumps(evil))
    html = write_index(tmp_path).read_text()
    assert 'href="run/index.html#x%22%20onclick%3D%221"' in html
    assert html.count("<script>") == 1
    for change in ({"headline": "x" * 401}, {"warnings": -1}, {"sections": [{}]}, {"more": 1}):
        file.write_text(json.dumps(summary | change))
        assert list_runs(tmp_path)[0].summary is None, change
    file.unlink()
    file.symlink_to("plan.json")
    assert list_runs(tmp_path)[0].summary is None


@pytest.mark.parametrize("kind", ["page", "report", "folder", "link"])
def test_the_index_replaces_nothing_but_an_index(tmp_path: Path, kind: str) -> None:
    out = tmp_path / "reports"
    folder, target = make_run(out, "run"), out / "index.html"
    write_index(out)
    write_index(out)
    target.unlink()
    {
        "page": lambda: target.write_text("<!doctype html><title>My page</title>"),
        "report": lambda: report(folder, target),
        "folder": target.mkdir,
        "link": lambda: target.symlink_to(tmp_path / "nothing"),
    }[kind]()
    with pytest.raises(UsageError, match="exists and is not an index of runs"):
        write_index(out)
    assert target.is_symlink() or kind != "link"
    assert "not an index" in update_index(folder.path)


def test_the_folder_of_a_run_gets_no_index(tmp_path: Path) -> None:
    outer = make_run(tmp_path, "outer")
    page = report(outer).report.read_text()
    inner = make_run(outer.path, "inner")
    report(inner)
    assert "is the folder of a run" in update_index(inner.path)
    assert outer.index.read_text() == page
    with pytest.raises(UsageError, match="is not a folder"):
        write_index(tmp_path / "nothing")


def test_an_index_that_cannot_be_written_costs_no_report(
    kit: Kit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_run(tmp_path / "reports", "run")

    def full(out: Path) -> Path:
        raise DiskError("It is full.", "Free disk space.")

    monkeypatch.setattr("kit.report.run_index.write_index", full)
    called = kit("report", "run", "--json")
    assert called.code == 0
    assert json.loads(called.out)["run"] == "r1"
    assert called.err == "The index of runs was not written. It is full. Free disk space.\n"


def test_a_run_and_a_report_update_the_index(kit: Kit, engine: fakes.FakeEngine, tmp_path: Path) -> None:
    assert kit(*RUN).code == 0
    (name,) = (path.name for path in Path("reports").iterdir() if path.is_dir())
    assert f"{name}/index.html#training" in Page(Path("reports/index.html").read_text()).links
    make_run(tmp_path / "reports", "second")
    assert kit("report", "second", "--out", "elsewhere.html").code == 0
    assert len(Page(Path("reports/index.html").read_text()).rows) == 2, "a report elsewhere changes no index"
    assert kit("report", "reports/second").code == 0
    assert len(Page(Path("reports/index.html").read_text()).rows) == 3


def test_kit_index_writes_the_reports_that_are_missing_or_old(kit: Kit, tmp_path: Path) -> None:
    out = tmp_path / "runs"
    report(make_run(out, "current"))
    before = (out / "current" / "index.html").stat().st_mtime_ns
    make_run(out, "unreported")
    make_run(out, "taken")
    (out / "taken" / "index.html").write_text("mine")
    make_run(out, "broken")
    (out / "broken" / "machine.json").unlink()
    make_run(out, "blocked")
    (out / "blocked" / "summary.json").mkdir()
    called = kit("index", "runs")
    assert (called.code, called.out) == (0, "Index: runs/index.html\n")
    assert "runs/taken/index.html exists and is not a report.\nMove it away, or write" in called.err
    assert "runs/blocked/summary.json is a folder, in place of the summary of the run." in called.err
    assert kit("report", "runs/blocked").code == 2
    assert (out / "current" / "index.html").stat().st_mtime_ns == before
    assert (out / "unreported" / "summary.json").exists()
    assert (out / "taken" / "index.html").read_text() == "mine"
    assert "machine.json cannot be read: No such file or directory." in Path("runs/index.html").read_text()
    for arguments, words in (("runs/current", "is the folder of a run"), ("nothing", "is not a folder"), ("", "")):
        refused = kit("index", *arguments.split())
        assert refused.code == 2
        assert words in refused.err


def test_kit_index_leaves_a_run_alone_that_is_being_measured(tmp_path: Path) -> None:
    folder = make_run(tmp_path, "r1")
    with machine_lock.measuring("r1"):
        refresh_index(tmp_path, Silent())
    assert not folder.index.exists()
    refresh_index(tmp_path, Silent())
    assert folder.index.exists()


def test_a_run_that_cannot_be_written_does_not_cost_the_index(tmp_path: Path) -> None:
    make_run(tmp_path, "foreign")
    mine = make_run(tmp_path, "mine")
    write = files.write_atomic

    def refuse(path: Path, *arguments: object, **options: object) -> None:
        if path.parent.name == "foreign":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        write(path, *arguments, **options)  # type: ignore[arg-type]

    lines: list[str] = []
    with pytest.MonkeyPatch.context() as patched:
        for module in (render, run_list):
            patched.setattr(module, "write_atomic", refuse)
        refresh_index(tmp_path, PlainProgress(lines.append))
    assert mine.index.exists()
    assert any("foreign/index.html cannot be written: Permission denied." in line for line in lines)


def test_open_shows_the_report_in_the_browser(
    kit: Kit, engine: fakes.FakeEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda address: opened.append(address) or True)
    monkeypatch.setenv("DISPLAY", ":0")
    assert kit(*RUN).code == 0
    assert opened == []
    assert kit(*RUN, "--open").code == 0
    runs = sorted(path for path in Path("reports").iterdir() if path.is_dir())
    assert opened in [[(run / "index.html").resolve().as_uri()] for run in runs]
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    called = kit("report", str(runs[0]), "--open", "--json")
    assert (called.code, len(opened)) == (0, 1)
    assert json.loads(called.out)["report"] in called.err


def test_hundreds_of_runs_are_listed(tmp_path: Path) -> None:
    first = make_run(tmp_path, "0")
    report(first)
    for number in range(1, 200):
        shutil.copytree(first.path, tmp_path / str(number))
    assert len(page_of(tmp_path).rows) == 201
    assert all(make_row(run).sections for run in list_runs(tmp_path))
    assert reporting.update_index(first.path) == ""
