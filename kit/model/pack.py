"""Define the manifest of a pack: the archive that `kit pack` writes and `kit unpack` reads."""

import re
from collections import Counter
from typing import Annotated, ClassVar

from pydantic import AfterValidator, Field

from kit.model.document import Document, Items, Part
from kit.model.plan import RunId

# The files from which a report is made. Logs, weights, checkpoints and the report itself are no part of a pack.
FILE_NAME = re.compile(
    r"(plan|machine|(records|probes|tuning)/[^/\\\x00-\x1f\x7f\ud800-\udfff]{1,250})\.json|pictures/[0-9a-f]{64}\.jpg"
)
MAX_NAME_BYTES = 255  # of usual file systems
NEEDED = ("plan.json", "machine.json")


def _check_name(name: str) -> str:
    if not FILE_NAME.fullmatch(name) or len(name.rpartition("/")[2].encode()) > MAX_NAME_BYTES:
        raise ValueError(f"{name!r:.100} is not the name of a file of a run")
    return name


class PackedFile(Part):
    """One file of a pack. name: its path in the run's folder. size: bytes. sha256: of its content, hex."""

    name: Annotated[str, AfterValidator(_check_name)]
    size: Annotated[int, Field(ge=0)]
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


def _check_files(files: list[PackedFile]) -> list[PackedFile]:
    counts = Counter(file.name for file in files)
    if twice := [name for name, count in counts.items() if count > 1]:
        raise ValueError(f"it names {twice[0]} twice")
    if missing := [name for name in NEEDED if name not in counts]:
        raise ValueError(f"it does not name {missing[0]}")
    return files


class Manifest(Document):
    """What a pack contains. It is the first file of the pack. The others have the order of `files`.

    A pack is a tar file, compressed with xz. All its files are in one folder, which is named after the run. run: id of
    the run. kit: version of kit that made the pack. files: all files except the manifest.
    """

    remedy: ClassVar[str] = "Pack the run again with `kit pack`."

    run: RunId
    kit: str
    files: Annotated[Items[PackedFile], AfterValidator(_check_files)]

    @property
    def size(self) -> int:
        """Return the bytes of all files."""
        return sum(file.size for file in self.files)
