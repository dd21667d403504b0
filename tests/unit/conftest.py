"""Define the fixtures that several unit tests share."""

from __future__ import annotations

import os
import sys
import uuid
from pathlib import Path

import pytest
from hypothesis import settings

from kit import cli
from kit.engines import registry
from kit.execution import campaign
from kit.execution.launch import ReadyLaunch, RunContext
from kit.host import machine_lock, pip_config
from kit.host.load import Load
from kit.planning import catalog
from tests import fakes, launches
from tests.campaigns import FRAMEWORKS
from tests.command import NO_GPU, Called, Kit

settings.register_profile("kit", deadline=None)  # no test depends on the machine's speed
settings.load_profile("kit")


@pytest.fixture(autouse=True)
def own_lock(tmp_path_factory, monkeypatch):
    """Give the tests their own lock, so that they do not depend on a run that measures on this machine now."""
    monkeypatch.setattr(machine_lock, "PATH", tmp_path_factory.getbasetemp() / f"{uuid.uuid4().hex}.lock")


@pytest.fixture(autouse=True)
def no_scheduler(monkeypatch):
    """Remove the choice of GPUs that a scheduler made for the tests."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.fixture(autouse=True)
def no_pip_configuration(monkeypatch):
    """Do not depend on the configuration of pip, which also starts slowly. Forget the certificates of a command."""
    monkeypatch.setattr(pip_config, "read", lambda environment: {})
    monkeypatch.setenv("KIT_CA_BUNDLE", "")
    pip_config.certificates.cache_clear()


@pytest.fixture(autouse=True)
def idle(monkeypatch):
    """Let no other program run, so that no test waits for a measurement or depends on the load of this machine."""
    monkeypatch.setattr(campaign, "measure_load", lambda seconds: Load(2, 0.0, 0.0, ()))


@pytest.fixture
def machine(tmp_path_factory, monkeypatch):
    """Isolate the test from this machine: its own cache and frameworks, and no wait for its lock."""
    folder = tmp_path_factory.mktemp("machine")
    monkeypatch.setattr(machine_lock, "PATIENCE_S", 0.0)
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    monkeypatch.setattr(catalog, "frameworks", lambda: FRAMEWORKS)
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # tests kill processes, but never cut the power


@pytest.fixture
def kit(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Kit:
    """Call a command in an empty folder with empty caches."""
    monkeypatch.chdir(tmp_path)
    for name in ("KIT_CACHE_DIR", "KIT_DATA_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setattr("signal.signal", lambda number, handler: None)
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)  # the command replaces it

    def call(*arguments: str) -> Called:
        monkeypatch.setattr(sys, "argv", ["kit", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        output = capsys.readouterr()
        return Called(int(ended.value.code or 0), output.out, output.err)

    return call


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> fakes.FakeEngine:
    """Give every command a fake engine on a machine without a GPU."""
    fake = fakes.FakeEngine(refused=NO_GPU)
    monkeypatch.setattr(registry, "choose", lambda name, environment, sources: (fake, "Using the fake engine."))
    return fake


@pytest.fixture
def context(tmp_path: Path) -> RunContext:
    return launches.run_context(tmp_path)


@pytest.fixture
def ready(tmp_path: Path) -> ReadyLaunch:
    return launches.ready_launch(tmp_path)
