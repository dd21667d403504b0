"""Test the benchmarks of the tuned lane and of the image pipeline: what is compared, and with which settings."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import accuracy, pipeline, tuned
from benchmarks.pairs import Subject
from kit.model.environment import Environment
from kit.model.errors import UsageError
from tests import examples


def test_accuracies_are_compared_by_seed_with_students_paired_interval() -> None:
    cell = ("cifar-cnn", "torch")
    stock, tuned = {0: 0.70, 1: 0.72, 2: 0.71, 3: 0.5}, {0: 0.71, 1: 0.72, 2: 0.72, 4: 0.9}
    without_stock = {("cifar-cnn", "tensorflow", "tuned", "fp32"): tuned}
    accuracies = {(*cell, "stock", "fp32"): stock, (*cell, "tuned", "bf16"): tuned, **without_stock}
    ((subject, ours, theirs),) = accuracy.comparisons(accuracies)
    assert subject == Subject("accuracy", *cell, "bf16")
    assert (ours, theirs) == ([0.71, 0.72, 0.72], [0.70, 0.72, 0.71])
    fields = accuracy.difference(ours, theirs)
    assert (fields["difference"], fields["stock_sd"], fields["n"]) == (0.667, 1.0, 3)
    # By hand: differences 1, 0, 1; standard error 1/3; t(0.975, 2) = 4.303.
    assert fields["interval"] == pytest.approx([0.667 - 4.303 / 3, 0.667 + 4.303 / 3], abs=2e-3)
    assert accuracy.difference([0.7, 0.71], [0.7, 0.71])["interval"] == [0, 0]  # the search kept stock's settings


@pytest.mark.parametrize(
    ("against", "benches"),
    [
        ([], ["tuned", "tuned-steps", "tuned-stock"]),
        (["keras"], ["tuned"]),
        (["keras-steps", "keras"], ["tuned", "tuned-steps"]),
        (["stock"], ["tuned-stock"]),
    ],
)
def test_tuned_settings_are_compared_with_keras_and_with_the_same_frameworks_stock_lane(against, benches, tmp_path):
    args = tuned.options([word for name in against for word in ("--against", name)])
    environments = {name: Environment(name, "cpu", "venv", name, "") for name in ("torch", "tensorflow")}
    searches = [
        examples.record(examples.request(examples.cell(framework=name), lane="tuned", purpose="tune"))
        for name in environments
    ]
    batch = searches[0].request.cell.batch
    found = list(tuned.comparisons(args, searches, environments, tmp_path))
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
        assert ("--steps-only" in baseline.arguments) == (subject.bench == "tuned-steps")
        assert plain in baseline.arguments


def test_a_scenario_without_keras_recipe_is_not_compared_with_keras(capsys: pytest.CaptureFixture[str]) -> None:
    assert tuned.options(["--scenario", "catdog-cnn", "--against", "stock"]).scenario == ["catdog-cnn"]
    with pytest.raises(SystemExit):
        tuned.options(["--scenario", "catdog-cnn", "--against", "keras"])
    assert "no plain Keras recipe of catdog-cnn" in capsys.readouterr().err


@pytest.mark.parametrize(("count", "enough"), [(pipeline.PHOTO_BATCH, True), (pipeline.PHOTO_BATCH - 1, False)])
def test_named_photos_must_fill_a_batch(count: int, enough: bool, tmp_path: Path) -> None:
    for index in range(count):
        place = tmp_path / "photos" / ("cats", "dogs")[index % 2] / f"{index}.jpg"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.touch()
    if enough:
        found = pipeline.photo_folder(tmp_path / "photos", tmp_path / "chosen", count - 1)
        files = [path.resolve().relative_to(tmp_path / "photos") for path in found.glob("*/*.jpg")]
        assert len(set(files)) == count - 1, "as many as an epoch has"
        assert {path.parent.name for path in files} == {"cats", "dogs"}
    else:
        with pytest.raises(UsageError, match="fewer than"):
            pipeline.photo_folder(tmp_path / "photos", tmp_path / "chosen", count)


def test_the_generator_gets_scipy_and_nothing_else(tmp_path: Path) -> None:
    packages = tmp_path / "packages"
    pipeline.link_scipy(packages)
    code = "import sys, importlib.util as u; sys.path = sys.argv[1:]; print(u.find_spec('scipy').origin)"
    done = subprocess.run([sys.executable, "-c", code, str(packages)], check=True, capture_output=True, text=True)
    assert Path(done.stdout.strip()) == packages / "scipy" / "__init__.py"
    assert {path.name for path in packages.iterdir()} == {"scipy", "scipy.libs"}
    assert all(path.is_dir() for path in packages.iterdir()), "a link is broken"
