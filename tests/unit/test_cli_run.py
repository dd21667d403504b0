"""Test the commands for one run: run, report and settings."""

from __future__ import annotations

import json
import os
import re
from contextlib import nullcontext
from pathlib import Path

import pytest

from kit.execution import campaign
from kit.host import machine_lock
from kit.host.load import Load
from kit.model.errors import DiskError, EngineError
from kit.model.launch import Completion, LaunchFolder
from kit.storage import run_names
from kit.storage.run_folder import RunFolder
from scenarios.contract import codec
from scenarios.contract.reasons import Code, Reason, Status
from scenarios.contract.request import RESULT_FILE, Request
from scenarios.contract.result import Result
from tests import examples, fakes
from tests.command import RUN, Kit


def test_a_run_shows_engine_cost_results_and_report(kit: Kit, engine: fakes.FakeEngine) -> None:
    called = kit(*RUN)
    assert called.code == 0
    place, cells, cost, *progress = called.err.splitlines()
    assert place.endswith(", no NVIDIA GPU · the fake engine")
    assert cells == "3 cells on the CPU, 1 launch each (smoke). 3 on the GPU are skipped."
    assert re.fullmatch(r"About \d+ min and [\d.]+ GiB of disk space\. Ctrl-C keeps what is measured\.", cost)
    speeds = [f"mnist-cnn/{name}/cpu/stock/fp32/b64: 1,000 images/s" for name in ("onnxruntime", "tensorflow", "torch")]
    assert [re.sub(r"[\d.]+ s$", "", line) for line in progress] == [
        "Data ...",
        "Data: synthetic, as requested, ",
        "Images ...",
        "Images: 3 built, ",
        "Measuring ...",
        *speeds,
        "Measuring: 3 cells, 3 launches, ",
    ]
    assert re.search(r"^mnist-cnn +1,000 +1,000 +1,000  too close to call$", called.out, re.MULTILINE)
    assert re.search(r"^mnist-cnn +1\.5 +1\.5 +1\.5", called.out, re.MULTILINE)
    assert "   Synthetic data: speeds are estimates.\n" in called.out
    assert re.search(r"^Skipped: 3 cells on the GPU\. No GPU\.", called.out, re.MULTILINE)
    label, path, *done = called.out.splitlines()[-1].split()
    assert (label, done[:2]) == ("Report:", ["(done", "in"])
    report = Path(path)
    assert re.fullmatch(r"reports/\d{8}-\d{6}-[0-9a-f]{4}/index\.html", str(report))
    assert "mnist-cnn" in report.read_text()


