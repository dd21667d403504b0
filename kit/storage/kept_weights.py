"""Find the trained weights that the launches of a run kept in its folder."""

from dataclasses import dataclass
from pathlib import Path

from kit.storage.run_folder import RunFolder, file_stem
from scenarios.contract.cell import Cell

WEIGHTS = "weights"
EPOCHS = ("best", "last")  # names of the epochs that are kept, in the order in which they are used


@dataclass(frozen=True)
class KeptWeights:
    """The weights of one launch. epoch: `best` or `last`. file: the path in the folder of the run."""

    cell: Cell
    launch: int
    epoch: str
    file: Path

    @property
    def words(self) -> str:
        """Return whose weights these are, in words."""
        number = f", launch {self.launch}" if self.launch > 1 else ""
        return f"{self.cell.key}{number} ({self.epoch} epoch)"


def find_weights(folder: RunFolder) -> list[KeptWeights]:
    """Return the weights of each `ok` launch that kept some, in the order of keys and launches: those of the best epoch
    if they were kept, else those of the last one."""
    found = []
    for record in folder.read_usable().records:
        stem = file_stem(record.key, record.launch)
        files = {epoch: folder.path / WEIGHTS / f"{stem}__{epoch}.safetensors" for epoch in EPOCHS}
        if record.ok and (kept := [epoch for epoch in EPOCHS if files[epoch].is_file()]):
            found.append(KeptWeights(record.cell, record.launch, kept[0], files[kept[0]]))
    return found
