"""Test the options of a container, its memory watch and its log. No daemon is needed."""

from __future__ import annotations

import hashlib
import json
import platform
import shutil
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from kit.engines import containers, docker
from kit.engines.docker import RUN_LABEL, DockerEngine
from kit.engines.launch_log import CUT, copy_output
from kit.engines.memory import MemoryWatch
from kit.environments.daemon import Daemon
from kit.environments.package_sources import Sources
from kit.model.environment import Environment, Framework
from kit.model.errors import DiskError, EngineError
from kit.model.launch import LaunchFolder, Limits

LIMITS = Limits(timeout_s=1, memory_bytes=1 << 30, cpus=(0, 2))
FRAMEWORK = Framework("tiny", "Tiny", ("cpu", "cuda"), (), 13, 580, {}, Path())


@pytest.fixture
def folder(tmp_path) -> LaunchFolder:
    return LaunchFolder(tmp_path, None, tmp_path / "log")


def test_each_limit_that_the_engine_cannot_set_is_omitted_with_a_warning(folder):
    full, limited = (
        containers.Host.of({}),
        containers.Host.of({"CPUSet": False, "PidsLimit": False, "SwapLimit": False}),
    )
    options, warnings = containers.host_options(full, folder, LIMITS)
    assert warnings == []
    assert options["CpusetCpus"] == "0,2"
    assert options["Memory"] == options["MemorySwap"] == 1 << 30
    options, warnings = containers.host_options(limited, folder, LIMITS)
    assert options["Memory"] == 1 << 30
    assert not {"CpusetCpus", "PidsLimit", "MemorySwap"} & set(options)
    assert len(warnings) == 3


def test_gpus_are_requested_by_cdi_if_the_engine_supports_it_else_by_driver(tmp_path):
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
def test_the_worker_runs_as_the_caller_and_never_as_root(monkeypatch, options, uid, expected):
    monkeypatch.setattr("os.getuid", lambda: uid)
    monkeypatch.setattr("os.getgid", lambda: 100)
    assert containers.user(containers.Host.of({"SecurityOptions": options})) == expected


def test_a_worker_keeps_its_uid_in_an_engine_that_maps_users(folder):
    for options, mode in ((["name=userns"], "host"), (["name=seccomp,profile=default"], None)):
        made, _ = containers.host_options(containers.Host.of({"SecurityOptions": options}), folder, LIMITS)
        assert made.get("UsernsMode") == mode


def test_a_request_cannot_move_a_cache_out_of_the_scratch_folder():
    assert containers.variables({"HOME": "/root", "LD_PRELOAD": "x"})["HOME"] == "/io/home"
    assert containers.variables({"LD_PRELOAD": "x"})["LD_PRELOAD"] == "x"


@pytest.mark.parametrize(
    ("events", "peak"), [("memory.oom_control", "memory.max_usage_in_bytes"), ("memory.events", "memory.peak")]
)
def test_memory_is_watched_in_both_cgroup_versions(tmp_path, events, peak):
    (tmp_path / events).write_text("oom_kill_disable 0\nunder_oom 0\noom 5\noom_kill 2\noom_group_kill 7\n")
    (tmp_path / peak).write_text("123456\n")
    watch = MemoryWatch(tmp_path)
    for _ in range(2):
        assert not watch.over_limit()
        assert (watch.kills, watch.peak_bytes) == (2, 123456), "the values must remain after the cgroup is removed"
        for file in tmp_path.iterdir():
            file.unlink()


def test_a_hidden_cgroup_counts_as_zero():
    watch = MemoryWatch(None)
    assert not watch.over_limit()
    assert (watch.kills, watch.peak_bytes) == (0, 0)


def test_a_log_keeps_the_newest_output(tmp_path):
    copy_output((b"%06d\n" % n for n in range(1000)), tmp_path / "log", limit=1000)
    text = (tmp_path / "log").read_bytes()
    assert len(text) <= 1000 + len(CUT)
    assert text.startswith(CUT)
    assert text.endswith(b"000998\n000999\n")


