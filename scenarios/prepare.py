"""Prepare what a launch needs: its scenario, its adapter and its decoded test set."""

import dataclasses
import importlib

from scenarios import catalog, spec
from scenarios.adapter import Adapter, Arrays, Options, Photos, TrainSet
from scenarios.contract.reasons import Code, Reason
from scenarios.contract.request import Request
from scenarios.spec import Scenario


class Refused(Exception):
    """The launch ends here for the reason in the attribute `reason`."""

    def __init__(self, code: Code, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.reason = Reason.of(code, message, remedy)


def find_scenario(request: Request) -> Scenario:
    """Return the scenario of the catalog with the batch size and the number of hidden layers of the request.

    Raise Refused if the catalog has no such scenario, or another definition of it.
    """
    cell = request.cell
    found = catalog.scenario_of(cell, catalog.load())
    if found is None:
        raise Refused(Code.SPEC_MISMATCH, f"The scenario {cell.label} is missing here.")
    if spec.digest(found) != request.spec:
        raise Refused(Code.SPEC_MISMATCH, f"The scenario {cell.label} has another definition here.")
    return dataclasses.replace(found, batch=cell.batch)


def load_adapter(framework: str) -> type[Adapter]:
    """Return the adapter class of a framework. This imports the framework."""
    adapter: type[Adapter] = importlib.import_module(f"scenarios.frameworks.{framework}.adapter").ADAPTER
    return adapter


def start_adapter(request: Request) -> Adapter:
    """Import the framework and configure the process."""
    return load_adapter(request.cell.framework)(Options.of(request))


def decode(adapter: Adapter, test: TrainSet) -> Arrays:
    """Return the test set in memory. The framework's own loader decodes photos."""
    images = adapter.read_photos(test) if isinstance(test, Photos) else test.images
    return Arrays(images, test.labels)
