"""What exists: the scenarios of `scenarios/catalog` and the frameworks of `docker/*/framework.toml`.

Two files define a framework: `docker/<name>/framework.toml` and its adapter `scenarios/frameworks/<name>/adapter.py`.
The adapter is never imported here: importing it imports the framework.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, get_args

from kit import assets
from kit.model.cell import Scenarios
from kit.model.environment import Device, Framework
from kit.model.errors import UsageError
from kit.model.plan import PlannedLaunch
from scenarios.catalog import load
from scenarios.spec import Scenario

DEVICES: tuple[Device, ...] = get_args(Device)
COMMON_KEYS = {"title", "devices", "modules"}
CUDA_KEYS = {"cuda_major", "min_driver", "min_capability"}


def scenarios() -> dict[str, dict[str, Scenario]]:
    """All scenarios by name, then variant ("" is the default), sorted. Raises UsageError naming a broken module."""
    try:
        return load()
    except (Exception, SystemExit) as error:  # a module of somebody's may do anything
        raise UsageError(f"The scenario catalogue is broken: {error}", "Correct or remove that module.") from error


def frameworks() -> dict[str, Framework]:
    """All frameworks by name, sorted. Raises UsageError naming the file that is wrong or absent."""
    files = sorted((assets.ROOT / "docker").glob("*/framework.toml"))
    if not files:
        raise UsageError(
            f"No docker/*/framework.toml in {assets.ROOT}.",
            "Install kit again, or point KIT_ASSETS at the folder that holds docker/ and scenarios/.",
        )
    return {file.parent.name: _framework(file) for file in files}


def _framework(file: Path) -> Framework:
    name = file.parent.name
    adapter = assets.ROOT / "scenarios" / "frameworks" / name / "adapter.py"
    if not adapter.is_file():
        raise UsageError(f"{file} has no adapter {adapter}.", "Write the adapter, or remove the folder.")
    try:
        fields = tomllib.loads(file.read_text(encoding="utf-8"))
        _check(fields)
    except (ValueError, OSError) as error:  # TOML and Unicode errors are ValueErrors
        raise UsageError(f"{file}: {error}", "Correct the file; docker/torch/framework.toml is an example.") from error
    capability = fields.get("min_capability")
    return Framework(
        name=name,
        title=fields["title"],
        devices=tuple(fields["devices"]),
        modules=tuple(fields["modules"]),
        cuda_major=fields.get("cuda_major"),
        min_driver=fields.get("min_driver"),
        min_capability=(capability[0], capability[1]) if capability else None,
        folder=file.parent,
    )


def _check(fields: dict[str, Any]) -> None:
    """Raise ValueError where the keys or their types are not exactly those of a framework."""
    devices = fields.get("devices")
    if not isinstance(devices, list) or not devices or any(d not in DEVICES for d in devices):
        raise ValueError(f"devices must be a list of {' and '.join(DEVICES)}, is {devices!r}")
    expected = COMMON_KEYS | (CUDA_KEYS if "cuda" in devices else set())
    if wrong := sorted(set(fields) ^ expected):
        raise ValueError(f"the keys must be exactly {', '.join(sorted(expected))}; wrong or absent: {', '.join(wrong)}")
    if not isinstance(fields["title"], str) or not fields["title"]:
        raise ValueError(f"title must be a text, is {fields['title']!r}")
    modules = fields["modules"]
    if not isinstance(modules, list) or any(not isinstance(module, str) for module in modules):
        raise ValueError(f"modules must be a list of texts, is {modules!r}")
    for key in ("cuda_major", "min_driver"):
        if key in fields and type(fields[key]) is not int:
            raise ValueError(f"{key} must be a whole number, is {fields[key]!r}")
    capability = fields.get("min_capability", [0, 0])
    if not (isinstance(capability, list) and [type(part) for part in capability] == [int, int]):
        raise ValueError(f"min_capability must be two whole numbers like [7, 5], is {capability!r}")


def find_scenario(launch: PlannedLaunch, scenarios: Scenarios) -> Scenario:
    """The catalogue's scenario of a planned launch. Raises UsageError where the catalogue has it no more."""
    variants = scenarios.get(launch.scenario, {})
    if launch.variant not in variants:
        raise UsageError(
            f"The plan has {launch.key}, which this kit's catalogue has not.",
            "Resume with the kit that made the plan, or start a new run.",
        )
    return variants[launch.variant]
