"""kit predict, weights: use the trained weights of a run."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kit.cli import options
from kit.cli.console import Column, print_json, print_notes, print_table, print_text, show_progress
from kit.cli.groups import OUTPUT, SELECT, with_groups
from kit.model.formatting import format_percent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kit.model.prediction import PredictedPicture, Predictions

app = typer.Typer()
weights_app = typer.Typer(help="Use the trained weights of a run elsewhere.", no_args_is_help=True)

COLUMNS = (Column("Picture"), Column("Framework"), Column("Class"), Column("Probability", number=True))


@app.command(epilog="Example: kit predict 20261120-110210-ab12 --scenario catdog-cnn cat.jpg")
@with_groups
def predict(
    name: options.RunName,
    pictures: Annotated[list[Path], typer.Argument(metavar="PICTURE...", help="JPEG, PNG or WebP files.")],
    packages: options.Packages,
    scenario: Annotated[str, options.option(SELECT, "NAME", "Scenario whose trained weights are used.")],
    variant: Annotated[str, options.option(SELECT, "NAME", "Variant of the scenario.  [default: default]")] = "",
    framework: Annotated[
        list[str] | None,
        options.option(
            SELECT,
            "NAME",
            "Framework. Repeatable. Default: all with weights in the run. One without uses those of another.",
        ),
    ] = None,
    engine: options.Engine = options.DEFAULT_ENGINE,
    env: options.Env = "",
    html: Annotated[Path | None, options.option(OUTPUT, "FILE", "Also write a page with the pictures.")] = None,
    as_json: options.Json = False,
) -> None:
    """Predict the classes of pictures with trained weights.

    Weights of the best epoch are used if the run kept them, else those of the last one. The pictures are decoded,
    scaled and predicted inside the framework's container or environment. Transparent parts become white. MNIST and
    Fashion-MNIST expect light figures on a dark ground. The table shows the most likely class. `--json` has the
    probabilities of all classes.

    Exit code 2: a picture or a file of weights cannot be read. The other pictures are predicted.
    """
    from kit.engines import registry
    from kit.execution import predict as prediction
    from kit.report.predictions import PAGE, write_predictions
    from kit.report.render import require_free
    from kit.storage.files import require_folder

    folder, network = options.open_run(name), prediction.find_variant(scenario, variant)
    if html:
        require_folder(html, PAGE.remedy)
        require_free(html, PAGE)
    chosen, note = registry.choose(engine, env, packages.sources())  # never that of the run's folder: decision 17
    with show_progress(quiet=as_json) as progress:
        progress.line(note)
        found = prediction.predict(folder, network, framework, pictures, chosen, progress)
    if as_json:
        print_json(_as_json(found))
    else:
        _show(found)
    if html:  # last, because a fault of the disk must not cost the answers
        write_predictions(html, found)
        if not as_json:
            print_text(f"Page: {html}")
    raise typer.Exit(found.exit_code)


@weights_app.command(epilog="Example: kit weights export RUN CELL --onnx model.onnx")
@with_groups
def export(
    name: options.RunName,
    cell: Annotated[str, typer.Argument(metavar="CELL", help="Key of a cell, as `kit report RUN --json` shows it.")],
    packages: options.Packages,
    onnx: Annotated[Path, options.option(OUTPUT, "FILE", "ONNX file to write.")],
    engine: options.Engine = options.DEFAULT_ENGINE,
    env: options.Env = "",
) -> None:
    """Write a trained network as an ONNX model.

    Weights of the best epoch are used if the run kept them, else those of the last one. The model has opset 18. Its
    input `images` is float32 (batch, height, width, channels), with pixel values divided by 255. Its output
    `probabilities` has one value per class. A network for two classes has one value: the probability of the second
    class. `kit list datasets --json` has the classes in their order.
    """
    from kit.engines import registry
    from kit.execution.export import export as write_model
    from kit.execution.export import find_cell

    folder = options.open_run(name)
    weights = find_cell(folder, cell)
    chosen, note = registry.choose(engine, env, packages.sources())
    with show_progress() as progress:
        progress.line(note)
        write_model(weights, onnx, chosen, progress)
    print_text(f"Model of {weights.words}: {onnx}")


def _show(found: Predictions) -> None:
    """Print a table of what is predicted, then what could not be predicted, and whose weights were used."""
    titles = _titles(found)
    rows = [
        (picture.name, titles[name], *_answer(found, chances))
        for picture in found.pictures
        for name, chances in picture.chances.items()
    ]
    if rows:
        print_table(COLUMNS, rows)
    notes = [f"{picture.name}: {picture.fault}" for picture in found.pictures if picture.fault]
    notes += [
        f"{titles[name]} predicted nothing. {reason.message} {reason.remedy}" for name, reason in found.failures.items()
    ]
    notes += [f"{titles[name]} used the weights of {found.weights[name]}." for name in found.frameworks if rows]
    print_notes(["", *notes] if rows else notes)


def _answer(found: Predictions, chances: Sequence[float]) -> tuple[str, str]:
    name, share = found.best(chances)
    return name, format_percent(share, 1)


def _titles(found: Predictions) -> dict[str, str]:
    from kit.planning import catalog

    return {name: framework.title for name, framework in catalog.frameworks().items() if name in found.weights}


def _as_json(found: Predictions) -> dict[str, Any]:
    """Return all probabilities, faults, and whose weights were used."""
    return {
        "run": found.run,
        "scenario": found.label,
        "classes": list(found.classes),
        "weights": dict(found.weights),
        "exit_code": found.exit_code,
        "pictures": [_picture_json(found, picture) for picture in found.pictures],
        "failures": {name: asdict(reason) for name, reason in found.failures.items()},
    }


def _picture_json(found: Predictions, picture: PredictedPicture) -> dict[str, Any]:
    return {
        "picture": picture.name,
        "fault": picture.fault,
        "predictions": {
            name: {
                "class": found.best(chances)[0],
                "probabilities": dict(zip(found.classes, chances, strict=True)),
            }
            for name, chances in picture.chances.items()
        },
    }
