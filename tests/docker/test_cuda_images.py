"""Test the CUDA image of each framework on a machine without a GPU.

The images are built as `kit build` does. Those of PyTorch and TensorFlow are marked `large`.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import docker
import pytest

from kit.engines.docker import DockerEngine
from kit.environments.images import IMAGE_LABEL
from kit.execution.launch import ReadyLaunch, RunContext, run_launch
from kit.host import machine_lock
from kit.model.environment import Environment
from kit.model.launch import Limits
from kit.model.progress import Silent
from kit.planning import catalog
from kit.storage.kept_files import KeptPaths
from kit.storage.reference_cache import ReferenceCache
from scenarios.contract.reasons import Code
from scenarios.contract.request import Budget
from scenarios.tuning.forked_trials import SERVER_VARIABLES
from tests import examples
from tests.docker.conftest import RUN, Launcher, with_shell
from tests.launches import never_stopped

FRAMEWORKS = [f.name for f in catalog.frameworks().values() if "cuda" in f.devices]
PROGRAMS = Path(__file__).parent / "in_image"
WITHOUT_THREADS = Path(__file__).parents[1] / "contract" / "start_without_threads.py"
LIMITS = Limits(timeout_s=600, memory_bytes=4 << 30, cpus=(0,))

pytestmark = pytest.mark.slow

Run = Callable[..., str]


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=[] if name == "onnxruntime" else pytest.mark.large) for name in FRAMEWORKS],
)
def image(request: pytest.FixtureRequest, engine: DockerEngine) -> Environment:
    """Return the CUDA image of a framework. Build it if it does not exist."""
    with machine_lock.measuring("tests"):
        return engine.prepare(catalog.frameworks()[request.param], "cuda", Silent())


@pytest.fixture(scope="module")
def environment(image: Environment, client: docker.APIClient) -> Iterator[Environment]:
    """Replace the environment of `launch`: the image, whose worker is the shell script in the scratch folder."""
    with with_shell(client, image.reference) as environment:
        yield environment


@pytest.fixture
def run(launch: Launcher, image: Environment) -> Run:
    """Return a function that runs a Python program in a launch without a GPU, and checks that it succeeds."""

    def run(program: Path, *arguments: str) -> None:
        for file in (*program.parent.glob("no_driver.py"), program):
            shutil.copy(file, launch.folder.scratch)
        command = f"PYTHONPATH=/opt/kit exec python /io/{program.name} {image.framework} {' '.join(arguments)}"
        completion = launch(command, memory_bytes=LIMITS.memory_bytes)
        assert completion.exit_code == 0, launch.log()

    return run


def test_each_library_finds_those_that_it_needs_except_for_the_driver(run):
    run(PROGRAMS / "libraries.py")


def test_settings_for_cuda_are_offered_and_no_thread_runs_before_the_forks_of_a_search(run, launch):
    launch.variables |= SERVER_VARIABLES
    run(WITHOUT_THREADS, "cuda")


def test_compilers_run_as_the_worker_does(run):
    run(PROGRAMS / "compilers.py")


def test_all_caches_are_in_the_scratch_folder(run):
    run(PROGRAMS / "caches.py")


@pytest.mark.parametrize("purpose", ["measure", "probe"])
def test_a_launch_without_a_driver_ends_with_the_wrong_device_and_no_other_error(image, engine, tmp_path, purpose):
    request = replace(
        examples.request(examples.cell(framework=image.framework, device="cuda")),
        purpose=purpose,
        threads=1,
        budget=Budget(steps=2, test_images=10),
    )
    kept = KeptPaths(*(tmp_path / name for name in ("weights", "checkpoints", "checkpoints", "pictures")))
    ready = ReadyLaunch(request, image, LIMITS, None, "synthetic: requested", tmp_path / "work", tmp_path / "log", kept)
    context = RunContext(RUN, "smoke", False, examples.machine(), engine, ReferenceCache(tmp_path / "references"))
    record = run_launch(context, ready, never_stopped)
    log = ready.log.read_text()
    assert record.reason is not None, log
    assert record.reason.code is Code.WRONG_DEVICE, log
    assert log.rstrip().splitlines()[-1].startswith("scenarios.adapter.DeviceUnavailable: ")
    assert "During handling of the above exception" not in log
    assert not record.warnings


def test_the_image_says_nothing_about_the_machine_that_built_it(image, client):
    config = client.inspect_image(image.digest)["Config"]
    assert {entry.partition("=")[0] for entry in config["Env"]} == {
        *("PATH", "PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED")
    }
    assert config["Labels"] == {IMAGE_LABEL: image.framework}
    commands = "\n".join(layer["CreatedBy"] for layer in client.history(image.digest))
    assert not [word for word in ("://", "_proxy", "_PROXY", "PIP_") if word in commands]
