"""The local engine with real processes. The worker executes the code of each test."""

import errno
import json
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

import psutil
import pytest

from kit.engines import processes
from kit.engines.local import TEMPORARY, LocalEngine
from kit.engines.memory import MemoryMeter
from kit.engines.processes import identity
from kit.environments.package_sources import Sources
from kit.model.environment import Environment, Framework
from kit.model.errors import DiskError, EngineError, UsageError
from kit.model.launch import LaunchFolder, Limits
from kit.model.progress import Silent

WORKER = "import pathlib, sys; exec(pathlib.Path(sys.argv[1], 'play.py').read_text())"
VENV = Environment("toy", "cpu", "venv", sys.executable, "digest")
MIB = 1 << 20

# Start a child that leaves session and parent, as a daemon does. The file `child` has its id.
ESCAPE = """
import os, pathlib, subprocess, sys, time
here = pathlib.Path(sys.argv[1])
code = (
    "import os, time; os.fork() and os._exit(0); os.setsid();"
    "open('child', 'w').write(str(os.getpid())); time.sleep(600)"
)
subprocess.run([sys.executable, "-c", code], start_new_session=True)
while not ((here / "child").exists() and (here / "child").read_text()):
    time.sleep(0.01)
"""


@pytest.fixture
def root(tmp_path):
    (tmp_path / "assets/scenarios").mkdir(parents=True)
    (tmp_path / "assets/scenarios/__init__.py").touch()
    (tmp_path / "assets/scenarios/worker.py").write_text(WORKER)
    return tmp_path / "assets"


@pytest.fixture
def engine(root):
    return LocalEngine(Sources(), root=root)


@pytest.fixture
def launch(engine, tmp_path):
    def run(play, *, memory=8 << 30, timeout=60.0, stopped=lambda: False, variables=None, log="log", **limits):
        folder = LaunchFolder(tmp_path / "io", limits.pop("data", None), tmp_path / log)
        folder.scratch.mkdir()
        (folder.scratch / "play.py").write_text(textwrap.dedent(play))
        limits = Limits(timeout, memory, limits.pop("cpus", tuple(os.sched_getaffinity(0))), **limits)
        labels = {"run": "this-run", "key": "toy/cell"}
        return engine.launch(VENV, folder, limits, variables or {}, labels, stopped)

    return run


def lives(file):
    """Return whether the process whose id is in the file runs. A process that never started does not, nor a zombie.

    A killed process loses its memory, and so its environment, shortly before it becomes a zombie. So wait for that.
    """
    for _ in range(100):
        try:
            if psutil.Process(int(file.read_text())).status() in {psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD}:
                return False
        except (FileNotFoundError, psutil.NoSuchProcess):
            return False
        time.sleep(0.01)
    return True


def test_a_worker_can_open_sockets_in_its_temporary_folder_if_the_path_of_its_scratch_folder_is_long(engine, tmp_path):
    deep = tmp_path / ("x" * 120)
    (deep / "io").mkdir(parents=True)
    play = """
        import os, socket, tempfile
        assert os.path.isdir(tempfile.gettempdir())
        socket.socket(socket.AF_UNIX).bind(os.path.join(tempfile.mkdtemp(prefix="pymp-"), "listener-12345678"))
        print(tempfile.gettempdir())
        """
    (deep / "io/play.py").write_text(textwrap.dedent(play))
    limits = Limits(60, 8 << 30, tuple(os.sched_getaffinity(0)))
    done = engine.launch(VENV, LaunchFolder(deep / "io", None, deep / "log"), limits, {}, {"run": "r"}, lambda: False)
    log = (deep / "log").read_text()
    assert done.exit_code == 0, log
    assert not Path(log.strip()).exists()


