"""Test intervals from launches: the formulas, and the coverage under the stopping rule."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from benchmarks.coverage import Condition, simulate
from kit.analysis.intervals import MIN_LAUNCHES, TARGET, cell_interval, is_narrow, ratio_interval, t_interval

speeds = st.lists(st.floats(100, 1000), min_size=2, max_size=30)
different = st.lists(st.integers(100, 1000), min_size=2, max_size=30, unique=True)
too_few_to_widen = st.lists(st.integers(100, 1000), min_size=2, max_size=MIN_LAUNCHES - 1, unique=True)


def bounds(interval):
    return interval.low, interval.estimate, interval.high


@given(values=different)
def test_the_t_interval_equals_scipy_s_on_the_logarithms(values):
    logs = np.log(values)
    expected = stats.t.interval(0.95, len(logs) - 1, loc=logs.mean(), scale=logs.std(ddof=1) / math.sqrt(len(logs)))
    interval = t_interval(values)
    assert (interval.low, interval.high) == pytest.approx(tuple(np.exp(expected)), rel=1e-6)
    assert interval.estimate == pytest.approx(statistics.geometric_mean(values))
    assert interval.half_width >= 1 - interval.low / interval.estimate


@given(over=too_few_to_widen, under=too_few_to_widen)
def test_the_interval_of_a_ratio_equals_scipy_s_welch_interval_without_widening(over, under):
    expected = stats.ttest_ind(np.log(over), np.log(under), equal_var=False).confidence_interval(0.95)
    interval = ratio_interval(over, under)
    assert np.log([interval.low, interval.high]) == pytest.approx([expected.low, expected.high], rel=1e-6, abs=1e-6)


@given(over=speeds, under=speeds, unit=st.floats(0.01, 100))
def test_intervals_do_not_depend_on_unit_order_or_side(over, under, unit):
    assert bounds(cell_interval([unit * v for v in over])) == pytest.approx(
        [unit * b for b in bounds(cell_interval(over))]
    )
    assert bounds(cell_interval(sorted(over))) == pytest.approx(bounds(cell_interval(over)))
    inverse = ratio_interval(under, over)
    assert bounds(ratio_interval(over, under)) == pytest.approx([1 / b for b in reversed(bounds(inverse))])


@given(values=speeds)
def test_the_widening_is_a_tenth_at_most_and_starts_at_the_first_possible_stop(values):
    plain, widened = t_interval(values), cell_interval(values)
    growth = math.log(widened.high / widened.low) / math.log(plain.high / plain.low) if plain.high > plain.low else 1.0
    assert growth == pytest.approx(1) if len(values) < MIN_LAUNCHES else 1 - 1e-9 < growth < 1.1


def test_one_launch_has_no_interval_and_equal_ones_have_a_point():
    assert cell_interval([]) is cell_interval([1000.0]) is t_interval([1000.0]) is None
    assert ratio_interval([1000.0], [900.0, 910.0]) is ratio_interval([900.0, 910.0], [1000.0]) is None
    assert bounds(cell_interval([8.0, 8.0, 8.0])) == pytest.approx((8, 8, 8))
    assert bounds(ratio_interval([8.0, 8.0], [4.0, 4.0])) == pytest.approx((2, 2, 2))


def test_values_that_are_not_speeds_raise_an_error_and_extreme_ones_do_not_overflow():
    with pytest.raises(ValueError, match="math domain"):
        cell_interval([100.0, 0.0])
    extreme = ratio_interval([5e-324, 1e9], [1e9, 1e-300])
    assert extreme.low == 0
    assert math.isfinite(extreme.high)


def test_a_cell_is_narrow_from_the_fifth_launch_on_if_its_half_width_is_small():
    quiet, noisy = [1000.0, 1010.0, 1005.0, 995.0, 990.0], [1000.0, 1100.0, 900.0, 1050.0, 950.0]
    assert [is_narrow(quiet[:n]) for n in range(6)] == [False] * 5 + [True]
    assert not is_narrow(noisy)
    assert cell_interval(quiet).half_width <= TARGET < cell_interval(noisy).half_width


# With these repetitions, chance changes the coverage by less than the margin. Without the widening, ratios at 4 and 5 %
# would cover 90 %.
@pytest.mark.parametrize(
    ("condition", "repetitions"),
    [
        (Condition(sd=0.01, windows_sd=0.02), 4000),
        (Condition(sd=0.03, windows_sd=0.1, skewness=0.5), 4000),
        (Condition(sd=0.04, windows_sd=0.03), 10000),
        (Condition(sd=0.05, windows_sd=0.01, skewness=0.5), 8000),
        (Condition(sd=0.08, windows_sd=0.03), 2000),
        (Condition(sd=0.05, windows_sd=0.03, max_launches=8), 4000),
        (Condition(sd=0.03, windows_sd=0.03, max_launches=5, fixed=True), 4000),
        (Condition(sd=0.03, windows_sd=0.03, max_launches=20, fixed=True), 4000),
    ],
    ids=str,
)
def test_intervals_have_their_nominal_coverage_under_the_stopping_rule(condition, repetitions):
    for finding in simulate(condition, repetitions, np.random.default_rng(1)):
        assert 0.91 <= finding.coverage <= 0.97, finding
