"""The engines: what can run a worker in an isolated environment."""

from __future__ import annotations

from kit.engines.base import Engine
from kit.environments.package_sources import Sources
from kit.model.errors import EngineError, UsageError, unknown

NAMES = ("auto", "docker", "podman", "local")


def choose(name: str, environment: str, sources: Sources) -> tuple[Engine, str]:
    """The engine of that name, which was asked and can be used, and one line that tells a person which it is and why.

    `auto`: Docker where its daemon answers, else local. environment: `system` or an interpreter's path, where the local
    engine shall use the packages it has; it settles `auto`. Raises UsageError for an unknown name or an environment
    for a container engine, EngineError where the engine cannot be used.
    """
    from kit.engines.docker import DockerEngine
    from kit.engines.local import LocalEngine

    if name not in NAMES:
        raise unknown("engine", name, NAMES)
    if name == "local" or (name == "auto" and environment):
        return LocalEngine(sources, environment), "Using the local engine" + (
            f" with {environment}." if environment else "."
        )
    if environment:
        raise UsageError(
            f"--env names an interpreter, which the {name} engine does not use.", "Use --engine local, or leave it out."
        )
    engine = DockerEngine(sources, "podman" if name == "podman" else "docker")
    try:
        version = engine.describe()["version"]
    except EngineError as error:
        if name != "auto":
            raise
        return LocalEngine(sources), f"{error.message} Using the local engine."
    return engine, f"Using {engine.name.capitalize()} {version}."
