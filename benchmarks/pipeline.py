"""What the kit's image pipeline delivers against Keras' ImageDataGenerator on the same JPEG files, one worker each.

`python -m benchmarks.pipeline` prints a line of JSON for photos decoded in every epoch (`pipeline-jpeg`) and one for
photos decoded once (`pipeline-cache`). Both do the whole augmentation of the cat-and-dog scenarios.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np
import scipy

from benchmarks.pairs import Subject, at_least, exit_code
from benchmarks.processes import ROOT, Extent, alone, compare, on_host
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
    """The command line."""
    parser = argparse.ArgumentParser(prog="benchmarks.pipeline", description=__doc__)
    parser.add_argument(
        "--photos", type=Path, help="folder with a folder of JPEG files a class; default: synthetic ones"
    )
    parser.add_argument("--size", type=at_least(1), default=64, help="pixels of an edge; default: %(default)s")
    Extent.offer(parser, images=60 * PHOTO_BATCH)
    return parser.parse_args(arguments)


def main() -> None:
    """Make the environment, then measure with the machine to ourselves."""
    asked = options()
    if asked.images % PHOTO_BATCH:
        raise UsageError(f"--images must be a multiple of {PHOTO_BATCH}, is {asked.images}.", "Choose another number.")
    framework = catalog.frameworks()[FRAMEWORK]
    with show_progress() as progress, tempfile.TemporaryDirectory() as made:
        environment = LocalEngine(Sources.from_environment()).prepare(framework, "cpu", progress)
        photos = photo_folder(asked.photos, Path(made, "photos"), asked.images)
        home, packages = Path(made, "home"), Path(made, "packages")
        home.mkdir()
        lend_scipy(packages)
        work = (str(photos), "--images", str(asked.images), "--size", str(asked.size))
        lent = {"PYTHONPATH": f"{ROOT}:{packages}"}
        keras = on_host(environment, home, "benchmarks.keras_images", *work, variables=lent)
        with alone():
            for bench, how in (("pipeline-jpeg", ()), ("pipeline-cache", ("--cached",))):
                kit = on_host(environment, home, "benchmarks.kit_images", *work, *how)
                subject = Subject(bench, f"{asked.size}x{asked.size}", "kit")
                compare(subject, kit, keras, Extent.asked(asked), progress)


def photo_folder(named: Path | None, made: Path, most: int) -> Path:
    """A new folder with synthetic photos, or with links to so many at most of those that were named, so that both sides
    read the same files in each epoch. Raises UsageError where a folder has too few."""
    if named is None:
        synthetic.write_photos(DATASETS["cats-dogs"], made)
        return made / "train"
    paths = sorted(named.resolve().glob("*/*.jpg"))
    if len(paths) < PHOTO_BATCH:
        raise UsageError(
            f"{named} has fewer than {PHOTO_BATCH} JPEG files in folders of their own.",
            "Name a folder that has one folder for each class.",
        )
    for index in np.random.default_rng(0).permutation(len(paths))[:most]:
        link = made / paths[index].parent.name / paths[index].name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(paths[index])
    return made


def lend_scipy(folder: Path) -> None:
    """The generator needs scipy, which the kit has and TensorFlow's environment, made with the same Python, has not."""
    folder.mkdir()
    packages = Path(scipy.__file__).parents[1]
    for name in SCIPY:
        (folder / name).symlink_to(packages / name)


if __name__ == "__main__":
    sys.exit(exit_code(main))
