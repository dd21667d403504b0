"""Test the pictures of augmented photos: what they show, and that a run keeps and reads only what a record names."""

from __future__ import annotations

import hashlib
import io
import json
from base64 import b64encode
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from benchmarks import sample
from kit.model.errors import KitError, UsageError
from kit.model.record import Record
from kit.planning import catalog
from kit.storage.run_folder import PICTURES, RunFolder
from scenarios.contract.augmented import AUGMENTED_FILE, MAX_PICTURE_BYTES, VERSIONS, AugmentedPicture
from scenarios.data import contact_sheet
from scenarios.data.contact_sheet import GAP, GRAY, draw_sheet, write_sheet
from scenarios.spec import Augment
from tests import examples, launches

SCENARIOS = catalog.scenarios()
CATDOG = SCENARIOS["catdog-cnn"][""]
AUGMENTING = [scenario for variants in SCENARIOS.values() for scenario in variants.values() if scenario.augment]
SMALL = replace(CATDOG, image=(32, 24, 3))


def jpeg(color=100):
    file = io.BytesIO()
    Image.new("RGB", (8, 8), (color, 0, 0)).save(file, "JPEG")
    return file.getvalue()


def picture_of(content):
    return AugmentedPicture(hashlib.sha256(content).hexdigest())


def tiles(sheet, size):
    """Return the photos of a sheet by row and column."""
    height, width = size
    rows, columns = (sheet.shape[0] + GAP) // (height + GAP), (sheet.shape[1] + GAP) // (width + GAP)
    return [
        [sheet[y * (height + GAP) :, x * (width + GAP) :][:height, :width] for x in range(columns)] for y in range(rows)
    ]


def test_a_sheet_shows_a_synthetic_photo_of_each_class_and_its_augmented_versions(tmp_path):
    sheet = draw_sheet(SMALL, Augment(shear=0.0, zoom=0.0, flip=True), 3, tmp_path)
    found = tiles(sheet, (32, 24))
    assert [len(row) for row in found] == [1 + VERSIONS] * 2
    mirrored = []
    for photo, *versions in found:
        kinds = [(np.array_equal(v, photo), np.array_equal(v, photo[:, ::-1])) for v in versions]
        assert all(sum(kind) == 1 for kind in kinds)  # nothing but flips
        mirrored += [kind[1] for kind in kinds]
    assert 0 < sum(mirrored) < 2 * VERSIONS
    assert (sheet[32 : 32 + GAP] == GRAY).all()
    assert not np.array_equal(found[0][0], found[1][0])
    zoomed = tiles(draw_sheet(SMALL, Augment(), 3, tmp_path), (32, 24))
    assert np.array_equal(zoomed[0][0], found[0][0])
    assert not any(np.array_equal(version, zoomed[0][0]) for version in zoomed[0][1:])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("scenario", AUGMENTING, ids=lambda scenario: scenario.label)
def test_the_picture_of_each_scenario_is_small_and_always_the_same(scenario, tmp_path):
    made = write_sheet(scenario, 0, tmp_path)
    content = (tmp_path / AUGMENTED_FILE).read_bytes()
    assert made == picture_of(content)
    assert len(content) <= MAX_PICTURE_BYTES
    with Image.open(io.BytesIO(content)) as image:
        assert image.size == (6 * scenario.image[1] + 5 * GAP, 2 * scenario.image[0] + GAP)
        assert not image.getexif()
    assert write_sheet(scenario, 0, tmp_path) == made
    assert write_sheet(scenario, 1, tmp_path) != made


def test_a_picture_that_cannot_be_small_is_not_written(tmp_path, monkeypatch):
    monkeypatch.setattr(contact_sheet, "MAX_PICTURE_BYTES", 100)
    assert write_sheet(SMALL, 0, tmp_path) is None
    assert list(tmp_path.iterdir()) == []


def leaving(content, named=None):
    """Return a worker that leaves this file, and names the picture of `named`."""
    work = launches.result_worker(augmented=picture_of(content if named is None else named))

    def worker(request, folder):
        (folder.scratch / AUGMENTED_FILE).write_bytes(content)
        return work(request, folder)

    return worker


