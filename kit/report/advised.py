"""What to change about each cell, with the words that all sections share."""

from __future__ import annotations

from kit.analysis.advice import Setup, advice
from kit.analysis.intervals import Verdict
from kit.report.section import ReportInput
from scenarios.catalog import scenario_of
from scenarios.contract.cell import Cell, Precision

AMPERE = (8, 0)  # the first compute capability with tf32 and bf16
WITHOUT_BF16 = {"onnxruntime"}


def advised(source: ReportInput) -> dict[str, str]:
    """Return the advice for each diagnosed cell, by its key."""
    slower = {ratio.numerator.key for ratio in source.ratios("device") if ratio.verdict is Verdict.SLOWER}
    summaries = {summary.key: summary for summary in source.measured}
    workers, cpus = _workers(source), _cpus(source)
    found = {}
    for diagnosis in source.analysis.diagnoses:
        if summary := summaries.get(diagnosis.key):
            cell = summary.cell
            setup = Setup(
                plan=source.run.plan,
                scenario=scenario_of(cell, source.analysis.scenarios),
                feed=source.settings(summary).get("feed", ""),
                workers=workers.get(cell.key),
                busy_cpus=summary.cpu_cores,
                cpus=cpus.get(cell.key),
                gpu_slower=cell.key in slower,
                tensor_cores=_tensor_cores(source, cell),
            )
            found[cell.key] = advice(diagnosis, cell, setup)
    return found


def _tensor_cores(source: ReportInput, cell: Cell) -> tuple[Precision, ...]:
    """Return the precisions that the framework offers and that compute on the tensor cores of all GPUs."""
    capabilities = [gpu.compute_capability for gpu in source.run.machine.gpus]
    if cell.device != "cuda" or not capabilities or not all(found and found >= AMPERE for found in capabilities):
        return ()
    return ("tf32",) if cell.framework in WITHOUT_BF16 else ("tf32", "bf16")


def _workers(source: ReportInput) -> dict[str, int | None]:
    """Return how many threads or processes loaded photos, by the key of the cell."""
    return {r.key: result.evidence.placement.workers for r, result in source.results if r.ok and result.evidence}


def _cpus(source: ReportInput) -> dict[str, int]:
    """Return how many CPUs a launch could use, by the key of the cell. It computes with as many threads."""
    return {record.key: record.request.threads for record in source.run.records if record.ok and record.request}
