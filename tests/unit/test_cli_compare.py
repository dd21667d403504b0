"""Test the commands for several runs: compare and gate."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from kit.analysis.pairing import Measure
from kit.storage.run_folder import RunFolder
from tests import examples
from tests.command import Kit

STEADY = [1000.0, 1004.0, 996.0, 1002.0, 998.0]


SLOW = [speed * 0.9 for speed in STEADY]


def saved(name: str, speeds: dict[str, list[float]], measure: Measure = Measure.TRAINING) -> None:
    """A run below reports/, with launches of these speeds of torch's cells of these scenarios. The other speed is the
    same in all launches."""
    launches = [
        (examples.cell(scenario), number, speed)
        for scenario, of_cell in speeds.items()
        for number, speed in enumerate(of_cell, start=1)
    ]
    plan = examples.plan([examples.planned(number, **asdict(cell)) for cell, number, _ in launches])
    folder = RunFolder.create(Path("reports") / name, plan.model_copy(update={"run": name}), examples.machine())
    for cell, number, speed in launches:
        folder.save(examples.with_speed(examples.record(examples.request(cell, launch=number)), measure, speed))


def test_compare_shows_every_run_against_the_first(kit: Kit) -> None:
    saved("before", {"mnist-cnn": STEADY, "cifar-cnn": STEADY})
    saved("after", {"mnist-cnn": SLOW, "fashion-mlp": STEADY})
    saved("again", {"mnist-cnn": STEADY, "cifar-cnn": STEADY})
    called = kit("compare", "before", "reports/after", "again")
    assert (called.code, called.err) == (0, "")
    assert re.search(
        r"^mnist-cnn/torch/cpu\* +1,000 +900 +0\.900 +0\.\d{3}-0\.9\d{2} +slower$", called.out, re.MULTILINE
    )
    assert re.search(r"^cifar-cnn/torch/cpu\* +1,000 +absent +missing$", called.out, re.MULTILINE)
    assert re.search(r"^mnist-cnn/torch/cpu\* +1,000 +1,000 +1\.000 +0\.\d{3}-1\.\d{3} +tie$", called.out, re.MULTILINE)
    assert max(map(len, called.out.splitlines())) <= 80
    assert "Overall: B is 0.900 times as fast as A (geometric mean of 1 cell; an interval" in called.out
    document = json.loads(kit("compare", "before", "after", "--json").out)
    assert [run["run"] for run in document["runs"]] == ["before", "after"]
    assert document["comparisons"][0]["measure"] == "training"
    slower = document["comparisons"][0]["cells"][0]
    assert (slower["verdict"], slower["base"]["launches"]) == ("slower", 5)
    assert slower["interval"][0] < slower["ratio"] < slower["interval"][1] < 1


def test_compare_ends_with_the_overall_ratio_and_its_interval_over_cells(kit: Kit) -> None:
    scenarios = ("mnist-cnn", "cifar-cnn", "fashion-mlp", "cifar-mlp")
    factors = (0.8, 0.9, 1.0, 1.1)
    saved("before", dict.fromkeys(scenarios, STEADY))
    saved("after", {name: [speed * by for speed in STEADY] for name, by in zip(scenarios, factors, strict=True)})
    called = kit("compare", "before", "after")
    *_, last = called.out.replace("\n  ", " ").splitlines()
    assert last == (
        "Overall: B is 0.943 times as fast as A, interval 0.758-1.173 (geometric mean of 4 cells). The interval is "
        "over cells: it shows how much the ratio differs between cells, not the noise of one cell."
    )
    (found,) = json.loads(kit("compare", "before", "after", "--json").out)["comparisons"]
    assert found["overall"]["cells"] == 4
    assert found["overall"]["ratio"] == pytest.approx((0.8 * 0.9 * 1.1) ** 0.25)
    assert found["overall"]["interval"] == pytest.approx([0.758, 1.173], abs=0.001)


@pytest.mark.parametrize(
    ("new", "allowed", "code", "words"),
    [
        ({"mnist-cnn": STEADY}, "5%", 0, "Passed: 1 of 1 cell passed."),
        ({"mnist-cnn": SLOW}, "5%", 1, "Failed: 1 regression, all cells together."),
        ({"mnist-cnn": SLOW}, "0.15", 0, "Passed: 1 of 1 cell passed."),
        ({"cifar-cnn": STEADY}, "5%", 2, "Failed: 1 lost."),
        ({"mnist-cnn": STEADY[:1]}, "5%", 7, "Inconclusive: 0 of 1 cell passed."),
    ],
)
def test_the_exit_code_of_the_gate_is_its_outcome(
    kit: Kit, new: dict[str, list[float]], allowed: str, code: int, words: str
) -> None:
    saved("before", {"mnist-cnn": STEADY})
    saved("after", new)
    called = kit("gate", "before", "after", "--max-regression", allowed)
    assert (called.code, called.err) == (code, "")
    assert called.out.rstrip().endswith(words)
    as_json = kit("gate", "before", "after", "--max-regression", allowed, "--json")
    assert as_json.code == json.loads(as_json.out)["exit_code"] == code


def test_inference_is_compared_and_judged_instead_of_training(kit: Kit) -> None:
    for name, speeds in (("before", STEADY), ("after", SLOW)):
        saved(name, {"mnist-cnn": speeds}, Measure.INFERENCE)
    assert kit("gate", "before", "after").code == 0, "training is equal"
    judged = kit("gate", "before", "after", "--inference")
    assert (judged.code, judged.err) == (1, "")
    assert judged.out.startswith("Inference images/s ")
    assert "of its speed in inference" in " ".join(judged.out.split())
    document = json.loads(kit("gate", "before", "after", "--inference", "--json").out)
    assert (document["measure"], document["exit_code"]) == ("inference", 1)
    compared = kit("compare", "before", "after", "--inference").out
    assert re.search(r"^mnist-cnn/torch/cpu\* +1,000 +900 +0\.900 +0\.\d{3}-0\.9\d{2} +slower$", compared, re.MULTILINE)
    assert re.search(r"^Inference images/s +A +B +B/A", compared, re.MULTILINE)
    (found,) = json.loads(kit("compare", "before", "after", "--inference", "--json").out)["comparisons"]
    assert (found["measure"], found["cells"][0]["verdict"]) == ("inference", "slower")


def test_an_inconclusive_gate_can_be_allowed(kit: Kit) -> None:
    saved("before", {"mnist-cnn": STEADY})
    saved("after", {"mnist-cnn": STEADY[:1]})
    assert kit("gate", "before", "after", "--allow-inconclusive").code == 0
    saved("slower", {"mnist-cnn": SLOW})
    assert kit("gate", "before", "slower", "--allow-inconclusive").code == 1


@pytest.mark.parametrize("command", ["compare", "gate"])
def test_a_run_is_not_compared_with_itself(kit: Kit, command: str) -> None:
    saved("before", {"mnist-cnn": STEADY})
    called = kit(command, "before", "reports/before")
    assert (called.code, called.out) == (2, "")
    assert "before is named twice" in called.err


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_closed_pipe_does_not_change_the_outcome(tmp_path: Path, options: list[str]) -> None:
    planned = [examples.planned(number) for number in range(1, 6)]
    for name in ("a", "b"):
        plan = examples.plan(planned).model_copy(update={"run": name})
        folder = RunFolder.create(tmp_path / name, plan, examples.machine())
        for launch in planned:
            folder.save(examples.record(examples.request(launch=launch.launch), images_per_s=1000.0 + launch.launch))
    reader, writer = os.pipe()
    os.close(reader)
    ended = subprocess.run(
        [sys.executable, "-m", "kit", "gate", tmp_path / "a", tmp_path / "b", *options],
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize("command", ["compare before after", "gate before after", "report after"])
def test_megabytes_of_text_in_a_record_do_not_flood_the_terminal(kit: Kit, command: str) -> None:
    saved("before", {"mnist-cnn": STEADY})
    saved("after", {"mnist-cnn": STEADY})
    text = "word " * 200_000 + "x" * 1_000_000
    request = examples.request(examples.cell("mnist-cnn"), launch=5)
    folder = RunFolder.open(Path("reports/after"))
    next(folder.path.glob("records/*005.json")).unlink()
    folder.save(examples.failed(request, message=text, remedy=text))
    called = kit(*command.split())
    assert called.code == (2 if "gate" in command else 0)
    assert len(called.out) < 10_000


def test_single_launches_are_counted_in_the_overall_ratio_and_are_too_few_for_the_gate(kit: Kit) -> None:
    saved("before", {"mnist-cnn": STEADY, "cifar-cnn": STEADY})
    saved("after", {"mnist-cnn": STEADY[:1], "cifar-cnn": STEADY})
    compared = " ".join(kit("compare", "before", "after").out.split())
    assert "geometric mean of 2 cells, 1 of them unknown; an interval" in compared
    judged = " ".join(kit("gate", "before", "after").out.split())
    assert "inconclusive (mnist-cnn/torch/cpu): a cell is judged from 5 rounds on. Measure more rounds." in judged
    assert "would not have shown" not in judged, "nothing else is inconclusive"


def test_the_noise_is_the_reason_for_an_inconclusive_cell_with_enough_rounds(kit: Kit) -> None:
    saved("before", {"mnist-cnn": STEADY})
    saved("after", {"mnist-cnn": [500.0, 1500.0, 900.0, 1100.0, 1000.0]})
    judged = " ".join(kit("gate", "before", "after").out.split())
    assert "inconclusive: the data would not have shown a loss of 5%." in judged
    assert "is judged from" not in judged


def test_slow_cells_and_extreme_ratios_are_readable(kit: Kit) -> None:
    saved("before", {"mnist-cnn": [0.4, 0.4001, 0.3999], "cifar-cnn": [1e-6, 1e8]})
    saved("after", {"mnist-cnn": [0.6, 0.6001, 0.5999], "cifar-cnn": [3e-3, 1e-3]})
    for command in ("compare before after", "compare after before", "gate before after"):
        called = kit(*command.split())
        assert max(map(len, called.out.splitlines())) <= 90
    called = kit("compare", "before", "after")
    assert re.search(r"^mnist-cnn/torch/cpu\* +0\.4 +0\.6 +1\.500 ", called.out, re.MULTILINE)
    assert " 0 " not in called.out


def pair_of_runs() -> None:
    """Two runs below reports/: `before`, and `after`, which is 0.9 times as fast."""
    saved("before", {"mnist-cnn": STEADY})
    saved("after", {"mnist-cnn": SLOW})


def test_a_page_compares_machines_by_their_names_and_prices(kit: Kit) -> None:
    pair_of_runs()
    named = ("--label", "small=before", "--label", "big=reports/after")
    priced = ("--price", "small=0.125EUR/h", "--price", "big=0.375/h")
    compared = ("compare", "before", "reports/after", *named, *priced, "--html", "page.html")
    called = kit(*compared)
    assert (called.code, called.err) == (0, "")
    assert called.out.startswith("small  before, quick: Example CPU, 2 CPUs, no NVIDIA GPU\nbig  after, quick: ")
    assert re.search(r"^Training images/s +small +big +big/small +95% +Verdict$", called.out, re.MULTILINE)
    assert "Overall: big is 0.900 times as fast as small" in called.out
    assert called.out.endswith("\n\nPage: page.html\n")
    html = Path("page.html").read_text()
    assert "<title>small and big: kit comparison</title>" in html
    assert re.search(r"small is 1\.1 times as fast as big \(1 cell\)", html)
    # For 3 times the price, big does 0.9 times as much. So small does 3 / 0.9 = 3.33 times as much for the same money.
    assert "For the same money, small trains 3.3 times as many images as big (1 network)" in html
    assert "small 0.125\N{NO-BREAK SPACE}EUR; big 0.375\N{NO-BREAK SPACE}EUR" in html
    again = kit(*compared, "--inference", "--json")  # a page of kit may be replaced
    assert (again.code, again.err) == (0, "")
    assert [run["label"] for run in json.loads(again.out)["runs"]] == ["small", "big"]
    assert "small predicts 3.0 times as many images as big" in Path("page.html").read_text()


def test_prices_come_from_a_file_and_runs_without_a_name_have_a_letter(kit: Kit) -> None:
    pair_of_runs()
    about = 'currency = "EUR"\nsource = "Price list of a test"\n'
    Path("prices.toml").write_text(f"{about}[per_hour]\nA = 0.125\nnew = 0.375\n")
    called = kit("compare", "before", "after", "--label", "new=after", "--prices", "prices.toml", "--html", "page.html")
    assert (called.code, called.err) == (0, "")
    assert re.search(r"^Training images/s +A +new +new/A ", called.out, re.MULTILINE)
    html = Path("page.html").read_text()
    assert "A trains 3.3 times as many images as new" in html
    assert "(Price list of a test)" in html


def test_without_a_page_names_are_shown_and_nothing_is_written(kit: Kit) -> None:
    pair_of_runs()
    called = kit("compare", "before", "after", "--label", "new=after")
    assert (called.code, called.err) == (0, "")
    assert "Overall: new is 0.900 times as fast as A" in called.out
    assert "Page:" not in called.out
    assert list(Path().glob("*.html*")) == []


PAGE = "--html page.html"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (f"--label old=befor {PAGE}", "Unknown run 'befor'. Did you mean 'before'? Choose from: after, before."),
        (f"--label x=before --label x=after {PAGE}", "Two runs have the name 'x'. Give each run its own --label."),
        (f"--label x=before --label y=before {PAGE}", "The run 'before' has two names. Give each run one --label."),
        (f"--label B=before {PAGE}", "Two runs have the name 'B'. Give each run its own --label."),
        (f"--label old {PAGE}", "'old' does not name a run. Write NAME=RUN, with a name of at most 40 characters"),
        (f"--label =before {PAGE}", "'=before' does not name a run."),
        (f"--label a/b=before {PAGE}", "'a/b=before' does not name a run."),
        (f"--label a\x1b=before {PAGE}", "'a\\x1b=before' does not name a run."),
        (f"--label {'x' * 41}=before {PAGE}", f"'{'x' * 41}=before' does not name a run."),
        (f"--price small=1/h {PAGE}", "Unknown machine 'small'. Choose from: A, B."),
        (f"--label small=before --price A=1/h {PAGE}", "Unknown machine 'A'. Choose from: B, small."),
        (f"--price A=-1/h {PAGE}", "The price of 'A' is -1. Write a price of at least 0.000001"),
        (f"--price A=1EUR/h --price B=1USD/h {PAGE}", "The prices are in EUR and USD. Write all prices in one"),
        (f"--prices nothing.toml {PAGE}", "nothing.toml cannot be read: No such file or directory."),
        ("--price A=1/h", "--price, --prices and --open need a page. Add --html FILE."),
        ("--prices prices.toml", "--price, --prices and --open need a page. Add --html FILE."),
        ("--open", "--price, --prices and --open need a page. Add --html FILE."),
    ],
)
def test_a_wrong_name_or_price_is_refused_and_nothing_is_written(kit: Kit, options: str, words: str) -> None:
    pair_of_runs()
    called = kit("compare", "before", "after", *options.split(" "))
    assert (called.code, called.out) == (2, "")
    assert words in " ".join(called.err.split())
    assert list(Path().glob("*.html*")) == []


def test_a_page_replaces_nothing_but_a_page_of_kit(kit: Kit) -> None:
    pair_of_runs()
    page = Path("page.html")
    page.write_text("<!doctype html><title>My page</title>")
    called = kit("compare", "before", "after", *PAGE.split())
    assert (called.code, called.out) == (2, "")
    assert called.err == "page.html exists and is not a comparison of machines.\nChoose another file with --html.\n"
    assert page.read_text() == "<!doctype html><title>My page</title>"
    page.unlink()
    page.mkdir()
    assert kit("compare", "before", "after", *PAGE.split()).code == 2
    assert list(page.iterdir()) == []
    page.rmdir()
    empty = Path("empty")
    empty.touch()
    page.symlink_to(empty)  # as /dev/stdout may be
    assert kit("compare", "before", "after", *PAGE.split()).code == 2
    assert page.is_symlink()
