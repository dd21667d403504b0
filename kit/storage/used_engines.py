"""Remember which engines this user has chosen, so that `kit clean` knows which of them may have leftovers."""

from kit.host.paths import cache_folder
from kit.storage.files import disk_errors


def remember(name: str) -> None:
    """Remember that an engine is used. Raise DiskError."""
    file = cache_folder() / "engines" / name
    with disk_errors(file, "Set KIT_CACHE_DIR to another folder that you can write to."):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()


def used(name: str) -> bool:
    """Return whether this user has used an engine."""
    return (cache_folder() / "engines" / name).exists()
