"""Read altered files of weights and checkpoints: each is read, or refused with an error that names it.

A file of a stranger must not cause any other exception, nor a large allocation.
"""

from __future__ import annotations

import json
import resource
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save

from scenarios import weights_file
from scenarios.contract.epochs import KeptWeights
from scenarios.contract.result import Epoch
from scenarios.measuring import checkpoints
from scenarios.measuring.checkpoints import CheckpointError, History
from scenarios.weights import digest
from scenarios.weights_file import About, WeightsError

ROOM = 512 << 20  # bytes that a reader may allocate, a million times the size of a file
WEIGHTS = {"0/kernel": np.ones((2, 3), np.float32), "0/bias": np.zeros(3, np.float32)}
STATE = {**WEIGHTS, "steps": np.array(7), "slot": np.ones(2)}
HISTORY = History([Epoch(1, 2.0, 60, 0.5, 0.8, 0.4, 0.8)], 3, best=KeptWeights("best", "w.safetensors", 1, 0.8, "0"))
BOUND = {"seed": "0", "GPU": "1"}

TYPES = ("BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2", "I16", "F16", "BF16", "I32", "F32", "F64", "I64", "U64", "C64", "F4")
NUMBERS = st.sampled_from([0, 1, 2, 6, 24, 2**31, 2**32, 2**62, 2**63, 2**64 - 1, 2**64, -1, 1.5, 1e300])
TEXTS = st.text() | st.sampled_from(["9" * 5000, "0" * 99, "1", "٣", "[" * 5000, '{"epochs": []}', "\ud800", "kit"])
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS | st.sampled_from(TYPES),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=2),
    max_leaves=6,
)


@pytest.fixture(autouse=True)
def little_memory() -> Iterator[None]:
    """Let each larger allocation fail."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (psutil.Process().memory_info().vms + ROOM, hard))
    yield
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("files")


READERS: dict[str, Callable[[Path], Any]] = {
    "weights": lambda path: weights_file.read(path)[0],
    "checkpoint": lambda path: checkpoints.read(path, BOUND)[0],
}
ARRAYS = {"weights": WEIGHTS, "checkpoint": STATE}
reader = pytest.mark.parametrize("kind", READERS)


@pytest.fixture(scope="module")
def whole(folder: Path) -> dict[str, bytes]:
    """Return the content of a valid file of each kind."""
    paths = {kind: folder / kind for kind in READERS}
    weights_file.write(paths["weights"], WEIGHTS, About("mnist-cnn", "0", "torch", 1, digest(WEIGHTS)))
    checkpoints.write(paths["checkpoint"], BOUND, STATE, HISTORY)
    for kind, path in paths.items():
        READERS[kind](path)
    return {kind: path.read_bytes() for kind, path in paths.items()}


def require_read_or_refused(kind: str, folder: Path, content: bytes) -> dict[str, bytes] | None:
    """Return the arrays that were read, as bytes, or None if the file was refused."""
    path = folder / "altered.safetensors"
    path.write_bytes(content)
    try:
        return as_bytes(READERS[kind](path))
    except (WeightsError, CheckpointError) as error:
        refusal = str(error)
    assert path.name in refusal
    assert len(refusal) < 1000
    return None


def as_bytes(arrays: Mapping[str, Any]) -> dict[str, bytes]:
    return {name: np.asarray(array).tobytes() for name, array in arrays.items()}


@reader
@given(data=st.data())
def test_a_truncated_file_is_refused(kind: str, folder: Path, whole: dict[str, bytes], data: st.DataObject) -> None:
    content = whole[kind]
    length = data.draw(st.integers(0, len(content) - 1))
    assert require_read_or_refused(kind, folder, content[:length]) is None


@reader
@given(data=st.data())
def test_altered_bytes_are_noticed(kind: str, folder: Path, whole: dict[str, bytes], data: st.DataObject) -> None:
    content = bytearray(whole[kind])
    # Most of a file is its header, whose length is in the first eight bytes. The arrays are at the end.
    last = len(content) - 1
    places = st.integers(0, 8) | st.integers(0, last) | st.integers(last - 24, last)
    for place, value in data.draw(st.dictionaries(places, st.integers(0, 255), min_size=1, max_size=8)).items():
        content[place] = value
    cut = sorted(data.draw(st.lists(places, min_size=2, max_size=2)))
    content[cut[0] : cut[1]] = data.draw(st.binary(max_size=40) | st.just(bytes(content[cut[0] : cut[1]])))
    assert require_read_or_refused(kind, folder, bytes(content)) in (None, as_bytes(ARRAYS[kind]))


def with_header(content: bytes, change: Callable[[dict[str, Any]], None]) -> bytes:
    """Return a safetensors file with another header."""
    end = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:end])
    change(header)
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + content[end:]


@reader
@given(data=st.data())
def test_a_header_of_a_stranger_is_read_or_refused(
    kind: str, folder: Path, whole: dict[str, bytes], data: st.DataObject
) -> None:
    def change(header: dict[str, Any]) -> None:
        part = header[data.draw(st.sampled_from(sorted(header)))]
        field = data.draw(st.sampled_from(sorted(part)))
        if isinstance(part[field], list):
            part[field] = data.draw(st.lists(NUMBERS, max_size=70) | VALUES)
        else:
            part[field] = data.draw(st.sampled_from(TYPES) | VALUES)
        if data.draw(st.booleans()):
            header[data.draw(TEXTS)] = header.pop("0/bias")

    require_read_or_refused(kind, folder, with_header(whole[kind], change))


@pytest.mark.parametrize("shape", [[0, 2**62], [2**62, 0], [2**32, 2**32], [0] * 70, [1] * 70, [2**64 - 1]])
@reader
def test_an_impossible_shape_allocates_nothing(
    kind: str, folder: Path, whole: dict[str, bytes], shape: list[int]
) -> None:
    def change(header: dict[str, Any]) -> None:
        header["0/bias"]["shape"] = shape

    def change_empty(header: dict[str, Any]) -> None:
        begin = header["0/bias"]["data_offsets"][0]
        header["empty/bias"] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, begin]}

    for each in (change, change_empty):
        assert require_read_or_refused(kind, folder, with_header(whole[kind], each)) is None


def signed(text: str) -> bytes:
    """Return a checkpoint with this history and the digest that belongs to it."""
    metadata = {**BOUND, "format": checkpoints.FORMAT, "history": text, "digest": checkpoints._digest(STATE, text)}
    return save(STATE, metadata)


@given(text=TEXTS | VALUES.map(json.dumps) | st.text().map(lambda text: checkpoints.to_json(HISTORY)[:-1] + text))
def test_a_history_of_a_stranger_is_read_or_refused(folder: Path, text: str) -> None:
    try:
        content = signed(text)
    except UnicodeEncodeError:  # a lone surrogate cannot be in a file
        return
    require_read_or_refused("checkpoint", folder, content)