def test_the_log_of_a_run_has_its_progress_and_its_end(
    kit: Kit, engine: fakes.FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = True

    def breaks(name: str) -> None:
        if broken and name == "launch":
            raise DiskError("The disk is full.", "Free some space.")

    engine.on_call = breaks
    shown = kit(*RUN, "--framework", "torch", "--device", "cpu")
    assert shown.code == DiskError.exit_code
    (file,) = Path("reports").glob("*/run.log")
    shown_lines = shown.err.splitlines()
    assert [line.split(maxsplit=1)[1] for line in file.read_text().splitlines()] == shown_lines
    assert shown_lines[-2] == "The disk is full."

    broken = False
    resumed = kit("run", "--resume", file.parent.name, "--json")
    assert resumed.code == 0, "the log is also written if no progress is shown"
    lines = [line.split(maxsplit=1)[1] for line in file.read_text().splitlines()]
    assert lines[: len(shown_lines)] == shown_lines
    assert "mnist-cnn/torch/cpu/stock/fp32/b64: 1,000 images/s" in lines[len(shown_lines) :]
    assert lines[-1] == f"Report: {json.loads(resumed.out)['report']}"


def test_other_programs_are_named_before_anything_is_measured(
    kit: Kit, engine: fakes.FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(campaign, "measure_load", lambda seconds: Load(2, 1.0, 0.0, ("python3", "chrome")))
    warning = "! Other programs use 1.0 of 2 CPUs (python3, chrome). Stop them, or the speeds will be too low."
    lines = kit(*RUN, "--framework", "torch").err.splitlines()
    assert lines.count(warning) == 1
    assert lines.index("Images: 1 built, 0.0 s") < lines.index(warning) < lines.index("Measuring ...")
    called = kit(*RUN, "--framework", "torch", "--json")
    assert (called.code, called.err) == (0, "")
    assert warning in (Path(json.loads(called.out)["folder"]) / "run.log").read_text()


def test_a_run_as_json_prints_nothing_else(kit: Kit, engine: fakes.FakeEngine) -> None:
    called = kit(*RUN, "--framework", "torch", "--json")
    summary = json.loads(called.out)
    assert (called.code, called.err) == (0, "")
    assert summary["exit_code"] == 0
    assert [launch["status"] for launch in summary["launches"]] == ["ok", "skipped"]
    assert summary["cells"][0]["images_per_s"] == 1000
    assert Path(summary["report"]).is_file()


def test_a_failure_is_shown_and_retried_by_the_id_of_the_run(kit: Kit, engine: fakes.FakeEngine) -> None:
    def fails(asked: object, folder: object) -> object:
        raise EngineError("The engine refused.", "Ask again.")

    engine.worker = fails  # type: ignore[assignment]
    broken = kit(*RUN, "--framework", "torch", "--device", "cpu", "--json")
    assert broken.code == EngineError.exit_code
    run = json.loads(broken.out)["run"]
    engine.worker = fakes.works
    again = kit("run", "--resume", run)
    assert again.code == EngineError.exit_code  # nothing is missing
    assert f"{run} --retry-failed" in " ".join(again.out.split())
    mended = kit("run", "--resume", run, "--retry-failed")
    assert mended.code == 0
    assert "--retry-failed" not in mended.out
    assert "Failed: mnist-cnn in PyTorch. The engine refused. Ask again." in mended.out
    assert kit("report", run, "--out", "copy.html").out.rstrip().endswith("Report:      copy.html")
    assert Path("copy.html").is_file()
    assert "Choose from: " + run in kit("report", run[:-1]).err


def test_the_report_of_an_unfinished_run_says_how_to_continue(kit: Kit, engine: fakes.FakeEngine) -> None:
    folder = Path(json.loads(kit(*RUN, "--framework", "torch", "--json").out)["folder"])
    (record,) = folder.glob("records/*cpu*")
    record.unlink()
    called = " ".join(kit("report", str(folder)).out.split())
    assert f"To continue: kit run --resume {folder} (incomplete: 1 launch without a record)" in called
    assert json.loads(kit("report", str(folder), "--json").out)["not_run"] == ["mnist-cnn/torch/cpu/stock/fp32/b64 #1"]


def test_a_damaged_record_is_named_and_the_others_are_shown(kit: Kit, engine: fakes.FakeEngine) -> None:
    folder = Path(json.loads(kit(*RUN, "--json").out)["folder"])
    damaged = next(folder.glob("records/*torch*cpu*"))
    damaged.write_text(damaged.read_text()[:100])
    called = kit("report", str(folder))
    assert called.code == 2
    shown = " ".join(called.out.split())
    assert f"Not readable: records/{damaged.name} is not a valid record" in shown
    assert "TensorFlow" in shown
    assert damaged.name in (folder / "index.html").read_text()
    called = kit("report", str(folder), "--json")
    assert called.err == ""
    (found,) = json.loads(called.out)["unusable"]
    assert found["file"] == f"records/{damaged.name}"
    assert kit("run", "--resume", str(folder)).code == 2


def test_a_run_of_a_newer_kit_is_refused(kit: Kit, engine: fakes.FakeEngine) -> None:
    folder = Path(json.loads(kit(*RUN, "--framework", "torch", "--json").out)["folder"])
    plan = json.loads((folder / "plan.json").read_text())
    (folder / "plan.json").write_text(json.dumps(plan | {"schema": 99}))
    called = kit("run", "--resume", str(folder))
    assert (called.code, called.out) == (2, "")
    assert "has schema" in called.err


def test_a_run_of_an_unknown_profile_is_refused(kit: Kit, engine: fakes.FakeEngine) -> None:
    folder = Path(json.loads(kit(*RUN, "--framework", "torch", "--device", "cpu", "--json").out)["folder"])
    plan = json.loads((folder / "plan.json").read_text())
    (folder / "plan.json").write_text(json.dumps(plan | {"profile": "quik"}))
    for file in (folder / "records").iterdir():
        file.unlink()
    called = kit("run", "--resume", str(folder))
    assert (called.code, called.out) == (2, "")
    assert "Did you mean 'quick'" in called.err


def test_cuda_by_name_without_a_gpu_is_an_engine_error(kit: Kit, engine: fakes.FakeEngine) -> None:
    called = kit(*RUN, "--device", "cuda")
    assert called.code == EngineError.exit_code
    assert "No GPU." in called.err


@pytest.mark.parametrize(
    ("option", "code"), [("--device cuda", 3), ("--threads 9999", 2), ("--gpus 7", 2), ("--framework torch", 3)]
)
def test_a_run_that_cannot_start_leaves_no_folder(kit: Kit, engine: fakes.FakeEngine, option: str, code: int) -> None:
    with machine_lock.measuring("r1") if option == "--framework torch" else nullcontext():
        called = kit(*RUN, *option.split())
    assert (called.code, called.out) == (code, "")
    assert not Path("reports").exists()


def test_a_folder_that_cannot_be_written_is_a_disk_error_and_nothing_is_measured(
    kit: Kit, engine: fakes.FakeEngine
) -> None:
    called = kit(*RUN, "--out", "/proc/runs")
    assert (called.code, engine.launched) == (DiskError.exit_code, [])
    assert re.search(r"/proc/runs\S* cannot be written: ", called.err)
    assert "Choose another folder with --out. Nothing was measured." in called.err
    assert "kept" not in called.err


def test_settings_are_written_and_used_by_another_run(kit: Kit, engine: fakes.FakeEngine, tmp_path: Path) -> None:
    one = ("--scenario", "mnist-cnn", "--framework", "torch", "--device", "cpu")
    first = kit("run", *one, "--lane", "tuned", "--tune", "30s", "--json")
    assert first.code == 0, first.err
    assert len(engine.tuned) == 1
    assert kit("settings", json.loads(first.out)["run"], "--out", "s.json").code == 0
    key = "mnist-cnn/torch/cpu/tuned/fp32/b64"
    assert json.loads((tmp_path / "s.json").read_text())["cells"] == {key: examples.SETTINGS}
    plan = Path(json.loads(first.out)["folder"], "plan.json")
    refused = kit("settings", json.loads(first.out)["run"], "--out", str(plan))
    assert (refused.code, "is not a file of settings" in refused.err) == (2, True)
    assert json.loads(plan.read_text())["run"] == json.loads(first.out)["run"], "the plan is intact"

    second = kit("run", *one, "--lane", "tuned", "--settings", "s.json", "--json")
    assert second.code == 0, second.err
    assert len(engine.tuned) == 1, "nothing is searched"
    timed = kit("run", *one, "--lane", "tuned", "--tune", "90s", "--settings", "s.json")
    assert (timed.code, "--tune does not apply" in timed.err) == (2, True)
    assert json.loads(kit("settings", json.loads(second.out)["run"]).out)["cells"] == {key: examples.SETTINGS}

    (tmp_path / "s.json").write_text(json.dumps({"schema": 1, "cells": {key: {"allocator": "/opt/evil.so"}}}))
    assert "the unknown allocator '/opt/evil.so'" in kit("run", *one, "--lane", "tuned", "--settings", "s.json").err
    (tmp_path / "s.json").write_text('{"schema": 1, "cells": {}}')
    (tmp_path / "twice.json").write_text('{"schema": 1, "cells": {"a": {}, "a": {}}}')
    os.mkfifo(tmp_path / "pipe")
    with (tmp_path / "huge.json").open("wb") as file:
        file.truncate(1 << 40)
    for name in ("s.json", "pipe", "twice.json", "huge.json"):
        refused = kit("run", *one, "--lane", "tuned", "--settings", name)
        assert refused.code == 2
        assert "Name a file that `kit settings` wrote" in " ".join(refused.err.split())
    (tmp_path / "s.json").write_text(json.dumps({"schema": 1, "cells": {"a/b\nExit": {}}}))
    assert "for 'a/b\\nExit', but this run" in kit("run", *one, "--lane", "tuned", "--settings", "s.json").err
    stock = kit("run", *one, "--json")
    assert kit("settings", json.loads(stock.out)["run"]).code == 2


def test_run_ids_sort_by_time_and_differ() -> None:
    assert len({run_names.new_run_id() for _ in range(20)}) > 1
    assert re.fullmatch(r"\d{8}-\d{6}-[0-9a-f]{4}", run_names.new_run_id())


def test_a_run_of_a_stranger_cannot_control_the_terminal(kit: Kit, tmp_path: Path) -> None:
    wanted = examples.planned()
    folder = RunFolder.create(tmp_path / "reports/a", examples.plan([wanted]), examples.machine())
    file = folder.save(examples.failed(message="\x1b]0;owned\x07"))
    shown = kit("report", "a")
    assert "\x1b" not in shown.out
    assert "?]0;owned?" in shown.out
    file.write_text(file.read_text().replace('"scenario": "mnist-cnn', '"scenario": "\\u001b[2J'))
    refused = kit("report", "a")
    assert refused.code == 2
    assert "\x1b" not in refused.err


def test_a_report_with_a_price_says_what_training_costs(kit: Kit, tmp_path: Path) -> None:
    """At 1,000 images/s, a million images take 1,000 s, an epoch of MNIST 60 s, and the published 5 epochs 300 s."""
    folder = RunFolder.create(tmp_path / "reports/a", examples.plan([examples.planned()]), examples.machine())
    folder.save(examples.record())
    assert kit("report", "a").code == 0
    assert 'id="costs"' not in folder.index.read_text()
    assert kit("report", "a", "--price", "cpu=0.10EUR/h").code == 0
    html = folder.index.read_text()
    costs = html[html.index('<section id="costs"') :].partition("</section>")[0]
    assert "A trained model costs 0.00833\N{NO-BREAK SPACE}EUR with" in costs
    cells = [f'<td class="n">{cell}</td>' for cell in ("0.0278", "0.00167", "0.00833", "5")]
    assert f'<tr><th scope="row">mnist-cnn/torch/cpu</th>{"".join(cells)}</tr>' in costs
    assert "A million images, EUR" in costs

    assert kit("report", "a", "--price", "cuda=0.10EUR/h").code == 0
    html = folder.index.read_text()
    assert "No cell with a price was measured" in html
    refused = kit("report", "a", "--price", "cpu=0/h")
    assert (refused.code, refused.out) == (2, "")
    assert "The price of 'cpu' is 0." in refused.err
    assert folder.index.read_text() == html


def test_launches_that_a_retry_would_skip_again_are_not_to_be_repeated(kit: Kit, engine: fakes.FakeEngine) -> None:
    def not_offered(asked: Request, folder: LaunchFolder) -> Completion:
        reason = Reason.of(Code.NOT_OFFERED, "The CPU has no TF32.")
        codec.write(folder.scratch / RESULT_FILE, Result(asked.cell, asked.launch, Status.SKIPPED, reason))
        return Completion(exit_code=0, seconds=1.0)

    engine.worker = not_offered
    skipped = kit(*RUN, "--framework", "torch", "--device", "cpu", "--precision", "tf32")
    assert skipped.code == 1
    assert "Skipped: " in skipped.out
    assert "To repeat" not in skipped.out


def test_resume_names_an_option_that_it_does_not_take_before_it_looks_at_the_selection(kit: Kit) -> None:
    called = kit("run", "--resume", "gone", "--study", "mnist-cpu-vs-gpu", "--batch", "4")
    assert called.code == 2
    assert "--resume uses the existing plan, which --" in called.err
