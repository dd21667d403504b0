"""A training step recorded once as a CUDA graph, and replayed: one launch in place of a hundred."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator

import torch
from torch import nn

Outputs = tuple[torch.Tensor, ...]
Replay = Callable[[], None]
Recorder = Callable[[Callable[[], Outputs]], tuple[Replay, Outputs]]

WARM_UPS = 3  # as PyTorch's documentation of CUDA graphs has it: libraries allocate and choose kernels meanwhile


def recorded(work: Callable[[], Outputs]) -> tuple[Replay, Outputs]:
    """Work as a CUDA graph, after it was done WARM_UPS times: what replays it, and the tensors that a replay fills."""
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside), warnings.catch_warnings():
        # It was made for graphs, and warns that these steps are in none.
        warnings.filterwarnings("ignore", message=".*capturable=True")
        for _ in range(WARM_UPS):
            work()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = work()
    return graph.replay, outputs


class CapturedStep:
    """A training step over batches of one size. Making it leaves weights and the optimizer's state as they were, by way
    of a copy of them on the device; dropout's random numbers go on.

    step: trains on the batch that lies in these very tensors; its gradients must be new ones in each call.
    """

    def __init__(
        self,
        step: Callable[[torch.Tensor, torch.Tensor], Outputs],
        net: nn.Module,
        optimizer: torch.optim.Optimizer,
        example: tuple[torch.Tensor, torch.Tensor],
        record: Recorder = recorded,
    ) -> None:
        self._images, self._labels = (tensor.clone() for tensor in example)
        before = {tensor: tensor.detach().clone() for tensor in (*net.parameters(), *state(optimizer))}
        self._replay, self._outputs = record(lambda: step(self._images, self._labels))
        forget(optimizer)  # what it made meanwhile
        with torch.no_grad():
            for tensor, values in before.items():
                tensor.copy_(values)

    def __call__(self, images: torch.Tensor, labels: torch.Tensor) -> Outputs:
        """Train on this batch. The next call writes its outcome to the same memory."""
        self._images.copy_(images)
        self._labels.copy_(labels)
        self._replay()
        return self._outputs


def forget(optimizer: torch.optim.Optimizer) -> None:
    """Let it begin anew in the memory that it has, and that graphs write to: moments and counts all begin at 0."""
    for tensor in state(optimizer):
        tensor.zero_()


def state(optimizer: torch.optim.Optimizer) -> Iterator[torch.Tensor]:
    """The tensors in which it keeps what it remembers."""
    for held in optimizer.state.values():
        yield from (value for value in held.values() if isinstance(value, torch.Tensor))
