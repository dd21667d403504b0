"""Build runs of studies for tests of their chapters. All figures are made up, and the machine's name says so."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from kit.analysis.run_analysis import analyze_run
from kit.model.plan import PlannedLaunch
from kit.model.record import HostSamples, Record
from kit.model.run import Run
from kit.planning import catalog, studies
from kit.planning.selection import Selection
from kit.report.section import ReportInput
from kit.report.studies.chapter import Chapter, Shown, make_chapter
from scenarios.catalog import scenario_of
from scenarios.contract.augmented import AUGMENTED_FILE, AugmentedPicture
from scenarios.contract.cell import Cell
from scenarios.contract.predictions import HeldOutPrediction
from scenarios.contract.request import Budget, DataKind
from scenarios.contract.result import Epoch
from scenarios.data.contact_sheet import write_sheet
from scenarios.spec import DATASETS, digest
from tests import examples

FRAMEWORKS = {"tensorflow": 0.9, "onnxruntime": 0.8, "torch": 1.0}  # relative speed
GPU_GAIN = 12.0
FLAT_BATCH = 256  # the speed rises with the batch size up to here
BEST_EPOCH = 7  # lowest validation loss
STUDIES, SCENARIOS = studies.load_all(), catalog.scenarios()
TITLES = {name: framework.title for name, framework in catalog.frameworks().items()}
BOTH = ("cpu", "cuda")
SIZES = ("", "128")  # variants of catdog-cnn whose pictures differ


def study_run(
    *names: str,
    devices: Sequence[str] = ("cpu",),
    epochs: bool = False,
    data: DataKind = "real",
    launches: int = 2,
    frameworks: Sequence[str] = tuple(FRAMEWORKS),
) -> Run:
    """Return a run of studies. epochs: whether it trained those of the full profile."""
    wanted = Selection(studies=names, devices=tuple(devices), frameworks=tuple(frameworks))
    found = studies.select_studies(wanted, STUDIES, SCENARIOS, catalog.frameworks())
    records = [_record(cell, n, count, epochs, data) for cell, count in found.items() for n in range(1, launches + 1)]
    planned = [PlannedLaunch(cell=r.cell, launch=r.launch, named=True) for r in records]
    plan = examples.plan(planned).model_copy(
        update={"studies": [*names], "profile": "full" if epochs else "quick", "engine": "docker"}
    )
    machine = next((r.machine for r in records if r.machine.gpus), records[0].machine)
    made = [record.result.augmented for record in records if record.result]
    pictures = {picture.digest: content for picture, content in map(_sheet, SIZES) if picture in made}
    return Run(plan, machine, sorted(records, key=lambda record: (record.key, record.launch)), pictures=pictures)


def _record(cell: Cell, launch: int, count: int | None, epochs: bool, data: DataKind) -> Record:
    scenario = scenario_of(cell, catalog.scenarios())
    assert scenario
    spec = digest(scenario)
    request = examples.request(replace(cell, hidden_layers=None), launch=launch, data=data)
    trained = (scenario.epochs if count is None else count) if epochs else 0
    budget = Budget(epochs=trained) if trained else Budget(seconds=3, test_images=1000)
    request = replace(request, cell=cell, spec=spec, budget=budget)
    speed = _speed(cell) * (1 + 0.002 * math.sin(7 * launch + len(cell.key)))
    result = examples.result(request, speed, trained)
    assert result.training
    curve = [_epoch(index, DATASETS[scenario.dataset].train, speed) for index in range(1, trained + 1)]
    result = replace(result, training=replace(result.training, epochs=curve))
    if trained:
        result = replace(result, held_out=_held_out(cell, len(DATASETS[scenario.dataset].classes)))
    if launch == 1 and scenario.augment:
        result = replace(result, augmented=_sheet(scenario.variant if scenario.variant in SIZES else "")[0])
    gpus = [examples.gpu(name="Made-up GPU")] * (cell.device == "cuda")
    drivers = {"driver": "580.1", "cuda_driver": "13.0"} if gpus else {}
    machine = examples.machine(cpu_model="Made-up CPU of a test", gpus=gpus, **drivers)
    return examples.record(request, result=result, machine=machine, host_samples=_samples(cell))


@cache
def _sheet(variant: str) -> tuple[AugmentedPicture, bytes]:
    """Return the picture of a variant of catdog-cnn, and its file."""
    with tempfile.TemporaryDirectory() as folder:
        made = write_sheet(catalog.scenarios()["catdog-cnn"][variant], 0, Path(folder))
        assert made
        return made, Path(folder, AUGMENTED_FILE).read_bytes()


def _held_out(cell: Cell, classes: int) -> list[HeldOutPrediction]:
    """Return predictions of ten images. Only that of the fifth is wrong."""
    sure = {"tensorflow": 0.91, "onnxruntime": 0.83, "torch": 0.97}[cell.framework]
    found = []
    for number in range(10):
        label = number % classes
        shares = [(1 - sure) / (classes - 1)] * classes
        shares[(label + 1) % classes if number == 4 else label] = sure
        found.append(HeldOutPrediction(100 * number + 7, label, shares))
    return found


def _speed(cell: Cell) -> float:
    gain = GPU_GAIN if cell.device == "cuda" else 1.0
    workers = 1 + 0.4 * math.log2(cell.workers or 1)
    return 900 * gain * FRAMEWORKS[cell.framework] * workers * min(cell.batch, FLAT_BATCH) ** 0.5 / 8


def _epoch(index: int, images: int, speed: float) -> Epoch:
    loss = 0.9 + 0.012 * (index - BEST_EPOCH) ** 2
    accuracy = 0.74 - 0.002 * (index - BEST_EPOCH - 2) ** 2 if index < 16 else 0.65
    return Epoch(index, images / speed, images, 1.5 / index, min(0.45 + 0.03 * index, 0.99), loss, max(accuracy, 0.1))


def _samples(cell: Cell) -> HostSamples:
    at = [float(second) for second in range(1, 13)]
    series: dict[str, list[float | None]] = {"cpu_busy": [1.9 for _ in at]}
    if cell.device == "cuda":
        figures = {"use": 0.6, "power_w": 210.0, "temperature_c": 55.0, "memory_gib": 2.5, "sm_mhz": 1500.0}
        series |= {f"gpu0_{name}": [value for _ in at] for name, value in figures.items()}
    return HostSamples(at=at, series=series, core_busy=[1.0], cost_s=0.001)


def chapter(name: str, run: Run | None = None, **kinds) -> Chapter:
    """Return the chapter of a study. kinds: of `study_run`, if there is no run."""
    analysis = analyze_run(run or study_run(name, **kinds), SCENARIOS, catalog.frameworks())
    source = ReportInput(analysis, TITLES, STUDIES)
    return make_chapter(source, STUDIES[name])


def part(of: Chapter, title: str) -> Shown:
    """Return the only part whose title starts with these words."""
    (found,) = [part for part in of.parts if part.title.startswith(title)]
    return found


def texts(of: Chapter, title: str) -> dict[str, tuple[str, ...]]:
    """Return the rows of the first table of a part, by their label."""
    return {row[0]: row[1:] for row in part(of, title).content[0].rows}
