"""The tuned lane: the stock model, with the parts replaced that the settings name."""

from collections.abc import Callable, Generator
from dataclasses import replace

import numpy as np
import torch
from torch import nn

from scenarios.adapter import Arrays, Images, Labels, Options, Photos, TrainSet
from scenarios.contract.evidence import Placement
from scenarios.frameworks.torch import capture, compilers, feeds, kernels, layers, model, optimizers
from scenarios.frameworks.torch.sums import SUMMED_STEPS
from scenarios.spec import Scenario
from scenarios.weights import Weights


class TunedModel(model.TorchModel):
    """The tuned lane's `Model`. Without settings it is the stock model."""

    def __init__(self, options: Options, scenario: Scenario, weights: Weights) -> None:
        self._settings = options.settings
        self._format = torch.channels_last if self._settings.get("layout") == "nhwc" else torch.preserve_format
        # The layout of the batches that this lane's own feeds make.
        self._layout = torch.channels_last if self._format is torch.channels_last else torch.contiguous_format
        self._captures = self._settings.get("step") == "captured"
        self._captured: dict[int, capture.CapturedStep] = {}  # by batch size
        self._captured_epoch: capture.CapturedEpoch | None = None
        self._recorded = False  # whether CUDA graphs hold the optimizer's memory
        self._compiles = self._settings.get("network") == "compiled"
        super().__init__(options, scenario, weights)
        self._training_net = compilers.compile_net(self._net) if self._compiles else self._net
        self._moves_batches = self._moves_batches or self._format is torch.channels_last

    def resident_steps(self, images: Images, labels: Labels) -> Callable[[int], None]:
        if not self._captures or self._settings.get("feed") != "resident":
            return super().resident_steps(images, labels)
        self._net.train()
        feed = feeds.resident_arrays(Arrays(images, labels), len(labels), self._layout, self._device)
        epoch, order = self._capture_epoch(feed, SUMMED_STEPS), feed.draw(0).repeat(SUMMED_STEPS)

        def run(steps: int) -> None:
            self._sums.begin()
            self._first_step = epoch.placement
            for first in range(0, steps, SUMMED_STEPS):
                epoch.begin(order)
                for _ in range(min(SUMMED_STEPS, steps - first)):
                    epoch.launch()
                epoch.add_to(self._sums)
            kernels.synchronize(self._device)

        return run

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
            "steps replayed as a CUDA graph": bool(self._captured or self._captured_epoch),
            "which gathers its batches": bool(self._captured_epoch),
            "convolutions benchmarked by cuDNN": torch.backends.cudnn.benchmark,
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
        if self._recorded:
            capture.reset_state(self._optimizer)
        else:
            self._optimizer = optimizers.build_tuned_optimizer(
                self._scenario.optimizer, self._net, self._settings.get("optimizer"), capturable=self._captures
            )

    def _build_feed(self, train: TrainSet) -> model.Feed:
        batch, threads, layout = self._scenario.batch, self._options.photo_threads, self._layout
        match self._settings.get("feed"), train:
            case "resident", Arrays():
                return feeds.resident_arrays(train, batch, layout, self._device)
            case "resident", Photos():
                return feeds.resident_photos(train, batch, threads, layout, self._device)
            case "pinned", Arrays():
                return feeds.pinned_arrays(train, batch, layout, self._device)
            case "pinned", Photos():
                return feeds.pinned_photos(train, batch, threads, layout, self._device)
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
            self._recorded = True
            self._captured[size] = capture.CapturedStep(
                super()._train_step, self._net, self._optimizer, (images, labels)
            )
        return self._captured[size]

    def _capture_epoch(self, feed: feeds.ResidentFeed, steps: int) -> capture.CapturedEpoch:
        self._recorded = True
        size = min(self._scenario.batch, len(feed.labels))
        return capture.CapturedEpoch(
            super()._train_step, self._net, self._optimizer, feed, size, steps, self._scenario.output.units
        )

    def _epoch_of(self, feed: model.Feed) -> capture.CapturedEpoch | None:
        """Return the captured epoch of a feed, recorded once. Return None if the host feeds each batch to its step."""
        if not self._captures or not isinstance(feed, feeds.ResidentFeed):
            return None
        if self._captured_epoch is None or self._captured_epoch.feed is not feed:
            self._captured_epoch = self._capture_epoch(feed, max(1, len(feed.labels) // self._scenario.batch))
        return self._captured_epoch

    def _train_batches(self, feed: model.Feed, seed: int) -> Generator[int]:
        epoch = self._epoch_of(feed)
        return super()._train_batches(feed, seed) if epoch is None else self._launch_batches(epoch, seed)

    def _launch_batches(self, epoch: capture.CapturedEpoch, seed: int) -> Generator[int]:
        """Train by launches of the captured epoch. The short last batch is fed to a step of its own size."""
        order = epoch.feed.draw(seed)
        epoch.begin(order)
        self._first_step = epoch.placement
        try:
            for _ in range(len(order) // epoch.batch):
                epoch.launch()
                yield epoch.batch
        finally:  # also if training stops in mid-epoch
            epoch.add_to(self._sums)
        if rest := len(order) % epoch.batch:
            self._sums.add(*self._step(*epoch.feed.gather(order[-rest:])))
            yield rest

    def _needs_preparation(self) -> bool:
        return super()._needs_preparation() or self._compiles or self._captures

    def _prepare(self, feed: model.Feed, images: int) -> None:
        if epoch := self._epoch_of(feed):
            self._prepared.add(epoch.batch)
        super()._prepare(feed, images)

    def _prepare_batch(self, images: torch.Tensor, labels: torch.Tensor) -> None:
        """Record a step, or compile forward and backward pass."""
        if self._captures:
            self._captured_step(images, labels)
            return
        weights = self.weights()  # the backward pass of `TunedLinear` may change them
        super()._prepare_batch(images, labels)
        for layer in self._parameters:
            layer.write(weights)

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
