"""The tuned lane: the stock model, with the parts replaced that the settings name."""

from dataclasses import replace

import numpy as np
import torch
from torch import nn

from scenarios.adapter import Arrays, Meter, Options, Photos, Sums, TrainSet
from scenarios.contract.result import Placement
from scenarios.frameworks.torch import capture, compilers, feeds, layers, model, optimizers
from scenarios.spec import Scenario
from scenarios.weights import Weights


class TunedModel(model.TorchModel):
    """The tuned lane's `Model`. Without settings it is the stock model."""

    def __init__(self, options: Options, scenario: Scenario, weights: Weights) -> None:
        self._settings = options.settings
        self._format = torch.channels_last if self._settings.get("layout") == "nhwc" else torch.preserve_format
        self._captures = self._settings.get("step") == "captured"
        self._captured: dict[int, capture.CapturedStep] = {}  # by batch size
        self._compiles = self._settings.get("network") == "compiled"
        self._prepared: set[int] = set()  # batch sizes
        super().__init__(options, scenario, weights)
        self._training_net = compilers.compile_net(self._net) if self._compiles else self._net
        self._moves_batches = self._moves_batches or self._format is torch.channels_last

    def train_epoch(self, train: TrainSet, epoch: int, meter: Meter) -> Sums:
        """Train one epoch as the stock model does, after recording or compiling what the epoch needs."""
        if self._compiles or self._captures:
            self._net.train()
            full, last = min(len(train), self._scenario.batch), len(train) % self._scenario.batch
            for size in {full, last} - {0} - self._prepared:
                self._prepare(size)
        return super().train_epoch(train, epoch, meter)

    def placement(self) -> Placement:
        stock = super().placement()
        blocked = any(isinstance(module, layers.Blocked) and module.ran for module in self._net)
        dense = [module for module in self._net.modules() if isinstance(module, layers.TunedLinear)]
        kind = type(self._optimizer)
        package = "torch.optim." if kind.__module__.startswith("torch.") else "the kit's "
        training = {
            f"{'compiled' if self._compiles else 'eager'} loop": True,
            f"{package}{kind.__name__}": True,
            "dense kernels updated in the backward pass": any(layer.learning_rate is not None for layer in dense),
            "steps replayed as a CUDA graph": bool(self._captured),
        }
        return replace(
            stock,
            layout="blocked by oneDNN" if blocked else stock.layout,
            training=", ".join(part for part, applies in training.items() if applies),
        )

    def _build_net(self) -> nn.Sequential:
        modules = model.build_layers(self._scenario)
        tuned = layers.tune_layers(modules, self._scenario.optimizer, self._settings)
        return nn.Sequential(*tuned).to(self._device, memory_format=self._format)

    def _reset_optimizer(self) -> None:
        """Build a new optimizer. Captured steps keep the old one, because they write to its memory."""
        if self._captured:
            capture.reset_state(self._optimizer)
        else:
            self._optimizer = optimizers.build_tuned_optimizer(
                self._scenario.optimizer, self._net, self._settings.get("optimizer"), capturable=self._captures
            )

    def _build_feed(self, train: TrainSet) -> model.Feed:
        batch, threads = self._scenario.batch, self._options.threads
        layout = torch.channels_last if self._format is torch.channels_last else torch.contiguous_format
        match self._settings.get("feed"), train:
            case "resident", Arrays():
                return feeds.resident_arrays(train, batch, layout, self._device)
            case "resident", Photos():
                return feeds.resident_photos(train, batch, threads, layout, self._device)
            case "cached", Photos():
                return feeds.cached_photos(train, batch, threads, layout)
            case _:
                return super()._build_feed(train)

    def _to_device(self, images: torch.Tensor) -> torch.Tensor:
        return images.to(self._device, memory_format=self._format)

    def _forward(self, net: model.Network, images: torch.Tensor) -> torch.Tensor:
        """Use the compiled network for training only. Evaluation runs the network that it was compiled from."""
        trains = self._net.training and net is self._net
        return super()._forward(self._training_net if trains else net, images)

    def _train_step(self, images: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        if self._captures:
            return self._captured_step(images, labels)(images, labels)
        return super()._train_step(images, labels)

    def _captured_step(self, images: torch.Tensor, labels: torch.Tensor) -> capture.CapturedStep:
        """Return the step for batches of this size. Record it first if there is none yet."""
        if (size := len(labels)) not in self._captured:
            self._captured[size] = capture.CapturedStep(
                super()._train_step, self._net, self._optimizer, (images, labels)
            )
        return self._captured[size]

    def _prepare(self, size: int) -> None:
        """Record a step, or compile forward and backward pass, for batches of this size before a clock runs.

        Otherwise the short last batch would stop an epoch for as long as that takes. No weight changes.
        """
        height, width, channels = self._scenario.image
        images = self._to_device(torch.zeros(size, channels, height, width))
        labels = torch.zeros(size, dtype=torch.int64, device=self._device)
        if self._captures:
            self._captured_step(images, labels)
        else:
            weights = self.weights()  # the backward pass of `TunedLinear` may change them
            self._loss(self._forward(self._net, images), labels).backward()
            for layer in self._parameters:
                layer.write(weights)
        self._prepared.add(size)

    def _inference_net(self, batch: int) -> model.Network:
        net = super()._inference_net(batch)
        compiler = self._settings.get("latency" if batch == 1 else "throughput", "eager")
        if compiler == "eager":
            return net
        example = model.to_nchw(np.zeros((batch, *self._scenario.image), np.float32))
        bf16 = self._options.precision == "bf16"
        # Without the cache of autocast, since tensors in it would become constants of the trace.
        with torch.no_grad(), torch.autocast(self._device.type, torch.bfloat16, enabled=bf16, cache_enabled=False):
            return compilers.compile_for_inference(net, self._to_device(example), compiler, self._options)
