"""Test that hostile and damaged archives are added or rejected, and that nothing else happens.

tests/slow/test_fuzz_archives.py tries archives that differ from run to run.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from kit.datasets import unpack
from tests import fuzz


@pytest.mark.parametrize("start", range(0, 200, 50))
def test_a_hostile_archive_is_added_or_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: int) -> None:
    monkeypatch.setenv("KIT_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setattr(unpack, "MAX_BYTES", fuzz.BOMB_BYTES - 1)
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    outcomes = Counter(fuzz.add_hostile_archive(tmp_path, seed) for seed in range(start, start + 50))
    assert outcomes.keys() == {
        "added",
        "DataError",
        "CorruptDataError",
    }
