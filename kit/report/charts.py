"""Draw charts as static SVG with Vega-Altair and vl-convert, so that the report needs no script and can be printed.

Text from records passes through `harmless`, because vl-convert aborts the process on characters that XML cannot hold.
"""

from collections import Counter
from collections.abc import Sequence

import altair as alt
import pandas as pd
import vl_convert
from markupsafe import Markup

from kit.model.formatting import printable
from kit.report import text
from kit.report.elements import Bar, Point

# The two hues differ for color-blind readers and in gray print. Each has shades for lanes and precisions.
DEVICE_COLORS = {
    "cpu": ("#2b6ca3", "#8fbfe0", "#173d5e", "#5f9bc9"),
    "cuda": ("#e08214", "#f8c98b", "#8f4f06", "#efa54f"),
}
OTHER_COLORS = ("#7a7a7a",)
WIDTH = 190


def bars(title: str, values: tuple[Bar, ...]) -> Markup:
    """Return a chart as SVG: one horizontal bar per framework and configuration, labeled with its number."""
    data = pd.DataFrame(
        {
            "framework": [printable(b.framework) for b in values],
            "configuration": [b.configuration for b in values],
            "value": [b.value for b in values],
            "label": [text.number(b.value) for b in values],
            "low": [b.low for b in values],
            "high": [b.high for b in values],
        }
    )
    devices = {b.configuration: b.device for b in values}
    configurations = sorted(devices, key=lambda name: (devices[name], name))
    colors = _shades([devices[name] for name in configurations])
    base = alt.Chart(data).encode(
        x=alt.X("value:Q", title=None, axis=alt.Axis(tickCount=3, grid=True, domain=False, format=",~f")),
        y=alt.Y("framework:N", title=None, sort=None),
        yOffset=alt.YOffset("configuration:N", sort=configurations),
    )
    legend = alt.Legend(orient="bottom", title=None) if len(devices) > 1 else None
    drawn = base.mark_bar(cornerRadiusEnd=2).encode(
        color=alt.Color("configuration:N", scale=alt.Scale(domain=configurations, range=colors), legend=legend)
    )
    # A label stands right of the bar and of its interval.
    labels = base.transform_calculate(edge="max(datum.value, datum.high)").mark_text(align="left", dx=4, fontSize=11)
    layers = drawn + labels.encode(x=alt.X("edge:Q", title=None), text="label:N")
    if any(b.low is not None for b in values):
        layers += base.mark_rule(strokeWidth=2, color="#1d2329").encode(x="low:Q", x2="high:Q")
    return _svg(layers.properties(width=WIDTH, height=alt.Step(22 if len(devices) > 1 else 30), title=title))


def _shades(devices: Sequence[str]) -> list[str]:
    """Return one color per configuration. devices: the device of each configuration. It decides the hue."""
    seen: Counter[str] = Counter()
    colors = []
    for device in devices:
        shades = DEVICE_COLORS.get(device, OTHER_COLORS)
        colors.append(shades[seen[device] % len(shades)])
        seen[device] += 1
    return colors


def curve(points: tuple[Point, ...]) -> Markup:
    """Return accuracy over epochs as SVG: one color per cell, test solid, train dashed."""
    data = pd.DataFrame(
        {
            "cell": [printable(p.series) for p in points],
            "part": [p.part for p in points],
            "epoch": [p.x for p in points],
            "accuracy": [p.y for p in points],
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


def timeline(title: str, points: tuple[Point, ...]) -> Markup:
    """Return one line per series over the minutes of measuring, as SVG. title: with the unit."""
    data = pd.DataFrame(
        {
            "series": [p.series for p in points],
            "minutes": [p.x for p in points],
            "value": [p.y for p in points],
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
        .properties(width=round(1.4 * WIDTH), height=90, title=title)
    )
    return _svg(chart)


alt.data_transformers.enable("default", max_rows=None)  # the default limit is meant for notebooks


def _svg(chart: alt.LayerChart | alt.Chart) -> Markup:
    configured = (
        chart.configure(font="sans-serif", background="transparent")
        .configure_view(stroke=None)
        .configure_title(anchor="start", fontSize=13, fontWeight=600)
        .configure_axis(labelFontSize=11, titleFontSize=11, labelLimit=160)
    )
    return Markup(vl_convert.vegalite_to_svg(configured.to_json()))  # noqa: S704 - the SVG writer escapes every text
