"""What a figure can be: files may be damaged, edited, or written by a worker that is wrong. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

# Sizes, counts and seeds fit into 64 bits. A larger whole number is nobody's, and arithmetic with floats fails of it.
MAX_WHOLE = (1 << 63) - 1

# A speed that no machine has: at this rate the smallest image of a scenario (28 x 28 float32, 3,136 bytes) would be
# 3.1 TB/s of input alone, about the whole memory bandwidth of a large GPU (NVIDIA H100 SXM data sheet: 3.35 TB/s).
MAX_IMAGES_PER_S = 1e9
LEAST = 1e-9  # of a speed and of what it is computed from: an image in thirty years, and a time that no clock tells

# What a figure can be, by the names that the contract gives to figures: its least and its most. No time is as long as
# thirty years (one call, in milliseconds: eleven days), neither of a launch nor since the machine started, from where
# the clock of `*_at` counts on Linux.
POSSIBLE = (
    (re.compile(r"images_per_s$"), LEAST, MAX_IMAGES_PER_S),
    (re.compile(r"accuracy$"), 0.0, 1.0),
    (re.compile(r"(?<!_per)_s$|_ms$|_at$|\bseconds$"), 0.0, 1e9),
    (re.compile(r"^step_timing\.resident\.seconds$"), LEAST, 1e9),
    (re.compile(r"^tuning\.searches\.tried\.(ratios|rates)$"), LEAST, MAX_IMAGES_PER_S),
    (re.compile(r"^tuning\.searches\.untried$"), 0.0, 1e9),
    (re.compile(r"^ceilings\.(value|samples)$"), LEAST, 1e21),  # a computer of an exaFLOP/s reaches 1e18
)


def impossible(result: Mapping[str, Any]) -> list[str]:
    """The figures of a result (as nested dictionaries) that are not POSSIBLE, each under its name once."""
    found = {
        name: number
        for name, number in numbers(result)
        for pattern, least, most in POSSIBLE
        if pattern.search(name) and not least <= number <= most
    }
    return [f"{name} {number:g}" for name, number in found.items()]


def numbers(value: object, name: str = "") -> Iterator[tuple[str, float]]:
    """All numbers in nested dictionaries and lists, under their names as `training.windows.seconds`."""
    if isinstance(value, int | float):
        yield name, value
    elif isinstance(value, dict):
        for key, part in value.items():
            yield from numbers(part, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list):
        for part in value:
            yield from numbers(part, name)