class StuckDaemon:
    """A daemon whose container prints endless output.

    It reports the end only after the container is killed and its output is closed. calls: requests after the start.
    config: configuration of the container.
    """

    def __init__(self):
        self.calls, self.config, self._response = [], {}, self
        self._closed, self._killed = threading.Event(), threading.Event()

    def create_container_from_config(self, config, name):
        self.config = config
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


def test_a_log_that_cannot_be_written_ends_the_launch_with_a_disk_error(tmp_path):
    engine, daemon = DockerEngine(Sources()), StuckDaemon()
    engine.daemon.__dict__ |= {"client": daemon, "info": {}}
    folder = LaunchFolder(tmp_path / "io", None, Path("/dev/full"))
    environment = Environment("tiny", "cpu", "image", "tiny", "sha256:0")
    polls = iter(range(100))  # StopIteration if the broken log does not end the launch
    with pytest.raises(DiskError, match="No space left"):
        engine.launch(environment, folder, replace(LIMITS, timeout_s=1e6), {}, {"run": "r1"}, lambda: next(polls) < 0)
    assert daemon.calls == ["kill", "remove"]
    assert daemon.config["Labels"][RUN_LABEL] == "r1", "a sweep finds containers by this label"


def test_a_scratch_folder_that_disappears_is_a_disk_error(tmp_path, monkeypatch):
    monkeypatch.setattr("os.getuid", lambda: 0)
    monkeypatch.setattr("os.chown", lambda path, *_, **__: path.stat())
    expected = pytest.raises(DiskError, match="No such file")
    with expected, docker._scratch_of(tmp_path / "io", (65534, 65534)):
        shutil.rmtree(tmp_path / "io")


def test_a_daemon_that_is_ending_cannot_be_used_although_it_answers_on_an_open_connection(tmp_path):
    engine = DockerEngine(Sources())
    client = SimpleNamespace(version=lambda: {"Version": "1", "ApiVersion": "1.43"}, info=dict)
    engine.daemon.__dict__ |= {"client": client, "address": f"unix://{tmp_path}/removed"}
    with pytest.raises(EngineError, match="No docker engine answers at"):
        engine.describe()


class EventsDaemon:
    """A daemon whose clock says 1970, and whose stream of events ends only if the span asked for has passed there."""

    def __init__(self, events):
        self.events_there, self.closed = events, threading.Event()

    def inspect_container(self, name):
        times = {"StartedAt": "1970-01-01T00:01:40.123456789Z", "FinishedAt": "1970-01-01T01:02:00+01:00"}
        return {"State": {"OOMKilled": False, **times}}

    def events(self, since, until, filters):
        self.span = float(since), float(until)
        return self

    def __iter__(self):
        yield from self.events_there
        if self.span[1] > 1000:
            assert self.closed.wait(20), "nobody closes the stream"

    def close(self):
        self.closed.set()


@pytest.mark.parametrize("events", [[], [{"Action": "oom"}]])
def test_the_daemons_clock_decides_which_events_count(events):
    daemon = Daemon("docker")
    daemon.__dict__["client"] = client = EventsDaemon(events)
    assert daemon.ran_out_of_memory("name", patience_s=1.0) is bool(events)
    assert client.span == (100.123456, 121.0)


def test_a_stream_of_events_that_does_not_end_is_closed(monkeypatch):
    monkeypatch.setattr("kit.environments.daemon.EVENT_S", 0.05)
    daemon = Daemon("docker")
    daemon.__dict__["client"] = client = EventsDaemon([])
    assert daemon.ran_out_of_memory("name", patience_s=5000.0) is False
    assert client.closed.is_set()


