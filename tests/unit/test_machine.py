"""The description of the machine, from recorded files of other machines."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kit.host import machine
from kit.model.errors import EngineError
from kit.model.machine import Gpu, Machine

# Two sockets with two cores each and two threads per core. Linux numbers the siblings last.
CPUINFO = "\n\n".join(
    f"processor\t: {number}\nmodel name\t: Intel(R)  Xeon(R) Gold\nphysical id\t: {number % 4 // 2}\n"
    f"core id\t\t: {number % 2}\nflags\t\t: fpu sse4_2 avx avx512_vnni amx_bf16 hypervisor"
    for number in range(8)
)
# A virtual machine that names neither sockets nor cores.
CPUINFO_BARE = "processor\t: 0\nmodel name\t: QEMU Virtual CPU\n\nprocessor\t: 1\nmodel name\t: QEMU Virtual CPU\n"


def test_cpuinfo() -> None:
    found = machine.parse_cpuinfo(CPUINFO)
    assert (found.model, found.sockets, found.physical_cores, len(found.cores)) == ("Intel(R) Xeon(R) Gold", 2, 4, 8)
    assert "amx_bf16" in found.flags
    bare = machine.parse_cpuinfo(CPUINFO_BARE)
    assert (bare.model, bare.sockets, bare.physical_cores) == ("QEMU Virtual CPU", 1, 2)


def test_spread_takes_one_thread_of_each_core_first() -> None:
    adjacent = {0: (0, 0), 1: (0, 0), 2: (0, 1), 3: (0, 1)}  # some clouds number siblings in this way
    assert machine.spread({0, 1, 2, 3}, adjacent) == (0, 2, 1, 3)
    assert machine.spread({1, 2, 3}, adjacent) == (1, 2, 3)


@given(
    st.sets(st.integers(0, 31), min_size=1),
    st.dictionaries(st.integers(0, 31), st.tuples(st.just(0), st.integers(0, 7))),
)
def test_spread_keeps_the_cpus_and_begins_with_distinct_cores(
    cpus: set[int], cores: dict[int, tuple[int, int]]
) -> None:
    ordered = machine.spread(cpus, cores)
    assert sorted(ordered) == sorted(cpus)
    distinct = {cores.get(cpu, (0, cpu)) for cpu in cpus}
    assert {cores.get(cpu, (0, cpu)) for cpu in ordered[: len(distinct)]} == distinct


@pytest.mark.parametrize(("quota", "expected"), [(None, (0, 1, 2, 3)), (2.9, (0, 1)), (0.5, (0,)), (9.0, (0, 1, 2, 3))])
def test_usable_cpus_round_the_quota_down_to_at_least_one(
    monkeypatch: pytest.MonkeyPatch, quota: float | None, expected: tuple[int, ...]
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1, 2, 3})
    monkeypatch.setattr(machine, "quota_cpus", lambda: quota)
    monkeypatch.setattr(machine, "parse_cpuinfo", lambda _: machine.Processors("", frozenset(), {}))
    assert machine.usable_cpus() == expected


def test_cgroup_v1_limits(tmp_path: Path) -> None:
    limit = tmp_path / "memory.limit_in_bytes"
    limit.write_text("9223372036854771712\n")
    assert machine.memory_limit_from(1, tmp_path) is None
    limit.write_text("314572800\n")
    assert machine.memory_limit_from(1, tmp_path) == 314572800
    (tmp_path / "cpu.cfs_quota_us").write_text("150000\n")
    (tmp_path / "cpu.cfs_period_us").write_text("100000\n")
    assert machine.quota_from(1, tmp_path) == 1.5
    (tmp_path / "cpu.cfs_quota_us").write_text("-1\n")
    assert machine.quota_from(1, tmp_path) is None


def test_cgroup_v2_limits_are_the_minimum_over_all_parents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tmp_path / "user.slice" / "user-1000.slice"
    own.mkdir(parents=True)
    (own / "cpu.max").write_text("max 100000\n")
    (own / "memory.max").write_text("max\n")
    (own.parent / "cpu.max").write_text("250000 100000\n")
    (own.parent / "memory.max").write_text("1048576\n")
    monkeypatch.setattr("scenarios.linux.cgroup.own_folders", lambda _: (2, [own, own.parent, tmp_path]))
    assert machine.quota_cpus() == 2.5
    assert machine.memory_limit_bytes() == 1048576


def test_caches(tmp_path: Path) -> None:
    for index, (level, kind, size) in enumerate(
        [("1", "Data", "48K"), ("1", "Instruction", "32K"), ("3", "Unified", "32M")]
    ):
        folder = tmp_path / f"index{index}"
        folder.mkdir()
        for name, text in (("level", level), ("type", kind), ("size", size)):
            (folder / name).write_text(text + "\n")
    assert machine.caches(tmp_path) == {"L1d": 48 << 10, "L1i": 32 << 10, "L3": 32 << 20}


def test_other_platforms_are_errors() -> None:
    machine.require_supported("Linux", "x86_64")
    for system, architecture in (("Darwin", "arm64"), ("Linux", "aarch64"), ("", "")):
        with pytest.raises(EngineError, match="Linux on x86_64 only"):
            machine.require_supported(system, architecture)


def test_describe_names_host_and_user_only_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "secret-host")
    monkeypatch.setattr(machine, "_user", lambda: "secret-user")
    quiet, open_ = machine.describe({"name": "fake"}, identify=False), machine.describe({"name": "fake"}, identify=True)
    assert "secret" not in quiet.to_json()
    assert (open_.hostname, open_.user) == ("secret-host", "secret-user")
    assert quiet.id == open_.id
    assert Machine.from_json(quiet.to_json(), "machine.json") == quiet


def facts(**changes: object) -> dict[str, object]:
    gpu = Gpu(
        index=0, name="T4", memory_bytes=16 << 30, compute_capability=(7, 5), power_limit_w=70, default_power_limit_w=70
    )
    return {"cpu_model": "Xeon", "memory_bytes": (16 << 30) - 5000, "gpus": [gpu]} | changes


def test_a_system_without_os_release_has_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> dict[str, str]:
        raise OSError(2, "No such file or directory")

    monkeypatch.setattr("platform.freedesktop_os_release", missing)
    assert machine.describe({"engine": "fake"}, identify=False).os == "Linux"


def test_identity_ignores_boot_differences_power_limit_and_uuid() -> None:
    same = machine.identity(facts())
    limited = Gpu(
        index=0,
        name="T4",
        memory_bytes=16 << 30,
        compute_capability=(7, 5),
        power_limit_w=60,
        default_power_limit_w=70,
        uuid="GPU-1",
    )
    assert machine.identity(facts(memory_bytes=(16 << 30) - 90_000, gpus=[limited])) == same
    assert machine.identity(facts(cpu_model="EPYC")) != same
    assert machine.identity(facts(gpus=[])) != same
