"""Runs that ONNX Runtime replays as CUDA graphs: one launch instead of one per kernel.

In a session with the provider option `enable_cuda_graph`, the first run with a `gpu_graph_id` is executed in the usual
way twice, to allocate its memory and plan its convolutions. Then it is recorded and launched, all within the same call
(`InferenceSession::Run` calls itself). Later runs with this id only launch the recorded graph. They read neither the
binding nor anything else from the host, so inputs and outputs must stay at their addresses. And because the first call
executes a run several times, no input may be an output as well.
"""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from scenarios.adapter import Arrays, Images, Labels
from scenarios.frameworks.onnxruntime.network import IMAGES
from scenarios.frameworks.onnxruntime.session import Runtime
from scenarios.frameworks.onnxruntime.step_graph import (
    BATCH,
    INVERSE_BATCH,
    LABELS,
    LENGTH,
    OFFSETS,
    ORDER,
    POSITION,
    StepGraph,
)
from scenarios.frameworks.onnxruntime.trainer import Numbers, Trainer

Tensors = dict[str, ort.OrtValue]


@dataclass(frozen=True)
class CapturedStep:
    """The steps over batches of one size from the same images. inputs: on the device, by name.

    bindings, graphs: by the number of the set of the state that is read.
    """

    session: ort.InferenceSession
    inputs: Tensors
    bindings: tuple[ort.IOBinding, ort.IOBinding]
    graphs: tuple[ort.RunOptions, ort.RunOptions]


@dataclass(frozen=True)
class HeldSet:
    """A training set on the device. steps: by batch size."""

    train: Arrays
    tensors: Tensors
    steps: dict[int, CapturedStep]


class CapturedTrainer(Trainer):
    """A trainer whose steps are CUDA graphs: one for each set of the state that may be read.

    Its `StepGraph` must gather the batch. A training set in memory stays on the device, and a step of an epoch then
    takes at most one scalar from the host. Any other batch is copied to the device, as a set of only this batch.

    The network must not have Dropout. ONNX Runtime keeps the seed and the offset of its random numbers on the host
    (`PhiloxGenerator` in core/framework/random_generator.h) and passes them to the kernel by value
    (core/providers/cuda/nn/dropout_impl.cu). So each replay would draw the recorded mask.
    """

    def __init__(self, runtime: Runtime, step: StepGraph, batch: int) -> None:
        super().__init__(runtime, step, batch)
        self._batch, self._ids = batch, itertools.count(1)
        self._copied: dict[int, CapturedStep] = {}  # by batch size
        self._held: HeldSet | None = None

    def place(self, images: Images, labels: Labels) -> Callable[[], None]:
        replay = partial(self._replay, self._capture(self._to_device(images, labels), len(labels)))
        self._record(replay)
        return replay

    def run(self, images: Images, labels: Labels) -> None:
        if len(labels) not in self._copied:
            self._copied[len(labels)] = self._capture(self._to_device(images, labels), len(labels))
        step = self._copied[len(labels)]
        step.inputs[IMAGES].update_inplace(images)
        step.inputs[LABELS].update_inplace(labels)
        self._replay(step)

    def prepare(self, images: Images, labels: Labels) -> None:
        """Record the steps over copied batches of this size, without changing the state."""
        if len(labels) not in self._copied:
            self._record(partial(self.run, images, labels))

    def hold(self, train: Arrays) -> None:
        """Copy a training set to the device for `epoch` and record the steps over it, without changing the state.

        Do nothing if it is there.
        """
        if self._held and self._held.train is train:
            return
        self._held = None  # its memory is free before the new set needs some
        tensors = self._to_device(train.images, train.labels)
        sizes = {min(self._batch, len(train)), len(train) % self._batch} - {0}
        self._held = HeldSet(train, tensors, {size: self._capture(tensors, size) for size in sizes})
        for step in self._held.steps.values():
            self._record(partial(self._replay, step))

    def epoch(self, order: npt.NDArray[np.int64]) -> Iterator[tuple[int, Callable[[], None]]]:
        """Yield the number of images and the run of each step over the set that `hold` copied, in this order."""
        assert self._held, "no training set on the device"
        self._held.tensors[ORDER].update_inplace(order)
        self._write(POSITION)
        for start in range(0, len(order), self._batch):
            size = min(self._batch, len(order) - start)
            yield size, partial(self._replay, self._held.steps[size])

    def _to_device(self, images: Images, labels: Labels) -> Tensors:
        """Return the inputs that describe a set, in the order of the arrays."""
        length = np.array(len(labels))
        return self._copy({IMAGES: images, LABELS: labels, ORDER: np.arange(len(labels)), LENGTH: length})

    def _copy(self, values: dict[str, Numbers]) -> Tensors:
        """Return copies on the device. On the CPU, they do not share the arrays' memory either."""
        tensors = {name: self._runtime.empty(value.shape, value.dtype) for name, value in values.items()}
        for name, tensor in tensors.items():
            tensor.update_inplace(values[name])
        return tensors

    def _capture(self, held: Tensors, size: int) -> CapturedStep:
        """Return the steps over batches of this size. The first step from each set of the state is recorded."""
        scalars = self._step.update.scalars(step=1) | {INVERSE_BATCH: 1 / size}
        host: dict[str, Numbers] = {name: np.array(value, np.float32) for name, value in scalars.items()}
        inputs = held | self._copy(host | {OFFSETS: np.arange(size), BATCH: np.array(size)})
        session, (first, second) = self._program(size).session, self._sets
        bindings = self._bind(session, first, second), self._bind(session, second, first)
        for binding, (name, tensor) in itertools.product(bindings, inputs.items()):
            binding.bind_ortvalue_input(name, tensor)
        return CapturedStep(session, inputs, bindings, (graph_id(next(self._ids)), graph_id(next(self._ids))))

    def _record(self, run: Callable[[], None]) -> None:
        """Run steps from both sets of the state, and restore it."""
        state = {name: self.read(name).copy() for name in self._step.state}
        for _ in range(2):  # the second run overwrites the current set
            run()
        self.steps -= 2
        for name, value in state.items():
            self._write(name, value)

    def _replay(self, step: CapturedStep) -> None:
        self.steps += 1
        for name, value in self._step.update.scalars(self.steps).items():
            step.inputs[name].update_inplace(np.array(value, np.float32))
        self._last_run = step.bindings[self._current]
        step.session.run_with_iobinding(self._last_run, step.graphs[self._current])
        self._current = 1 - self._current

    def _open(self) -> ort.InferenceSession:
        return self._runtime.open(self._step.model, captured=True)


def captured_predictor(
    runtime: Runtime, graph: bytes, inputs: tuple[int, ...], outputs: tuple[int, ...]
) -> Callable[[Images], npt.NDArray[np.float32]]:
    """Return a function that replays a prediction graph. inputs, outputs: shapes of the images and of the result."""
    session = runtime.open(graph, plan_memory=True, captured=True)
    images, result = (runtime.empty(shape, np.dtype(np.float32)) for shape in (inputs, outputs))
    binding, options = session.io_binding(), graph_id(1)
    binding.bind_ortvalue_input(IMAGES, images)
    binding.bind_ortvalue_output(session.get_outputs()[0].name, result)

    def predict(batch: Images) -> npt.NDArray[np.float32]:
        images.update_inplace(batch)
        session.run_with_iobinding(binding, options)
        return np.array(result.numpy())

    return predict


def graph_id(number: int) -> ort.RunOptions:
    """Return the options of runs that belong to this graph of their session."""
    options = ort.RunOptions()
    options.add_run_config_entry("gpu_graph_id", str(number))
    return options
