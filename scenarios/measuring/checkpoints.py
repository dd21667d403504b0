"""Write and read checkpoints: the state of a training and its history, after a whole epoch.

A checkpoint is one safetensors file, so the state and the history in its metadata always belong together. See
docs/decisions/0016.
"""

import hashlib
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

import scenarios
from scenarios.adapter import State
from scenarios.contract.codec import ContractError, from_json, to_json
from scenarios.contract.epochs import KeptWeights
from scenarios.contract.ranges import Count
from scenarios.contract.request import Request
from scenarios.contract.result import Epoch
from scenarios.weights_file import read_metadata, read_tensors, write_tensors

FORMAT = "kit-checkpoint-1"
CODE = Path(scenarios.__file__).parent

Binding = dict[str, str]  # what a training depends on: each part in words, and its SHA-256 (hex)


class CheckpointError(ValueError):
    """A checkpoint cannot be continued. The text says which file and why."""


@dataclass(frozen=True)
class History:
    """What a training has done so far.

    epochs: the finished ones. steps: number of steps in all. resumed_from: as in `Training`. ignored: its
    `ignored_checkpoints`. best: the weights of the best epoch, in the file that the worker wrote; None if weights are
    not kept, or if they were lost.
    """

    epochs: list[Epoch] = field(default_factory=list)
    steps: Count = 0
    resumed_from: list[Count] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)
    best: KeptWeights | None = None


def binding(request: Request, data_digest: str) -> Binding:
    """Return everything that determines a training, apart from its number of epochs.

    This includes the code of the worker, which an update may change, and the models of the processor and of the GPU,
    because the speed of all epochs must be that of one machine. data_digest: of the content of the data set.
    """
    parts = {
        "cell": [asdict(request.cell), request.spec],
        "seed": request.seed,
        "data set": [request.data, data_digest],
        "number of threads": request.threads,
        "choice of settings": [request.settings, request.environment],
        "version of the software": [request.environment_digest, _code_digest()],
        "processor": _processor(),
        "GPU": request.gpu_digest,
    }
    return {name: hashlib.sha256(json.dumps(part, sort_keys=True).encode()).hexdigest() for name, part in parts.items()}


def tag(bound_to: Binding) -> str:
    """Return a short name of what determines a training: 8 hexadecimal digits."""
    return hashlib.sha256(json.dumps(bound_to, sort_keys=True).encode()).hexdigest()[:8]


def write(path: Path, bound_to: Binding, state: State, history: History) -> None:
    """Write a checkpoint by rename. bound_to: the result of `binding`. Raise OSError."""
    text = to_json(history)
    metadata = {**bound_to, "format": FORMAT, "history": text, "digest": _digest(state, text)}
    write_tensors(path, state, metadata)


def read(path: Path, bound_to: Binding) -> tuple[State, History]:
    """Return the state and the history of a checkpoint.

    Raise CheckpointError if it is that of another training, or if it is altered or no checkpoint. Raise WeightsError if
    it is truncated, too large or no safetensors file. Raise OSError if it cannot be read.
    """
    metadata = read_metadata(path)  # the tensors of another file may need much memory
    if metadata.get("format") != FORMAT:
        raise CheckpointError(f"{path.name} is not a checkpoint.")
    if others := [name for name, digest in bound_to.items() if metadata.get(name) != digest]:
        raise CheckpointError(f"{path.name} is of a training with another {' and another '.join(others)}.")
    state, metadata = read_tensors(path)
    text = metadata.get("history", "")
    if metadata.get("digest") != _digest(state, text):
        raise CheckpointError(f"{path.name} was altered.")
    try:
        return state, from_json(History, text)
    except ContractError as error:
        raise CheckpointError(f"{path.name} has no valid history: {error}.") from error


def _code_digest() -> str:
    """Return the SHA-256 (hex) over the modules of the worker."""
    found = hashlib.sha256()
    for path in sorted(CODE.rglob("*.py")):
        found.update(f"{path.relative_to(CODE)}\0".encode() + path.read_bytes())
    return found.hexdigest()


def _processor() -> str:
    """Return the model of the processor, or "" if the system does not name it."""
    lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


def _digest(state: State, text: str) -> str:
    """Return the SHA-256 (hex) over all tensors, by name, and the text of the history."""
    found = hashlib.sha256(text.encode())
    for name in sorted(state):
        found.update(f"{name}{state[name].dtype.str}{state[name].shape}".encode())
        found.update(state[name].tobytes())
    return found.hexdigest()