def test_sweeping_removes_temporary_folders_of_dead_orchestrators_only(engine):
    with tempfile.TemporaryDirectory(prefix=f"{TEMPORARY}{identity(os.getpid())}-") as kept:
        left = Path(tempfile.mkdtemp(prefix=f"{TEMPORARY}1@7-"))
        shared = Path(tempfile.mkdtemp(prefix=f"{TEMPORARY}1@7@00000000-"))  # of another machine
        assert f"folder {left}" in engine.sweep(lambda run: False)
        assert not left.exists()
        assert Path(kept).exists()
        assert shared.exists()
        shared.rmdir()


def test_an_identity_differs_between_machines_and_hides_their_names(monkeypatch):
    own, dead = identity(os.getpid()), f"1@7@{identity(os.getpid()).rpartition('@')[2]}"
    assert (processes.lives(own), processes.lives(dead)) == (True, False)
    monkeypatch.setattr(platform, "node", lambda: "of-alice")
    monkeypatch.setattr(processes, "_machine", processes._machine.__wrapped__)  # without its cache
    assert (processes.lives(own), processes.lives(dead)) == (True, True)
    assert processes.lives("1@7") is False, "a name of an older kit is of this machine"
    assert re.fullmatch(rf"{os.getpid()}@\d+@[0-9a-f]{{8}}", identity(os.getpid()))
    assert identity(os.getpid()) != own


def test_a_worker_gets_its_folders_variables_and_cpus_but_not_the_callers_variables(launch, tmp_path, monkeypatch):
    monkeypatch.setenv("SECRET", "of the caller")
    monkeypatch.setenv("PYTHONPATH", "/of/the/caller")
    cpu = max(os.sched_getaffinity(0))
    done = launch(
        """
        import json, os, sys
        print("to the log")
        print("errors too", file=sys.stderr)
        json.dump([dict(os.environ), sorted(os.sched_getaffinity(0)), sys.argv[1:], sys.path], open("seen", "w"))
        """,
        variables={"ASKED_FOR": "1"},
        cpus=(cpu,),
        gpus=("1", "GPU-abc"),
        data=tmp_path,
    )
    assert (done.exit_code, done.timed_out, done.out_of_memory, done.not_started) == (0, False, False, None)
    scratch = str(tmp_path / "io")
    variables, cpus, arguments, path = json.loads((tmp_path / "io/seen").read_text())
    assert cpus == [cpu]
    assert arguments == [scratch, "--data", str(tmp_path)]
    assert str(tmp_path / "assets") in path
    assert "/of/the/caller" not in path
    assert variables["ASKED_FOR"] == "1"
    assert variables["CUDA_VISIBLE_DEVICES"] == "1,GPU-abc"
    assert "SECRET" not in variables
    for name in ("HOME", "XDG_CACHE_HOME", "TRITON_CACHE_DIR"):
        assert variables[name].startswith(scratch)
        assert Path(variables[name]).is_dir()
    assert (tmp_path / "log").read_text() == "to the log\nerrors too\n"


