"""ONNX Runtime: trains by one graph that is a whole training step, predicts by a graph with constant weights.

Everything runs on the stock inference package; `_step_graph` says how.
"""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import ClassVar, Literal

import cv2
import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from scenarios.adapter import (
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
from scenarios.data.augment import Bytes
from scenarios.data.photos import PhotoLoader, decode_all, kept, read_photos
from scenarios.frameworks.onnxruntime import step_graph
from scenarios.frameworks.onnxruntime.kernels import denormals, make_kernel
from scenarios.frameworks.onnxruntime.optimizers import update_of
from scenarios.frameworks.onnxruntime.session import Runtime, nodes_by_provider, process_bytes_on_gpu
from scenarios.frameworks.onnxruntime.settings import LIKELY, offered
from scenarios.frameworks.onnxruntime.step_graph import CORRECT, IMAGES, LOSS_SUM
from scenarios.frameworks.onnxruntime.trainer import Trainer
from scenarios.spec import Scenario
from scenarios.weights import Weights


class OnnxRuntimeAdapter:
    """Meets `base.Adapter`."""

    name: ClassVar[str] = "onnxruntime"
    optimizer_form: ClassVar[Literal["keras", "torch"]] = "keras"

    likely: ClassVar[Mapping[str, Sequence[str]]] = LIKELY
    axes = staticmethod(offered)

    def __init__(self, options: Options) -> None:
        _refuse(options)
        self._options = options
        self._runtime = Runtime(options)

    def versions(self) -> dict[str, str]:
        """Python, ONNX Runtime, onnx (which only writes the graphs), numpy, OpenCV, Pillow; on the GPU NVIDIA's wheels
        too. No oneDNN: the package is built without it, its CPU kernels are its own."""
        wheels = ["onnx", "numpy", "pillow"]
        if self._options.device == "cuda":
            names = {distribution.name for distribution in importlib.metadata.distributions()}
            wheels += sorted(name for name in names if name.startswith("nvidia-c"))
        found = {"python": platform.python_version(), "onnxruntime": ort.__version__, "opencv": cv2.__version__}
        return found | {name: importlib.metadata.version(name) for name in wheels}

    def build(self, scenario: Scenario, weights: Weights) -> OnnxRuntimeModel:
        """A model with these weights; its training session is open."""
        require_offered(self.axes, self._options, scenario)
        return OnnxRuntimeModel(self._options, self._runtime, scenario, weights)

    def kernel(self, name: KernelName, size: int) -> Callable[[int], None]:
        """One primitive, in float32 or TF32."""
        return make_kernel(self._runtime, name, size)

    def read_photos(self, photos: Photos) -> Images:
        """(N, H, W, 3) float32 in [0, 1]."""
        return read_photos(photos, self._options.threads)


ADAPTER = OnnxRuntimeAdapter


class OnnxRuntimeModel:
    """Meets `base.Model`."""

    def __init__(self, options: Options, runtime: Runtime, scenario: Scenario, weights: Weights) -> None:
        self._options = options
        self._runtime = runtime
        self._scenario = scenario
        self._layouts = step_graph.layouts(scenario)
        self._update = update_of(scenario.optimizer)
        self._step = step_graph.training_step(scenario, self._update, options.seed)
        self._trainer = Trainer(runtime, self._step)
        self._evaluator: ort.InferenceSession | None = None
        self._loader = "none: no epoch trained yet"
        self._cached: tuple[Photos, list[Bytes]] | None = None
        self.load(weights)

    def weights(self) -> Weights:
        """Canonical copies of the parameters."""
        return {name: layout.to_canonical(self._trainer.read(name)) for name, layout in self._layouts.items()}

    def load(self, weights: Weights) -> None:
        """Replace the weights; the optimizer starts anew. The dropout masks go on in their sequence."""
        for name in self._step.state:
            if name in self._layouts:
                self._trainer.write(name, self._layouts[name].to_graph(weights[name]))
            else:
                self._trainer.clear(name)
        self._steps = 0

    def step(self, images: Images, labels: Labels) -> float:
        """One training step; returns the mean loss before the update."""
        self._clear_sums()
        self._run(images, labels)
        return float(self._trainer.read(LOSS_SUM)) / len(labels)

    def train_epoch(self, train: TrainSet, epoch: int, meter: Meter) -> Sums:
        """One pass in a seeded permutation. ONNX Runtime returns from a step when it is finished, on the GPU too; loss
        and hits are summed on the device."""
        self._clear_sums()
        batches = self._batches(train, epoch)
        seen = 0
        meter.begin()
        for images, labels in batches:
            self._run(images, labels)
            seen += len(labels)
            if meter.step(len(labels)):
                self._trainer.synchronise()
                if not meter.mark():
                    break
        return Sums(seen, float(self._trainer.read(LOSS_SUM)), int(self._trainer.read(CORRECT)))

    def resident_steps(self, images: Images, labels: Labels) -> Callable[[int], None]:
        """The step of `train_epoch` on a batch that already lies on the device; its few scalars are handed in as
        always."""
        batch = self._trainer.place(images, labels)

        def run(steps: int) -> None:
            self._clear_sums()
            for _ in range(steps):
                self._trainer.run_placed(batch, self._next_scalars())
            self._trainer.synchronise()

        return run

    def logits(self, images: Images) -> Logits:
        """(N, units) before the last activation, dropout off, from the parameters where they lie."""
        if self._evaluator is None:
            self._evaluator = self._runtime.open(step_graph.evaluation(self._scenario))
        binding = self._evaluator.io_binding()
        binding.bind_cpu_input(IMAGES, images)
        for name, value in self._trainer.values(list(self._layouts)).items():
            binding.bind_ortvalue_input(name, value)
        binding.bind_output(self._evaluator.get_outputs()[0].name)
        self._evaluator.run_with_iobinding(binding)
        logits: Logits = binding.copy_outputs_to_cpu()[0]
        return logits

    def predictor(self, batch: int) -> Callable[[Images], npt.NDArray[np.float32]]:
        """A session with the present weights as constants, which lets ONNX Runtime fold and reorder them."""
        session = self._runtime.open(step_graph.prediction(self._scenario, self.weights(), batch), plan_memory=True)

        def predict(images: Images) -> npt.NDArray[np.float32]:
            outputs: npt.NDArray[np.float32] = session.run(None, {IMAGES: images})[0]
            return outputs

        return predict

    def placement(self) -> Placement:
        """Where the state lies that the last step wrote, and which providers its nodes were assigned to."""
        session = self._trainer.session
        nodes = nodes_by_provider(session)
        written = self._trainer.values([LOSS_SUM])[LOSS_SUM]
        return Placement(
            device=written.device_name(),
            device_name=self._runtime.device_name(),
            provider=", ".join(sorted(nodes)),
            layout="NCHW",
            tf32=None if self._options.device == "cpu" else self._runtime.rounds_to_tf32(),
            threads=session.get_session_options().intra_op_num_threads,
            training="kit step graph",
            loader=self._loader,
            denormals=denormals(self._runtime),
            nodes=nodes,
        )

    def device_peak_bytes(self) -> int | None:
        """What NVML counts for this process; None on the CPU and where NVML cannot tell."""
        return None if self._options.device == "cpu" else process_bytes_on_gpu()

    def _run(self, images: Images, labels: Labels) -> None:
        self._trainer.run(images, labels, self._next_scalars())

    def _next_scalars(self) -> dict[str, float]:
        """The optimizer's scalars of the step that begins now."""
        self._steps += 1
        return self._update.scalars(self._steps)

    def _clear_sums(self) -> None:
        self._trainer.clear(LOSS_SUM)
        self._trainer.clear(CORRECT)

    def _batches(self, train: TrainSet, epoch: int) -> Iterable[tuple[Images, Labels]]:
        """The batches of one epoch, the short last one included, in an order given by (seed, epoch)."""
        batch, seed, threads = self._scenario.batch, self._options.seed, self._options.threads
        if isinstance(train, Photos):
            cache = self._cache(train) if self._options.settings.get("feed") == "cached" else None
            once = ", photos decoded once" if cache else ""
            self._loader = f"kit photo loader (OpenCV), {threads} threads{once}"
            return PhotoLoader(train, batch, seed, epoch, threads, cache)
        self._loader = "numpy gather, in the training thread"
        order = np.random.default_rng([seed, epoch]).permutation(len(train))
        chosen = (order[start : start + batch] for start in range(0, len(order), batch))
        return ((train.images[indices], train.labels[indices]) for indices in chosen)

    def _cache(self, photos: Photos) -> list[Bytes]:
        if self._cached is None or self._cached[0] is not photos:
            self._cached = photos, kept(photos, decode_all(photos, self._options.threads))
        return self._cached[1]


def _refuse(options: Options) -> None:
    """Raise NotOffered for what this adapter does not do."""
    if options.devices != 1:
        raise NotOffered("The ONNX Runtime adapter trains on one device.")
    if options.precision == "bf16":
        raise NotOffered("The ONNX Runtime adapter builds its graphs in float32.")
    if options.precision == "tf32" and options.device == "cpu":
        raise NotOffered("TF32 is a mode of NVIDIA GPUs; ONNX Runtime's CPU provider computes in fp32.")
