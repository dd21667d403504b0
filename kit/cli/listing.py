"""List what exists: scenarios with their variants, frameworks, and data sets."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

from kit.cli.console import Column
from kit.datasets.service import status
from kit.model.environment import Environment
from kit.model.errors import DataError
from kit.model.formatting import format_bytes
from kit.planning import catalog, studies
from kit.planning.selection import DEFAULT_VARIANT
from scenarios.spec import DATASETS, Scenario, digest


class Listing(NamedTuple):
    """A table. entries: the value for JSON, with more details. rows: one text per column. notes: below the table."""

    entries: list[dict[str, Any]]
    columns: tuple[Column, ...]
    rows: list[list[str]]
    notes: Sequence[str] = ()


def scenarios() -> Listing:
    """Return one row per scenario and variant."""
    columns = (
        Column("Scenario"),
        Column("Variant"),
        Column("Data set"),
        Column("Batch", number=True),
        Column("Epochs", number=True),
        Column("Studies"),
    )
    known, faults = studies.load_valid()
    found = [scenario for variants in catalog.scenarios().values() for scenario in variants.values()]
    used = [[study.name for study in known.values() if study.uses(s.name, s.variant)] for s in found]
    return Listing(
        [_entry(scenario) | {"studies": names} for scenario, names in zip(found, used, strict=True)],
        columns,
        [
            [s.name, s.variant or DEFAULT_VARIANT, s.dataset, str(s.batch), str(s.epochs), ", ".join(names)]
            for s, names in zip(found, used, strict=True)
        ],
        [f"The study {name} is missing here: {fault.message}" for name, fault in faults.items()],
    )


def _entry(scenario: Scenario) -> dict[str, Any]:
    """Return all fields of a scenario. Layers and the optimizer have their type, because their fields may be equal."""
    return asdict(scenario) | {
        "variant": scenario.variant or DEFAULT_VARIANT,
        "digest": digest(scenario),
        "layers": [{"type": type(layer).__name__, **asdict(layer)} for layer in scenario.layers],
        "optimizer": {"type": type(scenario.optimizer).__name__, **asdict(scenario.optimizer)},
    }


def frameworks() -> Listing:
    """Return one row per framework."""
    found = catalog.frameworks().values()
    return Listing(
        [{k: v for k, v in asdict(f).items() if k != "folder"} for f in found],
        (Column("Framework"), Column("Title"), Column("Devices"), Column("CUDA")),
        [[f.name, f.title, ", ".join(f.devices), str(f.cuda_major or "")] for f in found],
    )


def datasets() -> Listing:
    """Return one row per data set. `data` shows which of them are on this machine."""
    found = DATASETS.values()
    return Listing(
        [asdict(d) for d in found],
        (Column("Data set"), Column("Title"), Column("Train", True), Column("Test", True), Column("Classes", True)),
        [[d.name, d.title, f"{d.train:,}", f"{d.test:,}", str(len(d.classes))] for d in found],
    )


def data() -> Listing:
    """Return one row per data set with its files on this machine, or with the size of its download."""
    columns = (Column("Data set"), Column("Ready"), Column("Size", True), Column("Digest"), Column("Note"))
    rows, entries = [], []
    for name in DATASETS:
        try:
            found = status(name)
        except DataError as error:
            rows.append([name, "damaged", "", "", error.message])
            entries.append({"name": name, "damaged": error.message})
            continue
        here = found.prepared
        if here is None:
            rows.append([name, "no", format_bytes(found.download_bytes), "", f"kit data fetch {name}"])
        else:
            rows.append([name, "yes", format_bytes(here.bytes), here.digest[:12], here.source])
        entries.append(asdict(found) | {"folder": str(found.folder)})
    return Listing(entries, columns, rows)


def environments(built: Sequence[Environment]) -> Listing:
    """Return one row per environment that was built."""
    sizes = ["" if e.size_bytes is None else format_bytes(e.size_bytes) for e in built]
    return Listing(
        [asdict(e) for e in built],
        (Column("Framework"), Column("Device"), Column("Environment"), Column("Size", number=True)),
        [[e.framework, e.device, e.reference, size] for e, size in zip(built, sizes, strict=True)],
    )
