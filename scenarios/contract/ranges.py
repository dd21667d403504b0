"""Define the ranges of numbers in requests and results.

A file may be damaged, edited, or written by a faulty worker. `scenarios.contract.codec` refuses every number outside
the range of its field, so no other code has to check it again.
"""

import sys
from dataclasses import dataclass
from typing import Annotated

# Sizes, counts and seeds fit into 64 bits. Arithmetic with floats fails for larger whole numbers.
MAX_INT = (1 << 63) - 1
MIN_POSITIVE = 1e-9
# No launch takes 30 years, and no machine has been running for that long. The clock of `*_at` starts at boot on Linux.
MAX_TIME = 1e9
# At this rate the smallest image of a scenario (28 x 28 float32, 3,136 bytes) needs 3.1 TB/s for input alone. That is
# about the memory bandwidth of a large GPU (NVIDIA H100 SXM data sheet: 3.35 TB/s).
MAX_RATE = 1e9
MAX_CEILING = 1e21  # an exascale computer reaches 1e18 FLOP/s
MAX_CPUS = 1e6  # the largest machines have thousands
MAX_SEED = 2**32 - 1  # the generators of all frameworks accept this


@dataclass(frozen=True)
class Range:
    """The smallest and the largest allowed value of a number."""

    low: float
    high: float


Time = Annotated[float, Range(0.0, MAX_TIME)]
PositiveTime = Annotated[float, Range(MIN_POSITIVE, MAX_TIME)]
Rate = Annotated[float, Range(MIN_POSITIVE, MAX_RATE)]
Error = Annotated[float, Range(0.0, sys.float_info.max)]
Cores = Annotated[float, Range(0.0, MAX_CPUS)]
Loss = Annotated[float, Range(-1e100, 1e100)]  # in nats
Share = Annotated[float, Range(0.0, 1.0)]
Count = Annotated[int, Range(0, MAX_INT)]
Positive = Annotated[int, Range(1, MAX_INT)]
Seed = Annotated[int, Range(0, MAX_SEED)]
