"""Test `kit gate --confirm`: which cells are measured again, in which environments, and the outcome."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kit.analysis.gate import GateOutcome, GateResult, JudgedCell, exit_code_after
from kit.analysis.pairing import Measure
from kit.model.launch import Completion
from kit.storage.run_folder import RunFolder
from scenarios.contract import codec
from scenarios.contract.request import RESULT_FILE
from tests import examples, fakes
from tests.command import Kit

RUN = ("run", "--scenario", "mnist-cnn", "--device", "cpu", "--data", "synthetic", "--rounds", "5", "--json")
SLOW = {"torch": 0.9, "tensorflow": 1.05, "onnxruntime": 1.05}


def works_at(speeds: Callable[[bool], dict[str, float]], measure: Measure = Measure.TRAINING) -> fakes.Worker:
    """Return a worker with this speed by framework. speeds: takes whether the launch belongs to a base. The other speed
    is the same in all launches."""

    def worker(request: Any, folder: Any) -> Completion:
        share = speeds(folder.scratch.parents[2].name.endswith("-base")).get(request.cell.framework, 1.0)
        noise = 1 + 0.001 * (request.launch % 3)
        record = examples.record(request)
        if request.purpose == "measure":
            record = examples.with_speed(record, measure, 1000.0 * share * noise)
        codec.write(folder.scratch / RESULT_FILE, record.result)
        return Completion(exit_code=0, seconds=1.0)

    return worker


def measured(
    kit: Kit, engine: fakes.FakeEngine, digest: str, speeds: dict[str, float], measure: Measure = Measure.TRAINING
) -> str:
    engine.digest, engine.worker = digest, works_at(lambda base: speeds, measure)
    ended = kit(*RUN)
    assert ended.code == 0, ended.err
    run: str = json.loads(ended.out)["run"]
    return run


@pytest.fixture
def runs(kit: Kit, engine: fakes.FakeEngine) -> tuple[str, str]:
    """Return base and new. One cell of the new run is slower, but all cells together are not."""
    found = measured(kit, engine, "sha256:0", {}), measured(kit, engine, "sha256:1", SLOW)
    engine.digest = "sha256:2"
    engine.calls.clear()
    engine.launched.clear()
    return found


def fresh_runs(*names: str) -> tuple[RunFolder, RunFolder]:
    new, base = sorted(path for path in Path("reports").glob("*/") if path.name not in names)
    return RunFolder.open(new), RunFolder.open(base)


def test_a_confirmed_alarm_fails_after_fresh_rounds_of_its_cells_in_both_environments(
    kit: Kit, engine: fakes.FakeEngine, runs: tuple[str, str]
) -> None:
    engine.worker = works_at(lambda base: {} if base else SLOW)
    ended = kit("gate", *runs, "--confirm")
    assert ended.code == 1, ended.err
    assert ended.out.rstrip().endswith("Failed: the fresh rounds confirm 1 of 1 alarm.")
    new, base = fresh_runs(*runs)
    assert f"Measured again: {base.plan.run} and {new.plan.run}" in ended.out
    assert new.plan.profile == "quick"
    for folder, digest in ((new, "sha256:1"), (base, "sha256:0")):
        found = {(record.cell.framework, record.image and record.image.digest) for record in folder.records()}
        assert found == {("torch", digest)}
        assert [record.launch for record in folder.records()] == [*range(1, 9)]
    assert not any(call.startswith("prepare") for call in engine.calls), "today's environments do not matter"


def test_an_alarm_that_is_not_confirmed_passes(kit: Kit, engine: fakes.FakeEngine, runs: tuple[str, str]) -> None:
    engine.worker = works_at(lambda base: {})
    ended = kit("gate", *runs, "--confirm", "--rounds", "5", "--json")
    document = json.loads(ended.out)
    assert (ended.code, document["exit_code"], document["confirmation"]["exit_code"]) == (0, 0, 0)
    outcomes = [cell["outcome"] for cell in document["cells"]]
    assert sorted(outcomes) == ["pass", "pass", "regression"]
    assert document["confirmation"]["paired"]
    assert len(engine.launched) == 10
    ended = kit("gate", *runs, "--confirm", "--rounds", "5")
    assert ended.out.rstrip().endswith("Passed: the fresh rounds do not confirm the alarm (1 cell).")


def test_an_alarm_in_inference_is_confirmed_in_inference(kit: Kit, engine: fakes.FakeEngine) -> None:
    of = Measure.INFERENCE
    runs = measured(kit, engine, "sha256:0", {}, of), measured(kit, engine, "sha256:1", SLOW, of)
    engine.launched.clear()
    assert kit("gate", *runs, "--confirm").code == 0, "training is equal"
    assert engine.launched == []
    for speeds, code in ((SLOW, 1), ({}, 0)):
        engine.worker = works_at(lambda base, speeds=speeds: {} if base else speeds, of)  # type: ignore[misc]
        ended = kit("gate", *runs, "--confirm", "--inference", "--json")
        assert ended.code == code, ended.err
        assert json.loads(ended.out)["confirmation"]["measure"] == "inference"


def test_without_an_alarm_nothing_is_measured(kit: Kit, engine: fakes.FakeEngine, runs: tuple[str, str]) -> None:
    assert kit("gate", *runs, "--confirm", "--max-regression", "20%").code == 0
    assert kit("gate", *runs).code == 1
    assert engine.launched == []


def test_rounds_need_confirm_and_a_sane_number(kit: Kit, runs: tuple[str, str]) -> None:
    for options, words in (
        (["--rounds", "8"], "Add --confirm"),
        (["--confirm", "--rounds", "0"], "--rounds must be between 5 and 1,000, but is 0"),
        (["--confirm", "--rounds", "4"], "but is 4"),
        (["--confirm", "--rounds", "-1"], "but is -1"),
        (["--confirm", "--rounds", "1001"], "but is 1,001"),
    ):
        refused = kit("gate", *runs, *options)
        assert (refused.code, refused.out, words in refused.err) == (2, "", True)


def test_runs_of_another_machine_or_without_their_images_are_not_measured_again(
    kit: Kit, engine: fakes.FakeEngine, runs: tuple[str, str]
) -> None:
    engine.gone = {"sha256:0"}
    refused = kit("gate", *runs, "--confirm")
    assert (refused.code, "is gone: sha256:0" in refused.err) == (4, True)
    assert "or name other runs." in refused.err
    assert "--env" not in refused.err
    assert "Failed: 1 regression." in refused.out, "the first outcome is shown"
    file = Path("reports", runs[0], "machine.json")
    file.write_text(json.dumps(json.loads(file.read_text()) | {"id": "0123456789abcdef"}))
    refused = kit("gate", *runs, "--confirm")
    assert (refused.code, "Runs from two machines cannot be paired" in refused.err) == (2, True)
    assert engine.launched == []


def test_runs_of_two_engines_are_not_measured_again(kit: Kit, engine: fakes.FakeEngine, runs: tuple[str, str]) -> None:
    file = Path("reports", runs[0], "plan.json")
    file.write_text(json.dumps(json.loads(file.read_text()) | {"engine": "podman"}))
    refused = kit("gate", *runs, "--confirm")
    assert (refused.code, engine.launched) == (2, [])
    assert f"The run {runs[0]} was measured with the engine podman, but {runs[1]} with fake." in refused.err
    assert "Name two runs that were measured with the same engine." in refused.err


def test_an_interpreter_that_this_user_did_not_name_is_named_with_resume(
    kit: Kit, engine: fakes.FakeEngine, runs: tuple[str, str]
) -> None:
    new = Path("reports", runs[1])
    file, program = new / "plan.json", sys.executable
    file.write_text(json.dumps(json.loads(file.read_text()) | {"environment": program}))
    command = ("run", "--resume", str(new), "--env", program)
    refused = kit("gate", *runs, "--confirm")
    assert (refused.code, engine.launched) == (2, [])
    assert f"If you trust it, name it with `kit {' '.join(command)}`." in refused.err
    assert kit(*command).code == 0
    engine.worker = works_at(lambda base: {})
    assert kit("gate", *runs, "--confirm").code == 0


def test_the_fresh_runs_are_next_to_a_run_that_is_named_from_within(
    kit: Kit, engine: fakes.FakeEngine, runs: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.worker = works_at(lambda base: {})
    reports = Path("reports").absolute()
    monkeypatch.chdir(reports / runs[1])
    ended = kit("gate", f"../{runs[0]}", ".", "--confirm")
    assert ended.code == 0, ended.err
    assert len([path for path in reports.iterdir() if path.is_dir()]) == 4
    assert not list((reports / runs[1]).glob("*/plan.json"))


def result(*outcomes: GateOutcome) -> GateResult:
    cells = tuple(JudgedCell(None, outcome) for outcome in outcomes)  # type: ignore[arg-type]
    return GateResult(Measure.TRAINING, 0.05, cells, None, paired=True)


@pytest.mark.parametrize(
    ("first", "fresh", "code"),
    [
        ("regression", "regression", 1),
        ("regression", "pass", 0),
        ("regression", "inconclusive", 7),
        ("regression inconclusive", "pass", 7),
        ("regression lost inconclusive", "pass", 2),
        ("regression", "lost", 2),
        ("regression lost", "regression", 1),
    ],
)
def test_only_a_confirmed_alarm_is_exit_code_1(first: str, fresh: str, code: int) -> None:
    results = [result(*map(GateOutcome, outcomes.split())) for outcomes in (first, fresh)]
    assert exit_code_after(*results) == code
