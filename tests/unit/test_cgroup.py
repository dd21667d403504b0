"""The cgroup folders of a process, from recorded files of /proc."""

from __future__ import annotations

from pathlib import Path

import pytest

from scenarios.linux import cgroup

V1_MEMBERSHIP = "4:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc\n1:name=systemd:/docker/abc\n0::/docker/abc\n"
V2_MEMBERSHIP = "0::/user.slice/user-1000.slice\n"


def v1_mounts(point: Path, root: str) -> str:
    return "".join(
        f"{number} 77 0:{number} {root} {point}/{names} ro,nosuid - cgroup cgroup rw,{names}\n"
        for number, names in ((78, "cpu,cpuacct"), (82, "memory"))
    )


def v2_mounts(point: Path, root: str = "/") -> str:
    return (
        "24 30 0:22 / /sys rw - sysfs sysfs rw\n"
        "27 30 0:25 / /mnt rw - tmpfs  rw\n"  # mounted without a source
        f"35 24 0:30 {root} {point} rw shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
    )


def test_v1_on_the_host_and_in_a_container(tmp_path: Path) -> None:
    point = tmp_path / "memory"
    on_host = [point / "docker/abc", point / "docker", point]
    assert cgroup.locate("memory", V1_MEMBERSHIP, v1_mounts(tmp_path, "/")) == (1, point, on_host)
    assert cgroup.locate("memory", V1_MEMBERSHIP, v1_mounts(tmp_path, "/docker/abc")) == (1, point, [point])


def test_v2_lists_all_parents_up_to_the_mount_point(tmp_path: Path) -> None:
    own = tmp_path / "user.slice" / "user-1000.slice"
    assert cgroup.locate("cpu", V2_MEMBERSHIP, v2_mounts(tmp_path)) == (2, tmp_path, [own, own.parent, tmp_path])
    assert cgroup.locate("cpu", V2_MEMBERSHIP, v2_mounts(tmp_path, "/user.slice"))[2] == [
        tmp_path / "user-1000.slice",
        tmp_path,
    ]


def test_in_a_hybrid_system_the_hierarchy_that_has_the_controller_counts(tmp_path: Path) -> None:
    mounts = v2_mounts(tmp_path / "unified") + v1_mounts(tmp_path, "/")
    assert cgroup.locate("memory", V1_MEMBERSHIP, mounts)[0] == 1
    assert cgroup.locate("pids", V1_MEMBERSHIP, mounts)[0] == 2


@pytest.mark.parametrize(
    ("memberships", "root"), [("0::/../other\n", "/"), ("0::/docker/def\n", "/docker/abc"), ("0::/x\n", "/docker/abc")]
)
def test_outside_of_the_mount_only_this_process_falls_back_to_the_mount_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, memberships: str, root: str
) -> None:
    monkeypatch.setattr(cgroup, "PROC", tmp_path)
    for process in ("self", "7"):
        (tmp_path / process).mkdir()
        (tmp_path / process / "cgroup").write_text(memberships)
    (tmp_path / "self/mountinfo").write_text(v2_mounts(tmp_path / "mount", root))
    assert cgroup.own_folders("memory") == (2, [tmp_path / "mount"])
    assert cgroup.folder_of("memory", 7) is None


def test_without_a_mounted_hierarchy_or_a_process_there_are_no_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cgroup, "PROC", tmp_path)
    (tmp_path / "self").mkdir()
    (tmp_path / "self/cgroup").write_text(V2_MEMBERSHIP)
    (tmp_path / "self/mountinfo").write_text("")
    assert cgroup.own_folders("cpu") == (2, [])
    assert cgroup.folder_of("memory", 7) is None


def test_another_process_has_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroup, "PROC", tmp_path)
    for process, path in (("self", "/"), ("7", "/system.slice/docker-a.scope")):
        (tmp_path / process).mkdir()
        (tmp_path / process / "cgroup").write_text(f"0::{path}\n")
    (tmp_path / "self/mountinfo").write_text(v2_mounts(tmp_path / "mount"))
    assert cgroup.folder_of("memory", 7) == tmp_path / "mount/system.slice/docker-a.scope"


def test_the_root_group_which_a_process_joins_when_it_ends_is_not_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cgroup, "PROC", tmp_path)
    for process in ("self", "7"):
        (tmp_path / process).mkdir()
        (tmp_path / process / "cgroup").write_text("0::/\n")
    (tmp_path / "self/mountinfo").write_text(v2_mounts(tmp_path / "mount"))
    assert cgroup.own_folders("memory") == (2, [tmp_path / "mount"])
    assert cgroup.folder_of("memory", 7) is None
