"""Removes what is ours and no longer needed: leftovers of dead runs always, images and environments when asked."""

from __future__ import annotations

from contextlib import nullcontext

from kit import environments, locks
from kit.engines.docker import DockerEngine
from kit.engines.local import LocalEngine
from kit.errors import EngineError
from kit.sources import Sources


def clean(sources: Sources, *, images: bool, environments_too: bool) -> list[str]:
    """Containers and processes of runs that are dead; then images that kit built and environments that it made.

    Returns what was removed, a line each. An engine that does not answer holds nothing that could be removed.
    Raises EngineError where one fails while it removes, or where images or environments are to go and a run measures
    with them; DiskError.
    """
    with locks.measuring("clean") if images or environments_too else nullcontext():
        return _clean(sources, images=images, environments_too=environments_too)


def _clean(sources: Sources, *, images: bool, environments_too: bool) -> list[str]:
    removed = []
    for engine in (DockerEngine(sources), DockerEngine(sources, "podman")):
        try:
            engine.describe()
        except EngineError:
            continue
        removed += [f"container {name}" for name in engine.sweep(locks.is_alive)]
        if images:
            removed += [f"image {tag}" for tag in engine.remove_images()]
    removed += LocalEngine(sources).sweep(locks.is_alive)
    if environments_too:
        removed += [f"environment {name}" for name in environments.remove_all()]
    return removed
