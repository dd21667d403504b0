"""Define a ceiling of the machine: the part of a result for the purpose `probe`."""

from dataclasses import dataclass
from typing import Annotated, Literal

from scenarios.contract.ranges import MAX_CEILING, MIN_POSITIVE, Range

CeilingValue = Annotated[float, Range(MIN_POSITIVE, MAX_CEILING)]


@dataclass(frozen=True, slots=True)
class Ceiling:
    """The most that this machine can do of one thing, measured through one framework.

    matmul: FLOP/s. convolution: FLOP/s in the better of the layouts NCHW and NHWC. memory: B/s that an elementwise
    kernel reads and writes, on arrays larger than any cache. upload: B/s from host to device. launch: seconds for one
    trivial kernel. jpeg: photos/s that one core decodes. precision: of the arithmetic, or "". value: the best of
    `samples`. detail: shapes or sizes, and the layout of a convolution, as text.
    """

    name: Literal["matmul", "convolution", "memory", "upload", "launch", "jpeg"]
    precision: Literal["fp32", "tf32", "bf16", ""]
    unit: Literal["FLOP/s", "B/s", "s", "images/s"]
    value: CeilingValue
    samples: list[CeilingValue]
    detail: str
