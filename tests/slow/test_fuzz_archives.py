"""Test hostile and damaged archives for a fixed time, in each run others. A failure names the seed of its archive."""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from pathlib import Path

import pytest

from kit.datasets import unpack
from tests import fuzz

SECONDS = 20.0


def test_hostile_archives_are_added_or_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KIT_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setattr(unpack, "MAX_BYTES", fuzz.BOMB_BYTES - 1)
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    outcomes: Counter[str] = Counter()
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        seed = random.SystemRandom().getrandbits(32)
        try:
            outcomes[fuzz.add_hostile_archive(tmp_path, seed)] += 1
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error
    assert outcomes["added"]
