"""What a launch's container is asked to be, and what its control group and output tell. No engine here."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from kit.engines import cgroup, containers
from kit.engines.cgroup import MemoryWatch, memory_folder
from kit.engines.docker import DockerEngine
from kit.engines.launch_log import CUT, copy_output
from kit.environments.package_sources import Sources
from kit.model.environment import Environment, Framework
from kit.model.errors import DiskError, EngineError
from kit.model.launch import LaunchFolder, Limits

LIMITS = Limits(timeout_s=1, memory_bytes=1 << 30, cpus=(0, 2))
FRAMEWORK = Framework("tiny", "Tiny", ("cpu", "cuda"), (), 13, 580, (7, 5), Path())


@pytest.fixture
def folder(tmp_path) -> LaunchFolder:
    return LaunchFolder(tmp_path, None, tmp_path / "log")


def test_limits_that_the_engine_cannot_set_are_left_out_with_a_warning_each(folder):
    able, none = containers.Host.of({}), containers.Host.of({"CPUSet": False, "PidsLimit": False, "SwapLimit": False})
    options, warnings = containers.host_options(able, folder, LIMITS)
    assert warnings == []
    assert options["CpusetCpus"] == "0,2"
    assert options["Memory"] == options["MemorySwap"] == 1 << 30
    options, warnings = containers.host_options(none, folder, LIMITS)
    assert options["Memory"] == 1 << 30
    assert not {"CpusetCpus", "PidsLimit", "MemorySwap"} & set(options)
    assert len(warnings) == 3


def test_gpus_are_asked_for_by_cdi_where_the_engine_knows_them_so_and_by_driver_elsewhere(tmp_path):
    (tmp_path / "nvidia.yaml").touch()
    for info in (
        {"DiscoveredDevices": [{"Source": "cdi", "ID": "nvidia.com/gpu=0"}]},
        {"CDISpecDirs": [str(tmp_path)]},
    ):
        request = containers.gpu_request(containers.Host.of(info), ("0", "GPU-1"))
        assert request == {"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=0", "nvidia.com/gpu=GPU-1"]}
    request = containers.gpu_request(containers.Host.of({"CDISpecDirs": ["/nowhere"]}), ("1",))
    assert (request["Driver"], request["DeviceIDs"]) == ("nvidia", ["1"])


@pytest.mark.parametrize(
    ("options", "uid", "expected"),
    [
        (["name=seccomp,profile=default"], 1000, (1000, 100)),
        (["name=seccomp,profile=default"], 0, (65534, 65534)),
        (["name=rootless"], 1000, (0, 0)),
    ],
)
def test_the_worker_is_the_caller_and_never_root(monkeypatch, options, uid, expected):
    monkeypatch.setattr("os.getuid", lambda: uid)
    monkeypatch.setattr("os.getgid", lambda: 100)
    assert containers.user(containers.Host.of({"SecurityOptions": options})) == expected


def test_no_request_moves_a_cache_out_of_the_scratch_mount():
    assert containers.variables({"HOME": "/root", "LD_PRELOAD": "x"})["HOME"] == "/io/home"
    assert containers.variables({"LD_PRELOAD": "x"})["LD_PRELOAD"] == "x"


def test_memory_is_watched_in_either_version_of_control_groups(tmp_path, monkeypatch):
    monkeypatch.setattr(cgroup, "ROOT", tmp_path)
    first = memory_folder("11:cpu,cpuacct:/docker/a\n5:memory:/docker/a\n0::/x\n")
    second = memory_folder("0::/system.slice/docker-a.scope\n")
    assert (first, second) == (tmp_path / "memory/docker/a", tmp_path / "system.slice/docker-a.scope")
    for group, events, peak in (
        (first, "memory.oom_control", "memory.max_usage_in_bytes"),
        (second, "memory.events", "memory.peak"),
    ):
        group.mkdir(parents=True)
        (group / events).write_text("oom_kill_disable 0\nunder_oom 0\noom 5\noom_kill 2\noom_group_kill 7\n")
        (group / peak).write_text("123456\n")
        watch = MemoryWatch(group)
        watch.read()
        assert (watch.kills, watch.peak_bytes) == (2, 123456)
        for file in group.iterdir():
            file.unlink()
        watch.read()
        assert (watch.kills, watch.peak_bytes) == (2, 123456), "what was seen stays when the group goes"


def test_a_log_keeps_the_newest_output(tmp_path):
    copy_output((b"%06d\n" % n for n in range(1000)), tmp_path / "log", limit=1000)
    text = (tmp_path / "log").read_bytes()
    assert len(text) <= 1000 + len(CUT)
    assert text.startswith(CUT)
    assert text.endswith(b"000998\n000999\n")


class StuckDaemon:
    """An engine whose container prints without end, and which tells of its end only when it was killed and nobody
    has its output open. calls: what was asked of it after the start."""

    def __init__(self):
        self.calls, self._response = [], self
        self._closed, self._killed = threading.Event(), threading.Event()

    def create_container_from_config(self, config, name):
        return {}

    def attach(self, name, stream):
        return self

    def __iter__(self):
        return iter(lambda: b"output\n", b"")

    def close(self):
        self._closed.set()

    def start(self, name):
        pass

    def inspect_container(self, name):
        return {"State": {"Pid": 0, "OOMKilled": False}}

    def wait(self, name, timeout):
        self._killed.wait()
        self._closed.wait()
        return {"StatusCode": 137}

    def kill(self, name):
        self.calls.append("kill")
        self._killed.set()

    def remove_container(self, name, v, force):
        self.calls.append("remove")


def test_a_log_that_cannot_be_written_stops_the_launch_at_once_as_a_disk_error(tmp_path, monkeypatch):
    monkeypatch.setattr("kit.engines.docker.KILL_S", 2)
    engine, daemon = DockerEngine(Sources()), StuckDaemon()
    engine.__dict__ |= {"_client": daemon, "_info": {}}
    folder = LaunchFolder(tmp_path / "io", None, Path("/dev/full"))
    limits, began = replace(LIMITS, timeout_s=20), time.monotonic()
    with pytest.raises(DiskError, match="No space left"):
        engine.launch(Environment("tiny", "cpu", "image", "tiny", "sha256:0"), folder, limits, {}, {}, lambda: False)
    assert time.monotonic() - began < limits.timeout_s / 2
    assert daemon.calls == ["kill", "remove"]


def test_no_daemon_and_a_daemon_elsewhere_are_errors_with_a_remedy(monkeypatch, tmp_path):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker.sock")
    with pytest.raises(EngineError, match=r"docker\.sock[\s\S]*--engine local"):
        DockerEngine(Sources()).describe()
    monkeypatch.setenv("DOCKER_HOST", "ssh://me@elsewhere")
    with pytest.raises(EngineError, match="elsewhere is not on this machine") as caught:
        DockerEngine(Sources()).describe()
    assert "me@" not in str(caught.value)


def test_cuda_is_refused_with_the_reason(monkeypatch):
    assert DockerEngine(Sources()).refusal(FRAMEWORK, "cpu") is None
    assert "ignores requests for GPUs" in str(DockerEngine(Sources(), "podman").refusal(FRAMEWORK, "cuda"))
    engine = DockerEngine(Sources())
    monkeypatch.setattr("kit.host.gpus.refusal", lambda framework: "No GPU.")
    assert engine.refusal(FRAMEWORK, "cuda") == "No GPU."
    monkeypatch.setattr("kit.host.gpus.refusal", lambda framework: None)
    monkeypatch.setenv("PATH", "/nowhere")
    engine.__dict__["_info"] = {"Runtimes": {"runc": {}}}
    assert "could not select device driver" in str(engine.refusal(FRAMEWORK, "cuda"))
    engine.__dict__["_info"] = {"Runtimes": {"runc": {}, "nvidia": {}}}
    assert engine.refusal(FRAMEWORK, "cuda") is None
