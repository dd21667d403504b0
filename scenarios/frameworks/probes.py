"""Constants and checks that the adapters' probes share."""

from typing import Literal

import numpy as np
import numpy.typing as npt

# The convolution of `Adapter.kernel`: square images, equal numbers of input and output channels, same padding.
EDGE, CHANNELS, KERNEL = 56, 64, 3

# FACTOR * NORMAL = 2e-39 is below 1.2e-38, the smallest normal float32. NORMAL is above it, so only the product is
# denormal. PRODUCTS is large enough for all of a framework's threads, which may differ in how they treat denormals.
NORMAL, FACTOR, PRODUCTS = 2e-38, 0.1, 1 << 20
SPACING = 2.0**-149  # of denormal float32 numbers; their bits count these steps

UPLOAD_ON_CPU = "The CPU uses the host's memory, so there is nothing to upload."


def fate_of_denormals(products: npt.NDArray[np.float32]) -> Literal["kept", "flushed"]:
    """Return whether the framework keeps denormals or flushes them to 0.

    products: FACTOR * NORMAL, computed PRODUCTS times by the framework. Raise ValueError for other values or another
    count, which would prove nothing. A mixture counts as flushed: some threads flush, and that changes results and
    speed.
    """
    bits = products.view(np.int32)  # a flushing thread may treat a denormal as 0 when it compares floats
    kept = np.abs(bits - round(FACTOR * NORMAL / SPACING)) <= 1
    if products.shape != (PRODUCTS,) or not np.all(kept | (bits == 0)):
        raise ValueError(f"{FACTOR} * {NORMAL} came out as {products}.")
    return "kept" if kept.all() else "flushed"
