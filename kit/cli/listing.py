"""What exists, for people and programs: scenarios with their variants, frameworks, data sets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

from kit.cli.console import Column
from kit.datasets.service import status
from kit.model.environment import Environment
from kit.model.errors import DataError, unknown
from kit.model.units import format_bytes
from kit.planning import catalog
from kit.planning.selection import DEFAULT_VARIANT
from scenarios.spec import DATASETS, digest


class Listing(NamedTuple):
    """A table. rows: texts for `columns`; entries: the same and more, ready for JSON."""

    columns: tuple[Column, ...]
    rows: list[list[str]]
    entries: list[dict[str, Any]]


def scenarios() -> Listing:
    """One row a scenario and variant."""
    columns = (
        Column("Scenario"),
        Column("Variant"),
        Column("Data set"),
        Column("Batch", number=True),
        Column("Epochs", number=True),
        Column("Study"),
    )
    found = [scenario for variants in catalog.scenarios().values() for scenario in variants.values()]
    return Listing(
        columns,
        [[s.name, s.variant or DEFAULT_VARIANT, s.dataset, str(s.batch), str(s.epochs), s.study] for s in found],
        [asdict(s) | {"variant": s.variant or DEFAULT_VARIANT, "digest": digest(s)} for s in found],
    )


def frameworks() -> Listing:
    """One row a framework."""
    found = catalog.frameworks().values()
    return Listing(
        (Column("Framework"), Column("Title"), Column("Devices"), Column("CUDA")),
        [[f.name, f.title, ", ".join(f.devices), str(f.cuda_major or "")] for f in found],
        [{k: v for k, v in asdict(f).items() if k != "folder"} for f in found],
    )


def datasets() -> Listing:
    """One row a data set, whether or not it is here: that is `kit data list`."""
    found = DATASETS.values()
    return Listing(
        (Column("Data set"), Column("Title"), Column("Train", True), Column("Test", True), Column("Classes", True)),
        [[d.name, d.title, f"{d.train:,}", f"{d.test:,}", str(len(d.classes))] for d in found],
        [asdict(d) for d in found],
    )


def data() -> Listing:
    """One row a data set: what is here of it, or what its download would take."""
    columns = (Column("Data set"), Column("Here"), Column("Size", True), Column("Digest"), Column("Source"))
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
    return Listing(columns, rows, entries)


def environments(made: Sequence[Environment]) -> tuple[tuple[Column, ...], list[list[str]]]:
    """Columns and rows for environments that were built."""
    columns = (Column("Framework"), Column("Device"), Column("Environment"), Column("Size", number=True))
    sizes = ["" if e.size_bytes is None else format_bytes(e.size_bytes) for e in made]
    return columns, [[e.framework, e.device, e.reference, size] for e, size in zip(made, sizes, strict=True)]


KINDS: dict[str, Callable[[], Listing]] = {"scenarios": scenarios, "frameworks": frameworks, "datasets": datasets}


def choose(kind: str) -> dict[str, Listing]:
    """The listings of that kind by name, or all where it is empty. Raises UsageError for another."""
    if kind and kind not in KINDS:
        raise unknown("kind of thing", kind, KINDS)
    return {name: make() for name, make in KINDS.items() if kind in {"", name}}
