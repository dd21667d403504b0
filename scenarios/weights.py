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

DEEP_LAYERS = 20
IMAGE_SCALE = 0.25  # of the first kernel
FIRST_BIAS = 0.75
COPY_NOISE = 0.03  # added to the identity


def initial_weights(scenario: Scenario, seed: int) -> Weights:
    """Return the weights at the start of training. Each kernel is drawn by its own initializer. Biases are zero.

    Glorot and Bengio 2010 (uniform); He et al. 2015 (normal, here not truncated).
    """
    return {p.name: _draw(p, p.init, _generator(seed, p, "initial")) for p in parameters(scenario)}


def check_weights(scenario: Scenario, seed: int) -> Weights:
    """Return weights for the proof: He-normal kernels and non-zero biases, so that every term has an effect.

    In a deep network, each convolution with as many filters as input channels nearly copies its input. Almost no ReLU
    is near its kink, because the first bias is larger than what the images contribute. Otherwise so many ReLUs depend
    on rounding in bf16, layer after layer, that nothing of the gradient is left.
    """
    weights = {
        p.name: _draw(p, "small_normal" if p.init == "zeros" else "he_normal", _generator(seed, p, "check"))
        for p in parameters(scenario)
    }
    if is_deep(scenario):
        first, *others = [name for name, value in weights.items() if value.ndim == 4]
        weights[first] *= np.float32(IMAGE_SCALE)
        weights[_bias(first)] += np.float32(FIRST_BIAS)
        for name in others:
            kernel, bias = weights[name], weights[_bias(name)]
            rows, columns, channels, filters = kernel.shape
            if channels == filters:
                kernel *= np.float32(COPY_NOISE)
                bias *= np.float32(COPY_NOISE)
                kernel[rows // 2, columns // 2] += np.eye(channels, dtype=np.float32)
    return weights


def is_deep(scenario: Scenario) -> bool:
    """Return whether more than DEEP_LAYERS layers have kernels."""
    return sum(len(p.shape) > 1 for p in parameters(scenario)) > DEEP_LAYERS


def _bias(kernel: str) -> str:
    return kernel.replace("kernel", "bias")


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
