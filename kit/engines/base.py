"""Define what an engine is. The campaign knows nothing else of Docker, Podman or virtual environments."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from kit.environments.package_sources import Sources
from kit.model.environment import Environment, Framework
from kit.model.launch import Completion, LaunchFolder, Limits
from kit.model.progress import Progress
from scenarios.contract.cell import Device


class Engine(Protocol):
    """Runs workers. All methods may block. `launch` must return within seconds of the deadline."""

    @property
    def name(self) -> str:
        """The name that `--engine` takes."""

    def describe(self) -> dict[str, str]:
        """Return name, version and what else belongs into a record (rootless, storage driver), nothing personal.

        Raise EngineError, with the remedy, if the engine cannot be used.
        """

    def refusal(self, framework: Framework, device: Device) -> str | None:
        """Return why this engine cannot run such a cell at all (no GPU, no toolkit), None if it can."""

    def ready(self, framework: Framework, device: Device) -> bool:
        """Return whether the environment exists, so that `prepare` has nothing to build. Raise EngineError."""

    def prepare(self, framework: Framework, device: Device, progress: Progress) -> Environment:
        """Build or find the environment. Raise ImageError, DiskError or EngineError."""

    def find(self, framework: Framework, device: Device, digest: str) -> Environment | None:
        """Return the environment with this digest, which an earlier run used, or None if it no longer exists.

        The digest may come from a stranger, so only environments that kit made are found, and the interpreter that the
        user named with `--env`. Raise EngineError or DiskError.
        """

    def launch(
        self,
        environment: Environment,
        folder: LaunchFolder,
        limits: Limits,
        variables: Mapping[str, str],
        labels: Mapping[str, str],
        stopped: Callable[[], bool],
    ) -> Completion:
        """Run `python -m scenarios.worker` until it ends, its deadline passes, or `stopped` returns True. Leave no
        process or container behind.

        variables: the request's environment. labels: run id (`run`) and key (`key`), by which leftovers are found.
        Raise EngineError if the engine itself was lost.
        """

    def sweep(self, alive: Callable[[str], bool]) -> list[str]:
        """Remove what earlier runs left (containers, processes): only what carries kit's label and whose run id is not
        `alive`. Return what was removed, one line each."""

    def remove_environments(self) -> list[str]:
        """Remove every image or environment that kit made in this engine. Return what was removed, one line each.

        Raise EngineError or DiskError.
        """


@dataclass(frozen=True)
class EngineEntry:
    """One engine that `--engine` offers. A module of this package lists its entries in `ENGINES`.

    title: for messages. make: takes the package sources and the interpreter of `--env`, empty if there is none.
    makes: what `prepare` builds. program: a program that is installed wherever the engine can be, None if the engine
    is always here. takes_interpreter: supports `--env`. auto_rank: `auto` tries lower ranks first; None: never.
    """

    name: str
    title: str
    make: Callable[[Sources, str], Engine]
    makes: Literal["image", "environment"]
    program: str | None = None
    takes_interpreter: bool = False
    auto_rank: int | None = None
