"""Declare the options that several commands share."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_args

from typer import Argument, Option

from kit.cli.groups import DURATION, MACHINE, OUTPUT, PACKAGES, SELECT
from kit.cli.values import choices, parse_bytes, parse_duration, parse_folder, parse_name, parse_whole
from kit.model.data_choice import DataChoice
from kit.model.swept import SWEPT
from kit.planning.profiles import PROFILES
from scenarios.contract import cell

if TYPE_CHECKING:
    from kit.environments.package_sources import Sources
    from kit.planning.plan import Options
    from kit.planning.selection import Selection
    from kit.storage.run_folder import RunFolder

T = TypeVar("T")

# Options that contradict --study, which has its own scenarios, variants and sweeps.
NOT_WITH_STUDY = ("everything", "scenario", "variant", *SWEPT, "against")
FLAGS = {"everything": "--all"}  # of fields with another name

DEFAULT_ENGINE, DEFAULT_OUT = "auto", Path("reports")

KINDS = {"device": cell.Device, "lane": cell.Lane, "precision": cell.Precision, "kind of data": DataChoice}
Device, Lane, Precision, Data = (choices(kind, *get_args(names)) for kind, names in KINDS.items())
Profile = choices("profile", *PROFILES)


def option(
    group: str, metavar: str | None, text: str, parser: Callable[[str], object] | None = None, flag: str = ""
) -> Any:
    """Return an option of a group. flag: name of an option without a value."""
    return Option(*[flag] * bool(flag), rich_help_panel=group, metavar=metavar, help=text, parser=parser)


Frameworks = Annotated[list[str] | None, option(SELECT, "NAME", "Framework. Repeatable.")]
Devices = Annotated[list[str] | None, option(SELECT, "NAME", f"{Device.listed()}. Repeatable.", Device)]
Engine = Annotated[str, option(MACHINE, "NAME", "auto, docker, podman or local.")]
Env = Annotated[str, option(MACHINE, "PYTHON", "Local engine: interpreter with the packages, or `system`.")]
Rounds = Annotated[int | None, option(DURATION, "N", "Launches per cell. Default: those of the profile.", parse_whole)]
Out = Annotated[Path, option(OUTPUT, "FOLDER", "Folder for runs.", parse_folder)]
Json = Annotated[bool, option(OUTPUT, None, "Print JSON and no progress.", flag="--json")]
Open = Annotated[bool, option(OUTPUT, None, "Open the report in the browser.", flag="--open")]
RunName = Annotated[str, Argument(metavar="RUN", help="Folder of the run, or its id below reports/.")]


@dataclass(frozen=True)
class Packages:
    """Where packages come from. `kit build`, `doctor`, `plan` and `run` share these options."""

    base_image: Annotated[str, option(PACKAGES, "IMAGE", "Base image. Default: KIT_BASE_IMAGE.")] = ""
    index_url: Annotated[str, option(PACKAGES, "URL", "Package index. Default: KIT_INDEX_URL.")] = ""
    find_links: Annotated[str, option(PACKAGES, "URL", "Page or folder of wheels. Default: KIT_FIND_LINKS.")] = ""
    ca_bundle: Annotated[str, option(PACKAGES, "FILE", "PEM file of the proxy's CA. Default: KIT_CA_BUNDLE.")] = ""

    def sources(self) -> Sources:
        """Return the sources of packages. Options override environment variables. Downloads of data sets then trust the
        same certificates. Raise UsageError for a bad value."""
        from kit.environments.package_sources import Sources

        given = {f"KIT_{name.upper()}": value for name, value in vars(self).items() if value}
        sources = Sources.from_environment(dict(os.environ) | given)
        if sources.ca_bundle:
            os.environ["KIT_CA_BUNDLE"] = str(sources.ca_bundle)
        return sources


@dataclass(frozen=True)
class Measuring:
    """What a run measures, for how long and on what. `kit plan` and `kit run` share these options."""

    everything: Annotated[
        bool, option(SELECT, None, "All scenarios, frameworks and devices. Other options narrow this.", flag="--all")
    ] = False
    scenario: Annotated[list[str] | None, option(SELECT, "NAME", "Scenario. Repeatable.")] = None
    variant: Annotated[list[str] | None, option(SELECT, "NAME", "Variant of a scenario, or `default`. Repeatable.")] = (
        None
    )
    study: Annotated[
        list[str] | None,
        option(
            SELECT, "NAME", "Repeat a published study: its cells and epochs. The report gets a chapter. Repeatable."
        ),
    ] = None
    all_studies: Annotated[bool, option(SELECT, None, "Select all studies.", flag="--all-studies")] = False
    framework: Frameworks = None
    device: Devices = None
    lane: Annotated[
        list[str] | None, option(SELECT, "NAME", f"{Lane.listed()}. Repeatable.  [default: stock]", Lane)
    ] = None
    precision: Annotated[
        list[str] | None,
        option(SELECT, "NAME", f"{Precision.listed()}. Repeatable.  [default: fp32]", Precision),
    ] = None
    batch: Annotated[
        list[int] | None, option(SELECT, "N", "Batch size instead of the scenario's. Repeatable.", parse_whole)
    ] = None
    workers: Annotated[
        list[int] | None,
        option(SELECT, "N", "Photos: loader workers instead of the framework's. Repeatable.", parse_whole),
    ] = None
    hidden_layers: Annotated[
        list[int] | None,
        option(SELECT, "N", "Dense networks: hidden layers instead of the scenario's. Repeatable.", parse_whole),
    ] = None
    data: Annotated[DataChoice, option(SELECT, "KIND", f"{Data.listed()}.", Data)] = "auto"
    seed: Annotated[int, option(SELECT, "N", "Seed of weights, order and augmentation.", parse_whole)] = 0
    settings: Annotated[Path | None, option(SELECT, "FILE", "Tuned lane: use settings that `kit settings` wrote.")] = (
        None
    )
    against: Annotated[
        str | None,
        option(
            SELECT,
            "RUN",
            "Also measure RUN's environments and settings, in the same rounds. Default selection: its cells.",
            parse_name,
        ),
    ] = None
    profile: Annotated[str, option(DURATION, "NAME", f"{Profile.listed()}.", Profile)] = "quick"
    rounds: Rounds = None
    epochs: Annotated[
        int | None, option(DURATION, "N", "Full profile: epochs instead of the published number.", parse_whole)
    ] = None
    budget: Annotated[
        float | None,
        option(
            DURATION,
            "TIME",
            "Standard profile: time limit. Five launches per cell always run. Default: 90m, or none with --rounds or "
            "--against.",
            parse_duration,
        ),
    ] = None
    tune: Annotated[
        float | None,
        option(
            DURATION,
            "TIME",
            "Tuned lane: search time per cell. Default: 60s, or up to 10m if processes start slowly.",
            parse_duration,
        ),
    ] = None
    timeout: Annotated[
        float | None,
        option(
            DURATION,
            "TIME",
            "Time limit per launch, for example 90s. Default: from an estimate, more than 10m.",
            parse_duration,
        ),
    ] = None
    engine: Engine = DEFAULT_ENGINE
    env: Env = ""
    gpus: Annotated[
        str,
        option(
            MACHINE,
            "IDS",
            "`all`, or indices or UUIDs separated by commas. A cell uses the first one. Default: the first idle GPU of "
            "CUDA_VISIBLE_DEVICES, or of the machine.",
        ),
    ] = ""
    threads: Annotated[int | None, option(MACHINE, "N", "CPUs per launch. Default: all usable CPUs.", parse_whole)] = (
        None
    )
    memory: Annotated[
        int | None,
        option(MACHINE, "SIZE", "Memory limit per launch, for example 4g. Default: 90% of what is free.", parse_bytes),
    ] = None
    no_weights: Annotated[
        bool, option(OUTPUT, None, "Full profile: do not keep trained weights.", flag="--no-weights")
    ] = False
    identify: Annotated[bool, option(OUTPUT, None, "Name host, user and GPU UUIDs in results.", flag="--identify")] = (
        False
    )

    def selection(self) -> Selection:
        """Return the selection. An option that was not given is None.

        Raise UsageError for options that a study does not allow.
        """
        from kit.planning.selection import Selection

        return Selection(
            studies=self._studies(),
            scenarios=_given(self.scenario),
            variants=_given(self.variant),
            frameworks=_given(self.framework),
            devices=_given(self.device),
            lanes=_given(self.lane),
            precisions=_given(self.precision),
            batches=_given(self.batch),
            workers=_given(self.workers),
            hidden_layers=_given(self.hidden_layers),
        )

    def _studies(self) -> tuple[str, ...] | None:
        """Return the names of the selected studies, None without them."""
        if not (self.study or self.all_studies):
            return None
        from kit.model.errors import UsageError
        from kit.planning import studies

        asked = "--all-studies" if self.all_studies else "--study"
        given = {name: getattr(self, name) for name in NOT_WITH_STUDY} | {"study": self.all_studies and self.study}
        for name in (name for name, value in given.items() if value):
            flag = FLAGS.get(name, f"--{name.replace('_', '-')}")
            raise UsageError(
                f"{asked} selects the cells of the study, so {flag} does not apply.",
                f"Remove {flag}. A study can be narrowed with --framework and --device.",
            )
        if not self.all_studies:
            return _given(self.study)
        if not (names := tuple(studies.load_all())):
            raise UsageError("There are no studies.", "Add a file to scenarios/studies.")
        return names

    def options(self) -> Options:
        """Return how to run the selection. Raise UsageError if the file of settings is not valid."""
        from kit.planning.plan import Options
        from kit.storage.pins import read_pins

        return Options(
            engine=self.engine,
            environment=self.env,
            profile=self.profile,
            seed=self.seed,
            data=self.data,
            epochs=self.epochs,
            budget_s=self.budget,
            timeout_s=self.timeout,
            memory_bytes=self.memory,
            threads=self.threads,
            gpus=self.gpus or None,
            identify=self.identify,
            tune_s=self.tune,
            pinned=read_pins(self.settings) if self.settings else {},
            rounds=self.rounds,
            keep_weights=not self.no_weights,
        )

    def earlier(self, out: Path = DEFAULT_OUT) -> RunFolder | None:
        """Return the run of `--against`, None without it. Raise UsageError if there is no such run."""
        return open_run(self.against, out) if self.against else None


def _given(values: Sequence[T] | None) -> tuple[T, ...] | None:
    return tuple(values) if values else None


def open_run(name: str, out: Path = DEFAULT_OUT) -> RunFolder:
    """Open a run by its folder or its id. Raise UsageError if there is no such run."""
    from kit.storage.run_folder import RunFolder
    from kit.storage.run_names import find_run

    return RunFolder.open(find_run(name, out))
