"""Test the confinement of a launch, how it ends, and that it leaves no container."""

from __future__ import annotations

import _thread
import os
import threading
import time

import pytest
import requests

from kit.doctor import gather
from kit.engines.docker import RUN_LABEL
from kit.model.errors import EngineError

EXHAUST_MEMORY = 'perl -e \'@a = map { "x" x 4194304 } 1..1000; print "allocated everything\\n"\''


def test_a_worker_is_confined(launch):
    completion = launch(
        """
        echo uid $(id -u) gid $(id -g)
        grep -E '^(CapEff|CapPrm|CapBnd|NoNewPrivs|Cpus_allowed_list)' /proc/self/status
        echo interfaces $(ls /sys/class/net)
        touch /etc/x /x /var/x /data/x 2>&1
        echo shm $(df -k --output=size /dev/shm | tail -1)
        echo data $(cat /data/set)
        echo kept > /io/result
        for name in HOME TMPDIR XDG_CACHE_HOME CUDA_CACHE_PATH; do
          eval folder=\\$$name; touch $folder/probe && echo $name writable; done
    """,
        shm_bytes=64 << 20,
    )
    log = launch.log()
    assert completion.exit_code == 0, log
    expected_user = (os.getuid(), os.getgid()) if os.getuid() else (65534, 65534)
    assert "uid {} gid {}".format(*expected_user) in log
    assert log.count("0000000000000000") == 3  # effective, permitted, bounding
    assert "NoNewPrivs:\t1" in log
    assert "Cpus_allowed_list:\t0\n" in log
    assert "interfaces lo\n" in log
    assert log.count("Read-only file system") == 4
    assert "shm 65536" in log
    assert "data content" in log
    assert log.count(" writable") == 4
    assert (launch.folder.scratch / "result").read_text() == "kept\n"
    assert (launch.folder.scratch / "result").stat().st_uid == os.getuid()


def test_arguments_and_variables_reach_the_worker(launch):
    launch.variables["VARIABLE"] = "value"
    launch("echo arguments $@ $VARIABLE $USER")
    assert launch.log() == "arguments /io --data /data value kit\n"


def test_the_deadline_kills_the_worker(launch):
    completion = launch("sleep 600", timeout_s=1)
    assert completion.timed_out
    assert completion.exit_code == 137
    assert not completion.out_of_memory


def test_a_stop_request_kills_the_worker_and_is_not_a_timeout(launch):
    launch.stopped = (launch.folder.scratch / "started").exists
    completion = launch("touch /io/started; sleep 600")
    assert completion.exit_code == 137
    assert not completion.timed_out


CHILD = f"{EXHAUST_MEMORY} & wait $!; touch /io/killed; until [ -e /io/read ]; do sleep 0.1; done; exit 0"


@pytest.mark.parametrize("script", [f"exec {EXHAUST_MEMORY}", CHILD], ids=["itself", "child"])
def test_a_kill_at_the_memory_limit_is_out_of_memory_for_the_worker_and_for_its_child(launch, script):
    killed, read = (launch.folder.scratch / name for name in ("killed", "read"))
    polls = list[bool]()

    def poll() -> bool:
        """Let the worker end when its memory was read after the kill. Podman reports no kill afterwards."""
        polls.append(killed.exists())
        if sum(polls) == 2:
            read.touch()
        return False

    if launch.engine.name == "podman":
        launch.stopped = poll
    else:
        read.touch()
    completion = launch(script, memory_bytes=64 << 20)
    assert completion.out_of_memory
    assert completion.exit_code == (137 if script.startswith("exec") else 0)
    assert "allocated everything" not in launch.log()


def test_a_kill_by_another_process_is_not_out_of_memory(launch):
    completion = launch("sh -c 'kill -9 $$'; exit 137")
    assert completion.exit_code == 137
    assert not completion.out_of_memory


def test_an_end_without_a_result_is_not_an_error(launch):
    completion = launch("exit 0")
    assert (completion.exit_code, completion.timed_out, completion.out_of_memory) == (0, False, False)
    assert completion.warnings == ()


def test_without_the_toolkit_a_launch_with_a_gpu_is_not_started(launch):
    if launch.engine.name == "podman":
        pytest.skip("Podman's Docker-compatible API ignores requests for GPUs")
    if gather._ways(launch.engine.daemon.info):
        pytest.skip("Docker here can pass GPUs to containers")
    completion = launch("exit 0", gpus=("0",))
    assert completion.exit_code is None
    assert completion.not_started is not None
    assert "could not select device driver" in completion.not_started


def test_the_log_size_is_limited(launch):
    launch("yes | head -c 30000000; echo the end")
    assert 5_000_000 <= launch.folder.log.stat().st_size <= 10_000_100
    assert launch.log().endswith("the end\n")
    assert launch.log().startswith("[earlier output was cut off here]")


@pytest.mark.parametrize("moment", ["create_container_from_config", "start", "wait"])
def test_an_interrupt_at_any_moment_leaves_no_container(launch, monkeypatch, moment):
    """Send Ctrl-C just before the request. The fixture `nothing_left` checks that no container is left."""
    client = launch.engine.daemon.client
    original, finished = getattr(client, moment), threading.Event()

    def interrupted(*args, **kwargs):
        try:
            _thread.interrupt_main()
            time.sleep(0.5)  # let the main thread handle the interrupt before the request
            return original(*args, **kwargs)
        finally:
            finished.set()

    monkeypatch.setattr(client, moment, interrupted)
    with pytest.raises(KeyboardInterrupt):
        launch("sleep 600")
    assert finished.wait(60), "the interrupted request must have taken effect before containers are counted"


def test_a_sweep_removes_only_the_containers_of_dead_runs(client, environment, engine):
    names = {}
    for run in ("dead", "living"):
        config = {"Image": environment.digest, "Cmd": [], "Labels": {RUN_LABEL: f"tests-{run}"}}
        names[run] = f"kit-tests-{run}"
        client.create_container_from_config(config, names[run])
    try:
        assert engine.sweep(lambda run: run != "tests-dead") == [f"container {names['dead']}"]
        assert client.inspect_container(names["living"])
    finally:
        assert engine.sweep(lambda run: run != "tests-living") == [f"container {names['living']}"]


def test_a_lost_engine_is_an_engine_error(launch, monkeypatch):
    def lost(*args, **kwargs):
        raise requests.ConnectionError("gone")

    monkeypatch.setattr(launch.engine.daemon.client, "wait", lost)
    with pytest.raises(EngineError, match="gone"):
        launch("sleep 600")
