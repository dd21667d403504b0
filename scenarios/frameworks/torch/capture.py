"""The tuned lane's captured steps: a training step recorded as a CUDA graph, one launch instead of about a hundred."""

import warnings
from collections.abc import Callable, Iterator

import torch
from torch import nn

from scenarios.frameworks.torch.feeds import ResidentFeed
from scenarios.frameworks.torch.sums import RunningSums

Outputs = tuple[torch.Tensor, torch.Tensor]  # loss, logits
Step = Callable[[torch.Tensor, torch.Tensor], Outputs]  # from images and labels

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


def record_step(
    work: Callable[[], Outputs], net: nn.Module, optimizer: torch.optim.Optimizer
) -> tuple[Callable[[], None], Outputs]:
    """Record `work`, a training step, as `record_graph` does.

    Recording changes neither weights nor the optimizer's state: copies on the device restore both. But it advances
    dropout's random numbers.
    """
    before = {tensor: tensor.detach().clone() for tensor in (*net.parameters(), *state_tensors(optimizer))}
    recorded = record_graph(work)
    reset_state(optimizer)  # clears state that recording created
    with torch.no_grad():
        for tensor, values in before.items():
            tensor.copy_(values)
    return recorded


class CapturedStep:
    """A training step over batches of one size, which are copied into the graph's memory.

    step: trains on the batch in the tensors that it gets. It must create new gradient tensors in each call.
    """

    def __init__(
        self, step: Step, net: nn.Module, optimizer: torch.optim.Optimizer, example: tuple[torch.Tensor, torch.Tensor]
    ) -> None:
        self._images, self._labels = (tensor.clone() for tensor in example)
        self._replay, self._outputs = record_step(lambda: step(self._images, self._labels), net, optimizer)

    def __call__(self, images: torch.Tensor, labels: torch.Tensor) -> Outputs:
        """Train on this batch. The next call overwrites the returned tensors."""
        self._images.copy_(images)
        self._labels.copy_(labels)
        self._replay()
        return self._outputs


class CapturedEpoch:
    """Training steps over the full batches of a resident set. A step is one launch, and nothing else, for the host.

    The graph counts the steps, gathers the next batch of the order, trains on it, and keeps its loss and logits.

    step: as in `CapturedStep`. steps: maximum number from one `begin` to the next. placement: of a step, as in
    `kernels.placement`: the device of its logits, and whether its images were contiguous.
    """

    def __init__(
        self,
        step: Step,
        net: nn.Module,
        optimizer: torch.optim.Optimizer,
        feed: ResidentFeed,
        batch: int,
        steps: int,
        units: int,
    ) -> None:
        self.feed, self.batch = feed, batch
        device, rows = feed.labels.device, max(steps, WARM_UPS)
        self._order = torch.zeros(rows, batch, dtype=torch.int64, device=device)
        self._next = torch.zeros(1, dtype=torch.int64, device=device)  # the row of the next step
        self._losses = torch.zeros(rows, device=device)
        self._logits = torch.zeros(rows, batch, units, device=device)
        self._launched = 0

        def work() -> Outputs:
            images, labels = feed.gather(self._order.index_select(0, self._next).squeeze(0))
            loss, logits = step(images, labels)
            self._losses.index_copy_(0, self._next, loss.unsqueeze(0))
            self._logits.index_copy_(0, self._next, logits.unsqueeze(0))
            self._next.add_(1)
            self.placement = logits.device, images.is_contiguous()
            return loss, logits

        self._replay, _ = record_step(work, net, optimizer)

    def begin(self, order: torch.Tensor) -> None:
        """Start at the first batch. order: indices of the images, of which those of the full batches are used."""
        steps = len(order) // self.batch
        self._order[:steps].copy_(order[: steps * self.batch].view(steps, self.batch))
        self._next.zero_()
        self._launched = 0

    def launch(self) -> None:
        """Train on the next batch."""
        self._replay()
        self._launched += 1

    def add_to(self, sums: RunningSums) -> None:
        """Add the steps since `begin`."""
        steps = self._launched
        sums.add_steps(self._losses[:steps], self._logits[:steps], self.feed.labels[self._order[:steps]])


def reset_state(optimizer: torch.optim.Optimizer) -> None:
    """Set moments and step counts to 0 in place, because captured graphs write to this memory."""
    for tensor in state_tensors(optimizer):
        tensor.zero_()


def state_tensors(optimizer: torch.optim.Optimizer) -> Iterator[torch.Tensor]:
    """Yield the tensors of the optimizer's state."""
    for state in optimizer.state.values():
        yield from (value for value in state.values() if isinstance(value, torch.Tensor))
