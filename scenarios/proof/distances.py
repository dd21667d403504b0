"""Measure how far what a framework computes is from what it should compute.

A NaN or a wrong shape counts as the largest float, because JSON has no infinity.
"""

import functools
import sys
from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt

from scenarios.contract.result import Check
from scenarios.proof.reference import Array, Floats

WRONG = sys.float_info.max
SAMPLE = 100_000  # weights of a tensor that are compared where all of them would take seconds


def judged(name: str, error: float, tolerance: float) -> Check:
    """Return the check, which passes if the error is at most the tolerance."""
    return Check(name, error, tolerance, passed=error <= tolerance)


def of_largest(found: Floats, expected: Array) -> float:
    """Return the largest difference divided by the largest expected value."""
    if found.shape != expected.shape or not np.isfinite(found).all():
        return WRONG
    return float(np.abs(found - expected).max() / np.abs(expected).max())


def relative(found: Floats, expected: Array, forgiven: float = 0.0) -> float:
    """Return the L2 norm of the difference, divided by that of the expected values plus `forgiven`."""
    if found.shape != expected.shape or not np.isfinite(found).all():
        return WRONG
    difference, norm = float(np.linalg.norm(found - expected)), float(np.linalg.norm(expected)) + forgiven
    return difference / norm if norm else (WRONG if difference else 0.0)


def compared(
    name: str,
    found: Mapping[str, Floats],
    expected: Mapping[str, Array],
    units: Mapping[str, float],
    tolerance: float,
    size_tolerance: float,
) -> Iterator[Check]:
    """Yield a check of the worst tensor's relative L2 distance, and one of the worst difference of the norms.

    units: for each tensor the norm of the smallest differences that can be read.
    """
    distances = {key: relative(found[key], value, units[key] / tolerance) for key, value in expected.items()}
    sizes = {key: _size_error(found[key], value, units[key] / size_tolerance) for key, value in expected.items()}
    for what, errors, allowed in (("", distances, tolerance), (" size", sizes, size_tolerance)):
        worst = max(errors, key=errors.__getitem__)
        yield judged(f"{name}{what} {worst}", errors[worst], allowed)


def _size_error(found: Floats, expected: Array, forgiven: float) -> float:
    """Return by which part the norm differs, relative to the expected one plus `forgiven`."""
    norms = np.array([np.linalg.norm(found)]), np.array([np.linalg.norm(expected)])
    return relative(*norms, forgiven)


def relative_to_one(found: Floats, expected: Array) -> float:
    """Return the same as `relative`, but relative to ones if these have a larger norm.

    The logits of a single unit can all be near 0, because large terms cancel, and so can the loss. At low precision, an
    error relative to them would mean nothing.
    """
    return relative(found, expected, forgiven=max(0.0, expected.size**0.5 - float(np.linalg.norm(expected))))


def rounding(weights: Floats) -> float:
    """Return the L2 norm of one unit in the last place of each weight, the resolution of changes of float32 weights."""
    return float(np.linalg.norm(np.spacing(np.abs(weights)).astype(np.float64)))


def sample(values: Floats) -> Floats:
    """Return all values of a tensor, or SAMPLE of them at random positions, which depend only on its size."""
    flat = values.reshape(-1)
    return flat if flat.size <= SAMPLE else flat[_positions(flat.size)]


@functools.lru_cache(maxsize=32)
def _positions(size: int) -> npt.NDArray[np.int64]:
    return np.random.default_rng(size).integers(0, size, SAMPLE)
