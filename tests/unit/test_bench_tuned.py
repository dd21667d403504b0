"""The benchmarks of the tuned lane: what is held against what, with which settings."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import accuracy, pipeline, profile, tuned
from benchmarks.pairs import Subject
from benchmarks.processes import Command
from kit.model.cell import Cell
from kit.model.environment import Environment
from kit.model.errors import KitError, UsageError
from kit.storage.run_folder import RunFolder
from tests import examples


def test_accuracies_are_compared_by_seed_with_students_interval_for_pairs() -> None:
    cell = ("cifar-cnn", "torch")
    stock, tuned = {0: 0.70, 1: 0.72, 2: 0.71, 3: 0.5}, {0: 0.71, 1: 0.72, 2: 0.72, 4: 0.9}
    alone = {(*cell[:1], "tensorflow", "tuned", "fp32"): tuned}
    found = {(*cell, "stock", "fp32"): stock, (*cell, "tuned", "bf16"): tuned, **alone}
    ((subject, ours, theirs),) = accuracy.comparisons(found)
    assert subject == Subject("accuracy", *cell, "bf16")
    assert (ours, theirs) == ([0.71, 0.72, 0.72], [0.70, 0.72, 0.71])
    fields = accuracy.difference(ours, theirs)
    assert (fields["difference"], fields["stock_sd"], fields["n"]) == (0.667, 1.0, 3)
    # By hand: differences 1, 0, 1; standard error 1/3; t(0.975, 2) = 4.303.
    assert fields["interval"] == pytest.approx([0.667 - 4.303 / 3, 0.667 + 4.303 / 3], abs=2e-3)
    assert accuracy.difference(stock_like := [0.7, 0.71], stock_like)["interval"] == [0, 0], (
        "as in a lane that is stock"
    )


@pytest.mark.parametrize(
    ("against", "benches"),
    [
        ([], ["tuned", "tuned-steps", "tuned-stock"]),
        (["keras"], ["tuned"]),
        (["keras-steps", "keras"], ["tuned", "tuned-steps"]),
        (["stock"], ["tuned-stock"]),
    ],
)
def test_every_framework_s_settings_are_held_against_keras_and_against_its_own_stock(against, benches, tmp_path):
    asked = tuned.options([word for name in against for word in ("--against", name)])
    environments = {name: Environment(name, "cpu", "venv", name, "") for name in ("torch", "tensorflow")}
    searched = [
        examples.record(replace(examples.request(examples.cell(framework=name)), lane="tuned", purpose="tune"))
        for name in environments
    ]
    batch = searched[0].request.batch
    found = list(tuned.comparisons(asked, searched, environments, tmp_path))
    assert [(subject.framework, subject.bench) for subject, _, _ in found] == [
        (name, bench) for name in environments for bench in benches
    ]
    for subject, ours, baseline in found:
        assert ours.arguments[0] == subject.framework
        images = str(tuned.STEPS * batch)
        assert ours.arguments[ours.arguments.index("--images") + 1] == images
        assert baseline.arguments[baseline.arguments.index("--images") + 1] == images
        assert json.loads(ours.arguments[ours.arguments.index("--settings") + 1]) == examples.SETTINGS
        assert "--settings" not in baseline.arguments
        plain = "benchmarks.kit_side" if subject.bench == "tuned-stock" else "benchmarks.keras_recipes"
        assert ("--steps-alone" in baseline.arguments) == (subject.bench == "tuned-steps")
        assert plain in baseline.arguments


def test_what_keras_has_no_recipe_of_is_not_held_against_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert tuned.options(["--scenario", "catdog-cnn", "--against", "stock"]).scenario == ["catdog-cnn"]
    with pytest.raises(SystemExit):
        tuned.options(["--scenario", "catdog-cnn", "--against", "keras"])
    assert "no plain Keras recipe of catdog-cnn" in capsys.readouterr().err


def test_what_is_profiled_is_each_tuned_cell_of_pytorch_on_the_cpu_with_its_settings(tmp_path: Path) -> None:
    pinned = {"optimizer": "fused"}
    tuned_cells = [
        examples.planned(lane="tuned"),  # the file's
        examples.planned(scenario="cifar-cnn", batch=32, lane="tuned"),  # searched
        examples.planned(scenario="cifar-mlp", framework="tensorflow", lane="tuned"),
        examples.planned(scenario="catdog-cnn", variant="deep", lane="tuned"),
        examples.planned(scenario="cifar-mlp", batch=7, lane="tuned"),
    ]
    named, *searched = tuned_cells
    plan = examples.plan([examples.planned(), *tuned_cells]).model_copy(update={"pinned": {named.key: pinned}})
    folder = RunFolder.create(tmp_path / "run", plan, examples.machine())
    for launch in searched:
        folder.save(examples.record(replace(examples.request(Cell.of(launch)), purpose="tune")))
    found = profile.cells(folder)
    assert [(launch.scenario, dict(settings)) for launch, settings in found] == [
        ("mnist-cnn", pinned),
        ("cifar-cnn", examples.SETTINGS),
    ]
    command = profile.profiled(*found[1], Environment("torch", "cpu", "venv", "python", "sha256:0"), tmp_path)
    assert json.loads(command.arguments[-1]) == examples.SETTINGS
    assert command.variables["LD_PRELOAD"] == "libtcmalloc_minimal.so.4"


def test_a_profile_that_fails_is_said_by_the_name_of_its_cell() -> None:
    assert profile.figures("a/b", Command((sys.executable, "-c", "print('{\"step_ms\": 1}')"), {})) == {"step_ms": 1}
    with pytest.raises(KitError, match="a/b could not be profiled"):
        profile.figures("a/b", Command((sys.executable, "-c", "print('{}'); exit(3)"), {}))


@pytest.mark.parametrize(("count", "enough"), [(pipeline.PHOTO_BATCH, True), (pipeline.PHOTO_BATCH - 1, False)])
def test_photos_that_are_named_must_fill_a_batch(count: int, enough: bool, tmp_path: Path) -> None:
    for index in range(count):
        place = tmp_path / "photos" / ("cats", "dogs")[index % 2] / f"{index}.jpg"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.touch()
    if enough:
        found = pipeline.photo_folder(tmp_path / "photos", tmp_path / "chosen", count - 1)
        files = [path.resolve().relative_to(tmp_path / "photos") for path in found.glob("*/*.jpg")]
        assert len(set(files)) == count - 1, "no more than an epoch has"
        assert {path.parent.name for path in files} == {"cats", "dogs"}
    else:
        with pytest.raises(UsageError, match="fewer than"):
            pipeline.photo_folder(tmp_path / "photos", tmp_path / "chosen", count)


def test_the_generator_is_lent_scipy_and_nothing_else(tmp_path: Path) -> None:
    packages = tmp_path / "packages"
    pipeline.lend_scipy(packages)
    code = "import sys, importlib.util as u; sys.path = sys.argv[1:]; print(u.find_spec('scipy').origin)"
    done = subprocess.run([sys.executable, "-c", code, str(packages)], check=True, capture_output=True, text=True)
    assert Path(done.stdout.strip()) == packages / "scipy" / "__init__.py"
    assert {path.name for path in packages.iterdir()} == {"scipy", "scipy.libs"}
    assert all(path.is_dir() for path in packages.iterdir()), "a link leads nowhere"
