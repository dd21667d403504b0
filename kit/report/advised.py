"""What to change about each cell, with the words that all sections share."""

from __future__ import annotations

from collections.abc import Sequence

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

    Cells whose advice differs only in the framework share one text. Its commands name all frameworks of these cells.
    """
    cells = _diagnosed(source)
    texts = [advice(*each, frameworks=()).text for each in cells]
    alike: dict[str, set[str]] = {}
    for words, (_, cell, _) in zip(texts, cells, strict=True):
        alike.setdefault(words, set()).add(cell.framework)
    every = set(source.analysis.frameworks)
    commands = {words: () if found == every else sorted(found, key=sort_key) for words, found in alike.items()}
    return {
        cell.key: advice(diagnosis, cell, setup, frameworks=commands[words])
        for words, (diagnosis, cell, setup) in zip(texts, cells, strict=True)
    }


def without_waiting(cells: Sequence[tuple[str, Advice]]) -> str:
    """Return how fast cells would train without waiting for data, and how their CPUs were used, as sentences, or "".

    cells: the name that tells each cell from the others, and its advice.
    """
    gains = [(name, f"{text.number(each.gain, 2)}×") for name, each in cells if each.gain is not None]
    uses = [(name, each.use) for name, each in cells if each.use]
    sentences = []
    if gains:
        gain = _by_cell(gains, len(cells))
        sentences.append(f"Without waiting for data, training would speed up {gain}. Faster loading cannot gain more.")
    if uses:
        sentences.append(f"Measured with {_by_cell(uses, len(cells))}.")
    return " ".join(sentences)


def _by_cell(found: Sequence[tuple[str, str]], count: int) -> str:
    """Return words by the name of their cell, or the words alone if all of `count` cells have the same."""
    words = {each for _, each in found}
    if len(words) == 1 and len(found) == count:
        return words.pop()
    return text.listed([f"{each} in {name}" for name, each in found])


def _diagnosed(source: ReportInput) -> list[tuple[Diagnosis, Cell, Setup]]:
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
