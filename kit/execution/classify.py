"""How a launch ended: from what the engine saw and what the worker left to one status and its reason. Pure.

The worker is not trusted further than its evidence goes: an `ok` stands only where every part is there, the proof
passed, and what ran is what was asked for.
"""

from __future__ import annotations

import dataclasses
import math
import re
from dataclasses import dataclass

from kit.model.launch import Completion
from kit.model.plausible import MAX_WHOLE, impossible, numbers
from kit.model.record import reason
from scenarios.contract import allocators
from scenarios.contract.codec import ContractError, from_json
from scenarios.contract.reasons import Code, Reason, Status
from scenarios.contract.request import Request
from scenarios.contract.result import Evidence, Result, Telemetry

STATUS_OF: dict[Code, Status] = dict.fromkeys(Code, Status.FAILED) | {
    Code.DEADLINE: Status.TIMEOUT,
    Code.MEMORY_LIMIT: Status.OUT_OF_MEMORY,
    Code.DEVICE_MEMORY: Status.OUT_OF_MEMORY,
    Code.NO_DEVICE: Status.SKIPPED,
    Code.NO_GPU_RUNTIME: Status.SKIPPED,
    Code.NOT_OFFERED: Status.SKIPPED,
    Code.WRONG_DEVICE: Status.WRONG_DEVICE,
    Code.NO_RESULT: Status.BROKEN_CONTRACT,
    Code.INVALID_RESULT: Status.BROKEN_CONTRACT,
}
# What Docker, containerd, CDI and NVIDIA's hook say where no GPU can be handed over.
NO_GPU = re.compile(r"could not select device driver|\bcdi\b|nvidia", re.IGNORECASE)
NO_SPACE = re.compile(r"no space left on device", re.IGNORECASE)
REPORT = "The log shows what happened; if kit and framework are as shipped, report this."
RETRY = "Then continue with --resume and --retry-failed."


@dataclass(frozen=True)
class Classification:
    """status and reason (None for `ok`), and the worker's result where it left a readable one."""

    status: Status
    reason: Reason | None
    result: Result | None = None


class InvalidResult(Exception):
    """The result does not stand; carries the reason."""

    def __init__(self, code: Code, message: str, remedy: str = REPORT) -> None:
        super().__init__(message)
        self.reason = reason(code, message, remedy)


def failure(cause: Reason, result: Result | None = None) -> Classification:
    """The verdict of a reason: its code says which status it goes with."""
    return Classification(STATUS_OF[cause.code], cause, result)


def classify(request: Request, completion: Completion, left: bytes | Exception | None, log: str) -> Classification:
    """The verdict on a launch that the engine brought to an end.

    left: the result file's content, or why it cannot be read; None where there is none. log: its end, as plain text,
    of which the last line is quoted where a worker left no result.
    """
    try:
        result = None if left is None else _read(request, left)
    except InvalidResult as refuted:
        return failure(_outside_cause(request, completion) or refuted.reason)
    if cause := _outside_cause(request, completion):
        return failure(cause, result)
    if result is None:
        return failure(_without_result(completion, log.strip().rsplit("\n", 1)[-1]))
    try:
        _stand(request, completion, result)
    except InvalidResult as refuted:
        return failure(refuted.reason, result)
    return Classification(result.status, result.reason, result)


def _outside_cause(request: Request, completion: Completion) -> Reason | None:
    """What ended the launch from outside, whatever the worker had written by then.

    Memory counts even where a result was written: a process of the launch was killed, so what was measured is not what
    the cell is.
    """
    if completion.not_started is not None:
        return _not_started(request, completion.not_started)
    if completion.out_of_memory:
        ending = "ended" if completion.exit_code is None else f"ended with exit code {completion.exit_code}"
        return reason(
            Code.MEMORY_LIMIT,
            f"The launch hit its memory limit and {ending} after {completion.seconds:.0f} s.",
            "Raise --memory, use a smaller --batch, or a machine with more memory.",
        )
    if completion.timed_out:
        return reason(
            Code.DEADLINE,
            f"The launch was stopped at its deadline, after {completion.seconds:.0f} s.",
            "Raise --timeout; the log shows how far it came.",
        )
    return None


