"""Keep what a launch with whole epochs leaves in its scratch folder: checkpoints until it is ok, then trained weights.

No link is followed: the worker and a run folder may be those of a stranger.
"""

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kit.storage.files import sync_folder, write_atomic
from scenarios.contract.epochs import KeptWeights
from scenarios.contract.request import CHECKPOINT_PREFIX, EPOCHS_FOLDER


@dataclass(frozen=True)
class KeptPaths:
    """Where the files of a launch are kept.

    weights: beginning of the paths of trained weights. checkpoints: folder for its checkpoints until it is ok. resumed:
    folder with the checkpoints that it continues from; it may be missing. pictures: folder for pictures of augmented
    photos (`kit.storage.kept_pictures`).
    """

    weights: Path
    checkpoints: Path
    resumed: Path
    pictures: Path


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
    if not _is_folder(place):
        return
    for path in place.iterdir():  # what no worker leaves there, for example links of a stranger
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.name.startswith(".") or not is_plain(path):
            path.unlink()
    place.rename(scratch / EPOCHS_FOLDER)


def remove_checkpoints(place: Path) -> None:
    """Remove the checkpoints of a launch. Raise OSError."""
    if _is_folder(place):
        shutil.rmtree(place)
    elif os.path.lexists(place):
        place.unlink()


def keep_weights(scratch: Path, weights: Sequence[KeptWeights], prefix: Path) -> list[KeptWeights]:
    """Keep the weights that a worker wrote, all or none. Return them with their new names.

    The checkpoints need them until the record is saved, so the files get a second name. prefix: of their new paths.
    Raise ValueError if one is missing or not a plain file, and OSError.
    """
    folder = scratch / EPOCHS_FOLDER
    for each in weights:
        if not _is_folder(folder) or not is_plain(folder / each.file):
            raise ValueError(f"{each.file} is missing or not a plain file")
    kept = []
    for each in weights:
        path = prefix.with_name(f"{prefix.name}__{each.kind}.safetensors")
        path.unlink(missing_ok=True)  # of an attempt that saved no record
        _give_name(folder / each.file, path)
        kept.append(replace(each, file=path.name))
    return kept


def is_plain(path: Path) -> bool:
    """Return whether this is a file, and neither a link nor in a folder that is one."""
    return path.is_file() and not path.is_symlink() and not path.parent.is_symlink()


def _give_name(file: Path, name: Path) -> None:
    """Give a file a second name, or copy it where the file system has no hard links."""
    try:
        os.link(file, name)
    except OSError:
        write_atomic(name, file.read_bytes())
    else:
        sync_folder(name.parent)  # before the record that names the file


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()
