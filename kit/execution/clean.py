"""Remove what kit made and no longer needs: leftovers of dead runs, and on request images and environments."""

import shutil
from contextlib import nullcontext

from kit.engines import registry
from kit.environments.package_sources import Sources
from kit.host import machine_lock
from kit.model.errors import EngineError


def clean(sources: Sources, *, images: bool, environments_too: bool) -> list[str]:
    """Remove containers and processes of dead runs. On request, remove the images and environments that kit made.

    Return one line for each thing that was removed, and for each engine that is installed but cannot be used: a stopped
    or forbidden daemon may still have leftovers. Raise EngineError if an engine fails during the removal, or if images
    or environments are requested while a run measures with them. Raise DiskError if a folder cannot be removed.
    """
    with machine_lock.measuring("clean") if images or environments_too else nullcontext():
        return _clean(sources, {"image": images, "environment": environments_too})


def _clean(sources: Sources, requested: dict[str, bool]) -> list[str]:
    lines = []
    for entry in registry.entries():
        engine = entry.make(sources, "")
        try:
            if entry.program is not None:  # an engine without a program may have leftovers even if it fails
                engine.describe()
        except EngineError as error:
            if entry.program and shutil.which(entry.program):  # else it is not installed and has no leftovers
                lines.append(f"{entry.name} was not cleaned: {' '.join(error.message.split())}")
            continue
        lines += engine.sweep(machine_lock.is_alive)
        if requested[entry.makes]:
            lines += engine.remove_environments()
    return lines
