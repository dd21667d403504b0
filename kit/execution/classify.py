"""Classify how a launch ended, from what the engine saw and what the worker left.

The worker is trusted only as far as its evidence goes. `ok` stands only if every part is there, the proof passed, and
what ran is what the request asked for. This module does no input or output.
"""

import math
import re
from dataclasses import dataclass

from kit.model.launch import SIGKILLED, Completion
from kit.model.record import HostSamples
from scenarios.contract.codec import from_json
from scenarios.contract.disk import says_full
from scenarios.contract.evidence import Evidence
from scenarios.contract.reasons import Code, Reason, Status
from scenarios.contract.request import Request
from scenarios.contract.result import Proof, Result, Telemetry, Tuning

# What Docker, containerd, CDI and NVIDIA's hook say if no GPU can be passed to a container.
NO_GPU = re.compile(r"could not select device driver|\bcdi\b|nvidia", re.IGNORECASE)


@dataclass(frozen=True)
class Execution:
    """What is known after a worker ended.

    lost: the reason if the engine itself failed. result_file: content of the result file, or why it cannot be read, or
    None if there is none. log_tail: end of the log as plain text. host_samples: measured by the host during the launch.
    """

    completion: Completion
    lost: Reason | None
    result_file: bytes | Exception | None
    log_tail: str
    host_samples: HostSamples | None


@dataclass(frozen=True)
class Classification:
    """reason: None for an `ok` launch. result: the worker's result, if it is valid."""

    reason: Reason | None
    result: Result | None = None


