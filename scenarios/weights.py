"""Canonical weights: what every adapter loads and gives back, and the digests that prove it.

A `Weights` maps each `spec.Parameter.name` to a float32 array in canonical layout, in the order of
`spec.parameters`.
"""

from __future__ import annotations

import hashlib
import math
import zlib
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from scenarios.spec import Parameter, Scenario, parameters

Array = npt.NDArray[np.float32]
Weights = dict[str, Array]


def initial_weights(scenario: Scenario, seed: int) -> Weights:
    """The weights that training starts from: each kernel by its own initialiser, biases zero.

    Glorot and Bengio 2010 (uniform); He et al. 2015 (normal, here not truncated).
    """
    return {p.name: _draw(p, p.init, _generator(seed, p, "initial")) for p in parameters(scenario)}


def check_weights(scenario: Scenario, seed: int) -> Weights:
    """Weights made for the reference check: He-normal kernels and non-zero biases, so that no term hides."""
    drawn = {}
    for parameter in parameters(scenario):
        generator = _generator(seed, parameter, "check")
        if parameter.init == "zeros":
            drawn[parameter.name] = generator.normal(0, 0.1, parameter.shape).astype(np.float32)
        else:
            drawn[parameter.name] = _draw(parameter, "he_normal", generator)
    return drawn


def digest(weights: Mapping[str, npt.NDArray[np.generic]]) -> str:
    """SHA-256 (hex) over names, shapes and float32 content, in the mapping's order."""
    found = hashlib.sha256()
    for name, value in weights.items():
        found.update(f"{name}{value.shape}".encode())
        found.update(np.ascontiguousarray(value, dtype="<f4").tobytes())
    return found.hexdigest()


def _generator(seed: int, parameter: Parameter, use: str) -> np.random.Generator:
    return np.random.default_rng([seed, zlib.crc32(f"{use} {parameter.name}".encode())])


def _draw(parameter: Parameter, init: str, generator: np.random.Generator) -> Array:
    if init == "zeros":
        return np.zeros(parameter.shape, np.float32)
    if init == "he_normal":
        return generator.normal(0, math.sqrt(2 / parameter.fan_in), parameter.shape).astype(np.float32)
    limit = math.sqrt(6 / (parameter.fan_in + parameter.fan_out))
    return generator.uniform(-limit, limit, parameter.shape).astype(np.float32)
