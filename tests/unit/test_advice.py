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
WAITING = StepParts(arithmetic=0.1, kernels=0.4, fixed=0.5, waiting=6.1)


def advised(cell: Cell, bottleneck: Bottleneck, label: str, parts: StepParts, **setup: Any) -> Advice:
    """Return the advice for a cell. setup: what is known about how it ran."""
    found = Diagnosis(cell.key, bottleneck, "", "", None, None, None, label, parts)
    return advice(found, cell, Setup(PLAN, scenario_of(cell, catalog.scenarios()), **setup), (cell.framework,))


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


def test_synthetic_photos_are_mentioned_where_a_step_decodes_photos():
    """A feed that decodes before training does not decode in a step."""
    doubt = "The photos were synthetic. Decoding real ones can take a different time."
    assert waiting(PHOTOS, synthetic=True).endswith(doubt)
    assert doubt not in waiting(PHOTOS, synthetic=True, feed="cached")
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
    assert starved(PHOTOS, workers=0, feed="resident", busy_cpus=1.0, cpus=4).use == "1.0 of 4 CPUs busy"
    assert starved(examples.cell("fashion-mlp"), workers=2, busy_cpus=1.0, cpus=4).use == ""
    assert f"--workers {MAX_WORKERS}`" in waiting(PHOTOS, workers=MAX_WORKERS - 1)


def test_batches_that_come_late_get_a_whole_command():
    found = waiting(examples.cell("fashion-mlp"))
    assert waiting(examples.cell("fashion-mlp", device="cuda")).startswith("Try batches in pinned memory")
    assert found.startswith("Let the tuned lane choose how batches are made")
    assert found.endswith(": `kit run --scenario fashion-mlp --framework torch --device cpu --lane tuned`")


def test_what_cells_gain_and_used_is_told_apart_where_it_differs():
    one, two = Advice("Change it.", 7.1, "1.0 of 2 CPUs busy"), Advice("Change it.", 1.52, "1.6 of 2 CPUs busy")
    end = "Faster loading cannot gain more."
    start = "Without waiting for data, training would speed up"
    assert advised_cells.without_waiting([("A", one)]) == f"{start} 7.1×. {end} Measured with 1.0 of 2 CPUs busy."
    assert advised_cells.without_waiting([("A", one), ("B", one)]) == advised_cells.without_waiting([("A", one)])
    assert advised_cells.without_waiting([("A", one), ("B", two)]) == (
        f"{start} 7.1× in A and 1.5× in B. {end} Measured with 1.0 of 2 CPUs busy in A and 1.6 of 2 CPUs busy in B."
    )
    unsteady = replace(two, gain=None)
    assert f"{start} 7.1× in A. {end} Measured with" in advised_cells.without_waiting([("A", one), ("B", unsteady)])
    assert advised_cells.without_waiting([("A", Advice("Change it."))]) == ""


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
