"""Resolve `docker/<framework>/<device>.in` into hash-locked lists of packages.

`python -m kit.environments.locks [FRAMEWORK ...]`

For maintainers (`make lock`). Images and environments install exactly the listed files, from any index.
"""

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import uv

from kit.environments.package_sources import Sources
from kit.host.privacy import without_user_info
from kit.model.environment import Framework
from kit.model.errors import ImageError, KitError, unknown
from kit.planning import catalog
from scenarios.contract.cell import Device

# Python 3.11 is that of images and environments. glibc 2.28 is older than that of every supported system.
TARGET = ("--python-version", "3.11", "--python-platform", "x86_64-manylinux_2_28")


def lock(framework: Framework, device: Device, sources: Sources) -> None:
    """Resolve and overwrite the list. Raise ImageError with uv's explanation if there is no solution."""
    options = [
        *TARGET,
        "--generate-hashes",
        "--no-annotate",
        "--no-emit-index-url",
        "--no-emit-find-links",
        "--upgrade",
    ]
    command = ["compile", "--custom-compile-command", "make lock", *options]
    arguments = [*command, f"{device}.in", "--output-file", f"{device}.lock"]
    failure = uv_pip(arguments, framework.folder, sources, wheels=device == "cpu")
    if failure is not None:
        raise ImageError(
            f"The packages of {framework.name} on {device} cannot be resolved:\n{failure}",
            f"Correct {framework.folder / device}.in, or set KIT_INDEX_URL and KIT_FIND_LINKS to other sources.",
        )


def uv_pip(arguments: Sequence[str], folder: Path, sources: Sources, *, wheels: bool = False) -> str | None:
    """Run `uv pip` in a folder. Return its explanation, without user info, if it fails. wheels: use `find_links`."""
    command = [uv.find_uv_bin(), "pip", *arguments, "--quiet"]
    done = subprocess.run(
        command,
        cwd=folder,
        env=sources.variables() | sources.index_variables() | (sources.wheel_variables() if wheels else {}),
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    return without_user_info(done.stderr) if done.returncode else None


def for_each(names: Sequence[str], update: Callable[[Framework, Sources], None]) -> int:
    """Update the named frameworks, by default all. Return the exit code, and show an error on stderr."""
    try:
        sources = Sources.from_environment()
        frameworks = catalog.frameworks()
        for name in names or frameworks:
            if name not in frameworks:
                raise unknown("framework", name, frameworks)
            update(frameworks[name], sources)
    except KitError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


def lock_devices(framework: Framework, sources: Sources) -> None:
    """Lock a framework for each of its devices. Raise ImageError."""
    for device in framework.devices:
        lock(framework, device, sources)


if __name__ == "__main__":
    sys.exit(for_each(sys.argv[1:], lock_devices))
