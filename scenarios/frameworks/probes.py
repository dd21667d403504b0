"""What the adapters' probes share: the shape of the convolution, and how becoming of denormals is judged."""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

# The convolution of `Adapter.kernel`: square images, as many channels out as in, "same" padding.
EDGE, CHANNELS, KERNEL = 56, 64, 3

# FACTOR * NORMAL = 2e-39 lies below 1.2e-38, the smallest normal float32, while NORMAL does not, so that the product
# alone is at stake. PRODUCTS are enough to be spread over all of a framework's threads, which may differ in this.
NORMAL, FACTOR, PRODUCTS = 2e-38, 0.1, 1 << 20
SPACING = 2.0**-149  # of float32 below its smallest normal number, where the bits of a number count these steps

UPLOAD_ON_CPU = "On the CPU the device's memory is the host's: there is nothing to upload."


def fate_of_denormals(products: npt.NDArray[np.float32]) -> Literal["kept", "flushed"]:
    """products: FACTOR * NORMAL, computed PRODUCTS times by the framework under test. Raises ValueError where they are
    anything else, or not so many: then nothing is proven.

    A mixture means that some of its threads flush, which is enough for results and speed to be those of flushing.
    """
    bits = products.view(np.int32)  # a thread that flushes may take a denormal for 0 in a comparison of floats
    kept = np.abs(bits - round(FACTOR * NORMAL / SPACING)) <= 1
    if products.shape != (PRODUCTS,) or not np.all(kept | (bits == 0)):
        raise ValueError(f"{FACTOR} * {NORMAL} came out as {products}")
    return "kept" if kept.all() else "flushed"
