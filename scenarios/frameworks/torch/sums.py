"""Loss and hits of an epoch, summed up beside training."""

from __future__ import annotations

import torch

from scenarios.adapter import Sums
from scenarios.spec import Scenario

SUMMED_STEPS = 32


class RunningSums:
    """Loss in float64 and hits in int64 over the images seen, on the device: reading them would wait for it.

    A step's outcome is copied, by one call, into memory that is there already; SUMMED_STEPS are added up at once. On a
    CPU, the few small operations that add up took up to a per cent of a small net's step: several times what they take
    by themselves, since training has pushed their code out of the caches. And a tensor held from one step to the next
    would lie among the activations, in the way of those of the next.
    """

    def __init__(self, scenario: Scenario, device: torch.device) -> None:
        self._binary = scenario.loss == "binary"
        self._loss = torch.zeros((), dtype=torch.float64, device=device)
        self._correct = torch.zeros((), dtype=torch.int64, device=device)
        self._losses = torch.zeros(SUMMED_STEPS, device=device)
        self._logits = torch.zeros(SUMMED_STEPS, scenario.batch, scenario.output.units, device=device)
        self._labels = torch.zeros(SUMMED_STEPS, scenario.batch, dtype=torch.int64, device=device)
        # For the outcome of each of the steps, by size of the batch.
        self._places: dict[int, list[tuple[torch.Tensor, ...]]] = {}
        self._images = self._steps = self._size = 0  # steps that are not yet added up; images of each of those

    def begin(self) -> None:
        """Forget what there was."""
        self._loss.zero_()
        self._correct.zero_()
        self._images = self._steps = 0

    def add(self, loss: torch.Tensor, logits: torch.Tensor, labels: torch.Tensor) -> None:
        """Count a step's batch. loss: its mean, (); logits: (b, units); labels: (b,); all without a past."""
        if (size := len(labels)) != self._size:
            self.flush()
            self._size = size
            if size not in self._places:
                self._places[size] = [*zip(self._losses, self._logits[:, :size], self._labels[:, :size], strict=True)]
        torch._foreach_copy_(self._places[size][self._steps], (loss, logits, labels))
        self._steps += 1
        if self._steps == SUMMED_STEPS:
            self.flush()

    def flush(self) -> None:
        """Add up what is pending."""
        steps, size = self._steps, self._size
        if not steps:
            return
        logits, labels = self._logits[:steps, :size], self._labels[:steps, :size]
        predicted = logits[..., 0] > 0 if self._binary else logits.argmax(2)
        self._correct.add_((predicted == labels).sum())
        self._loss.add_(self._losses[:steps].sum(dtype=torch.float64), alpha=size)
        self._images += steps * size
        self._steps = 0

    def total(self) -> Sums:
        """All of it; waits for the device."""
        self.flush()
        return Sums(self._images, self._loss.item(), int(self._correct.item()))
