"""Run a training step repeatedly without moving the parameters or the optimizer state."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from scenarios.adapter import Images, Labels
from scenarios.frameworks.onnxruntime.network import IMAGES
from scenarios.frameworks.onnxruntime.session import Runtime
from scenarios.frameworks.onnxruntime.step_graph import CORRECT, INVERSE_BATCH, LABELS, LOSS_SUM, StepGraph

Numbers = npt.NDArray[Any]  # float32 parameters and slots, float64 and int64 sums


@dataclass(frozen=True)
class Program:
    """A session of the step graph. bindings: by the number of the set that is read; the other set is written."""

    session: ort.InferenceSession
    bindings: tuple[ort.IOBinding, ort.IOBinding]


class Trainer:
    """Sessions of a `StepGraph` and two sets of its state on the device.

    A run reads the current set and writes the other, which then becomes the current one. Each run takes only the batch
    and a few scalars from the host. Both sets are uninitialized: call `reset` before the first run.

    On a GPU each batch size has its own session. A convolution keeps cuDNN's plan for one shape only, so one session
    for all sizes would plan all convolutions again at each change of the size. On the CPU one session serves all sizes.

    batch: the size of most batches. Its session is opened here. steps: updates of the parameters since the last reset,
    or as set. runs: runs of the graph, which include those that only prepare.
    """

    def __init__(self, runtime: Runtime, step: StepGraph, batch: int) -> None:
        self._runtime, self._step = runtime, step
        self._sets = [
            {name: runtime.empty(tensor.shape, np.dtype(tensor.dtype)) for name, tensor in step.state.items()}
            for _ in range(2)
        ]
        self._programs: dict[int, Program] = {}
        self._prepared: set[int] = set()
        self._current = self.steps = self.runs = 0
        self.session = self._program(batch).session
        self._last_run = self._binding(batch)

    def reset(self, parameters: Mapping[str, Numbers]) -> None:
        """Replace the parameters. Set the optimizer's state, its step count and the sums to 0."""
        for name in self._step.state:
            self._write(name, parameters.get(name))
        self.steps = 0

    def slots(self) -> dict[str, Numbers]:
        """Return copies of the optimizer's state, by name."""
        return {name: self.read(name).copy() for name in self._step.slots}

    def write_slots(self, state: Mapping[str, Numbers]) -> None:
        """Replace the optimizer's state. Raise ValueError if a tensor is missing or has another shape."""
        for name in self._step.slots:
            shape = self._step.state[name].shape
            if name not in state or state[name].shape != shape:
                raise ValueError(f"the state has no {name} of shape {shape}")
            self._write(name, state[name])

    def clear_sums(self) -> None:
        """Set the sums of losses and of correct predictions to 0."""
        self._write(LOSS_SUM)
        self._write(CORRECT)

    def read(self, name: str) -> Numbers:
        """Return one tensor of the state as a host array."""
        return np.asarray(self._sets[self._current][name].numpy())

    def tensors(self, names: Iterable[str]) -> dict[str, ort.OrtValue]:
        """Return tensors of the current state, on the device. The run after the next one overwrites them."""
        return {name: self._sets[self._current][name] for name in names}

    def place(self, images: Images, labels: Labels) -> Callable[[], None]:
        """Put a batch on the device, on the CPU without a copy. Return a function that runs one step over it."""
        arrays = {IMAGES: images, LABELS: labels}
        device = self._runtime.device
        tensors = {name: ort.OrtValue.ortvalue_from_numpy(array, device) for name, array in arrays.items()}

        def run() -> None:
            binding = self._binding(len(labels))
            for name, tensor in tensors.items():
                binding.bind_ortvalue_input(name, tensor)
            self._advance(len(labels))

        return run

    def prepare(self, images: Images, labels: Labels) -> None:
        """Run batches of this size once without changing the state, so that cuDNN plans its convolutions now.

        Do nothing on the CPU, or if the size is prepared already.
        """
        if self._runtime.device == "cpu" or len(labels) in self._prepared:
            return
        self._prepared.add(len(labels))
        self._bind_batch(images, labels)
        self._execute(len(labels), step=1)  # writes the set that is not current

    def run(self, images: Images, labels: Labels) -> None:
        """Run one step over this batch."""
        self._bind_batch(images, labels)
        self._advance(len(labels))

    def synchronize(self) -> None:
        """Wait until the device has finished the last run."""
        self._last_run.synchronize_outputs()

    def _advance(self, images: int) -> None:
        self.steps += 1
        self._execute(images, self.steps)
        self._current = 1 - self._current

    def _execute(self, images: int, step: int) -> None:
        """Run the graph from the current set to the other one."""
        self.runs += 1
        binding = self._last_run = self._binding(images)
        for name, value in (self._step.update.scalars(step) | {INVERSE_BATCH: 1 / images}).items():
            binding.bind_cpu_input(name, np.array(value, np.float32))
        self._program(images).session.run_with_iobinding(binding)

    def _bind_batch(self, images: Images, labels: Labels) -> None:
        binding = self._binding(len(labels))
        binding.bind_cpu_input(IMAGES, images)
        binding.bind_cpu_input(LABELS, labels)

    def _binding(self, images: int) -> ort.IOBinding:
        return self._program(images).bindings[self._current]

    def _program(self, images: int) -> Program:
        """Return the session for this batch size. Open it if it is missing."""
        key = 0 if self._runtime.device == "cpu" else images
        if key not in self._programs:
            session = self._open()
            first, second = self._sets
            self._programs[key] = Program(
                session, (self._bind(session, first, second), self._bind(session, second, first))
            )
        return self._programs[key]

    def _open(self) -> ort.InferenceSession:
        return self._runtime.open(self._step.model)

    def _bind(
        self, session: ort.InferenceSession, read: dict[str, ort.OrtValue], written: dict[str, ort.OrtValue]
    ) -> ort.IOBinding:
        binding = session.io_binding()
        for name, tensor in self._step.state.items():
            binding.bind_ortvalue_input(name, read[name])
            binding.bind_ortvalue_output(tensor.output, written[name])
        return binding

    def _write(self, name: str, value: Numbers | None = None) -> None:
        """Replace one tensor of the current state, by zeros if no value is given."""
        tensor = self._step.state[name]
        self._sets[self._current][name].update_inplace(np.zeros(tensor.shape, tensor.dtype) if value is None else value)
