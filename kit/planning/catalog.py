"""Find the scenarios of `scenarios/catalog` and the frameworks of `docker/*/framework.toml`.

Two files define a framework: `docker/<name>/framework.toml` and its adapter `scenarios/frameworks/<name>/adapter.py`.
The adapter is never imported here, because importing it imports the framework.
"""

import tomllib
from pathlib import Path
from typing import Annotated, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveInt, ValidationError, model_validator

from kit import assets
from kit.model.device_code import DeviceCode
from kit.model.environment import Framework
from kit.model.errors import UsageError
from kit.model.plan import PlannedLaunch
from scenarios.catalog import Scenarios, load, scenario_of
from scenarios.contract.cell import Device
from scenarios.spec import Scenario

# `kit.environments.device_code` writes the version, and fills the lists, which are empty until then.
Library = Annotated[str, Field(pattern=r"^[\w.-]+==[^/]*/[^/]+$")]
DEVICES: tuple[Device, ...] = get_args(Device)


class FrameworkFile(BaseModel):
    """The content of a framework.toml. The last fields are only for CUDA, which needs all but max_capability."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    title: Annotated[str, Field(min_length=1)]
    devices: Annotated[list[Device], Field(min_length=1)]
    modules: list[str]
    cuda_major: PositiveInt | None = None
    min_driver: PositiveInt | None = None
    device_code: Annotated[dict[Library, list[str]], Field(min_length=1)] | None = None
    max_capability: Annotated[list[NonNegativeInt], Field(min_length=2, max_length=2)] | None = None

    @model_validator(mode="after")
    def _has_cuda_fields_for_cuda(self) -> Self:
        names = ("cuda_major", "min_driver", "device_code")
        if wrong := [name for name in names if (getattr(self, name) is not None) != ("cuda" in self.devices)]:
            raise ValueError(f"{', '.join(wrong)}: needed if devices has cuda, and only then")
        if self.max_capability and "cuda" not in self.devices:
            raise ValueError("max_capability: allowed only if devices has cuda")
        return self


def scenarios() -> dict[str, dict[str, Scenario]]:
    """Return all scenarios by name, then by variant ("" is the default), sorted.

    Raise UsageError, which names the module, if one is broken.
    """
    try:
        return load()
    except (Exception, SystemExit) as error:  # a module that the user added may do anything
        raise UsageError(f"The scenario catalog is broken: {error}", "Correct or remove that module.") from error


def frameworks() -> dict[str, Framework]:
    """Return all frameworks by name, sorted. Raise UsageError, which names the file, if one is wrong or missing."""
    files = sorted((assets.ROOT / "docker").glob("*/framework.toml"))
    if not files:
        raise UsageError(
            f"{assets.ROOT} has no docker/*/framework.toml.",
            "Install kit again, or set KIT_ASSETS to the folder that holds docker/ and scenarios/.",
        )
    return {file.parent.name: _framework(file) for file in files}


def _framework(file: Path) -> Framework:
    name = file.parent.name
    adapter = assets.ROOT / "scenarios" / "frameworks" / name / "adapter.py"
    if not adapter.is_file():
        raise UsageError(f"{file} has no adapter {adapter}.", "Write the adapter, or remove the folder.")
    try:
        found = FrameworkFile.model_validate(tomllib.loads(file.read_text(encoding="utf-8")))
        device_code = {
            library: tuple(map(DeviceCode.parse, names)) for library, names in (found.device_code or {}).items()
        }
    except (ValueError, OSError) as error:  # TOML, Unicode and validation errors are ValueErrors
        remedy = "Correct the file. docker/torch/framework.toml is an example."
        raise UsageError(f"{file}: {_explain(error)}.", remedy) from error
    return Framework(
        name=name,
        title=found.title,
        devices=tuple(found.devices),
        modules=tuple(found.modules),
        cuda_major=found.cuda_major,
        min_driver=found.min_driver,
        device_code=device_code if "cuda" in found.devices else None,
        folder=file.parent,
        max_capability=(found.max_capability[0], found.max_capability[1]) if found.max_capability else None,
    )


def _explain(error: Exception) -> str:
    if not isinstance(error, ValidationError):
        return str(error)
    faults = error.errors(include_url=False)
    return "; ".join(f"{'.'.join(map(str, f['loc'])) or 'file'}: {f['msg']} (is {f['input']!r:.60})" for f in faults)


def find_scenario(launch: PlannedLaunch, scenarios: Scenarios) -> Scenario:
    """Return the scenario of a planned launch. Raise UsageError if the catalog no longer has it."""
    found = scenario_of(launch.cell, scenarios)
    if found is None:
        raise UsageError(
            f"The plan has {launch.key:.200}, but the catalog of this kit does not.",
            "Resume with the kit that made the plan, or start a new run.",
        )
    return found
