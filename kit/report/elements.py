"""Define the elements of a report that templates and charts can show. No markup, no logic."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Table:
    """Rows of texts below headers.

    numeric: columns with numbers. marks: rows that were measured on synthetic data. wrap: whether the first and the
    last column break long words.
    """

    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str = ""
    numeric: tuple[int, ...] = ()
    marks: frozenset[int] = frozenset()
    wrap: bool = False


@dataclass(frozen=True)
class Bar:
    """One bar of a chart.

    configuration: name in the legend, for example `2 × cuda bf16`. device: `cpu` or `cuda`, which decides the hue. low,
    high: ends of the 95 % interval, or None if there is only one launch.
    """

    framework: str
    configuration: str
    device: str
    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Point:
    """One point of a line chart. x: epoch or minutes. part: of a learning curve, `train` or `test`."""

    series: str
    x: float
    y: float
    part: str = ""
