"""The tuned lane's captured step: a training step recorded as a CUDA graph, one launch instead of about a hundred."""

import warnings
from collections.abc import Callable, Iterator

import torch
from torch import nn

Outputs = tuple[torch.Tensor, torch.Tensor]  # loss, logits

WARM_UPS = 3  # from PyTorch's documentation of CUDA graphs: libraries allocate memory and choose kernels in them


def record_graph(work: Callable[[], Outputs]) -> tuple[Callable[[], None], Outputs]:
    """Record `work` as a CUDA graph after WARM_UPS runs. Return its replay and the tensors that a replay fills."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream), warnings.catch_warnings():
        # A capturable optimizer warns about steps outside of a graph.
        warnings.filterwarnings("ignore", message=".*capturable=True")
        for _ in range(WARM_UPS):
            work()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = work()
    return graph.replay, outputs


class CapturedStep:
    """A training step over batches of one size.

    Recording changes neither weights nor the optimizer's state: copies on the device restore both. But it advances
    dropout's random numbers.

    step: trains on the batch in the tensors that it gets. It must create new gradient tensors in each call.
    """

    def __init__(
        self,
        step: Callable[[torch.Tensor, torch.Tensor], Outputs],
        net: nn.Module,
        optimizer: torch.optim.Optimizer,
        example: tuple[torch.Tensor, torch.Tensor],
    ) -> None:
        self._images, self._labels = (tensor.clone() for tensor in example)
        before = {tensor: tensor.detach().clone() for tensor in (*net.parameters(), *state_tensors(optimizer))}
        self._replay, self._outputs = record_graph(lambda: step(self._images, self._labels))
        reset_state(optimizer)  # clears state that recording created
        with torch.no_grad():
            for tensor, values in before.items():
                tensor.copy_(values)

    def __call__(self, images: torch.Tensor, labels: torch.Tensor) -> Outputs:
        """Train on this batch. The next call overwrites the returned tensors."""
        self._images.copy_(images)
        self._labels.copy_(labels)
        self._replay()
        return self._outputs


def reset_state(optimizer: torch.optim.Optimizer) -> None:
    """Set moments and step counts to 0 in place, because captured graphs write to this memory."""
    for tensor in state_tensors(optimizer):
        tensor.zero_()


def state_tensors(optimizer: torch.optim.Optimizer) -> Iterator[torch.Tensor]:
    """Yield the tensors of the optimizer's state."""
    for state in optimizer.state.values():
        yield from (value for value in state.values() if isinstance(value, torch.Tensor))
