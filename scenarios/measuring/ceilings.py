"""Measure the machine's ceilings: single kernels through the framework, and the decoding of photos through OpenCV.

A ceiling is the best of several samples, because other load, clocks or an unlucky size only make a sample worse. Each
ceiling is what this framework's kernel reaches. Cells are compared with the best probe over all frameworks.
"""

import io
import os
from typing import Literal

import cv2
import numpy as np
from PIL import Image

from scenarios.adapter import Adapter, KernelName, NotOffered
from scenarios.contract.ceilings import Ceiling
from scenarios.contract.cell import Device, Precision
from scenarios.linux.caches import last_cache_bytes
from scenarios.measuring.step_timing import time_interleaved

SECONDS = 1.0  # for each ceiling, all its sizes together
SAMPLE_S = 0.1
MEBIBYTE = 1 << 20
MIN_MEMORY_BYTES = 256 * MEBIBYTE
MAX_MEMORY_BYTES = 2048 * MEBIBYTE
PHOTO = (375, 500)  # height and width of many photos of cats and dogs
PHOTO_QUALITY = 92
PHOTO_OCTAVES = 8  # the finest detail is two pixels wide
PHOTO_FADING = 0.7  # the amplitude of detail falls with this power of its frequency; gives a file of about 30 kB


def measure(adapter: Adapter, device: Device, precision: Precision) -> list[Ceiling]:
    """Return all ceilings that the adapter offers, and `jpeg`. Each takes at most about SECONDS."""
    found = []
    for name, kernels in _kernels(device).items():
        measured = []
        for kernel, size in kernels:
            try:
                measured.append(_measure_kernel(adapter, kernel, size, precision, SECONDS / len(kernels)))
            except NotOffered as reason:
                print(f"{kernel}: {reason}", flush=True)  # noqa: T201 - the worker's log
        if measured:
            found.append((min if name == "launch" else max)(measured, key=lambda ceiling: ceiling.value))
    return [*found, _measure_jpeg()]


def encode_photo() -> bytes:
    """Return a JPEG of PHOTO's size with random detail at every scale; finer detail is fainter.

    It has about as many bytes as an average photo of cats and dogs (25,000 photos in 825 MB). The number of bytes
    determines the cost of decoding.
    """
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


def _kernels(device: Device) -> dict[str, list[tuple[KernelName, int]]]:
    """Return the kernels of each ceiling with their sizes for `Adapter.kernel`. The best one is the ceiling.

    With CUDA the sizes fill a GPU and exceed its caches. Which layout is faster for convolutions depends on the device,
    the precision and the libraries.
    """
    if device == "cuda":
        return {
            "matmul": [("matmul", 4096), ("matmul", 8192)],
            "convolution": [("convolution nchw", 256), ("convolution nhwc", 256)],
            "memory": [("memory", 512 * MEBIBYTE)],
            "upload": [("upload", 256 * MEBIBYTE)],
            "launch": [("launch", 1)],
        }
    memory = min(max(4 * last_cache_bytes(os.sched_getaffinity(0)), MIN_MEMORY_BYTES), MAX_MEMORY_BYTES)
    return {
        "matmul": [("matmul", 1024), ("matmul", 2048)],
        "convolution": [("convolution nchw", 32), ("convolution nhwc", 32)],
        "memory": [("memory", memory)],
        "launch": [("launch", 1)],
    }


def _measure_kernel(adapter: Adapter, name: KernelName, size: int, precision: Precision, seconds: float) -> Ceiling:
    [times] = time_interleaved([adapter.kernel(name, size)], SAMPLE_S, seconds)
    match name:
        case "matmul":
            return _rate(name, precision, "FLOP/s", 2 * size**3, times, f"{size} x {size} by {size} x {size}")
        case "convolution nchw" | "convolution nhwc":
            flops, layout = 2 * size * 56 * 56 * 64 * 64 * 3 * 3, name.split()[1].upper()
            detail = f"{size} images of 56x56x64 by 64 kernels 3x3, {layout}"
            return _rate("convolution", precision, "FLOP/s", flops, times, detail)
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
    """Return the ceiling of a rate. times: seconds that `amount` of work took, one value per sample."""
    samples = [amount / seconds for seconds in times]
    return Ceiling(name, precision, unit, max(samples), samples, detail)


def _measure_jpeg() -> Ceiling:
    photo = np.frombuffer(encode_photo(), np.uint8)

    def decode(count: int) -> None:
        for _ in range(count):
            cv2.imdecode(photo, cv2.IMREAD_COLOR)

    detail = f"{PHOTO[1]}x{PHOTO[0]}, {len(photo) / 1000:.0f} kB, by OpenCV on one core"
    [times] = time_interleaved([decode], SAMPLE_S, SECONDS)
    return _rate("jpeg", "", "images/s", 1, times, detail)
