"""What passes between orchestrator and worker: one request file in, one result file out.

Standard library only. Every type here is a frozen dataclass; `scenarios.codec` writes and reads them.
Times are seconds unless the name says milliseconds; `*_at` are readings of the monotonic clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Status(StrEnum):
    """How a launch ended."""

    OK = "ok"
    FAILED = "failed"
    TIMEOUT = "timeout"
    OUT_OF_MEMORY = "out_of_memory"
    SKIPPED = "skipped"
    WRONG_DEVICE = "wrong_device"
    BROKEN_CONTRACT = "broken_contract"


class Code(StrEnum):
    """Why a launch did not end `ok`. The comment names the status it goes with."""

    WORKER_ERROR = "worker_error"  # failed: an exception or a crash inside the worker
    REFERENCE_MISMATCH = "reference_mismatch"  # failed: does not compute the scenario's function
    MISSING_PROOF = "missing_proof"  # failed: a piece of evidence is absent
    SPEC_MISMATCH = "spec_mismatch"  # failed: the image holds another version of the scenario
    DATA_UNAVAILABLE = "data_unavailable"  # failed
    DATA_CORRUPT = "data_corrupt"  # failed
    IMAGE_FAILED = "image_failed"  # failed: image or environment could not be made
    ENGINE_FAILED = "engine_failed"  # failed: the engine refused to start the launch or lost it
    DISK_FULL = "disk_full"  # failed
    DEADLINE = "deadline"  # timeout
    MEMORY_LIMIT = "memory_limit"  # out_of_memory
    DEVICE_MEMORY = "device_memory"  # out_of_memory: the GPU's own memory
    NO_DEVICE = "no_device"  # skipped: the machine has no such device
    NO_GPU_RUNTIME = "no_gpu_runtime"  # skipped: the engine cannot hand a GPU to a container
    NOT_OFFERED = "not_offered"  # skipped: the framework or engine does not offer this
    WRONG_DEVICE = "wrong_device"  # wrong_device: ran, but elsewhere
    NO_RESULT = "no_result"  # broken_contract: exit 0 and no result file
    INVALID_RESULT = "invalid_result"  # broken_contract


@dataclass(frozen=True)
class Reason:
    """What went wrong in one sentence, and what the reader can do about it in another."""

    code: Code
    message: str
    remedy: str
