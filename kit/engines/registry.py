"""Find the engines: each module of this package may list some in `ENGINES`."""

import pkgutil
from importlib import import_module

from kit import engines
from kit.engines.base import Engine, EngineEntry
from kit.environments.package_sources import Sources
from kit.model.errors import EngineError, UsageError, unknown
from kit.storage import used_engines


def entries() -> list[EngineEntry]:
    """Return every engine, in the order of its module and name there."""
    modules = [import_module(f"{engines.__name__}.{module.name}") for module in pkgutil.iter_modules(engines.__path__)]
    return [entry for module in modules for entry in getattr(module, "ENGINES", ())]


def choose(name: str, environment: str, sources: Sources) -> tuple[Engine, str]:
    """Return the engine of that name, which can be used, and a line for the user that says which one it is and why.

    name: `auto` stands for the first engine that can be used. environment: `system` or an interpreter's path, to use
    the packages that it has; `auto` then skips engines without support for it. Raise UsageError for an unknown name or
    for an environment that the engine does not support, EngineError if the engine cannot be used, and DiskError if the
    cache cannot be written.
    """
    offered = {entry.name: entry for entry in entries()}
    if name == "auto":
        usable = [entry for entry in offered.values() if entry.takes_interpreter or not environment]
        ranked = [(entry.auto_rank, entry) for entry in usable if entry.auto_rank is not None]
        candidates = [entry for _, entry in sorted(ranked, key=lambda pair: pair[0])]
    elif name in offered:
        candidates = [offered[name]]
    else:
        raise unknown("engine", name, ["auto", *offered])
    if environment and not candidates[0].takes_interpreter:
        raise UsageError(
            f"--env names an interpreter, which the {name} engine does not use.", "Use --engine local, or omit --env."
        )
    failures: list[EngineError] = []
    for entry in candidates:
        engine = entry.make(sources, environment)
        try:
            version = engine.describe().get("version")
        except EngineError as error:
            failures.append(error)
        else:
            used_engines.remember(entry.name)
            using = f"Using {entry.title}" + (f" {version}" if version else "")
            using += f" with {environment}." if environment else "."
            return engine, " ".join([*(error.message for error in failures), using])
    raise failures[-1]
