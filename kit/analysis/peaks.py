"""List the dense peak rates of known GPUs from NVIDIA's data sheets. No input or output.

Data sheets since Ampere give tensor-core figures "with sparsity" (two of four weights are zero), with or without the
dense ones. Dense figures are half of these. GPUs with an uncertain figure are left out, so the
report shows no share of a peak for them.
"""

import re
from dataclasses import dataclass
from typing import Literal

_TERA, _GIGA = 1e12, 1e9


@dataclass(frozen=True)
class Peak:
    """The dense peak rates of one GPU at its boost clock.

    fp32: FLOP/s outside of tensor cores. tf32, bf16: FLOP/s of tensor cores with float32 accumulation, None if its
    tensor cores do not support them. memory: B/s. source: where the figures are published.
    """

    gpu: str
    fp32: float
    tf32: float | None
    bf16: float | None
    memory: float
    source: str

    def flops(self, precision: Literal["fp32", "tf32", "bf16"]) -> float | None:
        """Return the FLOP/s at a cell's precision, or None if it is not supported."""
        return {"fp32": self.fp32, "tf32": self.tf32, "bf16": self.bf16}[precision]


def _gpu(  # one row of the table, in the units of data sheets: TFLOP/s and GB/s
    pattern: str, gpu: str, fp32: float, tf32: float | None, bf16: float | None, memory: float, source: str
) -> tuple[re.Pattern[str], Peak]:
    tensor = {"tf32": tf32 and tf32 * _TERA, "bf16": bf16 and bf16 * _TERA}
    return re.compile(pattern), Peak(gpu=gpu, fp32=fp32 * _TERA, **tensor, memory=memory * _GIGA, source=source)


_H100_PAPER = "NVIDIA H100 Tensor Core GPU Architecture, table of H100 SXM5 and PCIe peak rates (dense column)"
_A100_SHEET = "NVIDIA A100 data sheet (dense column; memory by model)"
_V100_SHEET = "NVIDIA V100 data sheet"
_P100_SHEET = "NVIDIA Tesla P100 data sheet"

# The patterns match the whole name that NVML and CUDA give. So a board with other clocks or memory (H100 PCIe and NVL,
# A10G, V100S, Ti, D and laptop models, slices of a GPU under MIG) never matches its better-known sibling.
_PEAKS = (
    _gpu(
        r"NVIDIA H200",
        "H200 SXM",
        *(66.9, 494.7, 989.4, 4800),
        "NVIDIA H200 data sheet (67 TFLOPS; 989 and 1,979 with sparsity; 4.8 TB/s), digits of the H100 SXM5: same die",
    ),
    _gpu(r"NVIDIA H100 80GB HBM3", "H100 SXM", 66.9, 494.7, 989.4, 3350, f"{_H100_PAPER}; memory: H100 data sheet"),
    _gpu(r"NVIDIA H100 PCIe", "H100 PCIe", 51.2, 378, 756, 2000, f"{_H100_PAPER}; memory: H100 data sheet (2 TB/s)"),
    _gpu(r"NVIDIA A100-SXM4-80GB", "A100 SXM 80 GB", 19.5, 156, 312, 2039, _A100_SHEET),
    _gpu(r"NVIDIA A100 80GB PCIe", "A100 PCIe 80 GB", 19.5, 156, 312, 1935, _A100_SHEET),
    _gpu(r"(NVIDIA )?A100-SXM4-40GB", "A100 SXM 40 GB", 19.5, 156, 312, 1555, _A100_SHEET),
    _gpu(r"(NVIDIA )?A100-PCIE-40GB", "A100 PCIe 40 GB", 19.5, 156, 312, 1555, _A100_SHEET),
    _gpu(r"(NVIDIA )?A10", "A10", 31.2, 62.5, 125, 600, "NVIDIA A10 data sheet (dense column)"),
    _gpu(r"(NVIDIA )?A30", "A30", 10.3, 82, 165, 933, "NVIDIA A30 data sheet (dense column)"),
    _gpu(r"NVIDIA L4", "L4", 30.3, 60, 121, 300, "NVIDIA L4 data sheet (120 and 242 with sparsity, halved)"),
    _gpu(r"NVIDIA L40S", "L40S", 91.6, 183, 362.05, 864, "NVIDIA L40S data sheet (dense column)"),
    _gpu(r"Tesla V100-SXM2-(16|32)GB", "V100 SXM2", 15.7, None, None, 900, _V100_SHEET),
    _gpu(r"Tesla V100-PCIE-(16|32)GB", "V100 PCIe", 14, None, None, 900, _V100_SHEET),
    _gpu(r"(NVIDIA )?(Tesla )?T4", "T4", 8.1, None, None, 320, "NVIDIA T4 data sheet (320+ GB/s)"),
    _gpu(r"Tesla P100-SXM2-16GB", "P100 SXM2", 10.6, None, None, 732, _P100_SHEET),
    _gpu(r"Tesla P100-PCIE-16GB", "P100 PCIe 16 GB", 9.3, None, None, 732, _P100_SHEET),
    _gpu(
        r"(NVIDIA )?GeForce RTX 3090",
        "GeForce RTX 3090",
        *(35.6, 35.6, 71, 936),
        "NVIDIA Ampere GA102 GPU Architecture, appendix A (dense, FP32 accumulate)",
    ),
    _gpu(
        r"NVIDIA GeForce RTX 4090",
        "GeForce RTX 4090",
        *(82.6, 82.6, 165.2, 1008),
        "NVIDIA Ada GPU Architecture, appendix A (dense, FP32 accumulate)",
    ),
)


def peak(gpu_name: str) -> Peak | None:
    """Return the peaks of a GPU by its name in NVML or CUDA, for example `NVIDIA H100 80GB HBM3`. None if unknown."""
    return next((found for pattern, found in _PEAKS if pattern.fullmatch(gpu_name.strip())), None)
