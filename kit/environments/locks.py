"""Resolve `docker/<framework>/<device>.in` into hash-locked lists of packages.

`python -m kit.environments.locks [FRAMEWORK ...]`

For maintainers (`make lock`). Images and environments install exactly the listed files, from any index.
"""

import subprocess
import sys
from collections.abc import Sequence

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
    if sources.index_url:
        options += ["--default-index", sources.index_url]
    if device == "cpu":
        options += ["--find-links", str(sources.find_links_folder() or sources.find_links)]
    command = [uv.find_uv_bin(), "pip", "compile", "--quiet", "--custom-compile-command", "make lock", *options]
    done = subprocess.run(
        [*command, f"{device}.in", "--output-file", f"{device}.lock"],
        cwd=framework.folder,
        env=sources.variables(),
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ImageError(
            f"The packages of {framework.name} on {device} cannot be resolved:\n{without_user_info(done.stderr)}",
            f"Correct {framework.folder / device}.in, or set KIT_INDEX_URL and KIT_FIND_LINKS to other sources.",
        )


def main(names: Sequence[str]) -> int:
    """Lock the named frameworks, by default all. Return the exit code."""
    try:
        sources = Sources.from_environment()
        frameworks = catalog.frameworks()
        for name in names or frameworks:
            if name not in frameworks:
                raise unknown("framework", name, frameworks)
            for device in frameworks[name].devices:
                lock(frameworks[name], device, sources)
    except KitError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