@pytest.mark.parametrize(
    ("info", "components", "runtime"),
    [
        ({"DefaultRuntime": "runc", "Runtimes": {"runc": {"path": "runc"}}}, [("runc", "1.1.5+ds1")], "runc 1.1.5+ds1"),
        ({"DefaultRuntime": "fast", "Runtimes": {"fast": {"path": "/opt/crun"}}}, [("crun", "1.14.1")], "crun 1.14.1"),
        ({"DefaultRuntime": "crun", "Runtimes": {"crun": {"path": "crun"}}}, [("crun", "")], "crun"),
        ({"DefaultRuntime": "crun"}, [("Engine", "20.10")], "crun"),
        ({}, [], "unknown"),
    ],
)
def test_the_default_runtime_is_known_from_the_engines_answers(info, components, runtime):
    version = {"Components": [{"Name": name, "Version": number} for name, number in components]}
    assert containers.default_runtime(info, version) == runtime


def test_a_missing_or_remote_daemon_is_an_error_with_a_remedy(monkeypatch, tmp_path):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker.sock")
    with pytest.raises(EngineError, match=r"docker\.sock[\s\S]*--engine local"):
        DockerEngine(Sources()).describe()
    monkeypatch.setenv("DOCKER_HOST", "ssh://me@elsewhere")
    with pytest.raises(EngineError, match="elsewhere is not on this machine") as caught:
        DockerEngine(Sources()).describe()
    assert "me@" not in str(caught.value)
    monkeypatch.setenv("CONTAINER_HOST", "tcp://elsewhere")
    with pytest.raises(EngineError, match="CONTAINER_HOST to a unix"):
        DockerEngine(Sources(), "podman").describe()


@pytest.mark.parametrize("damage", ["missing", "damaged", "variable"])
def test_a_context_that_cannot_be_used_is_an_error_with_a_remedy(monkeypatch, tmp_path, damage):
    """Docker Desktop leaves the name of its context behind if it is removed."""
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    name = "desktop-linux"
    monkeypatch.setenv("DOCKER_CONTEXT", name if damage == "variable" else "")
    (tmp_path / "config.json").write_text(json.dumps({} if damage == "variable" else {"currentContext": name}))
    if damage == "damaged":
        meta = tmp_path / "contexts/meta" / hashlib.sha256(name.encode()).hexdigest()
        meta.mkdir(parents=True)
        (meta / "meta.json").write_text("{")
    with pytest.raises(EngineError, match=r"ontext[\s\S]*docker context use default"):
        DockerEngine(Sources()).describe()


def test_a_daemon_with_another_kernel_is_not_on_this_machine():
    engine = DockerEngine(Sources())
    engine.daemon.__dict__["client"] = SimpleNamespace(info=lambda: {"KernelVersion": "6.6.12-linuxkit"})
    with pytest.raises(EngineError, match=r"its kernel is 6\.6\.12-linuxkit[\s\S]*--engine local"):
        _ = engine.daemon.info
    engine.daemon.__dict__["client"] = SimpleNamespace(info=lambda: {"KernelVersion": platform.release()})
    assert engine.daemon.info["KernelVersion"] == platform.release()


def test_cuda_is_refused_with_a_reason(monkeypatch):
    assert DockerEngine(Sources()).refusal(FRAMEWORK, "cpu") is None
    assert "ignores requests for GPUs" in str(DockerEngine(Sources(), "podman").refusal(FRAMEWORK, "cuda"))
    engine = DockerEngine(Sources())
    monkeypatch.setattr("kit.host.gpus.refusal", lambda framework: "No GPU.")
    assert engine.refusal(FRAMEWORK, "cuda") == "No GPU."
    monkeypatch.setattr("kit.host.gpus.refusal", lambda framework: None)
    monkeypatch.setenv("PATH", "/nowhere")
    engine.daemon.__dict__["info"] = {"Runtimes": {"runc": {}}}
    assert "could not select device driver" in str(engine.refusal(FRAMEWORK, "cuda"))
    engine.daemon.__dict__["info"] = {"Runtimes": {"runc": {}, "nvidia": {}}}
    assert engine.refusal(FRAMEWORK, "cuda") is None
