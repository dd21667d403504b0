"""MSER on simulated series: it finds warm-ups of every length, and finds none in a stationary series."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scenarios.measuring.window_meter import MIN_STEADY, truncation_point

VALUES = st.lists(st.integers(1, 1000), max_size=60)  # with whole numbers, shifts and powers of two are exact


def by_definition(values):
    """Compute MSER by the formula of the papers."""

    def mser(cut):
        left = np.asarray(values[cut:], float)
        return np.sum((left - left.mean()) ** 2) / len(left) ** 2

    allowed = [cut for cut in range(len(values) // 2 + 1) if len(values) - cut >= MIN_STEADY]
    return [mser(cut) for cut in allowed] or [0.0]


@given(VALUES)
def test_it_is_the_minimum_of_the_papers_formula(values):
    errors = by_definition(values)
    found = truncation_point(values)
    assert errors[found] == pytest.approx(min(errors), rel=1e-9, abs=1e-12)
    assert 0 <= found <= len(values) / 2
    assert found == 0 or len(values) - found >= MIN_STEADY


@given(VALUES, st.sampled_from([0.25, 1.0, 8.0]))
def test_the_unit_of_the_rates_does_not_matter(values, factor):
    assert truncation_point([factor * value for value in values]) == truncation_point(values)


@given(st.floats(1e-3, 1e9), st.integers(0, 50))
def test_nothing_is_cut_from_a_constant_series(rate, count):
    assert truncation_point([rate] * count) == 0


@given(st.integers(0, 20), st.integers(0, 30))
def test_a_step_in_the_first_half_is_cut_exactly(slow, more):
    fast = max(slow, MIN_STEADY) + more
    assert truncation_point([700.0] * slow + [1000.0] * fast) == slow


@pytest.mark.parametrize("noise", [0.01, 0.03])
@pytest.mark.parametrize("count", [40, 100])
def test_a_decaying_warm_up_of_random_length_is_found_within_a_few_windows(noise, count):
    """Rates 1 - a exp(-i / tau) with noise. The warm-up ends where the missing part is below 1.4 times the noise."""
    random = np.random.default_rng(1)
    errors, biases = [], []
    for _ in range(300):
        missing, tau = random.uniform(0.2, 0.6), random.uniform(0.5, 4.0)
        rates = (1 - missing * np.exp(-np.arange(count) / tau)) * random.normal(1, noise, count)
        found = truncation_point(list(rates))
        errors.append(found - tau * math.log(missing / (math.sqrt(2) * noise)))
        biases.append(np.median(rates[found:]) - 1)
    assert np.median(np.abs(errors)) < 1.5
    assert np.mean(np.abs(errors) <= 3) > 0.7
    assert np.quantile(errors, 0.05) > -2.5  # little is missed; an unnecessary cut costs only time
    assert abs(np.mean(biases)) < 0.15 * noise


@pytest.mark.parametrize("count", [10, 24, 80, 160])
def test_little_is_cut_from_a_stationary_series(count):
    random = np.random.default_rng(2)
    cuts = [truncation_point(list(random.normal(1000, 30, count))) for _ in range(1000)]
    assert np.mean(cuts) < 2
    assert np.mean(np.array(cuts) == 0) > 0.5
