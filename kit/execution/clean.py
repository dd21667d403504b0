"""Remove what kit made and no longer needs: leftovers of dead runs, and on request images and environments."""

import shutil
from collections.abc import Callable, Iterator, Mapping

from kit.engines import registry
from kit.engines.base import EngineEntry
from kit.environments.package_sources import Sources
from kit.execution.unmeasured import remove_work_folders
from kit.host import machine_lock
from kit.model.errors import EngineError
from kit.storage import used_engines


def clean(sources: Sources, *, images: bool, environments_too: bool) -> Iterator[str]:
    """Remove containers, processes and scratch folders of dead runs and killed commands. On request, remove the images
    and environments that kit made.

    Yield one line for each thing that was removed. At the end, raise EngineError for the engines that are installed but
    could not be cleaned: a stopped or forbidden daemon may still have leftovers. Raise EngineError at once if images or
    environments are requested while a run or a build uses them. Raise DiskError if a folder cannot be removed.
    """
    requested = {"image": images, "environment": environments_too}
    if any(requested.values()):
        with machine_lock.measuring("clean"):
            yield from _clean(sources, requested, lambda run: False)  # this process has the lock, so no run is alive
    else:
        yield from _clean(sources, requested, machine_lock.is_alive)


def _clean(sources: Sources, requested: Mapping[str, bool], alive: Callable[[str], bool]) -> Iterator[str]:
    failures = []
    for entry in registry.entries():
        engine = entry.make(sources, "")
        try:
            if entry.program is not None:  # an engine without a program may have leftovers even if it fails
                engine.describe()
            yield from engine.sweep(alive)
            if requested[entry.makes]:
                yield from engine.remove_environments()
        except EngineError as error:
            if _may_have_leftovers(entry):
                failures.append(f"{entry.name} was not cleaned: {' '.join(error.message.split())}")
    yield from remove_work_folders()  # last: a container that was removed above may have used one
    if failures:  # the remedies of the errors name options of `kit run`
        remedy = "Solve this (`kit doctor` checks Docker), then run `kit clean` again."
        raise EngineError("\n".join(failures), remedy)


def _may_have_leftovers(entry: EngineEntry) -> bool:
    """Return whether an engine that fails may have leftovers. One that `auto` never chooses has none until it is used:
    Podman is often installed without a service."""
    if entry.program is None:
        return True
    return shutil.which(entry.program) is not None and (entry.auto_rank is not None or used_engines.used(entry.name))
