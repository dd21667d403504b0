"""Predict a sample of the test set with the trained network, for the report."""

import numpy as np

from scenarios.adapter import Arrays, Model
from scenarios.contract.predictions import HeldOutPrediction
from scenarios.data import choose
from scenarios.proof.reference import probabilities
from scenarios.spec import Scenario

IMAGES = 10


def predict_held_out(model: Model, scenario: Scenario, test: Arrays) -> list[HeldOutPrediction]:
    """Return the predictions for IMAGES images of the test set, the same ones in every framework."""
    chosen = np.sort(choose(len(test.labels), IMAGES))
    shares = probabilities(scenario, model.logits(test.images[chosen])).clip(0, 1).tolist()
    labels = test.labels[chosen].tolist()
    return [HeldOutPrediction(*each) for each in zip(chosen.tolist(), labels, shares, strict=True)]
