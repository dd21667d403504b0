"""Load the scenarios. Each module of this folder defines `SCENARIO` and, optionally, `VARIANTS` (a tuple)."""

import importlib
import pkgutil
from collections.abc import Mapping

from scenarios.contract.cell import CEILINGS, Cell
from scenarios.spec import Scenario, with_hidden_layers

Scenarios = Mapping[str, Mapping[str, Scenario]]  # by name, then by variant


def load() -> dict[str, dict[str, Scenario]]:
    """Return all scenarios in this folder: {name: {variant: scenario}}, sorted by name. The default variant is "".

    Raise ValueError, with the name of the module, if a module breaks the rules, and if there is no module.
    """
    found: dict[str, dict[str, Scenario]] = {}
    for module_info in sorted(pkgutil.iter_modules(__path__), key=lambda m: m.name):
        module = importlib.import_module(f"{__name__}.{module_info.name}")
        scenario = getattr(module, "SCENARIO", None)
        if not isinstance(scenario, Scenario) or scenario.variant:
            raise ValueError(
                f"scenarios/catalog/{module_info.name}.py must define SCENARIO, a Scenario without variant"
            )
        if scenario.name in {*found, CEILINGS}:
            raise ValueError(f"scenarios/catalog/{module_info.name}.py: the name {scenario.name!r} is not available")
        variants = {"": scenario}
        for variant in getattr(module, "VARIANTS", ()):
            if variant.name != scenario.name or not variant.variant or variant.variant in variants:
                raise ValueError(
                    f"scenarios/catalog/{module_info.name}.py: each of VARIANTS needs its own variant name"
                )
            variants[variant.variant] = variant
        found[scenario.name] = variants
    if not found:
        raise ValueError("scenarios/catalog has no modules, or it cannot be read")
    return dict(sorted(found.items()))


def scenario_of(cell: Cell, scenarios: Scenarios) -> Scenario | None:
    """Return the scenario of a cell, with its number of hidden layers and the published batch size.

    Return None if the catalog lacks it, or if its number of hidden layers cannot vary.
    """
    found = scenarios.get(cell.scenario, {}).get(cell.variant)
    if found is None or cell.hidden_layers is None:
        return found
    try:
        return with_hidden_layers(found, cell.hidden_layers)
    except ValueError:
        return None
