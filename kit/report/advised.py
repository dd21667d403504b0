"""What to change about each cell, with the words that all sections share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kit.analysis.advice import Advice, Setup, advice
from kit.analysis.diagnosis import Diagnosis
from kit.analysis.intervals import Verdict
from kit.analysis.reliability import unsteady_cells
from kit.report import text
from kit.report.marks import sort_key
from kit.report.section import ReportInput
from scenarios.catalog import scenario_of
from scenarios.contract.cell import Cell, Precision

AMPERE = (8, 0)  # the first compute capability with tf32 and bf16
WITHOUT_BF16 = {"onnxruntime"}


def advised(source: ReportInput) -> dict[str, Advice]:
    """Return the advice for each diagnosed cell, by its key.

    Cells with the same limit that differ only in their framework have the same text, whose commands name all of these
    frameworks.
    """
    setups = _setups(source)
    groups: dict[tuple[str, str], list[str]] = {}
    for diagnosis, cell, setup in setups:
        groups.setdefault((diagnosis.label, advice(diagnosis, cell, setup).text), []).append(cell.framework)
    found = {}
    for diagnosis, cell, setup in setups:
        same = dict.fromkeys(groups[diagnosis.label, advice(diagnosis, cell, setup).text])
        named = () if same.keys() == set(source.analysis.frameworks) else tuple(sorted(same, key=sort_key))
        found[cell.key] = advice(diagnosis, cell, replace(setup, frameworks=named))
    return found


def without_waiting(members: Sequence[tuple[str, Advice]]) -> str:
    """Return how fast cells would train without waiting for data, as a sentence after a space, or "".

    members: title of the framework and advice of each cell. A single cell is called `it`.
    """
    parts: list[str] = []
    for name, each in members:
        if each.gain is not None:
            who = f"{name if len(members) > 1 else 'it'} would train " if not parts else f"{name} "
            use = f" ({each.use})" if each.use else ""
            parts.append(f"{who}{text.number(each.gain, 2)}×{use if parts else f' as fast{use}'}")
    return f" Without waiting, {text.listed(parts)}; no feed can bring more." if parts else ""


def _setups(source: ReportInput) -> list[tuple[Diagnosis, Cell, Setup]]:
    """Return each diagnosed cell, with its diagnosis and how it ran."""
    slower = {ratio.numerator.key for ratio in source.ratios("device") if ratio.verdict is Verdict.SLOWER}
    summaries = {summary.key: summary for summary in source.measured}
    workers, cpus, unsteady = _workers(source), _cpus(source), unsteady_cells(source.analysis)
    found = []
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
                synthetic=summary.synthetic,
                steady=cell.key not in unsteady,
            )
            found.append((diagnosis, cell, setup))
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
