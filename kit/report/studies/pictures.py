"""Show the picture of augmented photos that a launch made. It has photos of the synthetic set only."""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup

from kit.model.formatting import format_number, format_percent
from kit.report.jpeg import jpeg_address
from kit.report.studies.part_source import PartSource
from scenarios.catalog import scenario_of
from scenarios.contract.augmented import VERSIONS
from scenarios.spec import DATASETS, Scenario


@dataclass(frozen=True)
class PictureView:
    """A picture on the page. source: the file as the address of an `img`. caption: what it shows, in sentences."""

    source: Markup
    caption: str


def augmented_picture(part: PartSource) -> PictureView | None:
    """Return the picture of the first cell of the part that has one, or None."""
    for summary in part.in_order:
        picture, scenario = part.values.augmented(summary), scenario_of(summary.cell, part.source.analysis.scenarios)
        content = part.source.run.pictures.get(picture.digest) if picture else None
        if content and scenario and scenario.augment:
            return PictureView(jpeg_address(content), _caption(scenario))
    return None


def _caption(scenario: Scenario) -> str:
    assert scenario.augment
    height, width, _ = scenario.image
    zoom = format_percent(scenario.augment.zoom)
    flips = ", and half of them are mirrored" if scenario.augment.flip else ""
    return (
        f"Generated photos of the synthetic set, not of {DATASETS[scenario.dataset].title}. On the left: as the "
        f"network sees them, with {height}×{width} pixels. Then: {VERSIONS} versions, augmented as in training. They "
        f"are sheared by up to {format_number(scenario.augment.shear, 1)}°, height and width are zoomed by up to "
        f"{zoom}{flips}. The proof of the first launch of each "
        "cell compares the augmentation of its framework with the reference."
    )
