"""Compute the values that a study shows of measured cells. No input or output.

`kit.planning.study_measures` lists the measures. A training time is that of whole epochs, or is projected from the
steady speed. Times are those of a typical launch, with an interval, like every speed. Accuracies and losses come from
whole epochs on real data only: synthetic data says nothing about the real task. They are those of the first launch,
because launches of a run have the same seed. What a GPU did is the mean of the host's samples while the cell trained.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from kit.analysis.gpu_use import gpu_mean
from kit.analysis.intervals import Interval, cell_interval, typical
from kit.analysis.pairing import Measure
from kit.analysis.reliability import unsteady_cells
from kit.analysis.run_analysis import RunAnalysis
from kit.analysis.summaries import CellSummary
from scenarios.contract.augmented import AugmentedPicture
from scenarios.contract.predictions import HeldOutPrediction
from scenarios.contract.result import Epoch, Result, Training

GPU_MEASURES = ("gpu_use", "gpu_power_w", "gpu_temperature_c", "gpu_memory_gib")
QUALITY: dict[str, Callable[[Epoch], float]] = {
    "train_loss": lambda epoch: epoch.train_loss,
    "train_accuracy": lambda epoch: epoch.train_accuracy,
    "test_loss": lambda epoch: epoch.test_loss,
    "test_accuracy": lambda epoch: epoch.test_accuracy,
}


@dataclass(frozen=True)
class StudyValue:
    """A measured value. interval: over launches, or None if there is none.

    projected: computed from the steady speed, because fewer whole epochs were trained. epochs: the number after which
    an accuracy or loss was measured, if it is smaller than that of the study; else None. doubtful: a cell whose speed
    it comes from was disturbed or not steady.
    """

    value: float
    interval: Interval | None = None
    projected: bool = False
    epochs: int | None = None
    doubtful: bool = False


class StudyValues:
    """The values of the cells of one run. doubtful: the keys of cells whose speeds are doubtful."""

    def __init__(self, analysis: RunAnalysis) -> None:
        self._analysis = analysis
        self.doubtful = unsteady_cells(analysis).keys()
        self._speedups = {
            ratio.numerator.key: ratio for ratio in analysis.ratios[Measure.TRAINING] if ratio.kind == "device"
        }

    def find(self, summary: CellSummary, measure: str, epochs: int, epoch: int | None = None) -> StudyValue | None:
        """Return the value of a measure of a cell, or None if it was not measured.

        epochs: those of the study. epoch: number of the epoch that is asked for, from 1; None for the end.
        """
        if not summary.launches:
            return None
        if measure in QUALITY or measure == "best_accuracy":
            return None if summary.synthetic else self._quality(summary, measure, epochs, epoch)
        if measure in GPU_MEASURES:
            return self._gpu(summary, measure.removeprefix("gpu_"))
        if measure == "speedup":
            ratio = self._speedups.get(summary.key)
            if not ratio:
                return None
            doubtful = not self.doubtful.isdisjoint({ratio.numerator.key, ratio.denominator.key})
            return StudyValue(ratio.ratio, ratio.interval, doubtful=doubtful)
        if measure == "cpu_use":
            cores = summary.cpu_cores
            return None if cores is None else StudyValue(cores / self._analysis.run.machine.cpus)
        found = self._speed(summary, measure, epochs, epoch)
        return found and replace(found, doubtful=summary.key in self.doubtful)

    def curve(self, summary: CellSummary, epochs: int) -> list[Epoch]:
        """Return the whole epochs of the first ok launch of a cell. epochs: the largest number of them."""
        return self._epochs(summary)[0][1][:epochs]

    def best_accuracies(self, summary: CellSummary, epochs: int) -> dict[int, list[float]]:
        """Return the best accuracy of each launch with whole epochs on real data, by seed. epochs: as in `find`."""
        found: dict[int, list[float]] = {}
        for seed, curve in self._epochs(summary) if not summary.synthetic else ():
            if curve:
                found.setdefault(seed, []).append(_best(curve[:epochs]))
        return found

    def held_out(self, summary: CellSummary) -> list[HeldOutPrediction]:
        """Return what the first ok launch of a cell predicted for images of the test set, on real data only."""
        return [] if summary.synthetic else self._results(summary)[0].held_out

    def augmented(self, summary: CellSummary) -> AugmentedPicture | None:
        """Return the picture of augmented photos that a launch of a cell made."""
        return next((result.augmented for result in self._results(summary) if result.augmented), None)

    def _results(self, summary: CellSummary) -> list[Result]:
        """Return the results of the ok launches of a measured cell."""
        return [r.result for r in self._analysis.run.by_cell[summary.key] if r.ok and r.result]

    def _epochs(self, summary: CellSummary) -> list[tuple[int, list[Epoch]]]:
        """Return seed and whole epochs of each ok launch of a measured cell."""
        records = [record for record in self._analysis.run.by_cell[summary.key] if record.ok]
        return [
            (record.request.seed, record.result.training.epochs)
            for record in records
            if record.request and record.result and record.result.training
        ]

    def _speed(self, summary: CellSummary, measure: str, epochs: int, epoch: int | None) -> StudyValue | None:
        if summary.images_per_s is None or summary.epoch_s is None:
            return None
        if measure == "images_per_s":
            return StudyValue(summary.images_per_s, summary.interval)
        if measure == "step_ms":
            return _of_speed(1000 * summary.cell.batch / summary.images_per_s, summary.interval)
        times = [_epoch_times(result.training) for result in self._results(summary) if result.training]
        if epoch is not None:
            return _over_launches([own[epoch - 1] for own in times if epoch <= len(own)])
        whole = [sum(own[:epochs]) for own in times if len(own) >= epochs]
        if measure == "training_s" and (found := _over_launches(whole)):
            return found
        count = 1 if measure == "epoch_s" else epochs
        projected = summary.projected or measure == "training_s"
        return replace(_of_speed(count * summary.epoch_s, summary.interval), projected=projected)

    def _quality(self, summary: CellSummary, measure: str, epochs: int, epoch: int | None) -> StudyValue | None:
        curve = self.curve(summary, epochs)
        if not curve:
            return None
        early = len(curve) if len(curve) < epochs else None
        if measure == "best_accuracy":
            return StudyValue(_best(curve), epochs=early)
        if epoch is not None and epoch < epochs:
            return StudyValue(QUALITY[measure](curve[epoch - 1])) if epoch <= len(curve) else None
        return StudyValue(QUALITY[measure](curve[-1]), epochs=early)

    def _gpu(self, summary: CellSummary, series: str) -> StudyValue | None:
        launches = self._analysis.launches.get(summary.key, ())
        means = [found for launch in launches if (found := gpu_mean(launch, series)) is not None]
        return StudyValue(statistics.median(means)) if means else None


def _epoch_times(training: Training) -> list[float]:
    """Return the time of each whole epoch, in s. After a resume, an epoch includes another warm-up, which no training
    has that is not interrupted. Such an epoch gets the time that its images take in steady training."""
    again = {done + 1 for done in training.resumed_from}
    return [e.images / training.images_per_s if e.index in again else e.seconds for e in training.epochs]


def _over_launches(seconds: Sequence[float]) -> StudyValue | None:
    """Return the time of a typical launch with its interval, or None without a time."""
    times = [each for each in seconds if each > 0]
    return StudyValue(typical(times), cell_interval(times)) if times else None


def _best(curve: Sequence[Epoch]) -> float:
    return max(epoch.test_accuracy for epoch in curve)


def _of_speed(seconds: float, interval: Interval | None) -> StudyValue:
    """Return a time. interval: of the speed that it was computed from."""
    return StudyValue(seconds, interval.of_time(seconds) if interval else None)
