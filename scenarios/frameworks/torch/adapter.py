"""PyTorch, as its tutorials have you type it: `nn.Sequential` in NCHW and an eager loop over a `DataLoader`."""

from __future__ import annotations

import copy
import functools
import importlib.metadata
import importlib.util
import platform
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any, ClassVar, Literal

import cv2
import numpy as np
import numpy.typing as npt
import torch

from scenarios.adapter import (
    Arrays,
    DeviceUnavailable,
    Images,
    KernelName,
    Labels,
    Logits,
    Meter,
    NotOffered,
    Options,
    Photos,
    Sums,
    TrainSet,
    require_offered,
)
from scenarios.contract.result import Placement
from scenarios.frameworks.torch import settings
from scenarios.frameworks.torch.capture import CapturedStep, forget
from scenarios.frameworks.torch.feeds import CachedFeed, Feed, LoaderFeed, ResidentFeed, ResidentPhotos, nchw
from scenarios.frameworks.torch.kernels import denormals, make_kernel, rounds_to_tf32, synchronise
from scenarios.frameworks.torch.layers import Blocked, TunedLinear
from scenarios.frameworks.torch.network import build_net, build_optimizer, find_slots, loss_function
from scenarios.frameworks.torch.photos import photo_loader
from scenarios.frameworks.torch.sums import RunningSums
from scenarios.spec import Scenario
from scenarios.weights import Weights

EVALUATION_BATCH = 256


class TorchAdapter:
    """Meets `base.Adapter`."""

    name: ClassVar[str] = "torch"
    optimizer_form: ClassVar[Literal["keras", "torch"]] = "torch"

    likely: ClassVar[Mapping[str, Sequence[str]]] = settings.LIKELY
    axes = staticmethod(settings.offered)

    def __init__(self, options: Options) -> None:
        refuse(options)
        if options.device == "cuda" and not torch.cuda.is_available():
            raise DeviceUnavailable(f"PyTorch {torch.__version__} sees no CUDA device: {cuda_failure()}")
        torch.set_num_threads(options.intra_op_threads)
        if torch.get_num_interop_threads() != 1:  # may be set only once in a process
            torch.set_num_interop_threads(1)
        set_float32_rounding("tf32" if options.precision == "tf32" else "ieee")
        torch.manual_seed(options.seed)
        torch.set_flush_denormal(options.settings.get("denormals") == "flushed")  # threads made from here on inherit it
        self._options = options

    def versions(self) -> dict[str, str]:
        """Python, PyTorch, what it was built with, and what reads the images."""
        onednn = re.search(r"(?:MKL-DNN|oneDNN) v([\d.]+)", torch.__config__.show())
        exporters = [name for name in settings.EXPORT_NEEDS if importlib.util.find_spec(name)]
        known = {
            "python": platform.python_version(),
            "torch": str(torch.__version__),
            "onednn": onednn and onednn[1],
            "cuda": torch.version.cuda,
            "opencv": cv2.__version__,
            "cudnn": str(torch.backends.cudnn.version() or "") if torch.version.cuda else None,
            **{name: importlib.metadata.version(name) for name in ("numpy", "pillow", *exporters)},
        }
        return {name: version for name, version in known.items() if version}

    def build(self, scenario: Scenario, weights: Weights) -> TorchModel:
        """A model with these weights on the adapter's device."""
        require_offered(self.axes, self._options, scenario)
        return TorchModel(self._options, scenario, weights)

    def kernel(self, name: KernelName, size: int) -> Callable[[int], None]:
        """One primitive; matmul and convolution in bfloat16 where training takes that for its products."""
        dtype = torch.bfloat16 if self._options.precision == "bf16" else torch.float32
        return make_kernel(name, size, torch.device(self._options.device), dtype)

    def read_photos(self, photos: Photos) -> Images:
        """(N, H, W, 3) float32 in [0, 1], through the loader that training uses, in order and not augmented."""
        loader = photo_loader(replace(photos, augment=None), EVALUATION_BATCH, self._options.threads)
        return np.ascontiguousarray(np.concatenate([images.permute(0, 2, 3, 1).numpy() for images, _ in loader]))


