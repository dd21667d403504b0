"""The stock lane: a scenario as an `nn.Sequential`, a `DataLoader` and the eager training loop of PyTorch's tutorials.

The tuned lane (`tuned.py`) overrides single methods of `TorchModel`.
"""

import contextlib
import copy
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F  # noqa: N812 - PyTorch's own name for it
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from scenarios.adapter import Images, Labels, Logits, Meter, Options, Photos, State, Sums, TrainSet
from scenarios.contract.evidence import Placement
from scenarios.frameworks.rounding import step_rounds_to_tf32
from scenarios.frameworks.torch import kernels, optimizer_state, parameters, photos, sums
from scenarios.spec import Adadelta, Adam, Conv, Dense, Dropout, Flatten, MaxPool, Optimizer, Scenario, Sgd, shapes
from scenarios.weights import Weights

Network = Callable[[torch.Tensor], torch.Tensor]


def build_layers(scenario: Scenario) -> Iterator[nn.Module]:
    """Yield the network's modules up to the logits. Loss and predictor apply the last activation."""
    for _, layer, input_shape, _ in shapes(scenario):
        match layer:
            case Conv(filters=filters, kernel=kernel, padding=padding):
                yield nn.Conv2d(input_shape[2], filters, kernel, padding=padding)
            case MaxPool(size=size):
                yield nn.MaxPool2d(size)
            case Dropout(rate=rate):
                yield nn.Dropout(rate)
            case Flatten():
                yield nn.Flatten()
            case Dense(units=units):
                yield nn.Linear(input_shape[0], units)
        if isinstance(layer, Conv | Dense) and layer.activation == "relu":
            yield nn.ReLU()


def build_optimizer(optimizer: Optimizer, net: nn.Module, **implementation: bool) -> torch.optim.Optimizer:
    """Return PyTorch's optimizer with every hyperparameter that changes the update spelled out.

    implementation: further arguments of the optimizer's class, for example foreach.
    """
    match optimizer:
        case Sgd(learning_rate=lr):
            return torch.optim.SGD(
                net.parameters(), lr=lr, momentum=0, dampening=0, weight_decay=0, nesterov=False, **implementation
            )
        case Adam(learning_rate=lr, beta_1=beta_1, beta_2=beta_2, epsilon=eps):
            return torch.optim.Adam(
                net.parameters(),
                lr=lr,
                betas=(beta_1, beta_2),
                eps=eps,
                weight_decay=0,
                amsgrad=False,
                **implementation,
            )
        case Adadelta(learning_rate=lr, rho=rho, epsilon=eps):
            return torch.optim.Adadelta(net.parameters(), lr=lr, rho=rho, eps=eps, weight_decay=0, **implementation)


def loss_function(scenario: Scenario) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """Return the function from (logits, labels) to the mean loss that `Scenario` defines."""
    if scenario.loss == "binary":
        return lambda logits, labels: F.binary_cross_entropy_with_logits(logits.squeeze(1), labels.to(logits.dtype))
    return sigmoid_categorical if scenario.output.activation == "sigmoid" else F.cross_entropy


