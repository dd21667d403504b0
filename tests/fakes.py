"""A fake engine without containers, for unit tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from kit.model.environment import Environment, Framework
from kit.model.launch import Completion, LaunchFolder, Limits
from kit.model.progress import Progress
from scenarios.contract import codec
from scenarios.contract.cell import Device
from scenarios.contract.codec import from_json
from scenarios.contract.request import REQUEST_FILE, RESULT_FILE, Request
from tests import examples

Worker = Callable[[Request, LaunchFolder], Completion]


def works(request: Request, folder: LaunchFolder) -> Completion:
    """Succeed as a worker: write a log and an `ok` result."""
    folder.log.write_text("working\n")
    codec.write(folder.scratch / RESULT_FILE, examples.result(request))
    return Completion(exit_code=0, seconds=1.0)


@dataclass
class FakeEngine:
    """Implementation of `kit.engines.base.Engine`.

    worker: function that each launch calls. on_call: called with the name of each call; it may raise. refused: reason
    by (framework, device). launched, probed, tuned: key and launch number of each finished launch, probe or search.
    used: the same for launches that only use weights. running: run ids of existing containers. A killed launch leaves
    its container. digest: of the environments that are prepared. gone: digests of environments that were removed.
    """

    worker: Worker = works
    on_call: Callable[[str], None] = lambda name: None
    refused: Mapping[tuple[str, Device], str] = field(default_factory=dict)
    name: str = "fake"
    calls: list[str] = field(default_factory=list)
    running: list[str] = field(default_factory=list)
    launched: list[tuple[str, int]] = field(default_factory=list)
    probed: list[tuple[str, int]] = field(default_factory=list)
    tuned: list[tuple[str, int]] = field(default_factory=list)
    used: list[tuple[str, int]] = field(default_factory=list)
    limits: list[Limits] = field(default_factory=list)
    digest: str = "sha256:0"
    gone: set[str] = field(default_factory=set)

    def _called(self, name: str) -> None:
        self.calls.append(name)
        self.on_call(name)

    def describe(self) -> dict[str, str]:
        self._called("describe")
        return {"engine": "fake"}

    def refusal(self, framework: Framework, device: Device) -> str | None:
        return self.refused.get((framework.name, device))

    def ready(self, framework: Framework, device: Device) -> bool:
        return False

    def prepare(self, framework: Framework, device: Device, progress: Progress) -> Environment:
        self._called(f"prepare {framework.name} {device}")
        return Environment(framework.name, device, "image", f"kit-{framework.name}:{device}", self.digest)

    def find(self, framework: Framework, device: Device, digest: str) -> Environment | None:
        self._called(f"find {framework.name} {device} {digest}")
        if digest in self.gone:
            return None
        return Environment(framework.name, device, "image", f"kit-{framework.name}:{device}", digest)

    def launch(
        self,
        environment: Environment,
        folder: LaunchFolder,
        limits: Limits,
        variables: Mapping[str, str],
        labels: Mapping[str, str],
        stopped: Callable[[], bool],
    ) -> Completion:
        self.running.append(labels["run"])
        self.limits.append(limits)
        self._called("launch")
        request = from_json(Request, (folder.scratch / REQUEST_FILE).read_bytes())
        completion = self.worker(request, folder)
        self._called("launched")
        finished = {"measure": self.launched, "probe": self.probed, "tune": self.tuned}
        finished.get(request.purpose, self.used).append((request.cell.key, request.launch))
        self.running.remove(labels["run"])
        return completion

    def sweep(self, alive: Callable[[str], bool]) -> list[str]:
        self._called("sweep")
        dead = [run for run in self.running if not alive(run)]
        self.running = [run for run in self.running if run not in dead]
        return dead
