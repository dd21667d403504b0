"""Write and read files of trained weights: safetensors, with canonical names and layouts and a digest.

safetensors is imported where it is used, because a launch that keeps nothing does not need it.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from scenarios import spec
from scenarios.contract.codec import write_bytes
from scenarios.contract.request import MAX_WEIGHTS_BYTES
from scenarios.spec import Scenario
from scenarios.weights import Weights, digest

FORMAT = "kit-weights-1"
NUMBER = re.compile(r"[0-9]{1,9}")  # Python refuses to read numbers with thousands of digits


class WeightsError(ValueError):
    """A file does not hold the expected weights. The text says which file and why."""


@dataclass(frozen=True)
class About:
    """The metadata of a file of weights, apart from its format.

    scenario: label. spec: digest of the scenario with its hidden layers, as in `Request`. framework: the one that
    trained them. epoch: number of epochs of training. digest: `scenarios.weights.digest` of the weights.
    """

    scenario: str
    spec: str
    framework: str
    epoch: int
    digest: str


def write(path: Path, weights: Weights, about: About) -> None:
    """Write weights by rename, so that readers see the whole file or no file. Raise OSError."""
    metadata = {"format": FORMAT} | {name: str(value) for name, value in asdict(about).items()}
    write_tensors(path, weights, metadata)


def read(path: Path, scenario: Scenario | None = None) -> tuple[Weights, About]:
    """Return the weights of a file, in the order of `spec.parameters`, and what it says about them.

    scenario: the weights must be for this specification, before its batch size is replaced. Raise WeightsError if they
    are not, or if the file is truncated, altered or no file of weights. Raise OSError if it cannot be read.
    """
    tensors, metadata = read_tensors(path)
    about = _about(path, metadata)
    try:
        weights: Weights = dict(sorted(tensors.items(), key=lambda item: _position(item[0])))
    except ValueError as error:
        raise WeightsError(f"{path.name} has tensors that are not weights of kit: {error}.") from None
    if others := [f"{name} is {value.dtype}" for name, value in weights.items() if value.dtype != np.float32]:
        raise WeightsError(f"{path.name} must hold float32, but {others[0]}.")
    if scenario is not None:
        _require_scenario(path, weights, about, scenario)
    if digest(weights) != about.digest:
        raise WeightsError(f"{path.name} was altered: its weights do not have the digest that it names.")
    return weights, about


def write_tensors(path: Path, tensors: Mapping[str, Any], metadata: Mapping[str, str]) -> None:
    """Write NumPy arrays as a safetensors file, by rename. Raise OSError."""
    from safetensors.numpy import save

    # safetensors reads the memory of an array as if its rows were in order.
    in_order = {name: np.asarray(value, order="C") for name, value in tensors.items()}
    write_bytes(path, save(in_order, dict(metadata)))


def read_metadata(path: Path) -> dict[str, str]:
    """Return the metadata of a safetensors file, without its arrays. Raise the errors of `read_tensors`."""
    with _opened(path) as file:
        return file.metadata() or {}


def read_tensors(path: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the arrays of a safetensors file by name, and its metadata.

    Raise WeightsError if it is truncated, too large or no such file. Raise OSError if it cannot be read.
    """
    with _opened(path) as file:
        return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """Open a safetensors file. Its arrays are not read yet. Raise the errors of `read_tensors`, also in the block."""
    from safetensors import SafetensorError, safe_open

    if path.exists() and not path.is_file():  # a pipe would block
        raise WeightsError(f"{path.name} is not a plain file.")
    if path.exists() and path.stat().st_size > MAX_WEIGHTS_BYTES:
        raise WeightsError(f"{path.name} is larger than {MAX_WEIGHTS_BYTES >> 30} GiB.")
    try:
        with safe_open(path, framework="numpy") as file:
            yield file
    except (SafetensorError, AttributeError, TypeError, ValueError) as error:  # the latter: a type that NumPy lacks
        raise WeightsError(f"{path.name} is truncated or not a safetensors file: {error!s:.400}.") from error


def _about(path: Path, metadata: Mapping[str, str]) -> About:
    if (found := metadata.get("format")) != FORMAT:
        raise WeightsError(
            f"{path.name} is not a file of weights of kit: its format is {found or 'missing':.40}, not {FORMAT}."
        )
    names = list(About.__dataclass_fields__)
    if missing := [name for name in names if name not in metadata]:
        raise WeightsError(f"{path.name} lacks {' and '.join(missing)} in its metadata.")
    fields = {name: metadata[name] for name in names}
    if not NUMBER.fullmatch(epoch := fields.pop("epoch")):
        raise WeightsError(f"The epoch in the metadata of {path.name} is not a number: {epoch!r:.40}.")
    return About(epoch=int(epoch), **fields)


def _position(name: str) -> tuple[int, int]:
    """Return where a parameter stands in the order of `spec.parameters`. Raise ValueError for any other name."""
    layer, _, kind = name.partition("/")
    if not NUMBER.fullmatch(layer) or kind not in ("kernel", "bias"):
        raise ValueError(f"{name!r:.80} is not <layer>/kernel or <layer>/bias")
    return int(layer), ("kernel", "bias").index(kind)


def _require_scenario(path: Path, weights: Weights, about: About, scenario: Scenario) -> None:
    expected = {p.name: p.shape for p in spec.parameters(scenario)}
    found = {name: value.shape for name, value in weights.items()}
    if expected != found:
        name = next(name for name in {**expected, **found} if expected.get(name) != found.get(name))
        raise WeightsError(
            f"{path.name} does not fit {scenario.label}: {name} has shape {found.get(name, 'none')}, expected "
            f"{expected.get(name, 'none')}."
        )
    if about.spec != spec.digest(scenario):
        raise WeightsError(
            f"{path.name} was trained for {about.scenario:.80}, with another specification than {scenario.label}."
        )
