"""Define what a network predicts for pictures: the part of a result for the purpose `predict`."""

from collections.abc import Sequence
from dataclasses import dataclass

from scenarios.contract.ranges import Share
from scenarios.contract.request import Request


@dataclass(frozen=True, slots=True)
class Prediction:
    """What a network predicts for one picture.

    probabilities: one for each class of the data set; empty if the picture could not be read. fault: why not, or "".
    """

    probabilities: list[Share]
    fault: str = ""


def check_predictions(predictions: Sequence[Prediction], request: Request) -> None:
    """Raise ValueError unless each picture of the request has probabilities of the same classes, or a fault."""
    if len(predictions) != request.pictures:
        raise ValueError(f"it has {len(predictions)} predictions for {request.pictures} pictures")
    if any(bool(prediction.fault) == bool(prediction.probabilities) for prediction in predictions):
        raise ValueError("a prediction must have either probabilities or a fault")
    if len({len(prediction.probabilities) for prediction in predictions if not prediction.fault}) > 1:
        raise ValueError("its predictions differ in the number of classes")
