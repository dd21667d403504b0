"""What several files of unit tests need around them."""

from __future__ import annotations

import os

import pytest

from kit.host import machine_lock
from kit.planning import catalog
from tests.campaigns import FRAMEWORKS


@pytest.fixture
def machine(tmp_path_factory, monkeypatch):
    """A machine of our own: lock, cache, frameworks."""
    folder = tmp_path_factory.mktemp("machine")
    monkeypatch.setattr(machine_lock, "PATH", folder / "lock")
    monkeypatch.setattr(machine_lock, "PATIENCE_S", 0.0)
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    monkeypatch.setattr(catalog, "frameworks", lambda: FRAMEWORKS)
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # a process is killed here, not the power cut
