"""Test damaged documents for a fixed time, in each run others. A failure names the seed of its document."""

from __future__ import annotations

import os
import random
import shutil
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from kit.datasets import manifest
from kit.execution.classify import Execution, classify
from kit.model.document import Document
from kit.model.errors import CorruptDataError, UsageError
from kit.model.launch import Completion
from kit.model.machine import Machine
from kit.model.pack import Manifest
from kit.model.plan import Pins, Plan
from kit.model.record import Record
from kit.model.run_summary import RunSummary
from scenarios.contract.codec import ContractError, from_json
from scenarios.contract.request import Request
from tests import fuzz
from tests.command import Kit
from tests.unit.conftest import kit, own_lock  # noqa: F401 - fixtures
from tests.unit.test_foreign_runs import ONE, NamedEngine, engine, whole_run  # noqa: F401 - `engine` is a fixture

SECONDS = 20.0  # of each test
GOLDEN = Path(__file__).parents[1] / "golden"
DOCUMENTS: dict[str, type[Document]] = {
    "plan": Plan,
    "machine": Machine,
    "record": Record,
    "settings": Pins,
    "summary": RunSummary,
    "manifest": Manifest,
}


def try_seeds(attempt: Callable[[random.Random], str]) -> Counter[str]:
    """Make attempts with random seeds until the time is over. Return how often each outcome occurred."""
    outcomes: Counter[str] = Counter()
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        seed = random.SystemRandom().getrandbits(32)
        try:
            outcomes[attempt(random.Random(seed))] += 1
        except (Exception, SystemExit) as error:
            raise AssertionError(f"seed {seed}") from error
    return outcomes


def read(name: str, content: bytes, folder: Path) -> None:
    """Read a document as kit does. Raise the error that kit raises if it is not valid."""
    if name == "dataset":
        (folder / manifest.FILE).write_bytes(content)
        manifest.read(folder)
    elif name == "request":
        from_json(Request, content)
    elif name == "result":
        request = from_json(Request, (GOLDEN / "request.json").read_bytes())
        classify(request, Execution(Completion(0, 1.0), None, content, "", None))  # raises nothing
    else:
        kind = DOCUMENTS[name.partition("-")[0]]
        document = kind.from_json(content, f"{name}.json")
        assert kind.from_json(document.to_json(), "again") == document


def test_damaged_documents_are_read_or_refused(tmp_path: Path) -> None:
    contents = {file.stem: file.read_bytes() for file in GOLDEN.glob("*.json") if file.stem not in {"view", "answers"}}
    (tmp_path / "mnist").mkdir()
    (tmp_path / "mnist" / "images").write_bytes(b"images")
    manifest.write(tmp_path / "mnist", "mnist", "a test")
    contents["dataset"] = (tmp_path / "mnist" / manifest.FILE).read_bytes()
    assert {name.partition("-")[0] for name in contents} == {*DOCUMENTS, "request", "result", "dataset"}
    for name, content in contents.items():
        read(name, content, tmp_path / "mnist")

    def attempt(rng: random.Random) -> str:
        name = rng.choice(sorted(contents))
        try:
            read(name, fuzz.damage_json(contents[name], rng), tmp_path / "mnist")
        except (UsageError, ContractError, CorruptDataError) as error:
            return type(error).__name__
        return "read"

    assert try_seeds(attempt).keys() == {"read", "UsageError", "ContractError", "CorruptDataError"}


def test_damaged_runs_lead_to_documented_exit_codes_only(
    kit: Kit,  # noqa: F811
    engine: NamedEngine,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    base, other, damaged = (tmp_path / name for name in ("base", "other", "damaged"))
    whole_run(base)
    whole_run(other)
    pins = (GOLDEN / "settings.json").read_bytes()
    commands = (
        f"report {damaged}",
        f"compare {base} {damaged}",
        f"gate {base} {damaged}",
        f"settings {damaged} --out {tmp_path}/found.json",
        f"run --resume {damaged} --retry-failed",
        " ".join([*ONE, "--lane tuned --data synthetic --settings damaged.json"]),
    )

    def attempt(rng: random.Random) -> str:
        shutil.rmtree(damaged, ignore_errors=True)
        shutil.rmtree(tmp_path / "reports", ignore_errors=True)
        shutil.copytree(other, damaged)
        file = rng.choice(sorted(damaged.rglob("*.json")))
        file.write_bytes(fuzz.damage_json(file.read_bytes(), rng))
        Path("damaged.json").write_bytes(fuzz.damage_json(pins, rng))
        engine.launched.clear()
        command = rng.choice(commands)
        called = kit(*command.split())
        assert called.code in range(7), command
        assert "unexpected error" not in called.err, (command, called.err)
        assert called.code != UsageError.exit_code or not engine.launched, command
        return f"exit code {called.code}"

    assert {"exit code 0", "exit code 2"} <= try_seeds(attempt).keys()
