"""Unpack a run in a fresh container without network, and compare its report with the one of this machine."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path

import docker
import pytest

from kit.environments.package_sources import Sources
from kit.execution.reporting import report
from kit.model.progress import Silent
from kit.storage.packs import write_pack
from kit.storage.run_folder import RunFolder
from tests import example_run

ROOT = Path(__file__).parents[2]
RECIPE = Path(__file__).with_name("fresh_machine.Dockerfile")
IMAGE = "kit-tests:fresh-machine"  # also of fresh_machine.sh
UNPACK = """set -e
python3 -m kit unpack /in/run.tar.xz --out /home/user/runs
cp runs/*/index.html /out/report.html
cp runs/index.html /out/index.html
python3 -c 'import sys; print("Python %d.%d" % sys.version_info[:2])'"""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def fresh_machine(client: docker.APIClient) -> str:
    """Build the image of a machine that has only what the README asks for."""
    arguments = {"BASE": Sources.from_environment().base_image}
    with RECIPE.open("rb") as recipe:
        for message in client.build(fileobj=recipe, tag=IMAGE, buildargs=arguments, rm=True, decode=True):
            assert "error" not in message, message["error"]
    return IMAGE


def run(client: docker.APIClient, image: str, folder: Path) -> str:
    """Unpack `folder/in` in a new container, copy the pages to `folder/out`, and return the output.

    The container uses the kit of this clone and the packages of this interpreter.
    """
    binds = [f"{ROOT}:/kit:ro", f"{sysconfig.get_paths()['purelib']}:/site:ro", f"{folder}/in:/in:ro"]
    container = client.create_container(
        image,
        ["sh", "-c", UNPACK],
        environment={"PYTHONPATH": "/kit:/site", "PYTHONDONTWRITEBYTECODE": "1"},
        hostname="another-machine",
        host_config=client.create_host_config(binds=[*binds, f"{folder}/out:/out"], network_mode="none"),
    )
    try:
        client.start(container)
        code = client.wait(container)["StatusCode"]
        output: str = client.logs(container).decode()
        assert code == 0, output
        return output
    finally:
        client.remove_container(container, force=True)


def test_a_run_that_is_unpacked_in_a_fresh_container_has_the_same_report(
    client: docker.APIClient, fresh_machine: str, tmp_path: Path
) -> None:
    made = example_run.run()
    folder = RunFolder.create(tmp_path / "reports" / "r1", made.plan, made.machine)
    for record in (*made.records, *made.probes, *made.tunings):
        folder.save(record)
    (folder.path / "records" / "broken.json").write_text("{")
    for name in ("in", "out"):
        (tmp_path / name).mkdir()
        (tmp_path / name).chmod(0o777)  # the container has another user
    write_pack(folder, tmp_path / "in" / "run.tar.xz", Silent())
    output = run(client, fresh_machine, tmp_path)
    if f"Python {sys.version_info.major}.{sys.version_info.minor}" not in output:
        pytest.skip("the packages of these tests are for another Python than that of the image")
    assert (tmp_path / "out" / "report.html").read_bytes() == report(folder).report.read_bytes()
    assert 'href="r1/index.html"' in (tmp_path / "out" / "index.html").read_text()
