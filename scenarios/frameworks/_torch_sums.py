"""Loss and hits of an epoch, summed up beside training."""

from __future__ import annotations

import torch

from scenarios.frameworks.base import Sums
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
        self._batch = scenario.batch
        self._loss = torch.zeros((), dtype=torch.float64, device=device)
        self._correct = torch.zeros((), dtype=torch.int64, device=device)
        self._losses = torch.zeros(SUMMED_STEPS, device=device)
        self._logits = torch.zeros(SUMMED_STEPS, self._batch, scenario.output.units, device=device)
        self._labels = torch.zeros(SUMMED_STEPS, self._batch, dtype=torch.int64, device=device)
        self._places = [*zip(self._losses, self._logits, self._labels, strict=True)]
        self._sizes: list[int] = []  # of the batches that are not yet added up
        self._images = 0

    def begin(self) -> None:
        """Forget what there was."""
        self._loss.zero_()
        self._correct.zero_()
        self._sizes.clear()
        self._images = 0

    def add(self, loss: torch.Tensor, logits: torch.Tensor, labels: torch.Tensor) -> None:
        """Count a step's batch. loss: its mean, (); logits: (b, units); labels: (b,)."""
        place = self._places[len(self._sizes)]
        if (size := len(labels)) != self._batch:
            place = place[0], place[1][:size], place[2][:size]
        torch._foreach_copy_(place, (loss.detach(), logits.detach(), labels))
        self._sizes.append(size)
        if len(self._sizes) == SUMMED_STEPS:
            self.flush()

    def flush(self) -> None:
        """Add up what is pending."""
        if not self._sizes:
            return
        steps, device = len(self._sizes), self._loss.device
        sizes = torch.tensor(self._sizes).to(device)
        predicted = self._logits[..., 0] > 0 if self._binary else self._logits.argmax(2)
        filled = torch.arange(self._batch, device=device) < sizes[:, None]
        self._correct.add_(((predicted == self._labels)[:steps] & filled).sum())
        self._loss.add_(self._losses[:steps].double().dot(sizes.double()))
        self._images += sum(self._sizes)
        self._sizes.clear()

    def total(self) -> Sums:
        """All of it; waits for the device."""
        self.flush()
        return Sums(self._images, self._loss.item(), int(self._correct.item()))
