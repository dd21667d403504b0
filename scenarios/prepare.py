"""Prepare what a launch needs: its scenario, its adapter, its decoded test set."""

from __future__ import annotations

import dataclasses
import importlib

from scenarios import catalog, spec
from scenarios.adapter import Adapter, Options, Photos, TrainSet
from scenarios.contract.reasons import Code, Reason
from scenarios.contract.request import Request
from scenarios.measuring import measure
from scenarios.spec import Scenario


class Refused(Exception):
    """The launch ends here as failed, for this reason."""

    def __init__(self, code: Code, message: str, remedy: str) -> None:
        super().__init__(message)
        self.reason = Reason(code, message, remedy)


def find_scenario(request: Request) -> Scenario:
    """The catalogue's scenario, with the request's batch size. Raises Refused where it is not the one meant."""
    found = catalog.load().get(request.scenario, {}).get(request.variant)
    if found is None or spec.digest(found) != request.spec:
        state = "is missing here" if found is None else "is defined differently here"
        raise Refused(
            Code.SPEC_MISMATCH,
            f"The scenario {request.scenario}{'+' + request.variant if request.variant else ''} {state}.",
            "Build the images again (kit build).",
        )
    return dataclasses.replace(found, batch=request.batch)


def load_adapter(framework: str) -> type[Adapter]:
    """Return the adapter class of a framework. This imports the framework."""
    adapter: type[Adapter] = importlib.import_module(f"scenarios.frameworks.{framework}.adapter").ADAPTER
    return adapter


def start_adapter(request: Request) -> Adapter:
    """Import the framework and configure the process."""
    return load_adapter(request.framework)(Options.of(request))


def decode(adapter: Adapter, test: TrainSet) -> measure.TestSet:
    """The test set in memory, photos decoded by the framework's own loader."""
    images = adapter.read_photos(test) if isinstance(test, Photos) else test.images
    return measure.TestSet(images, test.labels)
