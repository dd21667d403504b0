"""List what the tables and charts of a study can show of a cell."""

from dataclasses import dataclass
from typing import Literal

from kit.model.formatting import format_number, format_percent

Need = Literal["speed", "epochs", "gpu"]
Unit = Literal["s", "ms", "images/s", "share", "accuracy", "loss", "ratio", "W", "°C", "GiB"]

NEEDS: dict[Need, str] = {"speed": "any profile", "epochs": "full profile", "gpu": "GPU"}


@dataclass(frozen=True)
class StudyMeasure:
    """A measured quantity of a cell.

    title: in tables and charts. unit: `share` is between 0 and 1, `accuracy` too, `loss` is in nats. need: what a run
    must have. speed: whether it says how fast the cell trains, so that a curve over a varied field can flatten.
    """

    title: str
    unit: Unit
    need: Need
    speed: bool = False

    def text(self, value: float) -> str:
        """Return a measured value with its unit and three significant digits, accuracies with two decimals."""
        if self.unit == "accuracy":
            return format_percent(value, 2)
        if self.unit == "share":
            return format_percent(value)
        return self._with_unit(format_number(value))

    def short(self, value: float) -> str:
        """Return a value with its unit and at most four significant digits, without zeros that say nothing."""
        rounded = float(f"{value:.4g}")
        return self.exact(rounded, rounded)

    def exact(self, low: float, high: float) -> str:
        """Return a published value, or its range, with at most six digits and without zeros at the end."""
        factor = 100 if self.unit in {"share", "accuracy"} else 1
        return self._with_unit(" to ".join(f"{factor * end:,.6g}" for end in dict.fromkeys((low, high))))

    def _with_unit(self, number: str) -> str:
        if self.unit in {"share", "accuracy"}:
            return f"{number}%"
        return f"{number}×" if self.unit == "ratio" else number if self.unit == "loss" else f"{number} {self.unit}"


MEASURES: dict[str, StudyMeasure] = {
    "training_s": StudyMeasure("Training time", "s", "speed", speed=True),
    "epoch_s": StudyMeasure("Time per epoch", "s", "speed", speed=True),
    "step_ms": StudyMeasure("Time per step", "ms", "speed"),
    "images_per_s": StudyMeasure("Training speed", "images/s", "speed", speed=True),
    "cpu_use": StudyMeasure("CPU utilization", "share", "speed"),
    "test_accuracy": StudyMeasure("Validation accuracy", "accuracy", "epochs"),
    "best_accuracy": StudyMeasure("Best validation accuracy", "accuracy", "epochs"),
    "test_loss": StudyMeasure("Validation loss", "loss", "epochs"),
    "train_accuracy": StudyMeasure("Training accuracy", "accuracy", "epochs"),
    "train_loss": StudyMeasure("Training loss", "loss", "epochs"),
    "speedup": StudyMeasure("GPU over CPU", "ratio", "gpu"),
    "gpu_use": StudyMeasure("GPU utilization", "share", "gpu"),
    "gpu_power_w": StudyMeasure("GPU power", "W", "gpu"),
    "gpu_temperature_c": StudyMeasure("GPU temperature", "°C", "gpu"),
    "gpu_memory_gib": StudyMeasure("GPU memory", "GiB", "gpu"),
}
