"""Removes what is ours and no longer needed: leftovers of dead runs always, images and environments when asked."""

from __future__ import annotations

import shutil
from contextlib import nullcontext

from kit.engines.docker import DockerEngine
from kit.engines.local import LocalEngine
from kit.environments import uv_environments
from kit.environments.package_sources import Sources
from kit.host import machine_lock
from kit.model.errors import EngineError


def clean(sources: Sources, *, images: bool, environments_too: bool) -> list[str]:
    """Containers and processes of runs that are dead; then images that kit built and environments that it made.

    Returns what was removed, and which engine could not be asked and why, a line each. Where none is installed nothing
    of ours can be left; one that is stopped or forbidden may hold leftovers. Raises EngineError where one fails while
    it removes, or where images or environments are to go and a run measures with them; DiskError.
    """
    with machine_lock.measuring("clean") if images or environments_too else nullcontext():
        return _clean(sources, images=images, environments_too=environments_too)


def _clean(sources: Sources, *, images: bool, environments_too: bool) -> list[str]:
    lines = []
    for engine in (DockerEngine(sources), DockerEngine(sources, "podman")):
        try:
            engine.describe()
        except EngineError as error:
            if shutil.which(engine.name):  # where it is not installed nothing of ours can be left
                lines.append(f"{engine.name} was not cleaned: {' '.join(error.message.split())}")
            continue
        lines += [f"container {name}" for name in engine.sweep(machine_lock.is_alive)]
        if images:
            lines += [f"image {tag}" for tag in engine.remove_images()]
    lines += LocalEngine(sources).sweep(machine_lock.is_alive)
    if environments_too:
        lines += [f"environment {name}" for name in uv_environments.remove_all()]
    return lines
