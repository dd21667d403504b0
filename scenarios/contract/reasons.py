"""Define how a launch can end, and why."""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Self


class Status(StrEnum):
    """How a launch ended."""

    OK = "ok"
    FAILED = "failed"
    TIMEOUT = "timeout"
    OUT_OF_MEMORY = "out_of_memory"
    SKIPPED = "skipped"
    WRONG_DEVICE = "wrong_device"
    BROKEN_CONTRACT = "broken_contract"

    @property
    def words(self) -> str:
        """Return the status in plain words, for example `out of memory`."""
        return self.replace("_", " ")


SENTENCE_END = re.compile(r"""[.!?:…]["')\]`”’]*$""")  # a mark, perhaps before a closing quote or bracket
REPORT = "Read the log. If the kit and the framework are unchanged, report this as a bug."


class Code(StrEnum):
    """Why a launch is not `ok`, with the consequences of each reason.

    status: the status of the launch. exit_code: of a run in which nothing is ok and all launches have this reason.
    remedy: what the user can do if the reason gives no better advice.
    """

    status: Status
    exit_code: int
    remedy: str

    def __new__(cls, value: str, status: Status, exit_code: int, remedy: str) -> Self:
        member = str.__new__(cls, value)
        member._value_ = value
        member.status, member.exit_code, member.remedy = status, exit_code, remedy
        return member

    WORKER_ERROR = "worker_error", Status.FAILED, 1, REPORT
    REFERENCE_MISMATCH = "reference_mismatch", Status.FAILED, 1, REPORT
    MISSING_PROOF = "missing_proof", Status.FAILED, 1, REPORT
    SPEC_MISMATCH = "spec_mismatch", Status.FAILED, 1, "Build the images again with `kit build`."
    ENGINE_FAILED = "engine_failed", Status.FAILED, 3, "Run `kit doctor`. It checks the engine."
    IMAGE_FAILED = "image_failed", Status.FAILED, 4, "Read the build log."
    DATA_UNAVAILABLE = "data_unavailable", Status.FAILED, 5, "Run `kit data list`."
    DATA_CORRUPT = "data_corrupt", Status.FAILED, 5, "Run `kit data verify`."
    INVALID_WEIGHTS = (
        "invalid_weights",
        Status.FAILED,
        2,
        "Restore the file from a copy, or train again with `kit run --profile full`.",
    )
    DISK_FULL = "disk_full", Status.FAILED, 6, "Free disk space."
    DEADLINE = (
        "deadline",
        Status.TIMEOUT,
        1,
        "Raise --timeout: `kit run --resume RUN --retry-failed --timeout TIME`. The log shows how far the launch got.",
    )
    MEMORY_LIMIT = (
        "memory_limit",
        Status.OUT_OF_MEMORY,
        1,
        "Raise --memory, use a smaller --batch, or use a machine with more memory.",
    )
    DEVICE_MEMORY = "device_memory", Status.OUT_OF_MEMORY, 1, "Use a smaller --batch or a larger GPU."
    NO_DEVICE = "no_device", Status.SKIPPED, 1, "Use a machine with an NVIDIA GPU. `kit doctor` looks for one."
    NO_GPU_RUNTIME = "no_gpu_runtime", Status.SKIPPED, 1, "Run `kit doctor`. It checks driver, toolkit and engine."
    NOT_OFFERED = "not_offered", Status.SKIPPED, 1, "Choose another lane, precision, device or settings."
    WRONG_DEVICE = (
        "wrong_device",
        Status.WRONG_DEVICE,
        1,
        "Run `kit doctor`. It checks driver, toolkit and GPU. The log shows why the framework used another device.",
    )
    NO_RESULT = "no_result", Status.BROKEN_CONTRACT, 1, REPORT
    INVALID_RESULT = "invalid_result", Status.BROKEN_CONTRACT, 1, REPORT


@dataclass(frozen=True)
class Reason:
    """What went wrong in one sentence, and what the reader can do about it in another."""

    code: Code
    message: str
    remedy: str

    @classmethod
    def of(cls, code: Code, message: str, remedy: str = "") -> Self:
        """Return a reason with each text on one line.

        message: gets a period if it has no mark at its end, because the remedy is often shown after it. remedy: empty
        for the default remedy of the code.
        """
        what, advice = (" ".join(text.split()) for text in (message, remedy or code.remedy))
        return cls(code, f"{what}." if what and not SENTENCE_END.search(what) else what, advice)
