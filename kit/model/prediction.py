"""Define what trained networks predict for pictures."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kit.model.errors import UsageError
from scenarios.contract.reasons import Reason


@dataclass(frozen=True)
class PredictedPicture:
    """One picture. name: as the user gave it. fault: why it could not be read, or "". chances: the probability of each
    class, by framework. thumbnail: a small JPEG file, None if there is none."""

    name: str
    fault: str
    chances: Mapping[str, Sequence[float]]
    thumbnail: bytes | None = None


@dataclass(frozen=True)
class Predictions:
    """What one or several frameworks predict for pictures.

    run: id of the run that trained. label: of the scenario. title: of the scenario. classes: their names. weights:
    whose weights each framework used, in words. failures: why a framework predicted nothing.
    """

    run: str
    label: str
    title: str
    classes: Sequence[str]
    weights: Mapping[str, str]
    pictures: Sequence[PredictedPicture]
    failures: Mapping[str, Reason]

    @property
    def frameworks(self) -> list[str]:
        """Return the frameworks that predicted."""
        return [name for name in self.weights if name not in self.failures]

    @property
    def exit_code(self) -> int:
        """Return 0 if everything was predicted, else the code of what failed. Different codes become 1."""
        codes = {UsageError.exit_code for picture in self.pictures if picture.fault}
        codes |= {reason.code.exit_code for reason in self.failures.values()}
        return codes.pop() if len(codes) == 1 else min(1, len(codes))

    def best(self, chances: Sequence[float]) -> tuple[str, float]:
        """Return the most likely class and its probability."""
        most = max(range(len(chances)), key=chances.__getitem__)
        return self.classes[most], chances[most]
