"""Test the scales of line charts, also with samples of a stranger."""

from __future__ import annotations

from itertools import pairwise

import pytest

from kit.analysis.intervals import Interval
from kit.report.line_charts import Series, line_chart, value_chart
from kit.report.scales import Scale
from kit.report.strips import PUBLISHED_HEIGHT, PublishedDot, Strip, dot_y, strip_height


def chart(values, **options):
    return line_chart("Power", "minutes", [Series("GPU 0", list(enumerate(values)))], str, **options)


@pytest.mark.parametrize(
    ("values", "top"),
    [([0.0, 310.0], 400.0), ([9.0], 10.0), ([1.2, 1.0], 1.5), ([0.0, 0.0], 1.0)],
)
def test_the_axis_ends_at_a_round_value_above_all(values, top):
    at, label = chart(values).y_ticks[-1]
    assert (at, float(label)) == (100.0, top)


def test_an_axis_can_have_a_fixed_end():
    assert chart([0.1, 0.2], top=1.0).y_ticks[-1] == (100.0, "1.0")


@pytest.mark.parametrize("doubling", [True, False])
def test_a_single_value_of_x_is_in_the_middle(doubling):
    found = value_chart("Speed", "batch size", [Series("PyTorch", [(32.0, 100.0)])], str, doubling=doubling)
    assert found.x_ticks == ((50.0, "32"),)


@pytest.mark.parametrize("lowest", [0.0, 1.0])
def test_only_positive_values_that_differ_much_are_on_a_logarithmic_axis(lowest):
    points = [(32.0, lowest), (64.0, 10.0), (128.0, 100.0)]
    found = value_chart("Loss", "batch size", [Series("PyTorch", points, device="cpu")], str, doubling=True)
    middle = found.lines[0].marks[1].y
    assert (40 < middle < 60) == (lowest > 0)


def test_a_wide_interval_does_not_change_the_axis():
    """Of an interval, an axis has room for a factor of 3. Two launches can have one that is many times wider."""
    points = [(32.0, 100.0), (64.0, 150.0)]
    narrow, wide = (
        value_chart("Speed", "batch size", [Series("PyTorch", points, device="cpu", intervals=own)], str, doubling=True)
        for own in ([None, Interval(150.0, 40.0, 450.0)], [None, Interval(150.0, 1.0, 20_000.0)])
    )
    assert narrow.y_ticks == wide.y_ticks
    assert wide.lines[0].marks[1].whisker == pytest.approx((0.0, 100.0), abs=0.5)


@pytest.mark.parametrize("values", [[-5.0, -3.0], [-5.0], [-1e300, 1e300]])
def test_unlikely_samples_do_not_end_the_report(values):
    assert chart(values).lines[0].points


@pytest.mark.parametrize("low", [1.1, 2.2, 5.2, 110.0, 2_311.0, 6.1e-3])
@pytest.mark.parametrize("factor", [1.6, 2.0, 2.4, 3.0, 9.0, 200.0])
def test_a_logarithmic_axis_has_at_least_two_ticks(low, factor):
    scale = Scale(low, low * factor, log=True)
    ticks = scale.ticks()
    assert 2 <= len(ticks) <= 6
    assert ticks == sorted(ticks)
    assert all(low <= tick <= low * factor for tick in ticks)


def test_each_published_figure_has_a_line_of_its_own():
    """Their labels would overlap, because their values are often similar."""
    figures = tuple(PublishedDot(at, "hardware: 90", "") for at in (30.0, 35.0, 40.0))
    strip = Strip("", strip_height(2, len(figures)), (), (), figures)
    heights = [strip.published_y(index) for index in range(3)]
    assert [b - a for a, b in pairwise(heights)] == [PUBLISHED_HEIGHT, PUBLISHED_HEIGHT]
    assert dot_y(1) < heights[0] < heights[-1] < strip.height
