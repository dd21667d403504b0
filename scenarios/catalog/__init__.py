"""The scenarios, one module each. A module defines `SCENARIO` and, where it has any, `VARIANTS` (a tuple)."""

from __future__ import annotations

import importlib
import pkgutil

from scenarios.spec import Scenario


def load() -> dict[str, dict[str, Scenario]]:
    """All scenarios found in this folder: {name: {variant: scenario}}, sorted; the default has variant "".

    Raises ValueError where a module breaks the rules, naming it.
    """
    found: dict[str, dict[str, Scenario]] = {}
    for module_info in sorted(pkgutil.iter_modules(__path__), key=lambda m: m.name):
        module = importlib.import_module(f"{__name__}.{module_info.name}")
        scenario = getattr(module, "SCENARIO", None)
        if not isinstance(scenario, Scenario) or scenario.variant:
            raise ValueError(
                f"scenarios/catalog/{module_info.name}.py must define SCENARIO, a Scenario without variant"
            )
        if scenario.name in found:
            raise ValueError(f"scenarios/catalog/{module_info.name}.py: the name {scenario.name!r} is taken")
        variants = {"": scenario}
        for variant in getattr(module, "VARIANTS", ()):
            if variant.name != scenario.name or not variant.variant or variant.variant in variants:
                raise ValueError(
                    f"scenarios/catalog/{module_info.name}.py: each of VARIANTS needs a variant name of its own"
                )
            variants[variant.variant] = variant
        found[scenario.name] = variants
    return dict(sorted(found.items()))
