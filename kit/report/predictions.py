"""Write predictions as one HTML page with the pictures: no script, no external resource, every text escaped."""

from dataclasses import dataclass
from pathlib import Path, PurePath

from markupsafe import Markup

from kit.model.formatting import format_count, format_percent
from kit.model.prediction import PredictedPicture, Predictions
from kit.planning import catalog
from kit.report.jpeg import jpeg_address
from kit.report.render import Page, render_page, write_page

PAGE = Page("a page of predictions", ": kit predictions", "Choose another file with --html.")


@dataclass(frozen=True)
class PictureView:
    """A picture on the page. source: the thumbnail as the address of an `img`, or "". answers: class and probability by
    framework, in the order of the columns; None if there is none."""

    name: str
    source: Markup
    answers: list[tuple[str, str] | None]


def write_predictions(target: Path, found: Predictions) -> None:
    """Write the page, atomically. Raise UsageError if `target` is another file, and DiskError."""
    write_page(target, render_predictions(found), PAGE)


def render_predictions(found: Predictions) -> str:
    """Return the HTML text of the page. Raise DiskError if a template cannot be read."""
    frameworks = catalog.frameworks()
    return render_page(
        "predictions.html",
        PAGE,
        found=found,
        titles={name: frameworks[name].title for name in found.weights},
        pictures=[_view(found, picture) for picture in found.pictures if picture.chances],
        faults=[(PurePath(picture.name).name, picture.fault) for picture in found.pictures if picture.fault],
        count=format_count(sum(bool(picture.chances) for picture in found.pictures), "picture"),
    )


def _view(found: Predictions, picture: PredictedPicture) -> PictureView:
    """Return a picture for the page, which names no folder of this machine."""
    source = jpeg_address(picture.thumbnail) if picture.thumbnail else Markup()
    answers = []
    for name in found.frameworks:
        chances = picture.chances.get(name)
        best = found.best(chances) if chances else None
        answers.append((best[0], format_percent(best[1], 1)) if best else None)
    return PictureView(PurePath(picture.name).name, source, answers)
