"""What the worker reads of itself, on recorded cgroup files and on this very process."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from dataclasses import replace

import pytest

from scenarios.measuring.telemetry import (
    Reading,
    between,
    peak_rss_bytes,
    read,
    thread_cpu_seconds,
    throttled_seconds,
    tree_cpu_seconds,
)

V2 = "usage_usec 500\nnr_throttled 3\nthrottled_usec 1500000\n"
V1 = "nr_periods 10\nnr_throttled 3\nthrottled_time 2500000000\n"


@pytest.mark.parametrize(
    ("membership", "file", "content", "expected"),
    [
        ("0::/system.slice/a.scope\n", "system.slice/a.scope/cpu.stat", V2, 1.5),
        ("0::/\n", "cpu.stat", V2, 1.5),
        ("0::/elsewhere\n", "cpu.stat", V2, 1.5),  # in a container the own cgroup is the root
        ("4:memory:/x\n3:cpu,cpuacct:/docker/abc\n", "cpu/docker/abc/cpu.stat", V1, 2.5),
        ("3:cpu,cpuacct:/docker/abc\n", "cpu/cpu.stat", V1, 2.5),
        ("3:cpuset:/docker/abc\n", "cpu/cpu.stat", V1, None),
        ("0::/\n", "cpu.stat", "usage_usec 500\n", None),
    ],
)
def test_throttling_is_read_where_the_cgroup_keeps_it(tmp_path, membership, file, content, expected):
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_text(content)
    (tmp_path / "membership").write_text(membership)
    assert throttled_seconds(tmp_path, tmp_path / "membership") == expected


def test_cpu_time_counts_finished_children():
    before = tree_cpu_seconds()
    subprocess.run([sys.executable, "-c", "sum(range(6_000_000))"], check=True)
    assert tree_cpu_seconds() - before > 0.05


def test_peak_memory_sees_what_was_freed_again():
    block = bytearray(200 << 20)
    block[::4096] = b"x" * len(block[::4096])
    del block
    assert peak_rss_bytes() > 200 << 20


def burn(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def test_threads_are_busy_that_computed_meanwhile_and_not_those_that_slept_or_had_done_so_before():
    stop, warm = threading.Event(), threading.Event()
    done = threading.Semaphore(0)

    def work(before, meanwhile):
        burn(before)
        done.release()
        warm.wait()
        burn(meanwhile)
        done.release()
        stop.wait()

    threads = [threading.Thread(target=work, args=args) for args in ((0, 0.3), (0, 0.3), (0.6, 0), (0, 0))]

    def wait_for_all():
        for _ in threads:
            done.acquire()

    for thread in threads:
        thread.start()
    wait_for_all()
    start = read()
    warm.set()
    wait_for_all()
    telemetry = between(start, read(), None)
    stop.set()
    for thread in threads:
        thread.join()
    assert telemetry.busy_threads == 2
    assert 0.55 < telemetry.cpu_s < 1
    assert telemetry.to_at - telemetry.from_at >= 0.3
    assert telemetry.from_at == start.at
    assert telemetry.cpu_cores == pytest.approx(telemetry.cpu_s / (telemetry.to_at - telemetry.from_at))


def test_only_what_happened_between_two_readings_counts():
    start = Reading(10.0, 5.0, 2.5, {(1, 7): 4.0, (2, 7): 4.0})
    end = Reading(20.0, 20.0, 3.25, {(1, 7): 4.49, (2, 8): 0.5, (3, 9): 9.0})  # the id 2 is another thread now
    telemetry = between(start, end, 77)
    assert (telemetry.from_at, telemetry.to_at, telemetry.cpu_s, telemetry.cpu_cores) == (10, 20, 15, 1.5)
    assert (telemetry.throttled_s, telemetry.busy_threads, telemetry.gpu_peak_bytes) == (0.75, 2, 77)
    assert between(replace(start, throttled_s=None), end, None).throttled_s is None


def test_a_thread_may_call_itself_anything(tmp_path):
    fields = ["R", *["0"] * 10, "150", "50", *["0"] * 6, "4711", "0"]  # from the third: 14, 15 and 22 count
    (tmp_path / "42").mkdir()
    (tmp_path / "42/stat").write_text(f"42 (a) R 1 (b) {' '.join(fields)}\n")
    (tmp_path / "43").mkdir()  # has just ended
    ticks = os.sysconf("SC_CLK_TCK")
    assert thread_cpu_seconds(tmp_path) == {(42, 4711): 200 / ticks}
