"""Test extensions: a scenario, a study, a framework, an engine and a report section are files of `tests/example`.

The real worker also runs on that example. Its adapter uses NumPy, so the interpreter of the tests can run it.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from pathlib import Path

import pytest

from scenarios.contract.augmented import AUGMENTED_FILE
from scenarios.contract.reasons import Code, Status
from tests.workers import HERE, SMOKE, copy_assets, copy_of_kit, request_of, work


@pytest.fixture(scope="module")
def assets(tmp_path_factory) -> Path:
    """Return a copy of the folders `docker` and `scenarios` with the files of the example added."""
    folder: Path = tmp_path_factory.mktemp("assets")
    copy_assets(folder)
    return folder


@pytest.fixture
def kit(assets, tmp_path):
    return copy_of_kit(assets, tmp_path)


def test_a_scenario_framework_engine_and_section_are_added_by_new_files_only(kit, tmp_path):
    catalog = json.loads(kit("list", "--json").stdout)
    assert "tiny-cnn" in json.dumps(catalog["scenarios"])
    assert "plain" in json.dumps(catalog["frameworks"])

    finished = kit("run", *SMOKE, "--out", str(tmp_path / "out"))
    assert finished.returncode == 0, finished.stdout + finished.stderr
    (record_file,) = (tmp_path / "out").glob("*/records/*.json")
    record = json.loads(record_file.read_text())
    assert (record["status"], record["engine"]) == ("ok", "example")
    assert record["result"]["proof"]["passed"]
    assert record["result"]["training"]["steps"] == 20
    assert record["result"]["evidence"]["data_kind"] == "synthetic"
    report = (record_file.parents[1] / "index.html").read_text()
    assert "tiny-cnn" in report
    assert "Launches in this example" in report


def test_a_study_and_its_scenario_run_to_a_chapter_by_new_files_only(kit, tmp_path):
    assert "tiny-sweep" in kit("study", "list").stdout
    narrowed = ("--study", "tiny-sweep", "--framework", "plain", "--profile", "smoke", "--data", "synthetic")
    finished = kit("run", *narrowed, *HERE, "--out", str(tmp_path / "out"))
    assert finished.returncode == 0, finished.stdout + finished.stderr
    (plan_file,) = (tmp_path / "out").glob("*/plan.json")
    plan = json.loads(plan_file.read_text())
    assert plan["studies"] == ["tiny-sweep"]
    assert [launch["cell"]["batch"] for launch in plan["launches"]] == [32, 64]
    report = (plan_file.parent / "index.html").read_text()
    chapter = report.partition('<section id="study-tiny-sweep"')[2].partition("</section>")[0]
    assert "Does a larger batch train faster?" in chapter
    assert "published: a made-up CPU" in chapter
    assert re.search(r"On the CPU, the speed is (flat from|highest near|not flat up to) ", chapter)


def test_the_worker_reports_its_phases_and_whole_epochs(assets, tmp_path):
    request_of(assets, tmp_path, budget={"epochs": 1, "test_images": 500})
    result = work(assets, tmp_path)
    assert result.status is Status.OK
    assert result.timings
    assert result.training
    assert result.training.epochs[0].images == 60_000
    assert result.training.epochs[0].test_accuracy > 0.9  # the synthetic data set can be learned
    assert not result.training.projected
    assert result.step_timing
    assert [steps.batch for steps in result.step_timing.resident] == [8, 16, 32]
    images = [found.image for found in result.held_out]
    assert len(images) == 10
    assert images == sorted(set(images))
    assert images[-1] < 500
    assert images != list(range(10))  # of photos, the first ones would be of one class
    correct = [found.probabilities.index(max(found.probabilities)) == found.label for found in result.held_out]
    assert sum(correct) >= 7  # the test accuracy is above 0.9
    assert all(len(found.probabilities) == 10 for found in result.held_out)
    assert result.augmented is None


def test_the_first_launch_of_a_cell_with_augmentation_leaves_a_picture(assets, tmp_path):
    photos, io = tmp_path / "photos", tmp_path / "io"
    shutil.copytree(assets, photos)
    module = photos / "scenarios/catalog/tiny_cnn.py"
    text = module.read_text().replace('dataset="mnist"', 'dataset="cats-dogs", augment=Augment()')
    text = text.replace("(28, 28, 1)", "(24, 24, 3)").replace("Dense(10", "Dense(2")
    module.write_text(text.replace("import Adam", "import Adam, Augment"))
    for full_proof in (True, False):
        io.mkdir()
        request_of(photos, io, full_proof=full_proof)
        result = work(photos, io)
        assert result.status is Status.OK, result.reason
        assert bool(result.augmented) == (io / AUGMENTED_FILE).exists() == full_proof
        assert not result.held_out  # 3 steps teach nothing
        if result.augmented:
            content = (io / AUGMENTED_FILE).read_bytes()
            assert result.augmented.digest == hashlib.sha256(content).hexdigest()
        shutil.rmtree(io)
    drawing = photos / "scenarios/data/contact_sheet.py"
    drawing.write_text(drawing.read_text() + '\n\ndef draw_sheet(*_):\n    raise ValueError("no picture")\n')
    io.mkdir()
    request_of(photos, io)
    result = work(photos, io)
    assert result.reason
    assert result.reason.message == "ValueError: no picture."
    assert result.training is None  # it is drawn before, so that a fault loses no measurement


@pytest.mark.parametrize(
    ("changes", "status", "code"),
    [
        ({"spec": "0" * 64}, Status.FAILED, Code.SPEC_MISMATCH),
        ({"scenario": "gone"}, Status.FAILED, Code.SPEC_MISMATCH),
        ({"device": "cuda"}, Status.WRONG_DEVICE, Code.WRONG_DEVICE),
        ({"precision": "bf16"}, Status.SKIPPED, Code.NOT_OFFERED),
        ({"devices": 2}, Status.SKIPPED, Code.NOT_OFFERED),
        ({"settings": {"threads": "1"}}, Status.SKIPPED, Code.NOT_OFFERED),  # in the stock lane
        ({"lane": "tuned", "settings": {"pace": "fast"}}, Status.SKIPPED, Code.NOT_OFFERED),
        ({"data": "real"}, Status.FAILED, Code.DATA_UNAVAILABLE),
        ({"environment": {"KIT_TEST_VARIABLE": "1"}}, Status.FAILED, Code.MISSING_PROOF),
        ({"framework": "nowhere"}, Status.FAILED, Code.WORKER_ERROR),
    ],
)
def test_a_launch_that_cannot_be_measured_has_a_result_with_the_reason(assets, tmp_path, changes, status, code):
    request_of(assets, tmp_path, **changes)
    result = work(assets, tmp_path)
    assert result.status is status
    assert result.reason
    assert result.reason.code is code
    assert result.reason.remedy
    assert result.training is None


def test_an_adapter_with_wrong_results_has_no_speed(assets, tmp_path):
    broken = tmp_path / "broken"
    shutil.copytree(assets, broken)
    module = broken / "scenarios/frameworks/plain/adapter.py"
    module.write_text(
        module.read_text()
        + "\n\nPlainModel.logits = lambda self, images, original=PlainModel.logits: 1.01 * original(self, images)\n"
    )
    request_of(assets, tmp_path)
    result = work(broken, tmp_path)
    assert (result.status, result.reason and result.reason.code) == (Status.FAILED, Code.REFERENCE_MISMATCH)
    assert result.proof
    assert not result.proof.passed
    assert result.training is None
