"""Run a training step repeatedly without moving the parameters or the optimizer state."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from scenarios.adapter import Images, Labels
from scenarios.frameworks.onnxruntime.network import IMAGES
from scenarios.frameworks.onnxruntime.session import Runtime
from scenarios.frameworks.onnxruntime.step_graph import CORRECT, INVERSE_BATCH, LABELS, LOSS_SUM, StepGraph

Numbers = npt.NDArray[Any]  # float32 parameters and slots, float64 and int64 sums


class Trainer:
    """A session of a `StepGraph` and two sets of its state on the device.

    A run reads the current set and writes the other, which then becomes the current one. Each run takes only the batch
    and a few scalars from the host. Both sets are uninitialized: call `reset` before the first run.
    """

    def __init__(self, runtime: Runtime, step: StepGraph) -> None:
        self.session = runtime.open(step.model)
        self._device, self._step = runtime.device, step
        self._sets = [
            {name: runtime.empty(tensor.shape, np.dtype(tensor.dtype)) for name, tensor in step.state.items()}
            for _ in range(2)
        ]
        self._bindings = [self._bind(*self._sets), self._bind(*reversed(self._sets))]
        self._current = self._steps = 0

    def reset(self, parameters: Mapping[str, Numbers]) -> None:
        """Replace the parameters. Set the optimizer's state, its step count and the sums to 0."""
        for name in self._step.state:
            self._write(name, parameters.get(name))
        self._steps = 0

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

    def place(self, images: Images, labels: Labels) -> dict[str, ort.OrtValue]:
        """Put a batch on the device for `run_placed`. On the CPU the arrays are used in place."""
        batch = {IMAGES: images, LABELS: labels}
        return {name: ort.OrtValue.ortvalue_from_numpy(array, self._device) for name, array in batch.items()}

    def run(self, images: Images, labels: Labels) -> None:
        """Run one step over this batch."""
        binding = self._bindings[self._current]
        binding.bind_cpu_input(IMAGES, images)
        binding.bind_cpu_input(LABELS, labels)
        self._advance(len(labels))

    def run_placed(self, batch: dict[str, ort.OrtValue]) -> None:
        """Run one step over a batch that `place` put on the device."""
        for name, tensor in batch.items():
            self._bindings[self._current].bind_ortvalue_input(name, tensor)
        self._advance(batch[LABELS].shape()[0])

    def synchronize(self) -> None:
        """Wait until the device has finished the last run."""
        self._bindings[1 - self._current].synchronize_outputs()

    def _advance(self, images: int) -> None:
        self._steps += 1
        binding = self._bindings[self._current]
        for name, value in (self._step.update.scalars(self._steps) | {INVERSE_BATCH: 1 / images}).items():
            binding.bind_cpu_input(name, np.array(value, np.float32))
        self.session.run_with_iobinding(binding)
        self._current = 1 - self._current

    def _write(self, name: str, value: Numbers | None = None) -> None:
        """Replace one tensor of the current state, by zeros if no value is given."""
        tensor = self._step.state[name]
        self._sets[self._current][name].update_inplace(np.zeros(tensor.shape, tensor.dtype) if value is None else value)

    def _bind(self, read: dict[str, ort.OrtValue], written: dict[str, ort.OrtValue]) -> ort.IOBinding:
        binding = self.session.io_binding()
        for name, tensor in self._step.state.items():
            binding.bind_ortvalue_input(name, read[name])
            binding.bind_ortvalue_output(tensor.output, written[name])
        return binding
