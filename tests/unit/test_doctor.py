"""Test the checks of a machine: how facts are judged, and that nothing that hangs delays them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from kit import doctor
from kit.cli import host
from kit.cli.console import Column, plain_table
from kit.datasets.registry import MIRRORS, SOURCES
from kit.doctor import Finding, Level, gather, mirrors, table
from kit.doctor.checks import judge
from kit.doctor.facts import Cpus, DataSet, Docker, Facts, Folder, Gpus, Local, Toolkit
from kit.doctor.findings import LINE_CHARACTERS
from kit.environments.package_sources import Sources
from kit.host import load as load_module
from kit.host.load import Load
from kit.host.sampling.cpu import CpuTimes
from kit.model.device_code import DeviceCode
from kit.model.environment import Framework
from kit.model.errors import DataError, EngineError, UsageError
from kit.model.machine import Gpu
from tests import examples

HERE = Path("here")
GIB = 1 << 30
NO_DOCKER = Docker(EngineError("No Docker.", "Start it."))
NO_LOCAL = Local(EngineError("No uv.", "Install kit again."))


def gpu(index: int = 0, capability: tuple[int, int] | None = (9, 0), limit_w: float | None = 700.0) -> Gpu:
    return examples.gpu(index=index, name="H200", compute_capability=capability, power_limit_w=limit_w)


CODE = {"torch==2.13.0/libtorch_cuda.so": (DeviceCode((7, 5)), DeviceCode((9, 0)))}
TORCH = Framework("torch", "PyTorch", ("cpu", "cuda"), (), 13, 580, CODE, HERE)
TENSORFLOW = Framework("tensorflow", "TensorFlow", ("cpu", "cuda"), (), 12, 525, {}, HERE)
GPUS = Gpus((gpu(),), "580.65.06", "13.0", ())
DOCKER = Docker({"version": "28.0"}, Toolkit(("nvidia runtime",), (1, 17, 8)), 100 * GIB)
FOLDER = Folder("disk out", HERE, "--out", writable=True, free_bytes=100 * GIB)
ALL = frozenset((name, device) for name in ("tensorflow", "torch") for device in ("cpu", "cuda"))
READY = Facts(
    system="Linux",
    architecture="x86_64",
    docker=DOCKER,
    local=Local({"uv": "0.8"}, "3.11.9"),
    frameworks=(TENSORFLOW, TORCH),
    cards=1,
    gpus=GPUS,
    folders=(FOLDER,),
    cpus=Cpus(8, 8, None),
    available_bytes=32 * GIB,
    limit_bytes=None,
    shm_free_bytes=8 * GIB,
    governors=("performance",) * 8,
    load=Load(8, 0.4, 0.008, ("python",)),
    datasets=(DataSet("mnist", here=True, download_bytes=1),),
)
ABSENT = DataSet("cats-dogs", here=False, download_bytes=824_887_076, reachable=True)


def gpus(**changes: Any) -> dict[str, Any]:
    return {"gpus": replace(GPUS, **changes)}


def toolkit(ways: tuple[str, ...], version: tuple[int, ...] | None) -> dict[str, Any]:
    return {"docker": replace(DOCKER, toolkit=Toolkit(ways, version))}


def runtime(name: str) -> dict[str, Any]:
    return {"docker": replace(DOCKER, description={"version": "28.0", "runtime": name})}


def free(gib: float, **changes: Any) -> dict[str, Any]:
    return {"folders": (replace(FOLDER, free_bytes=int(gib * GIB), **changes),)}


def cache(gib: int) -> dict[str, Any]:
    """Free space for environments without Docker."""
    return {**free(gib, name="disk cache"), "docker": NO_DOCKER}


def images(gib: int | None) -> dict[str, Any]:
    return {"docker": replace(DOCKER, images_free_bytes=gib and gib * GIB)}


WARNED, FAILED = Level.WARNING, Level.ERROR
SPOILED: list[tuple[dict[str, Any], dict[str, Level], str]] = [
    ({"system": "Darwin", "architecture": "arm64"}, {"platform": FAILED}, "x86_64 only"),
    ({"docker": NO_DOCKER}, {"engine docker": WARNED}, "No Docker. Start it."),
    ({"docker": NO_DOCKER, "local": NO_LOCAL}, {"engine docker": FAILED, "engine local": FAILED}, "No uv."),
    ({"local": Local({"uv": "0.8"})}, {"python": WARNED}, "Python 3.11 is missing"),
    (gpus(found=(), answered=False), {"gpu": WARNED}, "nvidia-smi"),
    (gpus(found=()), {"gpu": WARNED}, "Install NVIDIA's driver 580 or newer"),
    (toolkit((), (1, 17, 8)), {"toolkit": WARNED}, "nvidia-ctk runtime configure"),
    (toolkit(("nvidia runtime", "hook"), (1, 17, 7)), {"toolkit": WARNED}, "Update it to 1.17.8"),
    (toolkit(("CDI",), (1, 17, 4)), {"toolkit": WARNED}, "CVE-2025-23266"),
    (gpus(lacks={"torch": ("Too old.", "Update.")}), {"cuda torch": WARNED}, "would be skipped: Too old. Update."),
    (gpus(silent=1), {"gpu": WARNED}, "shows only 1 of 2 GPUs to this user. Run nvidia-smi."),
    (gpus(visible=UsageError("Hidden.", "Unset it.")), {"gpu choice": WARNED}, "Hidden. Unset it."),
    (gpus(modes={1: "EXCLUSIVE_PROCESS"}), {"gpu mode": WARNED}, "Every candidate of the tuned lane's search fails."),
    (gpus(modes={0: "PROHIBITED"}), {"gpu mode": WARNED}, "All launches on it fail. Run `sudo nvidia-smi -i 0 -c"),
    (runtime("crun"), {"runtime": WARNED}, "Make runc the default-runtime"),
    (runtime("crun 1.25.1"), {"runtime": WARNED}, "Docker's default runtime is crun 1.25.1. Before 1.26,"),
    (gpus(found=(gpu(), gpu(1, (10, 0)))), {"cuda torch": WARNED}, "GPU 1 (H200) has compute capability 10.0, for"),
    (gpus(found=(gpu(), gpu(1, limit_w=350.0))), {"gpu power": WARNED}, "GPU 1 to 50% of its default"),
    (gpus(busy=(0,)), {"gpu load": WARNED}, "compute on GPU 0 of 1"),
    ({"folders": (replace(FOLDER, writable=False),)}, {"disk out": FAILED}, "Choose another folder with --out."),
    (free(0.1), {"disk out": FAILED}, "102 MiB free at here Runs may need 200 MiB there. Free disk space."),
    (cache(1), {"engine docker": WARNED, "disk cache": FAILED}, "Runs may need 29 GiB there."),
    (cache(27), {"engine docker": WARNED, "disk cache": WARNED}, "27 GiB free"),  # both on both devices, twice
    (images(1), {"disk images": FAILED}, "--engine local"),
    (images(13), {"disk images": WARNED}, "14 GiB"),  # both frameworks on both devices
    ({"cpus": Cpus(2, 8, 2.5)}, {"cpus": WARNED}, "a quota of 2.5 CPUs"),
    ({"limit_bytes": GIB}, {"memory": FAILED}, "limited to 1.0 GiB"),
    ({"limit_bytes": 3 * GIB}, {"memory": WARNED}, "out_of_memory"),
    ({"available_bytes": GIB}, {"memory": FAILED}, "1.0 GiB available"),
    ({"shm_free_bytes": 64 << 20}, {"shm": WARNED}, "--shm-size=2g"),
    ({"shm_free_bytes": None}, {"shm": WARNED}, "no /dev/shm"),
    ({"governors": ("performance", "powersave")}, {"governor": WARNED}, "powersave on 1 CPU"),
    ({"load": Load(8, 0.41, 0.0, ("make", "cc1"))}, {"load": WARNED}, "with other programs; busiest: make, cc1"),
    ({"load": Load(8, 0.2, 0.06, ())}, {"steal": WARNED}, "23% of the requested CPU time"),
    ({"datasets": (replace(ABSENT, reachable=False),)}, {"data cats-dogs": WARNED}, "kit data add cats-dogs PATH"),
    ({"datasets": (DataSet("m", False, 1, DataError("Torn.", "Mend it.")),)}, {"data m": WARNED}, "Torn. Mend it."),
]  # fmt: skip

NOTHING_WRONG: list[tuple[dict[str, Any], str]] = [
    ({}, "CUDA 13; driver 580.65.06 (needs 580); has code for compute capability 9.0"),
    ({"cards": 0, **gpus(found=())}, "Cells on cuda will be skipped"),
    (toolkit(("CDI", "nvidia runtime"), (1, 17, 5)), "1.17.5; Docker passes GPUs by CDI"),
    (gpus(visible=("GPU-a", "1")), "CUDA_VISIBLE_DEVICES leaves GPU-a, 1."),
    (runtime("crun 1.26"), "runtime crun 1.26"),
    (runtime("runc 1.1.5+ds1"), "runtime runc 1.1.5+ds1"),
    (gpus(found=(gpu(capability=None),), driver=None, cuda=None), "has code for compute capability (unknown)"),
    (toolkit(("hook",), None), "Toolkit (unknown version)"),
    (gpus(found=(gpu(limit_w=None),)), "The power limits are unknown"),
    (images(None), "The free space on Docker's disk is unknown"),
    (images(16), "16 GiB free for Docker"),
    ({"docker": replace(DOCKER, images_free_bytes=GIB, ready=ALL)}, "1.0 GiB free for Docker"),
    (free(0.3), "307 MiB"),
    ({"load": Load(8, 0.02, 0.02, ())}, "gives 0% of the requested CPU time"),  # a clock tick
    ({"limit_bytes": 5 * GIB}, "limited to 5.0 GiB"),
    ({"cpus": Cpus(8, 8, 8.0)}, "8 of 8"),
    ({"governors": ()}, "The frequency governor of the CPUs is unknown"),
    ({"load": None}, "does not count CPU time"),
    ({"datasets": (ABSENT,)}, "Missing. Only `kit data fetch cats-dogs` downloads it (787 MiB)"),
    ({"datasets": (replace(ABSENT, download_bytes=11 << 20),)}, "Missing. A run downloads it (11 MiB)"),
]


def text(findings: list[Finding]) -> str:
    return "\n".join(f"{f.message} {f.remedy}" for f in findings)


@pytest.mark.parametrize(("changes", "levels", "words"), SPOILED, ids=lambda value: "")
def test_what_is_wrong_is_found_and_nothing_else(changes: dict[str, Any], levels: dict[str, Level], words: str) -> None:
    wrong = [finding for finding in judge(replace(READY, **changes)) if finding.level is not Level.OK]
    assert {finding.name: finding.level for finding in wrong} == levels
    assert words in text(wrong)
    assert all(finding.remedy for finding in wrong)


@pytest.mark.parametrize(("changes", "words"), NOTHING_WRONG, ids=lambda value: "")
def test_a_machine_that_is_ready_gets_no_warning(changes: dict[str, Any], words: str) -> None:
    findings = judge(replace(READY, **changes))
    assert {finding.level for finding in findings} == {Level.OK}
    assert len({finding.name for finding in findings}) == len(findings)
    assert words in text(findings)


def test_without_docker_there_are_no_findings_about_docker() -> None:
    names = {finding.name for finding in judge(replace(READY, docker=NO_DOCKER))}
    assert not names & {"toolkit", "disk images"}
    assert "cuda torch" in names


WORDS = st.lists(st.text("ab-é`", min_size=1, max_size=30), min_size=1, max_size=40).map(" ".join)


@given(
    st.lists(
        st.builds(Finding, st.sampled_from(Level), st.text("ab", min_size=5, max_size=20), WORDS, WORDS | st.just(""))
    )
)
def test_a_table_fits_into_80_characters_and_loses_no_word(findings: list[Finding]) -> None:
    rows = table(findings)
    assert all(len(line) <= LINE_CHARACTERS for line in plain_table((Column(""), Column("Check"), Column("")), rows))
    assert " ".join(row[2] for row in rows).split() == text(findings).split()
    assert [row[:2] for row in rows if row[0]] == [[f.level, f.name] for f in findings]


def times(busy: int, stolen: int, idle: int) -> CpuTimes:
    return CpuTimes(1000 + busy, 1000 + stolen, 1000 + idle)


def test_load_counts_other_processes_on_usable_cpus() -> None:
    before = dict.fromkeys(range(4), times(0, 0, 0))
    after = {0: times(25, 5, 20), 1: times(10, 0, 40), 2: times(50, 0, 0), 3: times(0, 0, 0), 7: times(50, 0, 0)}
    load = load_module.load_between(before, after, {0, 1, 3, 7}, own=0.3, busiest=("cc1",))
    assert load is not None
    assert load.cpus == 2
    assert load.busy == pytest.approx(0.4)
    assert load.stolen == pytest.approx(0.1)
    assert load_module.load_between(before, before, {0, 1}, own=0.0, busiest=()) is None
    idle = load_module.load_between(before, {0: times(0, 0, 50)}, {0}, own=0.1, busiest=())
    assert idle is not None
    assert idle.busy == 0.0


def test_programs_are_named_without_their_arguments() -> None:
    command = [sys.executable, "-c", "input()", "--token=secret"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as program:
        names = {process.pid: name for process, (name, _) in load_module._programs().items()}
        program.communicate()
    assert names[program.pid]
    assert "secret" not in names[program.pid]


def test_the_busiest_programs_are_those_that_ran_most_during_the_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    def programs(**seconds: float) -> dict[str, tuple[str, float]]:
        return {name: (name, spent) for name, spent in seconds.items()}

    cpus = dict.fromkeys(os.sched_getaffinity(0), times(0, 0, 0))
    readings = iter([cpus, dict.fromkeys(cpus, times(50, 0, 50))])
    snapshots = iter(
        [programs(idle=9.0, make=1.0, cc1=1.0), programs(idle=9.0, cc1=1.2, late=0.05, kworker=0.01, make=1.0)]
    )
    monkeypatch.setattr(load_module, "cpu_times", lambda: next(readings))
    monkeypatch.setattr(load_module, "_programs", lambda: next(snapshots))
    load = load_module.measure_load(0.0)
    assert load is not None
    assert load.busiest == ("cc1", "late")


@pytest.mark.parametrize(
    ("output", "version"),
    [
        ("NVIDIA Container Toolkit CLI version 1.16.1\ncommit: a470818ba7d9166be282cd0039dd2fc9b0a34d73\n", (1, 16, 1)),
        ("NVIDIA Container Toolkit CLI version v1.17.0-rc.1", (1, 17, 0)),
        ("", None),
    ],
)
def test_the_version_of_the_toolkit_is_parsed(output: str, version: tuple[int, ...] | None) -> None:
    assert gather.parse_toolkit_version(output) == version


def test_how_docker_passes_gpus_is_read_from_its_description(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda program: None)
    assert gather._ways({"Runtimes": {"runc": {}}, "CDISpecDirs": [str(tmp_path)]}) == ()
    (tmp_path / "nvidia.yaml").touch()
    assert gather._ways({"Runtimes": {"nvidia": {}}, "CDISpecDirs": [str(tmp_path)]}) == ("CDI", "nvidia runtime")


def test_cards_without_a_driver_and_governors_are_read_from_sysfs(tmp_path: Path) -> None:
    for name, vendor, kind in (("0", "0x10de", "0x030200"), ("1", "0x10de", "0x040300"), ("2", "0x8086", "0x030000")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "vendor").write_text(f"{vendor}\n")
        (tmp_path / name / "class").write_text(f"{kind}\n")
    assert gather._cards(tmp_path) == 1
    for cpu in range(2):
        (tmp_path / f"cpu{cpu}/cpufreq").mkdir(parents=True)
        (tmp_path / f"cpu{cpu}/cpufreq/scaling_governor").write_text("powersave\n")
    assert gather._governors(tmp_path) == ["powersave", "powersave"]


def test_the_driver_stays_open_for_all_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr("pynvml.nvmlInit", lambda: opened.append("init"))
    monkeypatch.setattr("pynvml.nvmlShutdown", lambda: opened.append("shutdown"))
    monkeypatch.setattr("kit.host.gpus._nvml", lambda: nullcontext(enter_result=opened == ["init"]))
    monkeypatch.setattr("kit.host.gpus.gpus", lambda: [gpu(capability=(6, 1))])
    monkeypatch.setattr("kit.host.gpus.driver", lambda: ("570.1", "12.8"))
    monkeypatch.setattr("kit.host.gpus.busy", lambda: [0])
    found = gather._gpus((TENSORFLOW, TORCH))
    assert (found.driver, found.busy, opened) == ("570.1", (0,), ["init", "shutdown"])
    wrong = {f.name: f"{f.message} {f.remedy}" for f in judge(replace(READY, gpus=found)) if f.level is Level.WARNING}
    assert wrong.keys() == {"cuda torch", "gpu load"}
    assert "needs 580 or newer. Update the driver." in wrong["cuda torch"]


def test_a_missing_folder_is_judged_by_its_nearest_parent(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert not gather._folder("disk out", tmp_path / "file/runs", "--out").writable
    there = gather._folder("disk out", tmp_path / "a/b", "--out")
    assert there.writable
    assert there.free_bytes > 0


class Server(ThreadingHTTPServer):
    """A server that answers HEAD with the status in the path. It answers `/0` only after the test has ended."""

    daemon_threads = True
    block_on_close = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.ended = threading.Event()


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_HEAD(self) -> None:
        status = int(self.path.split("/")[1])
        if status == 0:
            self.server.ended.wait(60)
        self.send_response(status or 200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
        """Log nothing."""


@pytest.fixture
def url() -> Iterator[str]:
    server = Server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.ended.set()
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_mirror_counts_if_it_offers_the_file_in_time(url: str) -> None:
    answers = {
        status: mirrors.answers(f"{url}/{status}/file", 30 if status else 0.2, None) for status in (200, 404, 405, 0)
    }
    assert answers == {200: True, 404: False, 405: True, 0: False}
    assert not mirrors.answers("http://[", 0.5, None)
    assert not mirrors.answers("http://127.0.0.1:9/file", 0.5, None)


def test_the_mirror_of_the_user_replaces_the_published_ones(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KIT_DATA_MIRROR", raising=False)
    assert len(mirrors.questions("mnist", 30)) == len(MIRRORS["mnist"])
    monkeypatch.setenv("KIT_DATA_MIRROR", f"{url}/200/")
    assert [question() for question in mirrors.questions("mnist", 30)] == [True, True]
    monkeypatch.setenv("KIT_DATA_MIRROR", str(tmp_path))
    first, *others = SOURCES["mnist"]
    (tmp_path / first.name).touch()
    assert [question() for question in mirrors.questions("mnist", 30)] == [False]
    (tmp_path / "mnist").mkdir()
    for file in others:
        (tmp_path / "mnist" / file.name).touch()
    assert [question() for question in mirrors.questions("mnist", 30)] == [True]


@pytest.fixture
def answered(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[bool]]:
    """The answers so far, on a machine on which Docker, NVIDIA's driver and all mirrors hang."""
    monkeypatch.setenv("KIT_DATA_DIR", str(tmp_path))
    monkeypatch.setattr(gather, "PATIENCE_S", 1.0)
    released = threading.Event()
    answers: list[bool] = []

    def hang(*arguments: object) -> dict[str, str]:
        answers.append(released.wait(60))
        return {}

    monkeypatch.setattr("kit.engines.docker.DockerEngine.describe", hang)
    monkeypatch.setattr("pynvml.nvmlInit", hang)
    monkeypatch.setattr("kit.doctor.mirrors.answers", hang)
    yield answers
    released.set()