def test_the_picture_of_a_launch_is_kept_once(context, ready):
    ready.kept.pictures.mkdir(parents=True)
    for _ in range(2):
        record = launches.run(context, ready, leaving(jpeg()))
        assert record.result.augmented == picture_of(jpeg())
        (file,) = ready.kept.pictures.iterdir()
        assert (file.name, file.read_bytes()) == (f"{picture_of(jpeg()).digest}.jpg", jpeg())


@pytest.mark.parametrize("fault", ["missing", "link", "other", "large", "format"])
def test_a_wrong_picture_is_not_kept_and_costs_no_measurement(context, ready, fault, tmp_path):
    ready.kept.pictures.mkdir(parents=True)
    secret = tmp_path / "secret"
    secret.write_bytes(jpeg())
    content = {"large": jpeg() + bytes(MAX_PICTURE_BYTES), "format": b"<svg onload='x'>"}.get(fault, jpeg())
    usual = leaving(content, jpeg(7) if fault == "other" else None)

    def worker(request, folder):
        completion, file = usual(request, folder), folder.scratch / AUGMENTED_FILE
        if fault in {"missing", "link"}:
            file.unlink()
        if fault == "link":
            file.symlink_to(secret)
        return completion

    record = launches.run(context, ready, worker)
    assert record.ok
    assert record.result.augmented is None
    assert "The picture of augmented photos was not kept" in record.warnings[-1]
    assert list(ready.kept.pictures.iterdir()) == []


@pytest.fixture
def kept(tmp_path):
    """Return a run of one launch with a picture, the picture's file, and its content."""
    folder = RunFolder.create(tmp_path / "run", examples.plan([examples.planned(1)]), examples.machine())
    picture = picture_of(jpeg())
    folder.save(examples.record(result=replace(examples.result(examples.request()), augmented=picture)))
    file = folder.path / PICTURES / picture.file
    file.write_bytes(jpeg())
    return folder, file, {picture.digest: jpeg()}


def test_a_run_has_the_pictures_that_its_records_name(kept):
    folder, _, pictures = kept
    (folder.path / PICTURES / "other.jpg").write_bytes(jpeg(3))
    assert folder.read().pictures == folder.read_usable().pictures == pictures


@pytest.mark.parametrize("change", ["missing", "altered", "link", "linked folder"])
def test_a_picture_that_is_not_the_one_of_the_record_is_not_read(kept, change, tmp_path):
    folder, file, _ = kept
    if change == "altered":
        file.write_bytes(jpeg(3))
    elif change == "linked folder":
        file.parent.rename(tmp_path / "elsewhere")
        file.parent.symlink_to(tmp_path / "elsewhere")
    else:
        file.rename(tmp_path / "elsewhere.jpg")
    if change == "link":
        file.symlink_to(tmp_path / "elsewhere.jpg")
    assert folder.read_usable().pictures == {}


@pytest.mark.parametrize("digest", ["../../secret", "", "A" * 64, "a" * 63])
def test_a_record_cannot_name_another_file(digest):
    data = json.loads(examples.record().to_json())
    data["result"]["augmented"] = {"digest": digest}
    with pytest.raises(UsageError, match="is not the SHA-256 of a picture"):
        Record.from_json(json.dumps(data), "strange")


@pytest.mark.parametrize(
    ("held_out", "words"),
    [
        ([{"image": 0, "label": 2, "probabilities": [0.5, 0.5]}], "is none of its classes"),
        ([{"image": n, "label": 0, "probabilities": [0.1] * n} for n in (2, 3)], "differ in the number of classes"),
        ([{"image": 0, "label": 0, "probabilities": [1.5]}], "is not between 0 and 1"),
    ],
)
def test_predictions_that_make_no_sense_are_refused(held_out, words):
    data = json.loads(examples.record().to_json())
    data["result"]["held_out"] = held_out
    with pytest.raises(UsageError, match=words):
        Record.from_json(json.dumps(data), "strange")


def test_a_sample_report_may_contain_only_the_pictures_of_its_records():
    own, other = (f'<img src="data:image/jpeg;base64,{b64encode(jpeg(color)).decode()}" alt="">' for color in (100, 3))
    sample.require_no_photo(own.encode(), [jpeg()])
    for page in (other, own + other, '<svg><image href="x"/></svg>', '<b style="background: url(data:image/png)">'):
        with pytest.raises(KitError, match="contains a picture"):
            sample.require_no_photo(page.encode(), [jpeg()])
