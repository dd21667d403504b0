"""Compute how long work takes and what it costs, from the speed of a cell and the price of an hour. No input or output.

Times are those of steady training or inference. The start of the process, the evaluation after each epoch and time in
which a rented machine is idle cost extra.
"""

from __future__ import annotations

from dataclasses import dataclass

from kit.analysis.intervals import Interval
from kit.analysis.pairing import Measure
from kit.analysis.summaries import CellSummary
from scenarios.catalog import Scenarios, scenario_of

HOUR_S = 3600
MILLION = 1_000_000


@dataclass(frozen=True)
class Estimate:
    """A time in s or an amount of money. low, high: ends of the 95% interval, None if there is none."""

    value: float
    low: float | None = None
    high: float | None = None

    def times(self, factor: float) -> Estimate:
        """Return the estimate multiplied by a number above 0."""
        ends = [None if end is None else factor * end for end in (self.low, self.high)]
        return Estimate(factor * self.value, *ends)

    def cost(self, per_hour: float) -> Estimate:
        """Return what this time costs. per_hour: price of an hour."""
        return self.times(per_hour / HOUR_S)


@dataclass(frozen=True)
class Times:
    """The time that a cell needs, in s.

    million: for a million images. epoch: to train with the published training set once. model: to train for `epochs`,
    the published number of epochs. They are None for inference. model and epochs are None, too, if the network is
    unknown or has changed since the run.
    """

    million: Estimate
    epoch: Estimate | None = None
    model: Estimate | None = None
    epochs: int | None = None


def times_of(summary: CellSummary, measure: Measure, scenarios: Scenarios) -> Times | None:
    """Return the times of a cell, or None if its speed was not measured.

    measure: training or inference. scenarios: those that did not change since the run.
    """
    training = measure is Measure.TRAINING
    speed, interval = summary.speed(measure), summary.interval if training else summary.inference_interval
    if not speed:
        return None
    million = _estimate(MILLION / speed, interval)
    if not training or summary.epoch_s is None:
        return Times(million)
    epoch, scenario = _estimate(summary.epoch_s, interval), scenario_of(summary.cell, scenarios)
    if scenario is None:
        return Times(million, epoch)
    return Times(million, epoch, epoch.times(scenario.epochs), scenario.epochs)


def _estimate(seconds: float, interval: Interval | None) -> Estimate:
    """Return a time. interval: of the speed that it was computed from."""
    if interval is None:
        return Estimate(seconds)
    of_time = interval.of_time(seconds)
    return Estimate(seconds, of_time.low, of_time.high)