def test_nothing_that_hangs_delays_the_checks(tmp_path: Path, answered: list[bool]) -> None:
    found = {finding.name: finding for finding in doctor.examine(Sources(), tmp_path)}
    assert not answered
    late = {name for name, finding in found.items() if finding.level is not Level.OK}
    assert {"engine docker", "gpu", "data mnist", "data cats-dogs"} <= late
    assert "did not answer within 1 s" in found["engine docker"].message


def test_no_finding_names_user_or_home_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    refusal = EngineError("No engine at /home/jane/.docker/docker.sock.", "Look into /home/jane/.docker/.")
    folder = Folder("disk cache", Path("/home/jane/.cache/kit"), "KIT_CACHE_DIR", writable=True, free_bytes=10**12)
    facts = replace(READY, docker=Docker(refusal), folders=(folder,))
    monkeypatch.setattr(doctor, "gather_facts", lambda sources, out: facts)
    monkeypatch.setattr("pathlib.Path.home", lambda: Path("/home/jane"))
    monkeypatch.setenv("USER", "jane")
    found = {finding.name: finding for finding in doctor.examine(Sources(), Path("reports"))}
    assert found["engine docker"].message == "No engine at ~/.docker/docker.sock."
    assert found["engine docker"].remedy == "Look into ~/.docker/."
    assert found["disk cache"].message.endswith(" free at ~/.cache/kit")
    assert not [finding for finding in found.values() if "jane" in f"{finding}"]


@pytest.mark.parametrize(("level", "code"), [(Level.OK, 0), (Level.WARNING, 0), (Level.ERROR, 1)])
def test_the_command_prints_table_or_json_and_fails_on_errors_alone(
    monkeypatch: pytest.MonkeyPatch, level: Level, code: int
) -> None:
    monkeypatch.setattr(doctor, "examine", lambda sources, out: [Finding(level, "disk", "Full.", "Make room.")])
    called = CliRunner().invoke(host.app, ["doctor"])
    assert called.exit_code == code
    assert "disk" in called.stdout
    *_, remedy, empty, conclusion = called.stdout.splitlines()
    assert "Make room." in remedy
    assert not empty
    assert (
        conclusion
        == {
            Level.OK: "This machine is ready.",
            Level.WARNING: "This machine is ready, with 1 warning.",
            Level.ERROR: "This machine is not ready: 1 error.",
        }[level]
    )
    called = CliRunner().invoke(host.app, ["doctor", "--json"])
    assert called.exit_code == code
    assert json.loads(called.stdout) == [{"level": level, "name": "disk", "message": "Full.", "remedy": "Make room."}]
