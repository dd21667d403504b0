"""Open a page of predictions in headless Chromium."""

from __future__ import annotations

from pathlib import Path

import pytest

from kit.model.prediction import PredictedPicture, Predictions
from kit.report.predictions import write_predictions
from scenarios.contract.reasons import Code, Reason
from scenarios.data.pictures import make_thumbnail, read_picture
from tests.browser.tab import Open
from tests.pictures import make_unusual

FRAMEWORKS = ("onnxruntime", "tensorflow", "torch")
PHONE, DESK = 390, 1440  # px


@pytest.fixture
def page(tmp_path: Path) -> Path:
    """Return a page with ten pictures, one with a long name, a faulty file and a framework that failed."""
    pictures = []
    for path in make_unusual(tmp_path):
        chances = dict.fromkeys(FRAMEWORKS[:2], (0.123, 0.877))
        pictures.append(PredictedPicture(str(path), "", chances, make_thumbnail(read_picture(path))))
    pictures.append(PredictedPicture("a-long-name-without-a-break" * 6 + ".jpg", "", pictures[0].chances))
    pictures.append(PredictedPicture("broken.jpg", "It is damaged: image file is truncated.", {}))
    found = Predictions(
        run="20261120-110210-ab12",
        label="catdog-cnn",
        title="CNN on photos of cats and dogs",
        classes=("cats", "dogs"),
        weights={name: f"catdog-cnn/{name}/cpu/stock/fp32/b32 (epoch 25)" for name in FRAMEWORKS},
        pictures=pictures,
        failures={"torch": Reason.of(Code.MEMORY_LIMIT, "Memory ran out.")},
    )
    target = tmp_path / "page.html"
    write_predictions(target, found)
    return target


@pytest.mark.parametrize("width", [PHONE, DESK])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_page_shows_its_pictures_at_every_width(show: Open, page: Path, width: int, scheme: str) -> None:
    tab = show(page, viewport={"width": width, "height": 900}, color_scheme=scheme)
    shown = tab.page.locator("img").evaluate_all("all => all.map(e => e.naturalWidth)")
    assert len(shown) == 10
    assert all(shown)
    assert tab.wider_than(width) == []
    assert tab.violations() == []
    assert [url for url in tab.requests if not url.startswith("data:")] == [tab.page.url]
    assert tab.messages == []