def sigmoid_categorical(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return Keras' categorical loss of sigmoid outputs: clip, normalize to sum 1, -log of the label's share."""
    outputs = logits.sigmoid().clamp(1e-7, 1 - 1e-7)
    return F.nll_loss(outputs.log() - outputs.sum(1, keepdim=True).log(), labels)


@dataclass(frozen=True)
class Feed:
    """Batches of one training set, built once. description: text for the report.

    batches: returns one epoch in the order of a seed: images (b, C, H, W), labels (b,), the short last batch included.
    workers: see `Placement`.
    """

    description: str
    batches: Callable[[int], Iterator[tuple[torch.Tensor, torch.Tensor]]]
    workers: int | None = field(default=None, kw_only=True)


def loader_feed(train: TrainSet, batch: int, workers: int) -> Feed:
    """Feed the set through a `DataLoader`. Epochs differ only in the seed of its generator.

    workers: number of processes that load photos. Images in memory need none.
    """
    generator = torch.Generator()
    if isinstance(train, Photos):
        loader = photos.photo_loader(train, batch, workers, generator)
    else:
        dataset = TensorDataset(to_nchw(train.images), to_labels(train.labels))
        loader = DataLoader(dataset, batch, shuffle=True, generator=generator)

    def batches(seed: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        generator.manual_seed(seed)  # the order, and the seeds of the worker processes
        return iter(loader)

    description = f"DataLoader over a {type(loader.dataset).__name__}, {loader.num_workers or 'no'} worker processes"
    return Feed(description, batches, workers=loader.num_workers if isinstance(train, Photos) else None)


class TorchModel:
    """The stock lane's `scenarios.adapter.Model`."""

    def __init__(self, options: Options, scenario: Scenario, weights: Weights) -> None:
        self._options = options
        self._scenario = scenario
        self._device = torch.device(options.device)
        # False skips even a call of `Tensor.to` that would move nothing. See `RunningSums` for the cost of small calls.
        self._moves_batches = self._device.type != "cpu"
        self._net = self._build_net()
        self._parameters = parameters.map_parameters(scenario, self._net)
        self._loss = loss_function(scenario)
        self._sums = sums.RunningSums(scenario, self._device)
        self._feed: tuple[TrainSet, Feed] | None = None
        self._prepared: set[int] = set()  # batch sizes
        # `torch.manual_seed` would look for every backend. On a GPU, `_build_net` has created its generator.
        self._dropout_generator = (
            torch.cuda.default_generators[0] if self._device.type == "cuda" else torch.default_generator
        )
        self.load(weights)

    def weights(self) -> Weights:
        return {name: array for layer in self._parameters for name, array in layer.read().items()}

    def load(self, weights: Weights) -> None:
        for layer in self._parameters:
            layer.write(weights)
        # Of the first step since then: the device of its logits, and whether its images were contiguous. A reference
        # to a tensor would keep memory from being reused.
        self._first_step: tuple[torch.device, bool] | None = None
        self._reset_optimizer()

    def state(self) -> State:
        return self.weights() | optimizer_state.read_state(self._optimizer)

    def restore(self, state: Mapping[str, npt.NDArray[Any]]) -> None:
        self.load(dict(state))
        optimizer_state.write_state(self._optimizer, state)

    def step(self, images: Images, labels: Labels) -> float:
        self._net.train()
        return float(self._step(to_nchw(images), to_labels(labels))[0])

    def train_epoch(self, train: TrainSet, epoch: int, meter: Meter) -> Sums:
        """Train one epoch in the feed's shuffled order.

        Losses and correct predictions are summed on the device. The loop waits for the device only at the end of a
        window of `meter`.
        """
        feed = self._feed_for(train)
        self._net.train()
        self._prepare(feed, len(train))
        meter.begin()
        seed = int(np.random.SeedSequence([self._options.seed, epoch]).generate_state(1, np.uint64)[0])
        self._dropout_generator.manual_seed(seed)
        self._sums.begin()
        with contextlib.closing(self._train_batches(feed, seed)) as sizes:
            for size in sizes:
                if meter.step(size):
                    kernels.synchronize(self._device)
                    if not meter.mark():
                        break
        return self._sums.total()

    def resident_steps(self, images: Images, labels: Labels) -> Callable[[int], None]:
        batch, targets = self._to_device(to_nchw(images)), to_labels(labels).to(self._device)

        def run(steps: int) -> None:
            self._sums.begin()
            self._net.train()
            for _ in range(steps):
                self._sums.add(*self._step(batch, targets))
            self._sums.flush()
            kernels.synchronize(self._device)

        return run

    def logits(self, images: Images) -> Logits:
        self._net.eval()
        with torch.inference_mode():
            logits: Logits = self._forward(self._net, self._to_device(to_nchw(images))).cpu().numpy()
        return logits

    def predictor(self, batch: int) -> Callable[[Images], Logits]:
        net = self._inference_net(batch)
        activation = self._scenario.output.activation

        def predict(images: Images) -> Logits:
            with torch.inference_mode():
                outputs = self._forward(net, self._to_device(to_nchw(images)))
                if activation == "softmax":
                    outputs = outputs.softmax(1)
                elif activation == "sigmoid":
                    outputs = outputs.sigmoid()
                predictions: Logits = outputs.cpu().numpy()
                return predictions

        return predict

    def placement(self) -> Placement:
        """Return where and how the steps since `load` ran. Raise RuntimeError before the first step."""
        if self._first_step is None:
            raise RuntimeError("The placement is unknown before the first training step.")
        training = f"eager loop, torch.optim.{type(self._optimizer).__name__}"
        tf32 = self._rounds_to_tf32() if self._device.type == "cuda" else None
        feed = self._feed and self._feed[1]
        loader, workers = (feed.description, feed.workers) if feed else ("none, single batches", None)
        placed = kernels.placement(self._net, *self._first_step, training, loader, tf32)
        modes = dict.fromkeys(self._options.settings.get(name, "eager") for name in ("latency", "throughput"))
        return replace(placed, workers=workers, serving=f"{' or '.join(modes)} model in inference mode")

    def device_peak_bytes(self) -> int | None:
        return int(torch.cuda.max_memory_allocated()) if self._device.type == "cuda" else None

    def _prepare(self, feed: Feed, images: int) -> None:
        """Prepare both batch sizes of an epoch over this many images, before a clock runs. No weight changes.

        cuDNN chooses its kernels for each batch size when it first computes with it. Otherwise the short last batch
        would make it choose in a measured window.
        """
        if not self._needs_preparation():
            return
        full, last = min(images, self._scenario.batch), images % self._scenario.batch
        for size in {full, last} - {0} - self._prepared:
            height, width, channels = self._scenario.image
            self._prepare_batch(
                self._to_device(torch.zeros(size, channels, height, width)),
                torch.zeros(size, dtype=torch.int64, device=self._device),
            )
            self._prepared.add(size)

    def _train_batches(self, feed: Feed, seed: int) -> Generator[int]:
        """Train on one batch of an epoch after the other, and add it to the sums. Yield the size of each."""
        for images, labels in feed.batches(seed):
            self._sums.add(*self._step(images, labels))
            yield len(labels)

    def _step(self, images: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Train on one batch. Return the mean loss, the logits and the labels, all on the device."""
        if self._moves_batches:
            images, labels = self._to_device(images), labels.to(self._device)
        loss, logits = self._train_step(images, labels)
        if self._first_step is None:
            self._first_step = logits.device, images.is_contiguous()
        return loss, logits, labels

    def _train_step(self, images: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self._optimizer.zero_grad()
        logits = self._forward(self._net, images)
        loss = self._loss(logits, labels)
        loss.backward()
        self._optimizer.step()
        return loss.detach(), logits.detach()

    def _forward(self, net: Network, images: torch.Tensor) -> torch.Tensor:
        """Return float32 logits, computed in the options' precision."""
        if self._options.precision != "bf16":
            return net(images)
        with torch.autocast(self._device.type, torch.bfloat16):
            return net(images).float()

    def _rounds_to_tf32(self) -> bool:
        """Return whether large products, or float32 steps that run as this model's steps do, round to TF32.

        The libraries may have no TF32 kernel for the shapes of a small network.
        """
        options = replace(self._options, precision="fp32")
        build = partial(type(self), options)
        return kernels.rounds_to_tf32(self._device) or step_rounds_to_tf32(build, self._scenario)

    def _feed_for(self, train: TrainSet) -> Feed:
        if self._feed is None or self._feed[0] is not train:
            self._feed = train, self._build_feed(train)
        return self._feed[1]

    # The tuned lane overrides these.

    def _build_net(self) -> nn.Sequential:
        return nn.Sequential(*build_layers(self._scenario)).to(self._device)

    def _reset_optimizer(self) -> None:
        self._optimizer: torch.optim.Optimizer = build_optimizer(self._scenario.optimizer, self._net)

    def _needs_preparation(self) -> bool:
        return self._options.device != "cpu"

    def _prepare_batch(self, images: torch.Tensor, labels: torch.Tensor) -> None:
        """Run forward and backward pass on this batch, which is on the device."""
        self._loss(self._forward(self._net, images), labels).backward()

    def _build_feed(self, train: TrainSet) -> Feed:
        return loader_feed(train, self._scenario.batch, photos.worker_processes(self._options))

    def _to_device(self, images: torch.Tensor) -> torch.Tensor:
        return images.to(self._device)

    def _inference_net(self, batch: int) -> Network:
        net: Network = copy.deepcopy(self._net).eval()
        return net


def to_nchw(images: Images) -> torch.Tensor:
    """Copy (N, H, W, C) float32 to a contiguous (N, C, H, W) tensor on the CPU."""
    return torch.from_numpy(np.array(images.transpose(0, 3, 1, 2), np.float32, order="C"))


def to_labels(labels: Labels) -> torch.Tensor:
    """Copy (N,) labels to an int64 tensor on the CPU."""
    return torch.from_numpy(np.array(labels, np.int64))