def test_exit_codes_are_as_in_a_shell_and_a_kill_below_the_memory_limit_is_not_out_of_memory(launch):
    done = launch("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    assert (done.exit_code, done.out_of_memory) == (137, False)


def test_the_log_names_a_missing_interpreter(engine, tmp_path):
    folder = LaunchFolder(tmp_path / "io", None, tmp_path / "log")
    gone = Environment("toy", "cpu", "venv", str(tmp_path / "python"), "digest")
    done = engine.launch(gone, folder, Limits(60, 1 << 30, (0,)), {}, {}, lambda: False)
    assert done.exit_code != 0
    assert "No such file" in (tmp_path / "log").read_text()


def test_the_deadline_ends_the_worker_and_its_children(launch, tmp_path):
    done = launch(ESCAPE + "time.sleep(600)", timeout=2)
    assert done.timed_out
    assert not lives(tmp_path / "io/child")


def test_a_worker_that_ignores_sigterm_is_killed(launch, tmp_path):
    play = """
        import signal, time
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        open("ready", "w")
        time.sleep(600)
        """
    done = launch(play, stopped=(tmp_path / "io/ready").exists)
    assert (done.timed_out, done.exit_code) == (False, 137)


def test_no_child_is_left_when_the_worker_ended_by_itself(launch, tmp_path):
    assert launch(ESCAPE).exit_code == 0
    assert not lives(tmp_path / "io/child")


def test_a_stop_request_ends_the_worker_and_its_children(launch, tmp_path):
    done = launch(ESCAPE + "time.sleep(600)", stopped=(tmp_path / "io/child").exists)
    assert not done.timed_out
    assert done.exit_code != 0
    assert not lives(tmp_path / "io/child")


def test_no_child_is_left_after_an_exception_in_the_orchestrator(launch, tmp_path):
    def stopped():
        if (tmp_path / "io/child").exists():
            raise KeyboardInterrupt
        return False

    with pytest.raises(KeyboardInterrupt):
        launch(ESCAPE + "time.sleep(600)", stopped=stopped)
    assert not lives(tmp_path / "io/child")


def test_a_log_that_cannot_be_written_ends_the_worker_with_a_disk_error(launch, tmp_path):
    with pytest.raises(DiskError, match="No space left"):
        launch(ESCAPE + "print('output', flush=True); time.sleep(600)", log="/dev/full", timeout=1e6)
    assert not lives(tmp_path / "io/child")


def test_memory_of_the_whole_tree_is_limited(launch):
    done = launch(
        """
        import subprocess, sys
        subprocess.run([sys.executable, "-c", "import time; kept = b'x' * (300 << 20); time.sleep(600)"])
        """,
        memory=200 * MIB,
    )
    assert done.out_of_memory
    assert not done.timed_out


def test_pages_that_forked_children_share_count_once(tmp_path):
    code = (
        "import os, time; kept = b'x' * (100 << 20); [os.fork() for _ in range(2)]; open('ready', 'a'); time.sleep(600)"
    )
    process = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, start_new_session=True)
    try:
        parent = psutil.Process(process.pid)
        while len(parent.children(recursive=True)) < 3:
            time.sleep(0.01)
        wide, narrow = MemoryMeter(process.pid, 200 * MIB), MemoryMeter(process.pid, 50 * MIB)
        assert not wide.over_limit()
        assert 100 * MIB < wide.peak_bytes < 200 * MIB
        assert narrow.over_limit()
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_a_worker_dies_with_an_orchestrator_that_is_killed(root, tmp_path):
    (tmp_path / "io").mkdir()
    (tmp_path / "io/play.py").write_text("import os, time; open('pid', 'w').write(str(os.getpid())); time.sleep(600)")
    orchestrator = subprocess.Popen(
        [sys.executable, "-c", ORCHESTRATOR, str(root), str(tmp_path)], cwd=Path(__file__).parents[2]
    )
    pid = tmp_path / "io/pid"
    while not (pid.exists() and pid.read_text()):
        assert orchestrator.poll() is None
        time.sleep(0.01)
    orchestrator.kill()
    orchestrator.wait()
    for _ in range(1000):
        if not lives(pid):
            return
        time.sleep(0.01)
    pytest.fail("The worker outlived the orchestrator.")


ORCHESTRATOR = """
import sys
from pathlib import Path
from kit.engines.local import TEMPORARY, LocalEngine
from kit.environments.package_sources import Sources
from kit.model.environment import Environment
from kit.model.launch import LaunchFolder, Limits
root, here = map(Path, sys.argv[1:])
folder = LaunchFolder(here / "io", None, here / "log")
venv = Environment("toy", "cpu", "venv", sys.executable, "digest")
LocalEngine(Sources(), root=root).launch(venv, folder, Limits(600, 8 << 30, (0,)), {}, {"run": "r"}, lambda: False)
"""


