"""Test what the report advises for a cell, with the commands and the figures of that cell."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kit.analysis.advice import Advice, Setup, advice
from kit.analysis.diagnosis import Diagnosis
from kit.analysis.diagnosis_rules import Bottleneck
from kit.analysis.run_analysis import analyze_run
from kit.analysis.step_parts import StepParts
from kit.planning import catalog
from kit.report import advised as advised_cells
from kit.report.section import ReportInput
from scenarios.catalog import scenario_of
from scenarios.contract.cell import MAX_WORKERS, Cell
from tests import examples

PLAN = examples.plan([]).model_copy(update={"engine": "docker"})
PHOTOS = examples.cell("catdog-cnn", device="cuda")
COMMAND = "kit run --scenario catdog-cnn --framework torch --device cuda"
OWN = (PHOTOS.framework,)
WAITING = StepParts(arithmetic=0.1, kernels=0.4, fixed=0.5, waiting=6.1)


def advised(cell: Cell, bottleneck: Bottleneck, label: str, parts: StepParts, **setup: Any) -> Advice:
    """Return the advice for a cell. setup: what is known about how it ran."""
    found = Diagnosis(cell.key, bottleneck, "", "", None, None, None, label, parts)
    return advice(found, cell, Setup(PLAN, scenario_of(cell, catalog.scenarios()), **{"frameworks": OWN} | setup))


def waiting(cell: Cell, **setup: Any) -> str:
    return starved(cell, **setup).text


def starved(cell: Cell, **setup: Any) -> Advice:
    return advised(cell, Bottleneck.INPUT_BOUND, "waiting for data", WAITING, **setup)


def arithmetic(parts: StepParts, **changes: Any) -> str:
    cell = replace(examples.cell("cifar-cnn"), **changes)
    return advised(cell, Bottleneck.COMPUTE_BOUND, "arithmetic", parts).text


def test_a_starved_network_gets_whole_commands_and_its_own_figures():
    found = starved(PHOTOS, workers=2, busy_cpus=1.0, cpus=2)
    assert found.text == (
        "In each epoch, all photos are decoded, resized and augmented on the CPU. First try feeds that decode each "
        f"photo once: `{COMMAND} --lane tuned` Then try more workers, because CPUs were idle: `{COMMAND} --workers 4`"
    )
    assert found.use == "2 workers, 1.0 of 2 CPUs busy"
    assert found.gain == pytest.approx(7.1)


def test_an_unsteady_step_promises_no_gain():
    assert starved(PHOTOS, steady=False).gain is None


def test_the_time_that_synthetic_photos_take_to_decode_is_called_another():
    doubt = "The photos were synthetic: real ones can take another time to decode."
    tuned = replace(PHOTOS, lane="tuned")
    assert all(waiting(cell, synthetic=True, feed="cached").endswith(doubt) for cell in (PHOTOS, tuned))
    assert doubt not in waiting(PHOTOS)


def test_more_workers_are_advised_only_if_a_cpu_is_idle():
    busy = waiting(PHOTOS, workers=2, busy_cpus=1.9, cpus=2)
    assert "--workers" not in busy
    assert "--lane tuned` More workers would not help, because the CPUs were busy." in busy
    tuned = replace(PHOTOS, lane="tuned")
    assert f"`{COMMAND} --lane tuned --workers 6`" in waiting(tuned, feed="cached", workers=3, busy_cpus=1.0, cpus=4)
    assert "More workers would not help" in waiting(tuned, feed="cached", workers=3, busy_cpus=4.0, cpus=4)


def test_only_augmented_photos_are_called_augmented():
    plain = replace(PHOTOS, variant="no-augment")
    assert waiting(plain).startswith("In each epoch, all photos are decoded and resized on the CPU.")
    for feed in ("cached", "resident"):
        tuned = replace(plain, lane="tuned")
        assert "augmented" not in waiting(tuned, feed=feed)
        assert "resized and augmented" in waiting(replace(PHOTOS, lane="tuned"), feed=feed)


def test_figures_that_are_not_known_are_left_out():
    nothing = starved(PHOTOS)
    assert nothing.use == ""
    assert f"`{COMMAND} --workers 2`" in nothing.text
    assert starved(PHOTOS, busy_cpus=1.0, cpus=4).use == "1.0 of 4 CPUs busy"
    assert f"--workers {MAX_WORKERS}`" in waiting(PHOTOS, workers=MAX_WORKERS - 1)


def test_batches_that_come_late_get_a_whole_command():
    found = waiting(examples.cell("fashion-mlp"))
    assert found.startswith("Try batches in pinned memory")
    assert found.endswith(": `kit run --scenario fashion-mlp --framework torch --device cpu --lane tuned`")


@pytest.mark.parametrize(
    ("framework", "capability", "advised_precisions"),
    [
        ("torch", (9, 0), "--precision tf32 or bf16, which compute"),
        ("onnxruntime", (9, 0), "--precision tf32, which computes"),
        ("torch", (7, 5), None),
        ("torch", None, None),
        ("torch", "no GPU", None),
    ],
)
def test_only_precisions_that_framework_and_gpu_have_are_advised(framework, capability, advised_precisions):
    of = examples.cell("cifar-cnn", framework, "cuda")
    machine = examples.machine(gpus=[examples.gpu(compute_capability=capability)] if capability != "no GPU" else [])
    analysis = analyze_run(replace(examples.run([examples.record(examples.request(of))]), machine=machine), {})
    source = ReportInput(analysis, {})
    for bottleneck in (Bottleneck.COMPUTE_BOUND, Bottleneck.MEMORY_BOUND):
        found = Diagnosis(of.key, bottleneck, "", "Measure again.", None, None, None, "kernels", None)
        text = advised_cells.advised(replace(source, analysis=replace(analysis, diagnoses=[found])))[of.key].text
        if advised_precisions is None or (framework, bottleneck) == ("onnxruntime", Bottleneck.MEMORY_BOUND):
            assert "precision" not in text
        else:
            assert (advised_precisions if bottleneck is Bottleneck.COMPUTE_BOUND else "--precision bf16, which") in text


@pytest.mark.parametrize(
    ("parts", "share"),
    [
        (StepParts(1.53, 0.99, 1.16, 0.59), "the largest part of the step (36%)"),
        (StepParts(17.0, 18.7, 0.8, 0.0), "47% of the step"),
    ],
)
def test_kernels_far_from_the_ceiling_are_not_called_near(parts, share):
    assert arithmetic(parts) == (
        f"Arithmetic at the measured ceiling is {share}. The kernels still run below this ceiling. Try --lane tuned, "
        "or use a faster device."
    )
    assert arithmetic(parts, lane="tuned").endswith(" below this ceiling. Use a faster device.")


def test_kernels_near_the_ceiling_leave_only_a_faster_device():
    """The wait for data is no reason to call the kernels slow."""
    near = "The kernels are near the ceiling, so only a faster device helps much."
    assert arithmetic(StepParts(8.0, 2.0, 0.0, 4.0)) == near
    assert arithmetic(StepParts(6.0, 4.0, 0.0, 0.0)) != near
