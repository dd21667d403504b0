"""What the worker reads about itself, from recorded cgroup files and from this process."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from scenarios.measuring.telemetry import (
    Reading,
    between,
    read,
    thread_cpu_seconds,
    throttled_seconds,
    tree_cpu_seconds,
)

ROOT = Path(__file__).parents[2]
V2 = "usage_usec 500\nnr_throttled 3\nthrottled_usec 1500000\n"
V1 = "nr_periods 10\nnr_throttled 3\nthrottled_time 2500000000\n"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"own": V2}, 1.5),
        ({"own": V1}, 2.5),
        ({"own": "usage_usec 500\n", "parent": V2}, 1.5),  # the controller is enabled in the parent only
        ({"own": V1, "parent": V2}, 2.5),
        ({"parent": V2}, 1.5),
        ({"own": "usage_usec 500\n"}, None),
        ({}, None),
    ],
)
def test_throttling_is_that_of_the_nearest_cgroup_that_counts_it(tmp_path, monkeypatch, files, expected):
    folders = [tmp_path / name for name in ("own", "parent")]
    monkeypatch.setattr("scenarios.linux.cgroup.own_folders", lambda controller: (2, folders))
    for name, content in files.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "cpu.stat").write_text(content)
    assert throttled_seconds() == expected


class Process:
    """A process with a living child and one that has just ended. See psutil.Process."""

    def __init__(self, *times, children=()):
        self._times, self._children = times, list(children)

    def cpu_times(self):
        if not self._times:
            raise psutil.NoSuchProcess(1)
        return SimpleNamespace(
            **dict(zip(("user", "system", "children_user", "children_system"), self._times, strict=False))
        )

    def children(self, *, recursive):
        return self._children if recursive else []


def test_cpu_time_counts_finished_children_and_living_descendants(monkeypatch):
    monkeypatch.setattr("psutil.Process", lambda: Process(1, 2, 4, 8, children=[Process(16, 32, 64, 128), Process()]))
    assert tree_cpu_seconds() == 1 + 2 + 4 + 8 + 16 + 32


def test_peak_memory_includes_freed_memory():
    """Use a new process, because this one may already have had a larger peak."""
    program = (
        "from scenarios.measuring.telemetry import peak_rss_bytes\n"
        "block = bytearray(200 << 20)\n"
        "block[::4096] = b'x' * len(block[::4096])\n"
        "del block\n"
        "print(peak_rss_bytes())"
    )
    command = [sys.executable, "-c", program]
    finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert 200 << 20 < int(finished.stdout) < 400 << 20


def test_a_reading_has_all_threads_of_this_process():
    stop = threading.Event()
    threads = [threading.Thread(target=stop.wait) for _ in range(3)]
    for thread in threads:
        thread.start()
    start = read()
    end = read()
    stop.set()
    for thread in threads:
        thread.join()
    assert {thread.native_id for thread in threads} <= {thread_id for thread_id, _ in start.threads}
    assert end.at >= start.at
    assert end.cpu_s >= start.cpu_s


def test_only_what_happened_between_two_readings_counts():
    start = Reading(10.0, 5.0, 2.5, {(1, 7): 4.0, (2, 7): 4.0})
    end = Reading(20.0, 20.0, 3.25, {(1, 7): 4.49, (2, 8): 0.5, (3, 9): 9.0})  # the id 2 now belongs to another thread
    telemetry = between(start, end, 77)
    assert (telemetry.from_at, telemetry.to_at, telemetry.cpu_s, telemetry.cpu_cores) == (10, 20, 15, 1.5)
    assert (telemetry.throttled_s, telemetry.busy_threads, telemetry.gpu_peak_bytes) == (0.75, 2, 77)
    assert between(replace(start, throttled_s=None), end, None).throttled_s is None


def test_a_thread_may_have_any_name(tmp_path):
    fields = ["R", *["0"] * 10, "150", "50", *["0"] * 6, "4711", "0"]  # from the third: 14, 15 and 22 count
    (tmp_path / "42").mkdir()
    (tmp_path / "42/stat").write_text(f"42 (a) R 1 (b) {' '.join(fields)}\n")
    (tmp_path / "43").mkdir()  # has just ended
    ticks = os.sysconf("SC_CLK_TCK")
    assert thread_cpu_seconds(tmp_path) == {(42, 4711): 200 / ticks}