ADAPTER = TorchAdapter


class TorchModel:
    """Meets `base.Model`."""

    _optimizer: torch.optim.Optimizer

    def __init__(self, options: Options, scenario: Scenario, weights: Weights) -> None:
        self._options = options
        self._scenario = scenario
        self._device = torch.device(options.device)
        self._settings = options.settings
        self._format = torch.channels_last if self._settings.get("layout") == "nhwc" else torch.preserve_format
        self._net = build_net(scenario, self._settings).to(self._device, memory_format=self._format)
        self._forward: Callable[[torch.Tensor], torch.Tensor] = self._net
        self._compiles = self._settings.get("network") == "compiled"
        if self._compiles:
            self._forward = settings.compiled(self._net)
        self._captures = self._settings.get("step") == "captured"
        self._captured: dict[int, CapturedStep] = {}  # by size of the batch
        self._prepared: set[int] = set()  # sizes of batches
        self._slots = find_slots(scenario, self._net)
        self._loss = loss_function(scenario)
        self._autocast: Callable[[], AbstractContextManager[Any]] = (
            functools.partial(torch.autocast, options.device, torch.bfloat16)
            if options.precision == "bf16"
            else nullcontext
        )
        # Not even a call that moves nothing: see `RunningSums` on what a step costs beside training.
        self._moves = self._device.type != "cpu" or self._format is torch.channels_last
        self._sums = RunningSums(scenario, self._device)
        self._fed: tuple[TrainSet, Feed] | None = None
        # This device's alone: `torch.manual_seed` asks for every backend there might be.
        self._generator = generator_of(self._device)
        self.load(weights)

    def weights(self) -> Weights:
        """Canonical copies of the parameters."""
        return {name: array for slot in self._slots for name, array in slot.read().items()}

    def load(self, weights: Weights) -> None:
        """Replace the weights; the optimizer starts anew."""
        self._write(weights)
        # Facts alone: a tensor held would be memory that is not used again.
        self._seen: tuple[torch.device, bool] | None = None
        if self._captured:
            forget(self._optimizer)
            return
        form = self._settings.get("optimizer")
        self._optimizer = build_optimizer(self._scenario.optimizer, self._net, form, capturable=self._captures)

    def step(self, images: Images, labels: Labels) -> float:
        """One training step; returns the mean loss before the update."""
        self._net.train()
        loss, _, _ = self._step(nchw(images), torch.from_numpy(np.array(labels, np.int64)))
        return float(loss)

    def train_epoch(self, train: TrainSet, epoch: int, meter: Meter) -> Sums:
        """One pass in the feed's shuffled order. Loss and hits are summed on the device; the device is waited for only
        where a window of `meter` ends."""
        feed = self._feed(train)
        self._net.train()
        self._prepare({min(len(train), self._scenario.batch), len(train) % self._scenario.batch})
        seed = int(np.random.SeedSequence([self._options.seed, epoch]).generate_state(1, np.uint64)[0])
        self._generator.manual_seed(seed)  # dropout
        self._sums.begin()
        meter.begin()
        for images, labels in feed.batches(seed):
            self._sums.add(*self._step(images, labels))
            if meter.step(len(images)):
                synchronise(self._device)
                if not meter.mark():
                    break
        return self._sums.total()

    def resident_steps(self, images: Images, labels: Labels) -> Callable[[int], None]:
        """The very steps of `train_epoch`, their sums included, on a batch that already lies on the device."""
        batch = nchw(images).to(self._device, memory_format=self._format)
        targets = torch.from_numpy(np.array(labels, np.int64)).to(self._device)

        def run(steps: int) -> None:
            self._sums.begin()
            self._net.train()
            for _ in range(steps):
                self._sums.add(*self._step(batch, targets))
            self._sums.flush()
            synchronise(self._device)

        return run

    def logits(self, images: Images) -> Logits:
        """(N, units) before the last activation, dropout off."""
        self._net.eval()
        with torch.inference_mode(), self._autocast():
            inputs = nchw(images).to(self._device, memory_format=self._format)
            found: Logits = self._net(inputs).float().cpu().numpy()
        return found

    def predictor(self, batch: int) -> Callable[[Images], npt.NDArray[np.float32]]:
        """A copy of the network in evaluation mode under `torch.inference_mode`."""
        how = self._settings.get("latency" if batch == 1 else "throughput", "eager")
        module = copy.deepcopy(self._net).eval()
        net: Callable[[torch.Tensor], torch.Tensor] = module
        if how != "eager":
            example = nchw(np.zeros((batch, *self._scenario.image), np.float32))
            bf16 = self._options.precision == "bf16"
            # without a cache: what it holds would become constants of the trace
            uncached = torch.autocast(self._options.device, torch.bfloat16, enabled=bf16, cache_enabled=False)
            with torch.no_grad(), uncached:
                example = example.to(self._device, memory_format=self._format)
                net = settings.for_inference(module, example, how, self._options)
        activation = self._scenario.output.activation

        def predict(images: Images) -> npt.NDArray[np.float32]:
            with torch.inference_mode():
                with self._autocast():
                    outputs = net(nchw(images).to(self._device, memory_format=self._format))
                outputs = outputs.float()
                if activation == "softmax":
                    outputs = outputs.softmax(1)
                elif activation == "sigmoid":
                    outputs = outputs.sigmoid()
                found: npt.NDArray[np.float32] = outputs.cpu().numpy()
                return found

        return predict

    def placement(self) -> Placement:
        """What training since `load` ran on, and in which layout; nodes: parameter tensors by device. Raises
        RuntimeError before the first step."""
        if self._seen is None:
            raise RuntimeError("placement is known after a training step")
        device, plain_strides = self._seen
        strided = not (plain_strides and all(parameter.is_contiguous() for parameter in self._net.parameters()))
        blocked = any(isinstance(module, Blocked) and module.ran for module in self._net)
        cuda = device.type == "cuda"
        capability = torch.backends.cpu.get_cpu_capability()
        return Placement(
            device=str(device),
            device_name=torch.cuda.get_device_name(device) if cuda else f"CPU with {capability}",
            provider="CUDA, cuDNN" if cuda else f"ATen and oneDNN ({capability})",
            layout="blocked by oneDNN" if blocked else "NHWC" if strided else "NCHW",
            tf32=rounds_to_tf32() if cuda else None,
            threads=torch.get_num_threads(),
            training=self._training_in_words(),
            loader=self._fed[1].description if self._fed else "none, single batches",
            denormals=denormals(device),
            nodes=dict(Counter(str(parameter.device) for parameter in self._net.parameters())),
        )

    def device_peak_bytes(self) -> int | None:
        """Peak of PyTorch's caching allocator."""
        return int(torch.cuda.max_memory_allocated()) if self._device.type == "cuda" else None

    def _training_in_words(self) -> str:
        dense = [module for module in self._net.modules() if isinstance(module, TunedLinear)]
        parts = {
            f"{'eager' if self._forward is self._net else 'compiled'} loop": True,
            _named(self._optimizer): True,
            "dense kernels updated in the backward pass": any(layer.learning_rate is not None for layer in dense),
            "steps replayed as a CUDA graph": bool(self._captured),
        }
        return ", ".join(part for part, done in parts.items() if done)

    def _write(self, weights: Weights) -> None:
        for slot in self._slots:
            slot.write(weights)

    def _step(self, images: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Forward, backward, update; returns mean loss, logits and labels, all on the device."""
        if self._moves:
            images, labels = images.to(self._device, memory_format=self._format), labels.to(self._device)
        step = self._recorded(images, labels) if self._captures else self._launched_step
        loss, logits = step(images, labels)
        if self._seen is None:
            self._seen = logits.device, images.is_contiguous()
        return loss, logits, labels

    def _recorded(self, images: torch.Tensor, labels: torch.Tensor) -> CapturedStep:
        """The step for batches of this size."""
        if (size := len(labels)) not in self._captured:
            self._captured[size] = CapturedStep(self._launched_step, self._net, self._optimizer, (images, labels))
        return self._captured[size]

    def _launched_step(self, images: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self._optimizer.zero_grad()
        logits, loss = self._forward_and_loss(images, labels)
        loss.backward()
        self._optimizer.step()
        return loss.detach(), logits.detach()

    def _forward_and_loss(self, images: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        if self._options.precision == "bf16":
            with self._autocast():
                logits = self._forward(images)
            logits = logits.float()
        else:  # not even a context that does nothing
            logits = self._forward(images)
        return logits, self._loss(logits, labels)

    def _prepare(self, sizes: set[int]) -> None:
        """Have steps over batches of these sizes recorded, or forward and backward compiled, before a clock runs: the
        short last batch would else stop an epoch for as long as that takes. No weight changes."""
        sizes = sizes - {0} - self._prepared
        if not sizes or not (self._compiles or self._captures):
            return
        height, width, channels = self._scenario.image
        for size in sizes:
            images = torch.zeros(size, channels, height, width).to(self._device, memory_format=self._format)
            labels = torch.zeros(size, dtype=torch.int64, device=self._device)
            if self._captures:
                self._recorded(images, labels)
            else:
                kept = self.weights()  # `TunedLinear` may change them
                _, loss = self._forward_and_loss(images, labels)
                loss.backward()
                self._write(kept)
            self._prepared.add(size)

    def _feed(self, train: TrainSet) -> Feed:
        """What feeds `train`, made once: epochs differ by their seed alone."""
        if self._fed is None or self._fed[0] is not train:
            batch = self._scenario.batch
            threads, last = self._options.threads, self._format is torch.channels_last
            feed: Feed
            match self._settings.get("feed"), train:
                case "resident", Arrays():
                    feed = ResidentFeed(train, batch, self._device, channels_last=last)
                case "resident", Photos():
                    feed = ResidentPhotos(train, batch, threads, self._device, channels_last=last)
                case "cached", Photos():
                    feed = CachedFeed(train, batch, threads, channels_last=last)
                case _:
                    feed = LoaderFeed(train, batch, threads)
            self._fed = train, feed
        return self._fed[1]


def _named(optimizer: torch.optim.Optimizer) -> str:
    kind = type(optimizer)
    return f"torch.optim.{kind.__name__}" if kind.__module__.startswith("torch.") else f"the kit's {kind.__name__}"


def refuse(options: Options) -> None:
    """Raise NotOffered for what this adapter does not do."""
    if options.devices != 1:
        raise NotOffered("The PyTorch adapter trains on one device.")
    if options.precision == "tf32" and options.device == "cpu":
        raise NotOffered("TF32 is a mode of NVIDIA GPUs; the CPU has fp32 and bf16.")


def generator_of(device: torch.device) -> torch.Generator:
    """What dropout on this device draws from."""
    if device.type == "cpu":
        return torch.default_generator
    index = torch.cuda.current_device()  # makes the generators
    return torch.cuda.default_generators[index]


def cuda_failure() -> str:
    """PyTorch's own words for why there is no CUDA device."""
    try:
        torch.cuda.init()
    except (AssertionError, RuntimeError) as error:
        return str(error)
    return "torch.cuda.is_available() is False"


def set_float32_rounding(mode: Literal["ieee", "tf32"]) -> None:
    """How float32 products are rounded on the GPU (and by oneDNN on the CPU), everywhere in this process.

    PyTorch 2.9 brought one switch for each library. Parts of PyTorch still read the older pair of booleans, and raise
    where these say something else.
    """
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = mode == "tf32"
    if hasattr(torch.backends.cuda.matmul, "fp32_precision"):
        cudnn, mkldnn = torch.backends.cudnn, torch.backends.mkldnn
        for switch in (torch.backends, torch.backends.cuda.matmul, cudnn.conv, cudnn.rnn):
            switch.fp32_precision = mode
        for switch in (mkldnn.matmul, mkldnn.conv, mkldnn.rnn):
            switch.fp32_precision = "ieee"
