"""Define the device code in a library, and on which GPUs it runs.

The rules are those of NVIDIA's CUDA C++ Programming Guide: "Binary Compatibility", "PTX Compatibility", and "Feature
Set Compiler Targets".
"""

import re
from dataclasses import dataclass
from typing import Self

Capability = tuple[int, int]  # compute capability, for example (7, 5)

NAME = re.compile(r"(?:sm_(\d{1,2})(\d)([af]?)|compute_(\d{1,2})(\d)([af]?)\+ptx(\d{1,2})(\d))", re.ASCII)


@dataclass(frozen=True)
class DeviceCode:
    """Code for one GPU architecture: machine code, or PTX, which the driver compiles for the GPU.

    variant: "a" for code that runs on exactly this compute capability, "f" for code that runs on the same major version
    from this minor version on (as all machine code does), "" without such a limit. ptx: version of the PTX language,
    for example (8, 5); None for machine code.
    """

    capability: Capability
    variant: str = ""
    ptx: tuple[int, int] | None = None

    @classmethod
    def parse(cls, name: str) -> Self:
        """Read a name as nvcc and LLVM write it: `sm_90a`, or `compute_90+ptx85`. Raise ValueError for others."""
        match = NAME.fullmatch(name)
        if match is None:
            raise ValueError(f"{name!r:.100} is not an architecture such as sm_90a or compute_90+ptx85")
        if match[1]:
            return cls((int(match[1]), int(match[2])), match[3])
        return cls((int(match[4]), int(match[5])), match[6], (int(match[7]), int(match[8])))

    def __str__(self) -> str:
        architecture = f"{self.capability[0]}{self.capability[1]}{self.variant}"
        return f"compute_{architecture}+ptx{self.ptx[0]}{self.ptx[1]}" if self.ptx else f"sm_{architecture}"

    def runs_on(self, capability: Capability) -> bool:
        """Return whether a GPU of this compute capability can run it. For PTX, `min_cuda` limits the driver too."""
        if self.variant == "a":
            return capability == self.capability
        if self.variant == "f" or self.ptx is None:
            return capability[0] == self.capability[0] and capability >= self.capability
        return capability >= self.capability

    @property
    def min_cuda(self) -> tuple[int, int]:
        """Return the CUDA version that the driver must support, (0, 0) for machine code.

        The PTX ISA's release notes list the versions: PTX 8.5 came with CUDA 12.5, 8.6 with 12.7, 9.0 with 13.0.
        """
        if self.ptx is None:
            return 0, 0
        major, minor = self.ptx
        return major + 4, minor + 1 if (8, 6) <= self.ptx < (9, 0) else minor
