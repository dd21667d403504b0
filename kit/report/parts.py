"""The nouns of a report: texts, tables, charts' data. No markup, no logic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

Names = Mapping[str, str]  # a cell's key to what it is called in this report


@dataclass(frozen=True)
class Table:
    """Rows of texts under headers. caption: what it shows. marks: row indices measured on synthetic data."""

    caption: str
    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: tuple[int, ...] = ()
    marks: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Bar:
    """One bar of a chart. low, high: of the 95 % interval, None where there is none."""

    framework: str
    device: str
    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Point:
    """One point of a learning curve. part: train or test."""

    series: str
    part: str
    epoch: int
    accuracy: float


@dataclass(frozen=True)
class Sample:
    """One point of a timeline."""

    series: str
    minutes: float
    value: float


@dataclass(frozen=True)
class Timeline:
    """What the host saw over the run. title: with the unit."""

    title: str
    samples: tuple[Sample, ...]


@dataclass(frozen=True)
class Section:
    """One scenario or variant, at one batch size. bars: chart title (with unit) to its bars."""

    label: str
    title: str
    facts: tuple[str, ...]
    synthetic: bool
    table: Table
    bars: Mapping[str, tuple[Bar, ...]]
    curve: tuple[Point, ...]


@dataclass(frozen=True)
class View:
    """The whole report."""

    title: str
    subtitle: str
    verdict: tuple[str, ...]
    notices: tuple[str, ...]
    summary: Table
    frameworks: Table | None
    speedups: Table | None
    sections: tuple[Section, ...]
    warnings: Table | None
    tuned: Table | None
    tried: Table | None
    diagnoses: Table | None
    ceilings: Table | None
    energy: Table | None
    timelines: tuple[Timeline, ...]
    problems: Table | None
    machine: Table
    proof: Table
    launches: Table
    provenance: Table
    method: tuple[str, ...]
