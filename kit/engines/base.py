"""What an engine is. The campaign knows nothing else of Docker, Podman or virtual environments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from kit.model.environment import Device, Environment, Framework
from kit.model.launch import Completion, LaunchFolder, Limits
from kit.model.progress import Progress


class Engine(Protocol):
    """Runs workers. All methods may block; `launch` must return within the deadline plus seconds."""

    @property
    def name(self) -> str:
        """`docker`, `podman` or `local`."""

    def describe(self) -> dict[str, str]:
        """Name, version and what else belongs into a record (rootless, storage driver); nothing personal.

        Raises EngineError where the engine cannot be used, with the remedy.
        """

    def refusal(self, framework: Framework, device: Device) -> str | None:
        """Why this engine cannot run such a cell at all (no GPU, no toolkit), or None where it can."""

    def ready(self, framework: Framework, device: Device) -> bool:
        """Whether `prepare` would find the environment made. Raises EngineError."""

    def prepare(self, framework: Framework, device: Device, progress: Progress) -> Environment:
        """Build or find the environment. Raises ImageError, DiskError, EngineError."""

    def launch(
        self,
        environment: Environment,
        folder: LaunchFolder,
        limits: Limits,
        variables: Mapping[str, str],
        labels: Mapping[str, str],
        stopped: Callable[[], bool],
    ) -> Completion:
        """Run `python -m scenarios.worker` to its end, its deadline, or until `stopped` says so, and leave nothing
        behind. variables: the request's environment. labels: run id and key, so that leftovers can be found.
        Raises EngineError where the engine itself was lost."""

    def sweep(self, alive: Callable[[str], bool]) -> list[str]:
        """Remove what earlier runs left (containers, processes): only what carries our label and whose run id is not
        `alive`. Returns what was removed."""
