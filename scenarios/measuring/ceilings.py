"""The most that this machine does of one thing: single kernels through the framework, and photos through OpenCV.

A ceiling is the best of several samples: what other load, clocks or an unlucky size take away is no property of the
machine. Each is what this framework's kernel reaches; cells are held against the best of all frameworks' probes.
"""

from __future__ import annotations

import io
import os
from typing import Literal

import cv2
import numpy as np
from PIL import Image

from scenarios.adapter import Adapter, KernelName, NotOffered
from scenarios.contract.result import Ceiling
from scenarios.linux.caches import last_cache_bytes
from scenarios.measuring.measure import time_stretches

SECONDS = 1.0  # for each ceiling, its sizes together
STRETCH_S = 0.1
MEBIBYTE = 1 << 20
MIN_MEMORY_BYTES = 256 * MEBIBYTE
MAX_MEMORY_BYTES = 2048 * MEBIBYTE
PHOTO = (375, 500)  # height and width, as many of the photos of cats and dogs have
PHOTO_QUALITY = 92
PHOTO_OCTAVES = 8  # the finest detail is two pixels wide
PHOTO_FADING = 0.7  # amplitude of detail falls with this power of its frequency: makes the file about 30 kB

Device = Literal["cpu", "cuda"]
Precision = Literal["fp32", "tf32", "bf16"]


def measure(adapter: Adapter, device: Device, precision: Precision) -> list[Ceiling]:
    """All ceilings that the adapter offers, and `jpeg`; about SECONDS each."""
    found = []
    for name, sizes in _sizes(device).items():
        try:
            found.append(_kernel(adapter, name, sizes, precision))
        except NotOffered as reason:
            print(f"{name}: {reason}", flush=True)  # noqa: T201 - the worker's log
    return [*found, _jpeg()]


def encode_photo() -> bytes:
    """A JPEG of PHOTO's size with random detail at every scale, fainter the finer, which takes about as many bytes as
    a photo of cats and dogs does on average (25,000 in 825 MB): they decide what decoding costs."""
    random = np.random.default_rng(0)
    height, width = PHOTO
    field = np.zeros((height, width, 3), np.float32)
    for octave in range(1, PHOTO_OCTAVES + 1):
        grid = random.standard_normal((3, 3 * 2**octave // 4 + 1, 2**octave + 1), np.float32)
        for channel, values in enumerate(grid):
            scaled = Image.fromarray(values).resize((width, height), Image.Resampling.BICUBIC)
            field[..., channel] += np.asarray(scaled) * 2 ** (-PHOTO_FADING * octave)
    pixels = (128 + 50 * (field - field.mean()) / field.std()).clip(0, 255).astype(np.uint8)
    encoded = io.BytesIO()
    Image.fromarray(pixels).save(encoded, "JPEG", quality=PHOTO_QUALITY)
    return encoded.getvalue()


def _sizes(device: Device) -> dict[KernelName, tuple[int, ...]]:
    """What `Adapter.kernel` is asked for. CUDA: large enough to fill a GPU and to leave its caches behind."""
    if device == "cuda":
        return {
            "matmul": (4096, 8192),
            "convolution": (256,),
            "memory": (512 * MEBIBYTE,),
            "upload": (256 * MEBIBYTE,),
            "launch": (1,),
        }
    memory = min(max(4 * last_cache_bytes(os.sched_getaffinity(0)), MIN_MEMORY_BYTES), MAX_MEMORY_BYTES)
    return {"matmul": (1024, 2048), "convolution": (32,), "memory": (memory,), "launch": (1,)}


def _kernel(adapter: Adapter, name: KernelName, sizes: tuple[int, ...], precision: Precision) -> Ceiling:
    """The best over the sizes, with the samples of the size that it was reached at. Raises NotOffered."""
    made = [_sized(adapter, name, size, precision, SECONDS / len(sizes)) for size in sizes]
    best = min if name == "launch" else max
    return best(made, key=lambda ceiling: ceiling.value)


def _sized(adapter: Adapter, name: KernelName, size: int, precision: Precision, seconds: float) -> Ceiling:
    times = time_stretches(adapter.kernel(name, size), STRETCH_S, seconds)
    match name:
        case "matmul":
            return _rate(name, precision, "FLOP/s", 2 * size**3, times, f"{size} x {size} by {size} x {size}")
        case "convolution":
            flops = 2 * size * 56 * 56 * 64 * 64 * 3 * 3
            return _rate(name, precision, "FLOP/s", flops, times, f"{size} images of 56x56x64 by 64 kernels 3x3")
        case "memory":
            detail = f"{size // MEBIBYTE} MiB read and as much written"
            return _rate(name, "", "B/s", 2 * size, times, detail)
        case "upload":
            return _rate(name, "", "B/s", size, times, f"{size // MEBIBYTE} MiB")
        case "launch":
            return Ceiling("launch", "", "s", min(times), times, f"an elementwise kernel on {size} value")


def _rate(
    name: Literal["matmul", "convolution", "memory", "upload", "jpeg"],
    precision: Literal["fp32", "tf32", "bf16", ""],
    unit: Literal["FLOP/s", "B/s", "images/s"],
    amount: int,
    times: list[float],
    detail: str,
) -> Ceiling:
    """`amount` of work in each of `times`, seconds."""
    samples = [amount / seconds for seconds in times]
    return Ceiling(name, precision, unit, max(samples), samples, detail)


def _jpeg() -> Ceiling:
    photo = np.frombuffer(encode_photo(), np.uint8)

    def decode(count: int) -> None:
        for _ in range(count):
            cv2.imdecode(photo, cv2.IMREAD_COLOR)

    detail = f"{PHOTO[1]}x{PHOTO[0]}, {len(photo) / 1000:.0f} kB, by OpenCV on one core"
    return _rate("jpeg", "", "images/s", 1, time_stretches(decode, STRETCH_S, SECONDS), detail)
