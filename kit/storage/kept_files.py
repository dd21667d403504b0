"""Keep what a launch with whole epochs leaves in its scratch folder: checkpoints until it is ok, then trained weights.

Files are moved and never copied, and no link is followed: the worker and a run folder may be those of a stranger.
"""

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from scenarios.contract.epochs import KeptWeights
from scenarios.contract.request import CHECKPOINT_PREFIX, EPOCHS_FOLDER


@dataclass(frozen=True)
class KeptPaths:
    """Where the files of a launch are kept.

    weights: beginning of the paths of trained weights. checkpoints: folder for its checkpoints until it is ok. resumed:
    folder with the checkpoints that it continues from; it may be missing.
    """

    weights: Path
    checkpoints: Path
    resumed: Path


def take_checkpoints(scratch: Path, place: Path) -> None:
    """Move the checkpoints of a launch, with the weights that belong to them, to `place`. Replace older ones.

    Do nothing if there are none. scratch: the folder that the worker sees. Raise OSError.
    """
    made = scratch / EPOCHS_FOLDER
    if _is_folder(scratch) and _is_folder(made) and any(made.glob(f"{CHECKPOINT_PREFIX}*")):
        remove_checkpoints(place)
        made.rename(place)


def lend_checkpoints(place: Path, scratch: Path) -> None:
    """Move the checkpoints in `place`, if there are any, to where the worker of a resumed launch looks for them.

    Raise OSError.
    """
    if _is_folder(place):
        place.rename(scratch / EPOCHS_FOLDER)


def remove_checkpoints(place: Path) -> None:
    """Remove the checkpoints of a launch. Raise OSError."""
    if _is_folder(place):
        shutil.rmtree(place)
    elif os.path.lexists(place):
        place.unlink()


def keep_weights(scratch: Path, weights: Sequence[KeptWeights], prefix: Path) -> list[KeptWeights]:
    """Move the weights that a worker wrote. Return them with their new names.

    prefix: of their new paths. Raise ValueError if one is missing or not a plain file, and OSError.
    """
    kept, folder = [], scratch / EPOCHS_FOLDER
    for each in weights:
        made, path = folder / each.file, prefix.with_name(f"{prefix.name}__{each.kind}.safetensors")
        if not _is_folder(folder) or not made.is_file() or made.is_symlink():
            raise ValueError(f"{each.file} is missing or not a plain file")
        made.replace(path)
        kept.append(replace(each, file=path.name))
    return kept


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()
