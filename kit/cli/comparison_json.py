"""Format comparisons and the outcome of the gate for programs."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from kit.analysis.comparison import CellResult, Comparison, GroupMean, Overall, group_means, overall
from kit.analysis.gate import GateResult, Whole
from kit.analysis.intervals import Interval
from kit.analysis.pairing import Measure
from kit.model.run import Run


def comparison_json(
    runs: Sequence[Run], compared: Sequence[tuple[Run, Measure, Sequence[Comparison]]], labels: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the runs, and the cells and group means of other runs compared with the first one.

    labels: of the runs, if they have some.
    """
    named = [{"label": label} for label in labels] or [{} for _ in runs]
    return {
        "runs": [_run_json(run) | label for run, label in zip(runs, named, strict=True)],
        "comparisons": [
            {
                "base": runs[0].plan.run,
                "new": run.plan.run,
                "measure": measure,
                "cells": [_cell_json(comparison) for comparison in comparisons],
                "means": [_mean_json(mean) for mean in group_means(comparisons)],
                "overall": _overall_json(overall(comparisons)),
            }
            for run, measure, comparisons in compared
        ],
    }


def gate_json(result: GateResult, runs: Sequence[Run]) -> dict[str, Any]:
    """Return the runs, the outcome, and each cell with its outcome."""
    return {
        "runs": [_run_json(run) for run in runs],
        "measure": result.measure,
        "max_regression": result.max_regression,
        "exit_code": result.exit_code,
        "paired": result.paired,
        "whole": _whole_json(result.whole),
        "cells": [
            _cell_json(cell.comparison)
            | {"outcome": cell.outcome, "revealed": cell.loss.revealed if cell.loss else None}
            for cell in result.cells
        ],
    }


def _run_json(run: Run) -> dict[str, Any]:
    machine = {"id": run.machine.id, "description": run.machine.description}
    return {"run": run.plan.run, "profile": run.plan.profile, "machine": machine}


def _cell_json(comparison: Comparison) -> dict[str, Any]:
    return {
        "key": comparison.key,
        "verdict": comparison.verdict,
        "ratio": comparison.ratio,
        "interval": _interval_json(comparison.interval),
        "pairs": None if comparison.pairs is None else asdict(comparison.pairs),
        "base": _result_json(comparison.base),
        "new": _result_json(comparison.new),
        "differences": [asdict(difference) for difference in comparison.differences],
    }


def _result_json(cell: CellResult) -> dict[str, Any]:
    return {
        "status": cell.status.name.lower(),
        "images_per_s": cell.images_per_s,
        "launches": len(cell.speeds),
        "failures": cell.failures,
        "synthetic": cell.synthetic,
    }


def _mean_json(mean: GroupMean) -> dict[str, Any]:
    interval = _interval_json(mean.interval)
    return {"group": mean.group, "cells": mean.cells, "ratio": mean.interval.estimate, "interval": interval}


def _overall_json(mean: Overall | None) -> dict[str, Any] | None:
    if mean is None:
        return None
    return {"cells": mean.cells, "ratio": mean.ratio, "interval": _interval_json(mean.interval)}


def _whole_json(whole: Whole | None) -> dict[str, Any] | None:
    if whole is None:
        return None
    return {
        "ratio": whole.ratio,
        "cells": whole.cells,
        "allowed": whole.allowed,
        "revealed": whole.loss.revealed,
        "regression": whole.regression,
    }


def _interval_json(interval: Interval | None) -> list[float] | None:
    return None if interval is None else [interval.low, interval.high]
