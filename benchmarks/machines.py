"""Simulate machines: how the speeds of launches that follow each other vary.

A machine returns the logarithms of the speeds of `count` launches, relative to the speed of a typical launch. All
spreads are standard deviations of logarithms.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

Errors = npt.NDArray[np.float64]
Machine = Callable[[np.random.Generator, int], Errors]

NOISE = 0.02  # of machines that have another disturbance, too
SLOW_SHARE, SLOW = 0.1, math.log(0.75)  # one launch in ten is 25% slower
# A machine with two speeds, a factor of 1.3 apart, that switches every ten launches or so.
SWITCH, FASTER = 0.1, math.log(1.3)
AR_SPREAD, AR_LAG_1 = 0.05, 0.8
TAILS = 3  # degrees of freedom of Student's t: a fifth of the launches is beyond twice the typical error


def normal(spread: float) -> Machine:
    """Return a machine with independent, normally distributed errors."""
    return lambda generator, count: generator.normal(0.0, spread, count)


def _heavy_tails(generator: np.random.Generator, count: int) -> Errors:
    return generator.standard_t(TAILS, count) * 0.05 / math.sqrt(TAILS)


def _skewed(generator: np.random.Generator, count: int) -> Errors:
    shape, spread = 4.0, 0.05  # a gamma distribution with skewness 1, whose long tail is on the slow side
    values = (shape - generator.standard_gamma(shape, count)) / math.sqrt(shape) * spread
    return values - _SKEWED_MEDIAN * spread


_SKEWED_MEDIAN = (4.0 - 3.672060748850897) / 2.0  # of the gamma distribution with shape 4, in its standard deviations


def _slow_launches(generator: np.random.Generator, count: int) -> Errors:
    return np.where(generator.random(count) < SLOW_SHARE, SLOW, 0.0) + generator.normal(0.0, NOISE, count)


def _two_speeds(generator: np.random.Generator, count: int) -> Errors:
    switches = np.cumsum(generator.random(count) < SWITCH) + generator.integers(2)
    return (switches % 2 - 0.5) * FASTER + generator.normal(0.0, NOISE, count)


def _autoregressive(generator: np.random.Generator, count: int) -> Errors:
    changes = generator.normal(0.0, AR_SPREAD * math.sqrt(1 - AR_LAG_1**2), count)
    errors = np.empty(count)
    error = generator.normal(0.0, AR_SPREAD)
    for index, change in enumerate(changes):
        errors[index] = error = AR_LAG_1 * error + change
    return errors


MACHINES: Mapping[str, Machine] = {
    "normal, 3%": normal(0.03),
    "normal, 5%": normal(0.05),
    "normal, 10%": normal(0.10),
    "skewed": _skewed,
    "heavy tails": _heavy_tails,
    "one in ten slow": _slow_launches,
    "two speeds": _two_speeds,
    "AR(1)": _autoregressive,
}
INDEPENDENT = {name for name in MACHINES if name not in {"two speeds", "AR(1)"}}