class InvalidResult(Exception):
    """The result does not stand. The attribute `reason` says why."""

    def __init__(self, code: Code, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.reason = Reason.of(code, message, remedy)


def classify(request: Request, execution: Execution, max_rate: float = math.inf) -> Classification:
    """Return how a launch ended. max_rate: the images/s that the machine's ceilings allow in training."""
    completion = execution.completion
    outside = execution.lost or _outside_cause(request, completion)
    try:
        result = _read(request, execution.result_file)
    except InvalidResult as invalid:
        return Classification(outside or invalid.reason)
    if outside:
        return Classification(outside, result)
    if result is None:
        return Classification(_without_result(completion, execution.log_tail.strip().split("\n")))
    if result.status is Status.OK:
        try:
            _check(request, completion, result, max_rate)
        except InvalidResult as invalid:
            return Classification(invalid.reason, result)
    return Classification(result.reason, result)


def _outside_cause(request: Request, completion: Completion) -> Reason | None:
    """Return what ended the launch from outside, even if the worker had already written a result.

    This includes memory: if a process of the launch was killed, the launch did not measure what its cell says.
    """
    if completion.not_started is not None:
        return _not_started(request, completion.not_started)
    if completion.out_of_memory:
        ending = "ended" if completion.exit_code is None else f"ended with exit code {completion.exit_code}"
        return Reason.of(
            Code.MEMORY_LIMIT, f"The launch hit its memory limit and {ending} after {completion.seconds:.0f} s."
        )
    if completion.timed_out:
        return Reason.of(Code.DEADLINE, f"The launch was stopped at its deadline, after {completion.seconds:.0f} s.")
    return None


def _not_started(request: Request, message: str) -> Reason:
    if request.cell.device == "cuda" and NO_GPU.search(message):
        return Reason.of(
            Code.NO_GPU_RUNTIME,
            f"The engine cannot pass a GPU to a container: {message}",
            "Install the NVIDIA Container Toolkit and configure it for this engine. `kit doctor` checks it.",
        )
    if says_full(message):
        return Reason.of(Code.DISK_FULL, f"The engine has no disk space: {message}")
    return Reason.of(Code.ENGINE_FAILED, f"The engine did not start the launch: {message}")


def _without_result(completion: Completion, lines: list[str]) -> Reason:
    """Return why there is no result. lines: the end of the log."""
    if full := [line for line in lines if says_full(line)]:
        return Reason.of(Code.DISK_FULL, f"The worker could not write its result, because the disk is full: {full[-1]}")
    output = f' Its last output was "{lines[-1]}".' if lines[-1] else ""
    if completion.exit_code is None:
        return Reason.of(Code.ENGINE_FAILED, f"The engine lost the launch.{output}")
    if completion.exit_code == 0:
        return Reason.of(Code.NO_RESULT, f"The worker ended with exit code 0 and left no result.{output}")
    if completion.exit_code == SIGKILLED:
        return Reason.of(
            Code.WORKER_ERROR,
            f"The kernel or another process killed the worker (signal 9).{output}",
            "If the machine ran out of memory, set a lower --memory or close other programs.",
        )
    return Reason.of(Code.WORKER_ERROR, f"The worker ended with exit code {completion.exit_code}.{output}")


def _read(request: Request, content: bytes | Exception | None) -> Result | None:
    """Return the worker's result if it left one. Raise InvalidResult if it is not a result of this request."""
    if content is None:
        return None
    try:
        if isinstance(content, Exception):
            raise content
        result = from_json(Result, content)
        result.check_against(request)
    except (OSError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidResult(Code.INVALID_RESULT, f"The worker's result is not valid: {error}.") from error
    return result


def _check(request: Request, completion: Completion, result: Result, max_rate: float) -> None:
    """Raise InvalidResult if an `ok` result cannot be used, or if its proof and evidence do not support it."""
    if completion.exit_code != 0:
        raise InvalidResult(
            Code.WORKER_ERROR, f"The worker wrote its result and then ended with {completion.exit_code}."
        )
    if result.tuning:
        _check_trials(result.tuning)
    if request.purpose != "measure":
        return
    assert result.proof is not None
    assert result.evidence is not None
    assert result.telemetry is not None
    assert result.training is not None
    _check_proof(result.proof)
    _check_evidence(request, result.evidence, result.telemetry)
    if (rate := result.training.images_per_s) > max_rate:
        raise InvalidResult(
            Code.INVALID_RESULT,
            f"The training speed of {rate:,.0f} images/s is impossible: the measured ceilings of this machine allow at "
            f"most {max_rate:,.0f} images/s.",
            "Start a new run, which measures the ceilings again. If the result is the same, report it as a bug.",
        )


def _check_trials(tuning: Tuning) -> None:
    """Raise InvalidResult if a trial met a full disk: the settings that it found may not be the best ones."""
    failures = [tried.failure for search in tuning.searches for tried in search.tried]
    if full := [failure for failure in failures if says_full(failure)]:
        raise InvalidResult(Code.DISK_FULL, f"A trial of the search failed, because the disk is full: {full[0]}")


def _check_proof(proof: Proof) -> None:
    if not proof.passed:
        failed = [check for check in proof.checks if not check.passed]
        checks = ", ".join(f"{c.name} ({c.error:.2g}, allowed {c.tolerance:.2g})" for c in failed)
        raise InvalidResult(Code.REFERENCE_MISMATCH, f"The launch does not compute the scenario's function: {checks}.")


def _check_evidence(request: Request, evidence: Evidence, telemetry: Telemetry) -> None:
    """Raise InvalidResult if something else ran than the request asked for, or if the evidence does not show it."""
    placement, cell = evidence.placement, request.cell
    asked_gpu = cell.device == "cuda"
    elsewhere = [f"{count} nodes on {place}" for place, count in placement.nodes.items() if is_gpu(place) != asked_gpu]
    if placement.device.split(":")[0] != cell.device or elsewhere:
        where = ", ".join([placement.provider, *elsewhere])
        raise InvalidResult(
            Code.WRONG_DEVICE,
            f"The request was for {cell.device}, but the training step ran on {placement.device} ({where}).",
        )
    digests = (evidence.data_digest, evidence.initial_weights_digest, evidence.final_weights_digest)
    threads = request.working_threads
    shown = {
        f"{threads} threads, but {placement.threads}": placement.threads == threads,
        f"{cell.workers} loader workers, but {placement.workers}": cell.workers in {None, placement.workers},
        f"{request.data} data, but {evidence.data_kind}": evidence.data_kind == request.data,
        "on which devices the nodes were": bool(placement.nodes),
        "that the worker computed while it trained": telemetry.cpu_s > 0 and telemetry.to_at > telemetry.from_at,
        "the TF32 probe": placement.tf32 is not None or cell.device == "cpu",
        "that fp32 was not rounded to TF32": not (placement.tf32 and cell.precision == "fp32"),
        "that tf32 was rounded to TF32": bool(placement.tf32) or cell.precision != "tf32",
        "the versions of Python and framework": {"python", cell.framework} <= set(evidence.versions),
        "the digests of data and weights": all(digests),
        "that training changed the weights": evidence.initial_weights_digest != evidence.final_weights_digest,
        "the requested environment": request.environment.items() <= evidence.environment.items(),
    }
    if missing := [what for what, proven in shown.items() if not proven]:
        raise InvalidResult(Code.MISSING_PROOF, f"The evidence does not show {', nor '.join(missing)}.")


def is_gpu(place: str) -> bool:
    """Return whether a device or an execution provider, as a framework names it, is a GPU."""
    return any(word in place.lower() for word in ("cuda", "gpu", "tensorrt"))
