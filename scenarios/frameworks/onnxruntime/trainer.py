"""Runs a training step again and again without moving parameters or optimizer state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from scenarios.adapter import Images, Labels
from scenarios.frameworks.onnxruntime.session import Runtime
from scenarios.frameworks.onnxruntime.step_graph import IMAGES, INVERSE_BATCH, LABELS, Step

Numbers = npt.NDArray[Any]  # float32 parameters and slots, float64 and int64 sums


class Trainer:
    """A session of a `Step` and two sets of its state on the device: a run reads the present one and writes the other,
    which then is the present one. Only the batch and a few scalars are handed in at each run.

    Both sets are uninitialised: `write` every tensor of the state before the first run.
    """

    def __init__(self, runtime: Runtime, step: Step) -> None:
        self.session = runtime.open(step.model)
        self._device = runtime.device
        self._state = step.state
        self._sets = [
            {name: runtime.value(state.shape, np.dtype(state.dtype)) for name, state in step.state.items()}
            for _ in range(2)
        ]
        self._bindings = [self._bind(*self._sets), self._bind(*reversed(self._sets))]
        self._present = 0

    def write(self, name: str, value: Numbers) -> None:
        """Replace one tensor of the state."""
        self._sets[self._present][name].update_inplace(value)

    def clear(self, name: str) -> None:
        """Replace one tensor of the state by zeros."""
        state = self._state[name]
        self.write(name, np.zeros(state.shape, state.dtype))

    def read(self, name: str) -> Numbers:
        """One tensor of the state as a host array."""
        value: Numbers = self._sets[self._present][name].numpy()
        return value

    def values(self, names: Sequence[str]) -> dict[str, ort.OrtValue]:
        """Tensors of the present state, on the device; the next run but one overwrites them."""
        return {name: self._sets[self._present][name] for name in names}

    def place(self, images: Images, labels: Labels) -> dict[str, ort.OrtValue]:
        """A batch on the device, for `run_placed`; on the CPU these arrays themselves."""
        named = {IMAGES: images, LABELS: labels}
        return {name: ort.OrtValue.ortvalue_from_numpy(array, self._device) for name, array in named.items()}

    def run(self, images: Images, labels: Labels, scalars: dict[str, float]) -> None:
        """One step over this batch; scalars: the optimizer's."""
        binding = self._bindings[self._present]
        binding.bind_cpu_input(IMAGES, images)
        binding.bind_cpu_input(LABELS, labels)
        self._advance(len(labels), scalars)

    def run_placed(self, batch: dict[str, ort.OrtValue], scalars: dict[str, float]) -> None:
        """`run` over a batch of `place`: it is not moved."""
        for name, tensor in batch.items():
            self._bindings[self._present].bind_ortvalue_input(name, tensor)
        self._advance(batch[LABELS].shape()[0], scalars)

    def synchronise(self) -> None:
        """Wait until the device has finished the last run."""
        self._bindings[1 - self._present].synchronize_outputs()

    def _advance(self, images: int, scalars: dict[str, float]) -> None:
        binding = self._bindings[self._present]
        for name, value in (scalars | {INVERSE_BATCH: 1 / images}).items():
            binding.bind_cpu_input(name, np.array(value, np.float32))
        self.session.run_with_iobinding(binding)
        self._present = 1 - self._present

    def _bind(self, read: dict[str, ort.OrtValue], written: dict[str, ort.OrtValue]) -> ort.IOBinding:
        binding = self.session.io_binding()
        for name, state in self._state.items():
            binding.bind_ortvalue_input(name, read[name])
            binding.bind_ortvalue_output(state.output, written[name])
        return binding
