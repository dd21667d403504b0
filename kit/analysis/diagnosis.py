"""Diagnose what limits the speed of each cell. No input or output.

A cell is diagnosed from the parts of its training step and from the ceilings of the machine; see `diagnosis_rules`. A
cell that trained on the wrong device has failed, and its diagnosis is the reason of the failure.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from kit.analysis.ceilings import Ceilings, best_ceilings
from kit.analysis.diagnosis_rules import RULES, Bottleneck
from kit.analysis.gpu_use import busy_share
from kit.analysis.limit_labels import LABELS, limit_label
from kit.analysis.measured_launch import measured_launches
from kit.analysis.step_breakdown import break_down
from kit.analysis.step_parts import StepParts, step_parts
from kit.model.machine import Machine
from kit.model.record import Record
from kit.model.run import Run
from scenarios.catalog import Scenarios, scenario_of
from scenarios.contract.cell import Cell
from scenarios.contract.reasons import Status
from scenarios.spec import Scenario


@dataclass(frozen=True)
class Diagnosis:
    """What limits the speed of one cell.

    evidence: the figures behind it. remedy: what to do. flops_per_s: FLOP/s of end-to-end training, None if nothing was
    measured. ceiling_share: flops_per_s as a share of the measured ceiling of the cell's devices, at its precision: for
    convolution if the network has one, else for the matrix product. None if that was not measured. peak_share: the same
    for the data sheet's dense peak, None for CPUs and for GPUs that are not in the table. label: the bottleneck in
    words, see `limit_labels`. parts: of one training step. intensity: FLOP for each byte of the step's least memory
    traffic. gpu_use: mean share of the training time for which the GPU ran kernels, None if it was not sampled. The
    last three are None if nothing was measured.
    """

    key: str
    bottleneck: Bottleneck
    evidence: str
    remedy: str
    flops_per_s: float | None
    ceiling_share: float | None
    peak_share: float | None
    label: str
    parts: StepParts | None = None
    intensity: float | None = None
    gpu_use: float | None = None


def diagnose_all(run: Run, scenarios: Scenarios, ceilings: Ceilings) -> list[Diagnosis]:
    """Return the diagnosis of each cell that has an `ok` launch or ran on the wrong device, in order of the records.

    scenarios: those that did not change since the run. A cell of another scenario has no diagnosis. ceilings: the
    best values of all frameworks, see `best_ceilings`.
    """
    cells: dict[Cell, list[Record]] = {}
    for record in run.records:
        if record.status in (Status.OK, Status.WRONG_DEVICE):
            cells.setdefault(record.cell, []).append(record)
    own_ceilings = {
        name: best_ceilings([probe for probe in run.probes if probe.cell.framework == name])
        for name in {cell.framework for cell in cells}
    }
    found = []
    for cell, records in cells.items():
        scenario = scenario_of(cell, scenarios)
        ok = [record for record in records if record.ok]
        if not ok:
            found.append(_wrong_device(records[-1]))
        elif scenario and (diagnosis := diagnose(ok, scenario, ceilings, own_ceilings[cell.framework], run.machine)):
            found.append(diagnosis)
    return found


def diagnose(
    records: Sequence[Record], scenario: Scenario, ceilings: Ceilings, own_ceilings: Ceilings, machine: Machine
) -> Diagnosis | None:
    """Return the diagnosis of a cell, or None if no launch timed its steps (smoke profile).

    records: the ok launches of the cell. Other arguments as in `break_down`.
    """
    step = break_down(measured_launches(records), scenario, ceilings, own_ceilings, machine)
    if step is None:
        return None
    bottleneck, evidence, remedy = next(finding for rule in RULES if (finding := rule(step)))
    cell = step.request.cell
    images_per_s = statistics.geometric_mean(launch.training.images_per_s for launch in step.launches)
    flops_per_s = images_per_s * step.flops / cell.batch
    peak = step.data_sheet.flops(cell.precision) if step.data_sheet else None
    return Diagnosis(
        key=cell.key,
        bottleneck=bottleneck,
        evidence=evidence,
        remedy=remedy,
        flops_per_s=flops_per_s,
        ceiling_share=flops_per_s / step.flops_ceiling if step.flops_ceiling else None,
        peak_share=flops_per_s / (peak * cell.devices) if peak else None,
        label=limit_label(bottleneck, step),
        parts=step_parts(step),
        intensity=step.flops / step.traffic_bytes,
        gpu_use=busy_share(step.launches),
    )


def _wrong_device(record: Record) -> Diagnosis:
    message, remedy = (record.reason.message, record.reason.remedy) if record.reason else ("", "")
    label = LABELS[Bottleneck.WRONG_DEVICE]
    return Diagnosis(record.key, Bottleneck.WRONG_DEVICE, message, remedy, None, None, None, label)
