"""Test the headings of the sections that compare frameworks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kit.analysis.answers import answers
from kit.analysis.reliability import reliability
from kit.analysis.run_analysis import analyze_run
from kit.model.plan import PlannedLaunch
from kit.model.run import Run
from kit.planning import catalog, studies
from kit.report import headings
from kit.report.published import published_speeds
from kit.report.section import ReportInput
from kit.report.sections import training
from kit.report.sections.steadiness import steadiness_heading
from kit.report.view import make_view
from tests import examples
from tests.examples import cell, failed, machine, record, request

TITLES = {name: framework.title for name, framework in catalog.frameworks().items()}


def source(speeds, launches=5):
    """Return a run with these speeds in images/s. speeds: scenario, framework and device to the speed."""
    records = [
        record(request(cell(scenario, framework, device=device), launch=n), speed * (1 + 0.001 * ((3 * n + i) % 5)))
        for i, ((scenario, framework, device), speed) in enumerate(speeds.items())
        for n in range(1, launches + 1)
    ]
    return source_of(records)


def source_of(records):
    planned = [PlannedLaunch(cell=r.cell, launch=r.launch, named=False) for r in records]
    run = Run(examples.plan(planned), machine(), records)
    return ReportInput(analyze_run(run, catalog.scenarios()), TITLES)


CPU = {
    ("mnist-cnn", "torch", "cpu"): 1000.0,
    ("mnist-cnn", "tensorflow", "cpu"): 500.0,
    ("cifar-cnn", "torch", "cpu"): 100.0,
    ("cifar-cnn", "tensorflow", "cpu"): 200.0,
    ("cifar-mlp", "torch", "cpu"): 300.0,
    ("cifar-mlp", "tensorflow", "cpu"): 300.0,
}
FIRST = dict(list(CPU.items())[:2])
GPU = {(scenario, framework, "cuda"): 9 * speed for (scenario, framework, _), speed in FIRST.items()}


@pytest.mark.parametrize(
    ("speeds", "launches", "expected"),
    [
        (CPU, 5, "PyTorch for 1 and TensorFlow for 1 of 3 networks (1 without a clear winner)"),
        (FIRST, 5, "PyTorch"),
        (FIRST, 1, "PyTorch is ahead in one launch each"),
        ({**FIRST, **GPU}, 5, "On the GPU, PyTorch; on the CPU, PyTorch"),
        (dict(list(CPU.items())[4:]), 5, "No clear winner"),
        ({("mnist-cnn", "torch", "cpu"): 1.0}, 5, "Training speed, without a comparison of frameworks"),
    ],
)
def test_the_heading_counts_networks_by_device(speeds, launches, expected):
    assert headings.training_heading(source(speeds, launches)) == expected


def test_single_launches_are_ahead_and_do_not_win():
    heading = headings.training_heading(source(CPU, launches=1))
    assert heading.startswith("Ahead in one launch each: ")
    assert heading.endswith(" of 3 networks")


def test_the_heading_of_inference_names_throughput_and_latency():
    assert headings.inference_heading(source(FIRST)) == "Throughput: PyTorch. Latency: no clear winner"


def test_a_gpu_that_was_not_measured_gives_the_reason_of_its_skipped_cells():
    skipped = failed(request(cell(device="cuda")), examples.Status.SKIPPED, message="No NVIDIA GPU is visible.")
    found = headings.gpu_heading(source_of([record(request(cell())), skipped]))
    assert found == "Not measured: the cells on the GPU were skipped (No NVIDIA GPU is visible)"


def test_a_planned_launch_on_the_gpu_that_has_not_run_is_not_called_unselected():
    interrupted = source_of([record(request(cell()))])
    planned = [*interrupted.run.plan.launches, examples.planned(device="cuda")]
    plan = interrupted.run.plan.model_copy(update={"launches": planned})
    run = Run(plan, machine(), interrupted.run.records)
    found = headings.gpu_heading(ReportInput(analyze_run(run, catalog.scenarios()), TITLES))
    assert found == "Not measured: no launch on the GPU has run yet"


def test_a_small_lead_in_single_launches_is_no_lead():
    close = {("mnist-cnn", "torch", "cpu"): 1000.0, ("mnist-cnn", "tensorflow", "cpu"): 990.0}
    assert headings.training_heading(source(close, launches=1)) == "Too close to call"


def test_published_speeds_belong_to_the_same_network_batch_size_and_device():
    known = studies.load_all(), catalog.scenarios()
    (speed,) = published_speeds(cell("cifar-cnn", device="cuda"), *known)
    assert speed.note == "6,493 images/s, Tesla T4, study cifar-epochs"  # 50 epochs of 50,000 images in 385.03 s
    (swept,) = published_speeds(replace(cell("mnist-cnn-dropout"), batch=2048), *known)
    assert swept.images_per_s == pytest.approx(600_000 / 506.80)
    for other in ({"batch": 33}, {"lane": "tuned"}, {"precision": "bf16"}):
        assert not published_speeds(replace(cell("cifar-cnn", device="cuda"), **other), *known)


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        ((1, 0, 1), "No: the cell was not steady"),
        ((1, 0, 3), "No: 1 of 3 cells was not steady"),
        ((0, 1, 1), "Not known: too little was measured"),
        ((0, 0, 1), "Yes: in 1 cell the speed was steady"),
        ((0, 0, 3), "Yes: in each of 3 cells the speed was steady"),
        ((0, 1, 3), "Yes in 2 cells; too little was measured of 1 more"),
    ],
)
def test_steadiness_is_told_of_one_cell_and_of_several(counts, words):
    assert steadiness_heading(*counts) == words


def test_a_run_of_one_cell_is_described_in_the_singular():
    one = analyze_run(examples.run([record(request(cell()), 500.0)]), catalog.scenarios())
    assert reliability(one).facts[0].text == "1 cell: it computes the same function as a float64 reference"
    assert answers(one, TITLES).speed.headline.startswith("In one launch, it trains mnist-cnn at 500 images/s")
    bad = analyze_run(examples.run([failed(request(cell()))]), catalog.scenarios())
    failure = make_view(bad, TITLES).failure
    assert failure
    assert failure.headline == "Nothing was measured: the launch did not end well"


def test_the_section_says_which_numbers_of_launches_have_less_than_95_percent():
    def less(*counts):
        records = [
            record(request(cell(framework=name), launch=n), 100.0 + n)
            for name, count in zip(("torch", "tensorflow", "onnxruntime"), counts, strict=False)
            for n in range(1, count + 1)
        ]
        return training.SECTION.data(source_of(records)).less

    assert less(5, 11, 6) == "93.8% with 5 launches and 93.5% with 11 launches"
    assert less(3, 6) == ""