def _not_started(request: Request, words: str) -> Reason:
    if request.device == "cuda" and NO_GPU.search(words):
        return reason(
            Code.NO_GPU_RUNTIME,
            f"The engine cannot hand a GPU to a container: {words}",
            "Install the NVIDIA Container Toolkit and configure it for this engine; kit doctor checks it.",
        )
    if NO_SPACE.search(words):
        return reason(Code.DISK_FULL, f"The engine has no disk space: {words}", f"Free some. {RETRY}")
    return reason(Code.ENGINE_FAILED, f"The engine did not start the launch: {words}", "kit doctor checks the engine.")


def _without_result(completion: Completion, last_line: str) -> Reason:
    said = f" It last said: {last_line}" if last_line else ""
    if completion.exit_code is None:
        return reason(Code.ENGINE_FAILED, f"The engine lost the launch.{said}", "kit doctor checks the engine.")
    if completion.exit_code == 0:
        return reason(Code.NO_RESULT, f"The worker ended with exit code 0 and left no result.{said}", REPORT)
    if completion.exit_code == 137:
        return reason(
            Code.WORKER_ERROR,
            f"The worker was killed from outside (signal 9).{said}",
            "Where the machine itself ran out of memory, set a lower --memory or close other programs.",
        )
    return reason(Code.WORKER_ERROR, f"The worker ended with exit code {completion.exit_code}.{said}", REPORT)


def _read(request: Request, left: bytes | Exception) -> Result:
    """The result file as a result of this launch. Raises InvalidResult where it is none."""
    if isinstance(left, Exception):
        raise InvalidResult(Code.INVALID_RESULT, f"The worker's result cannot be read: {left}") from left
    try:
        result = from_json(Result, left)
    except (ContractError, OverflowError, RecursionError) as error:  # numbers of no machine; nested without end
        raise InvalidResult(Code.INVALID_RESULT, f"The worker's result cannot be read: {error}") from error
    if (result.key, result.launch) != (request.key, request.launch):
        raise InvalidResult(Code.INVALID_RESULT, f"The result is of another launch: {result.key}, {result.launch}.")
    if not all(_can_be_kept(number) for _, number in numbers(dataclasses.asdict(result))):
        raise InvalidResult(
            Code.INVALID_RESULT, "The result holds a number that is infinite, not a number or too large."
        )
    if result.status is not Status.OK and result.reason is None:
        raise InvalidResult(Code.INVALID_RESULT, f"The result says {result.status} and gives no reason.")
    if result.reason is not None and STATUS_OF[result.reason.code] is not result.status:
        raise InvalidResult(Code.INVALID_RESULT, f"The result says {result.status} because of {result.reason.code}.")
    return result


def _can_be_kept(number: float) -> bool:
    """Whether a record can hold it, and whoever reads that can calculate with it."""
    return abs(number) <= MAX_WHOLE if isinstance(number, int) else math.isfinite(number)


def _stand(request: Request, completion: Completion, result: Result) -> None:
    """Raise InvalidResult where a result that says `ok` is not borne out by its own parts."""
    if result.status is not Status.OK:
        return
    if missing := result.missing(request.purpose):
        raise InvalidResult(Code.INVALID_RESULT, f"The result says ok and lacks {', '.join(missing)}.")
    if completion.exit_code != 0:
        raise InvalidResult(
            Code.WORKER_ERROR, f"The worker wrote its result and then ended with {completion.exit_code}."
        )
    if request.purpose == "probe" and any(ceiling.value <= 0 for ceiling in result.ceilings or ()):
        raise InvalidResult(Code.INVALID_RESULT, "The result holds a ceiling that is not positive.")
    if request.purpose == "tune" and _allocator(result) not in allocators.VARIABLES:
        raise InvalidResult(
            Code.INVALID_RESULT, f"The result chose the allocator {_allocator(result)!r}, which is none."
        )
    if request.purpose != "measure":
        return
    _check_proof_and_figures(result)
    if result.step_timing is None and request.budget.steps is None:
        raise InvalidResult(Code.INVALID_RESULT, "The result says ok and lacks step_timing.")
    assert result.evidence is not None
    assert result.telemetry is not None
    _check_evidence(request, result.evidence, result.telemetry)


