"""Create the canonical weights that every adapter loads and returns, and their digests.

A `Weights` maps each `spec.Parameter.name` to a float32 array in canonical layout, in the order of `spec.parameters`.
"""

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
    """Return the weights at the start of training. Each kernel is drawn by its own initializer. Biases are zero.

    Glorot and Bengio 2010 (uniform); He et al. 2015 (normal, here not truncated).
    """
    return {p.name: _draw(p, p.init, _generator(seed, p, "initial")) for p in parameters(scenario)}


def check_weights(scenario: Scenario, seed: int) -> Weights:
    """Return weights for the proof: He-normal kernels and non-zero biases, so that every term has an effect."""
    return {
        p.name: _draw(p, "small_normal" if p.init == "zeros" else "he_normal", _generator(seed, p, "check"))
        for p in parameters(scenario)
    }


def digest(weights: Mapping[str, npt.NDArray[np.generic]]) -> str:
    """Return the SHA-256 (hex) over names, shapes and float32 content, in the mapping's order."""
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
    if init in ("he_normal", "small_normal"):
        deviation = math.sqrt(2 / parameter.fan_in) if init == "he_normal" else 0.1
        return generator.normal(0, deviation, parameter.shape).astype(np.float32)
    limit = math.sqrt(6 / (parameter.fan_in + parameter.fan_out))
    return generator.uniform(-limit, limit, parameter.shape).astype(np.float32)
