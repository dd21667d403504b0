"""Which engines there are, and how an engine supervises a launch."""

from __future__ import annotations

import sys
import time
from concurrent import futures
from pathlib import Path

import pytest

from kit import engines
from kit.engines import registry
from kit.engines.supervise import supervise
from kit.environments.package_sources import Sources
from kit.model.errors import EngineError, UsageError

MINE = """
from kit.engines.base import EngineEntry
from kit.model.errors import EngineError

class Mine:
    name = "mine"

    def __init__(self, sources, interpreter):
        self.interpreter = interpreter

    def describe(self):
        if self.interpreter == "broken":
            raise EngineError("Mine is broken.", "Repair it.")
        return {"engine": "mine", "version": "7"}

ENGINES = (EngineEntry("mine", "My engine", Mine, "environment", takes_interpreter=True, auto_rank=0),)
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One more engine: a module in one more folder of the package."""
    (tmp_path / "mine.py").write_text(MINE)
    monkeypatch.setattr(engines, "__path__", [*engines.__path__, str(tmp_path)])
    monkeypatch.delitem(sys.modules, "kit.engines.mine", raising=False)
    monkeypatch.delattr(engines, "mine", raising=False)


def test_the_engines_of_the_kit() -> None:
    assert [entry.name for entry in registry.entries()] == ["docker", "podman", "local"]


@pytest.mark.usefixtures("mine")
def test_a_new_engine_is_one_module() -> None:
    engine, note = registry.choose("mine", "python3", Sources())
    assert (engine.name, note) == ("mine", "Using My engine 7 with python3.")
    assert registry.choose("auto", "", Sources())[1] == "Using My engine 7."
    with pytest.raises(EngineError, match="Mine is broken"):
        registry.choose("mine", "broken", Sources())


@pytest.mark.usefixtures("mine")
def test_auto_takes_the_next_engine_if_one_cannot_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kit.engines.local.LocalEngine.describe", lambda self: {"engine": "local"})
    engine, note = registry.choose("auto", "broken", Sources())
    assert (engine.name, note) == ("local", "Mine is broken. Using the local engine with broken.")


def test_unknown_engines_and_interpreters_for_containers_are_errors() -> None:
    with pytest.raises(UsageError, match=r"'dokcer'[\s\S]*auto, docker, local, podman"):
        registry.choose("dokcer", "", Sources())
    for name in ("docker", "podman"):
        with pytest.raises(UsageError, match=rf"the {name} engine does not use"):
            registry.choose(name, "system", Sources())


@pytest.mark.parametrize("ending", ["ended", "memory", "unlogged", "stopped", "deadline"])
def test_a_launch_is_over_for_one_reason(ending: str) -> None:
    log: futures.Future[None] = futures.Future()
    polls = iter([False, False, True])

    def ended(timeout_s: float) -> bool:
        over = next(polls)
        if over and ending == "unlogged":
            log.set_exception(OSError())
        return over and ending == "ended"

    now = time.monotonic()
    deadline = now - 1 if ending == "deadline" else now + 1e6
    memory = iter([False, False, ending == "memory"])
    stop = iter([False, False, ending == "stopped"])
    assert supervise(ended, deadline, lambda: next(memory), log, lambda: next(stop)) == ending
