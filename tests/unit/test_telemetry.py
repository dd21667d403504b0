"""What the worker reads of itself, on recorded cgroup files and on this very process."""

from __future__ import annotations

import subprocess
import sys

import pytest

from scenarios.telemetry import peak_rss_bytes, throttled_seconds, tree_cpu_seconds

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
