"""Sums of loss and correct predictions over an epoch, kept on the device."""

import torch

from scenarios.adapter import Sums
from scenarios.spec import Scenario

SUMMED_STEPS = 32


class RunningSums:
    """Loss in float64 and correct predictions in int64, on the device, because reading them would wait for it.

    One call copies the outcome of a step to preallocated memory, and SUMMED_STEPS outcomes are summed at once. On a
    CPU, a few small operations at each step took up to 1% of a small net's step: several times their own duration,
    since training has evicted their code from the caches. A tensor that is held from one step to the next would also
    lie among the activations, in the way of the next step's.
    """

    def __init__(self, scenario: Scenario, device: torch.device) -> None:
        self._binary = scenario.loss == "binary"
        self._loss = torch.zeros((), dtype=torch.float64, device=device)
        self._correct = torch.zeros((), dtype=torch.int64, device=device)
        self._losses = torch.zeros(SUMMED_STEPS, device=device)
        self._logits = torch.zeros(SUMMED_STEPS, scenario.batch, scenario.output.units, device=device)
        self._labels = torch.zeros(SUMMED_STEPS, scenario.batch, dtype=torch.int64, device=device)
        # By batch size, the tensors for each pending step's loss, logits and labels.
        self._slots: dict[int, list[tuple[torch.Tensor, ...]]] = {}
        self._images = self._pending = self._batch = 0  # images summed; steps not summed yet, and their batch size

    def begin(self) -> None:
        """Reset all sums to 0."""
        self._loss.zero_()
        self._correct.zero_()
        self._images = self._pending = 0

    def add(self, loss: torch.Tensor, logits: torch.Tensor, labels: torch.Tensor) -> None:
        """Count one step. loss: the batch's mean, (); logits: (b, units); labels: (b,). All are detached."""
        if (batch := len(labels)) != self._batch:
            self.flush()
            self._batch = batch
            if batch not in self._slots:
                self._slots[batch] = [*zip(self._losses, self._logits[:, :batch], self._labels[:, :batch], strict=True)]
        torch._foreach_copy_(self._slots[batch][self._pending], (loss, logits, labels))
        self._pending += 1
        if self._pending == SUMMED_STEPS:
            self.flush()

    def flush(self) -> None:
        """Sum the pending steps."""
        steps, batch = self._pending, self._batch
        if not steps:
            return
        self.add_steps(self._losses[:steps], self._logits[:steps, :batch], self._labels[:steps, :batch])
        self._pending = 0

    def add_steps(self, losses: torch.Tensor, logits: torch.Tensor, labels: torch.Tensor) -> None:
        """Sum steps of one batch size at once. losses: (steps,); logits: (steps, b, units); labels: (steps, b)."""
        steps, batch = labels.shape
        predicted = logits[..., 0] > 0 if self._binary else logits.argmax(2)
        self._correct.add_((predicted == labels).sum())
        self._loss.add_(losses.sum(dtype=torch.float64), alpha=batch)
        self._images += steps * batch

    def total(self) -> Sums:
        """Return the sums. Waits for the device."""
        self.flush()
        return Sums(self._images, self._loss.item(), int(self._correct.item()))