def test_sweeping_ends_only_processes_of_dead_runs_whose_orchestrator_is_dead(engine):
    ended = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    owner = identity(ended.pid)
    ended.communicate(b"\n")

    def sleeper(run, owner):
        variables = {"KIT_RUN": run} | ({"KIT_ORCHESTRATOR": owner} if owner else {})
        return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], env=variables)

    dead, elsewhere = sleeper("dead", owner), f"{owner.rpartition('@')[0]}@00000000"
    others = [sleeper("alive", owner), *(sleeper("dead", other) for other in (identity(os.getpid()), elsewhere, ""))]
    try:
        swept = engine.sweep(lambda run: run != "dead")
        assert [name for name in swept if name.startswith("process")] == [f"process {dead.pid}"]
        assert dead.wait(10) == -signal.SIGKILL
        assert [other.poll() for other in others] == [None] * 4
    finally:
        for process in (dead, *others):
            process.kill()
            process.wait()


def framework(tmp_path, *, name, devices=("cpu",)):
    return Framework(name, name.title(), devices, (name,), None, None, None, tmp_path)


def test_a_named_interpreter_is_used_without_an_environment(root, tmp_path):
    engine = LocalEngine(Sources(), sys.executable, root)
    found = engine.prepare(framework(tmp_path, name="json"), "cpu", Silent())
    assert (found.kind, found.reference, len(found.digest)) == ("system", sys.executable, 64)
    assert engine.describe()["python"] == ".".join(map(str, sys.version_info[:3]))


def test_refusals_name_what_is_missing(root, tmp_path):
    named = LocalEngine(Sources(), sys.executable, root)
    assert "lacks no_such_framework" in str(named.refusal(framework(tmp_path, name="no_such_framework"), "cpu"))


def test_a_missing_interpreter_is_bad_input():
    with pytest.raises(UsageError, match="no-such-python"):
        LocalEngine(Sources(), "no-such-python").describe()


@pytest.mark.parametrize("program", ["/bin/false", "/bin/ls", "/bin/cat", "/bin/sh"])
def test_a_program_that_is_not_python_is_an_error_that_shows_one_line_of_its_output(program):
    with pytest.raises(EngineError) as caught:
        LocalEngine(Sources(), program).describe()
    message = caught.value.message
    assert message.startswith(f"{program} is not a Python interpreter")
    assert len(message.splitlines()) == 1
    assert len(message) < 300
    assert "import" not in message, "it shows the source of the probe"


def test_a_python_that_does_not_work_is_named_with_its_error(tmp_path):
    program = tmp_path / "python"
    broken = "echo 'Traceback (most recent call last):\n File x\nboom' >&2; exit 1"
    program.write_text(f"#!/bin/sh\n[ $1 = --version ] && exec echo Python 3.11.0\n{broken}\n")
    program.chmod(0o755)
    with pytest.raises(EngineError, match=r"python does not work as a Python interpreter: boom\n") as caught:
        LocalEngine(Sources(), str(program)).describe()
    assert caught.value.remedy == "Give --env another interpreter."


def test_an_unusable_folder_for_temporary_files_is_a_disk_error(engine, launch, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", "/proc")
    with pytest.raises(DiskError, match=r"/proc/kit-launch-.* cannot be written") as caught:
        launch("")
    assert "TMPDIR" in caught.value.remedy

    def unusable():
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp']")

    monkeypatch.setattr(tempfile, "gettempdir", unusable)
    with pytest.raises(DiskError, match="No usable temporary directory"):
        engine.sweep(lambda run: False)


def test_a_named_interpreter_is_found_again_only_with_the_same_packages(root, tmp_path, monkeypatch):
    monkeypatch.setenv("KIT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr("kit.environments.interpreters.NEEDED", ())
    framework = Framework("toy", "Toy", ("cpu",), (), None, None, None, root)
    named = LocalEngine(Sources(), sys.executable, root)
    today = named.prepare(framework, "cpu", Silent())
    assert named.find(framework, "cpu", today.digest) == today
    assert named.find(framework, "cpu", "0" * 64) is None
    assert LocalEngine(Sources(), root=root).find(framework, "cpu", today.digest) is None, "--env did not name it"
