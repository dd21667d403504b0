"""Define what a network predicts: for the pictures of a user, and for a sample of its own test set."""

from collections.abc import Sequence
from dataclasses import dataclass

from scenarios.contract.ranges import Count, Share
from scenarios.contract.request import Request


@dataclass(frozen=True, slots=True)
class Prediction:
    """What a network predicts for one picture.

    probabilities: one for each class of the data set; empty if the picture could not be read. fault: why not, or "".
    """

    probabilities: list[Share]
    fault: str = ""


@dataclass(frozen=True, slots=True)
class HeldOutPrediction:
    """What a trained network predicts for one image of its test set.

    image: index in the test set of the launch, from 0. Photos are sorted by class, then by name. label: index of its
    class. probabilities: one for each class of the data set.
    """

    image: Count
    label: Count
    probabilities: list[Share]


def check_held_out(predictions: Sequence[HeldOutPrediction]) -> None:
    """Raise ValueError unless each image has a label and probabilities of the same classes."""
    if len({len(prediction.probabilities) for prediction in predictions}) > 1:
        raise ValueError("its predictions of test images differ in the number of classes")
    if any(prediction.label >= len(prediction.probabilities) for prediction in predictions):
        raise ValueError("the label of a test image is none of its classes")


def check_predictions(predictions: Sequence[Prediction], request: Request) -> None:
    """Raise ValueError unless each picture of the request has probabilities of the same classes, or a fault."""
    if len(predictions) != request.pictures:
        raise ValueError(f"it has {len(predictions)} predictions for {request.pictures} pictures")
    if any(bool(prediction.fault) == bool(prediction.probabilities) for prediction in predictions):
        raise ValueError("a prediction must have either probabilities or a fault")
    if len({len(prediction.probabilities) for prediction in predictions if not prediction.fault}) > 1:
        raise ValueError("its predictions differ in the number of classes")
