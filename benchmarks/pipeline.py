"""Compare the kit's image pipeline with Keras' ImageDataGenerator on the same JPEG files, with one worker each.

`python -m benchmarks.pipeline` prints one line of JSON for photos that are decoded in each epoch (`pipeline-jpeg`), and
one for photos that are decoded once (`pipeline-cache`). Both sides do the full augmentation of the cat-and-dog
scenarios.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np
import scipy

from benchmarks.pairs import Subject, exit_code, whole_number
from benchmarks.processes import ROOT, Extent, compare, exclusive_machine, on_host
from benchmarks.side import PHOTO_BATCH
from kit.cli.console import show_progress
from kit.engines.local import LocalEngine
from kit.environments.package_sources import Sources
from kit.model.errors import UsageError
from kit.planning import catalog
from scenarios.data import synthetic
from scenarios.spec import DATASETS

FRAMEWORK = "tensorflow"
SCIPY = ("scipy", "scipy.libs")


def options(arguments: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="benchmarks.pipeline", description=__doc__)
    parser.add_argument(
        "--photos", type=Path, help="folder with one folder of JPEG files per class; default: synthetic photos"
    )
    parser.add_argument("--size", type=whole_number(1), default=64, help="edge length in pixels; default: %(default)s")
    Extent.add_options(parser, images=60 * PHOTO_BATCH)
    return parser.parse_args(arguments)


def main() -> None:
    """Make the environment, then measure. Hold the machine lock."""
    args = options()
    if args.images % PHOTO_BATCH:
        message = f"--images must be a multiple of {PHOTO_BATCH}, but is {args.images}."
        raise UsageError(message, "Choose another number.")
    framework = catalog.frameworks()[FRAMEWORK]
    with show_progress() as progress, tempfile.TemporaryDirectory() as scratch, exclusive_machine():
        environment = LocalEngine(Sources.from_environment()).prepare(framework, "cpu", progress)
        photos = photo_folder(args.photos, Path(scratch, "photos"), args.images)
        home, packages = Path(scratch, "home"), Path(scratch, "packages")
        home.mkdir()
        link_scipy(packages)
        work = (str(photos), "--images", str(args.images), "--size", str(args.size))
        variables = {"PYTHONPATH": f"{ROOT}:{packages}"}
        keras = on_host(environment, home, "benchmarks.keras_images", *work, variables=variables)
        for bench, cached in (("pipeline-jpeg", ()), ("pipeline-cache", ("--cached",))):
            kit = on_host(environment, home, "benchmarks.kit_images", *work, *cached)
            subject = Subject(bench, f"{args.size}x{args.size}", "kit")
            compare(subject, kit, keras, Extent.from_options(args), progress)


def photo_folder(source: Path | None, new: Path, max_photos: int) -> Path:
    """Return a folder with the photos of an epoch, so that both sides read the same files in each epoch.

    source: the user's photos; at most `max_photos` of them are linked. None: write synthetic photos. new: where to
    create the folder. Raise UsageError if `source` has too few photos."""
    if source is None:
        synthetic.write_photos(DATASETS["cats-dogs"], new)
        return new / "train"
    paths = sorted(source.resolve().glob("*/*.jpg"))
    if len(paths) < PHOTO_BATCH:
        raise UsageError(
            f"{source} has fewer than {PHOTO_BATCH} JPEG files in folders by class.",
            "Name a folder that has one folder for each class.",
        )
    for index in np.random.default_rng(0).permutation(len(paths))[:max_photos]:
        link = new / paths[index].parent.name / paths[index].name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(paths[index])
    return new


def link_scipy(folder: Path) -> None:
    """Link the kit's own scipy into a folder for Keras' generator. TensorFlow's environment lacks scipy, but was made
    with the same Python."""
    folder.mkdir()
    packages = Path(scipy.__file__).parents[1]
    for name in SCIPY:
        (folder / name).symlink_to(packages / name)


if __name__ == "__main__":
    sys.exit(exit_code(main))
