"""Say what to change about a cell, with the setting of the kit that changes it, if there is one. No input or output."""

from kit.analysis.diagnosis import Diagnosis
from kit.analysis.diagnosis_rules import DECODED_FEEDS, Bottleneck
from kit.model.formatting import format_number
from scenarios.contract.cell import Cell
from scenarios.spec import DATASETS, Scenario

LARGER = 4  # times the batch size that is suggested: three quarters of the fixed cost per image disappear


def advice(diagnosis: Diagnosis, cell: Cell, scenario: Scenario | None, feed: str, gpu_slower: bool) -> str:
    """Return what to change, in at most three sentences.

    scenario: None if unknown. feed: the setting of that name, or "". gpu_slower: whether the same cell is faster on the
    CPU.
    """
    tuned = cell.lane == "tuned"
    match diagnosis.bottleneck:
        case Bottleneck.INPUT_BOUND:
            return _feed(cell, scenario, feed) + _gain(diagnosis)
        case Bottleneck.LAUNCH_BOUND:
            found = f"Use a larger batch (--batch {LARGER * cell.batch})"
            found += "" if tuned else " or --lane tuned, which tries compiled steps"
            return found + (", or the CPU, which is faster here." if gpu_slower else ".")
        case Bottleneck.COMPUTE_BOUND if cell.device == "cuda" and cell.precision == "fp32":
            return "Use --precision tf32 or bf16, which compute on the tensor cores."
        case Bottleneck.COMPUTE_BOUND if diagnosis.label == "arithmetic":
            return "The kernels are near the ceiling, so only a faster device helps much."
        case Bottleneck.COMPUTE_BOUND if not tuned:
            return "Use --lane tuned, which tries other memory layouts, memory allocators and compiled steps."
        case Bottleneck.MEMORY_BOUND if diagnosis.parts and diagnosis.parts.fixed > diagnosis.parts.kernels:
            return f"Use a larger batch (--batch {LARGER * cell.batch}), which needs the same passes over the weights."
        case Bottleneck.MEMORY_BOUND if cell.precision != "bf16" and cell.device == "cuda":
            return "Use --precision bf16, which halves the memory traffic of activations."
    return diagnosis.remedy


def _gain(diagnosis: Diagnosis) -> str:
    """Return how much faster training would be without waiting for data, as a sentence after a space, or ""."""
    parts = diagnosis.parts
    if not parts or parts.waiting >= parts.total:
        return ""
    return (
        f" Without the wait, it would train {format_number(parts.total / (parts.total - parts.waiting), 2)}× as fast."
    )


def _feed(cell: Cell, scenario: Scenario | None, feed: str) -> str:
    photos = scenario is not None and DATASETS[scenario.dataset].shape is None
    if photos and feed not in DECODED_FEEDS and cell.lane != "tuned":
        return (
            "Every epoch decodes all JPEG files, which is the likely cause. Use --lane tuned, which tries feeds that "
            "decode each photo once, or more --workers if CPUs are idle."
        )
    if photos:
        option = "threads" if feed == "resident" else "workers"
        return f"Use more --{option} if CPUs are idle, because photos are resized and augmented on the CPU."
    if cell.framework == "torch" and cell.lane != "tuned":
        return "Use --lane tuned, which tries batches in pinned memory and data that stay on the device."
    return f"Use a larger batch (--batch {LARGER * cell.batch}), so that fewer batches are prepared and copied."
