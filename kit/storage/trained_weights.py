"""Find the trained weights that the launches of a run kept in its folder."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kit.model.errors import UsageError
from kit.storage.kept_files import is_plain
from kit.storage.run_folder import RunFolder
from scenarios.contract.cell import Cell
from scenarios.contract.epochs import KeptWeights

KINDS = ("best", "last")  # in the order in which they are used
RESTORE = "Restore the file from a copy, or train again."
HOW_TO_TRAIN = "`kit run --scenario NAME --profile full` trains a network and keeps its weights."


@dataclass(frozen=True)
class TrainedWeights:
    """The weights of one launch. kept: what its record says about them. file: their path. synthetic: whether they were
    trained on synthetic data."""

    cell: Cell
    launch: int
    kept: KeptWeights
    file: Path
    synthetic: bool

    @property
    def words(self) -> str:
        """Return whose weights these are, in words."""
        number = f", launch {self.launch}" if self.launch > 1 else ""
        data = ", trained on synthetic data" if self.synthetic else ""
        return f"{self.cell.key}{number} (epoch {self.kept.epoch}{data})"


def find_weights(folder: RunFolder) -> list[TrainedWeights]:
    """Return the weights of each `ok` launch that kept some, in the order of keys and launches: those of the best epoch
    if they exist, else those of the last one."""
    found = []
    for record in folder.read_usable().records:
        if not record.ok or record.result is None:
            continue
        files = {kept.kind: (kept, folder.path / "weights" / kept.file) for kept in record.result.weights}
        existing = [files[kind] for kind in KINDS if kind in files and is_plain(files[kind][1])]
        if existing:
            found.append(TrainedWeights(record.cell, record.launch, *existing[0], record.synthetic))
    return found


def missing_weights(folder: RunFolder, wanted: Callable[[Cell], bool], message: str, others: str) -> UsageError:
    """Return the error that a run lacks the weights of a wanted cell. others: says which ones it has, or "".

    A record that cannot be used is named with its remedy, because the weights may be those of its launch. A file of the
    wanted weights that is gone is named, too. A run that was stopped, or a retry, may still train the network.
    """
    try:
        records = folder.records()
    except UsageError as error:
        return UsageError(f"{message} {error.message}", f"{error.remedy} {others}".rstrip())
    for record in records:
        kept = record.result.weights if record.ok and record.result and wanted(record.cell) else ()
        files = [folder.path / "weights" / each.file for each in kept]
        if files and not any(map(is_plain, files)):
            return UsageError(f"{message} {files[0]} is missing or not a plain file.", f"{RESTORE} {others}".rstrip())
    if folder.plan.profile == "full" and folder.plan.keep_weights:
        for launches, command in (
            (folder.missing(), folder.resume_command),
            (folder.retries(), folder.retry_command),
        ):
            if any(wanted(launch.cell) and not launch.speed_only for launch in launches):
                return UsageError(message, f"Train it with `{command}`. {others}".rstrip())
    return UsageError(message, others or HOW_TO_TRAIN)
