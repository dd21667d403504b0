"""Charts as static SVG, drawn by Vega-Altair through vl-convert: no script in the report, and it prints.

Texts from records go through `harmless`: of what XML cannot hold, as control characters, vl-convert ends the process.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import altair as alt
import pandas as pd
import vl_convert

from kit.model.text import harmless
from kit.report import text
from kit.report.parts import Bar, Point, Timeline

# Two hues that stay apart for colour-blind readers and in grey print; in each, shades for lanes and precisions.
DEVICE_COLOURS = {
    "cpu": ("#2b6ca3", "#8fbfe0", "#173d5e", "#5f9bc9"),
    "cuda": ("#e08214", "#f8c98b", "#8f4f06", "#efa54f"),
}
OTHER_COLOURS = ("#7a7a7a",)
WIDTH = 190


def bars(title: str, values: tuple[Bar, ...]) -> str:
    """Horizontal bars, one a framework and device, each labelled with its number. Returns SVG text."""
    data = pd.DataFrame(
        {
            "framework": [harmless(b.framework) for b in values],
            "device": [b.device for b in values],
            "value": [b.value for b in values],
            "label": [text.number(b.value) for b in values],
            "low": [b.low for b in values],
            "high": [b.high for b in values],
        }
    )
    devices = sorted({b.device for b in values})
    colours = _shades(devices)
    base = alt.Chart(data).encode(
        x=alt.X("value:Q", title=None, axis=alt.Axis(tickCount=3, grid=True, domain=False, format=",~f")),
        y=alt.Y("framework:N", title=None, sort=None),
        yOffset=alt.YOffset("device:N", sort=devices),
    )
    legend = alt.Legend(orient="bottom", title=None) if len(devices) > 1 else None
    drawn = base.mark_bar(cornerRadiusEnd=2).encode(
        color=alt.Color("device:N", scale=alt.Scale(domain=devices, range=colours), legend=legend)
    )
    # beside the interval's upper end where there is one
    edge = alt.X("edge:Q", title=None)
    labels = base.transform_calculate(edge="max(datum.value, datum.high)")
    layers = drawn + labels.mark_text(align="left", dx=4, fontSize=11).encode(x=edge, text="label:N")
    if any(b.low is not None for b in values):
        layers += base.mark_rule(strokeWidth=2, color="#1d2329").encode(x="low:Q", x2="high:Q")
    return _svg(layers.properties(width=WIDTH, height=alt.Step(22 if len(devices) > 1 else 30), title=title))


def _shades(devices: Sequence[str]) -> list[str]:
    """A colour for each device, with its lane and precision: the hue is the device's."""
    seen: Counter[str] = Counter()
    colours = []
    for kind in (device.split()[0] for device in devices):
        shades = DEVICE_COLOURS.get(kind, OTHER_COLOURS)
        colours.append(shades[seen[kind] % len(shades)])
        seen[kind] += 1
    return colours


def curve(points: tuple[Point, ...]) -> str:
    """Accuracy over epochs, test solid and train dashed, a colour a cell. Returns SVG text."""
    data = pd.DataFrame(
        {
            "cell": [harmless(p.series) for p in points],
            "part": [p.part for p in points],
            "epoch": [p.epoch for p in points],
            "accuracy": [p.accuracy for p in points],
        }
    )
    chart = (
        alt.Chart(data)
        .mark_line(point={"size": 16})
        .encode(
            x=alt.X("epoch:Q", title="epoch", axis=alt.Axis(tickMinStep=1, format="d")),
            y=alt.Y("accuracy:Q", title=None, scale=alt.Scale(zero=False), axis=alt.Axis(format=".0%")),
            color=alt.Color("cell:N", legend=alt.Legend(orient="bottom", title=None, columns=2)),
            strokeDash=alt.StrokeDash(
                "part:N",
                scale=alt.Scale(domain=["test", "train"], range=[[1, 0], [4, 3]]),
                legend=alt.Legend(orient="bottom", title=None),
            ),
        )
        .properties(width=3 * WIDTH, height=180, title="Accuracy over epochs")
    )
    return _svg(chart)


def timeline(shown: Timeline) -> str:
    """A line a series over the minutes of measuring. Returns SVG text."""
    data = pd.DataFrame(
        {
            "series": [s.series for s in shown.samples],
            "minutes": [s.minutes for s in shown.samples],
            "value": [s.value for s in shown.samples],
        }
    )
    several = data["series"].nunique() > 1
    chart = (
        alt.Chart(data)
        .mark_line(strokeWidth=1.2)
        .encode(
            x=alt.X("minutes:Q", title="minutes of measuring", axis=alt.Axis(tickCount=4, grid=False)),
            y=alt.Y("value:Q", title=None, scale=alt.Scale(zero=False), axis=alt.Axis(tickCount=4)),
            color=alt.Color("series:N", legend=alt.Legend(orient="bottom", title=None) if several else None),
        )
        .properties(width=round(1.4 * WIDTH), height=90, title=shown.title)
    )
    return _svg(chart)


alt.data_transformers.enable("default", max_rows=None)  # the limit is for notebooks


def _svg(chart: alt.LayerChart | alt.Chart) -> str:
    configured = (
        chart.configure(font="sans-serif", background="transparent")
        .configure_view(stroke=None)
        .configure_title(anchor="start", fontSize=13, fontWeight=600)
        .configure_axis(labelFontSize=11, titleFontSize=11, labelLimit=160)
    )
    return str(vl_convert.vegalite_to_svg(configured.to_json()))