def _allocator(result: Result) -> str:
    assert result.tuning is not None
    return result.tuning.settings.get(allocators.AXIS, allocators.STOCK)


def _check_proof_and_figures(result: Result) -> None:
    """Raise InvalidResult where the proof did not pass or a figure cannot be true. For results that lack nothing."""
    assert result.training is not None
    assert result.inference is not None
    assert result.proof is not None
    failed = [check for check in result.proof.checks if not check.passed or check.error > check.tolerance]
    if failed or not result.proof.passed:
        checks = ", ".join(f"{c.name} ({c.error:.2g}, allowed {c.tolerance:.2g})" for c in failed)
        raise InvalidResult(Code.REFERENCE_MISMATCH, f"The launch does not compute the scenario's function: {checks}.")
    if not result.proof.checks:
        raise InvalidResult(Code.MISSING_PROOF, "The proof holds no check.")
    training, inference = result.training, result.inference
    if not (0 <= training.steady_from < len(training.windows) and inference.windows and inference.latency_ms):
        raise InvalidResult(Code.INVALID_RESULT, "The result holds no steady window or no latency.")
    if min(training.images_per_s, training.epoch_s, inference.images_per_s, inference.p50_ms) <= 0:
        raise InvalidResult(Code.INVALID_RESULT, "The result holds a speed or a time that is not positive.")
    if wrong := impossible(dataclasses.asdict(result)):
        raise InvalidResult(Code.INVALID_RESULT, f"The result holds what no machine measures: {', '.join(wrong)}.")


def _check_evidence(request: Request, evidence: Evidence, telemetry: Telemetry) -> None:
    """Raise InvalidResult where what ran is not what was asked for, or where that is not shown."""
    placement = evidence.placement
    asked_gpu = request.device == "cuda"
    elsewhere = [f"{count} nodes on {place}" for place, count in placement.nodes.items() if is_gpu(place) != asked_gpu]
    if placement.device.split(":")[0] != request.device or elsewhere:
        nodes = f", {', '.join(elsewhere)}" if elsewhere else ""
        raise InvalidResult(
            Code.WRONG_DEVICE,
            f"Asked for {request.device}, the training step ran on {placement.device} ({placement.provider}{nodes}).",
            "kit doctor checks driver, toolkit and GPU; the log shows why the framework left it.",
        )
    digests = (evidence.data_digest, evidence.initial_weights_digest, evidence.final_weights_digest)
    threads = request.working_threads
    shown = {
        f"{threads} threads, not {placement.threads}": placement.threads == threads,
        f"{request.data} data, not {evidence.data_kind}": evidence.data_kind == request.data,
        "where its nodes were placed": bool(placement.nodes),
        "that the worker computed while it trained": telemetry.cpu_s > 0 and telemetry.to_at > telemetry.from_at,
        "the TF32 probe": placement.tf32 is not None or request.device == "cpu",
        "that fp32 was not rounded to TF32": not (placement.tf32 and request.precision == "fp32"),
        "that tf32 was rounded to TF32": bool(placement.tf32) or request.precision != "tf32",
        "the versions of Python and framework": {"python", request.framework} <= set(evidence.versions),
        "the digests of data and weights": all(digests),
        "that training changed the weights": evidence.initial_weights_digest != evidence.final_weights_digest,
        "the requested environment": request.environment.items() <= evidence.environment.items(),
    }
    if absent := [what for what, proven in shown.items() if not proven]:
        raise InvalidResult(Code.MISSING_PROOF, f"The evidence does not show {', nor '.join(absent)}.")


def is_gpu(place: str) -> bool:
    """Whether a device or an execution provider, as a framework names it, is a GPU."""
    return any(word in place.lower() for word in ("cuda", "gpu", "tensorrt"))
