"""A scenario in Keras' terms: layers, optimizer, loss, metric."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow import keras

from scenarios import spec
from scenarios.frameworks.tensorflow.optimizers import FUSED
from scenarios.spec import Adadelta, Adam, Conv, Dense, Dropout, Flatten, MaxPool, Scenario, Sgd


def build_layers(scenario: Scenario, precision: str) -> tuple[Any, Any, Any]:
    """Symbolic input, logits and output. Weights are zero: the caller loads its own."""
    policy = keras.DTypePolicy("mixed_bfloat16" if precision == "bf16" else "float32")
    inputs = values = keras.Input(scenario.image, dtype="float32")
    for layer in scenario.layers:
        activation = None if layer is scenario.layers[-1] else getattr(layer, "activation", None)
        common = {"dtype": policy, "activation": activation, "kernel_initializer": "zeros"}
        match layer:
            case Conv(filters=filters, kernel=kernel, padding=padding):
                values = keras.layers.Conv2D(filters, kernel, padding=padding, **common)(values)
            case MaxPool(size=size):
                values = keras.layers.MaxPooling2D(size, dtype=policy)(values)
            case Dropout(rate=rate):
                values = keras.layers.Dropout(rate, seed=0, dtype=policy)(values)
            case Flatten():
                values = keras.layers.Flatten(dtype=policy)(values)
            case Dense(units=units):
                values = keras.layers.Dense(units, **common)(values)
    outputs = keras.layers.Activation(scenario.output.activation, dtype="float32")(values)
    return inputs, values, outputs


def build_optimizer(optimizer: spec.Optimizer, *, fused: bool) -> Any:
    """Keras' own optimizer, every hyper-parameter that changes the update spelled out. fused: with each variable's
    update as one kernel."""
    own = FUSED if fused else {name: getattr(keras.optimizers, name) for name in FUSED}
    match optimizer:
        case Sgd(learning_rate=rate):
            return own["SGD"](rate, momentum=0.0, nesterov=False)
        case Adam(learning_rate=rate, beta_1=beta_1, beta_2=beta_2, epsilon=epsilon):
            return own["Adam"](rate, beta_1=beta_1, beta_2=beta_2, epsilon=epsilon, amsgrad=False)
        case Adadelta(learning_rate=rate, rho=rho, epsilon=epsilon):
            return own["Adadelta"](rate, rho=rho, epsilon=epsilon)


def loss_function(scenario: Scenario) -> Any:
    """Keras' loss. From softmax or sigmoid outputs it goes back to the logits by itself."""
    if scenario.loss == "binary":
        return keras.losses.BinaryCrossentropy(from_logits=scenario.output.activation == "linear")
    if scenario.output.activation == "sigmoid":
        return sigmoid_categorical
    return keras.losses.SparseCategoricalCrossentropy(from_logits=scenario.output.activation == "linear")


def sigmoid_categorical(labels: Any, outputs: Any) -> Any:
    """Keras' categorical loss of outputs that are no softmax: clip, normalise to sum 1, -log of the label's share.

    Keras marks what its sigmoid returns with its logits, and would take their softmax instead. A copy has no mark.
    """
    return keras.losses.sparse_categorical_crossentropy(labels, tf.identity(outputs))


def accuracy(scenario: Scenario) -> Any:
    """The metric that Keras takes for "accuracy", with its variables made here rather than in the first step, which
    would be traced twice. One unit says 1 where it gives better than even odds."""
    if scenario.loss == "binary":
        even = 0.0 if scenario.output.activation == "linear" else 0.5
        return keras.metrics.BinaryAccuracy("accuracy", threshold=even)
    return keras.metrics.SparseCategoricalAccuracy("accuracy")
