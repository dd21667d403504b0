"""The model in ONNX Runtime: training by a session of the step graph, prediction by a session with constant weights."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from scenarios.adapter import Arrays, Images, Labels, Logits, Meter, Options, Photos, State, Sums, TrainSet
from scenarios.contract.evidence import Placement
from scenarios.data.augment import Bytes
from scenarios.data.photos import PhotoLoader, cache_photos, decode_photos
from scenarios.frameworks.onnxruntime.capture import CapturedTrainer, captured_predictor
from scenarios.frameworks.onnxruntime.gpu_memory import process_bytes_on_gpu
from scenarios.frameworks.onnxruntime.kernels import denormals, rounds_to_tf32
from scenarios.frameworks.onnxruntime.network import IMAGES, evaluation_graph, layouts, prediction_graph
from scenarios.frameworks.onnxruntime.session import Runtime, layout, nodes_by_provider
from scenarios.frameworks.onnxruntime.step_graph import CORRECT, LOSS_SUM, build_step_graph
from scenarios.frameworks.onnxruntime.trainer import Trainer
from scenarios.frameworks.rounding import step_rounds_to_tf32
from scenarios.spec import Dropout, Scenario
from scenarios.weights import Weights

STEPS, RUNS = "steps", "runs"  # names of counters in a `State`


class OnnxRuntimeModel:
    """Implements `scenarios.adapter.Model`."""

    def __init__(self, options: Options, runtime: Runtime, scenario: Scenario, weights: Weights) -> None:
        self._options, self._runtime, self._scenario = options, runtime, scenario
        self._layouts = layouts(scenario)
        self._start_trainer(earlier_runs=0)
        self._evaluator: ort.InferenceSession | None = None
        self._loader = "none: no epoch trained yet"
        self._workers: int | None = None
        self._cached: tuple[Photos, list[Bytes]] | None = None
        self.load(weights)

    def weights(self) -> Weights:
        return {name: stored.to_canonical(self._trainer.read(name)) for name, stored in self._layouts.items()}

    def load(self, weights: Weights) -> None:
        """Replace the weights and reset the optimizer. The sequence of dropout masks continues."""
        self._trainer.reset({name: stored.to_graph(weights[name]) for name, stored in self._layouts.items()})

    def state(self) -> State:
        counts = {STEPS: self._trainer.steps, RUNS: self._earlier_runs + self._trainer.runs}
        return self.weights() | self._trainer.slots() | {name: np.array(count) for name, count in counts.items()}

    def restore(self, state: Mapping[str, npt.NDArray[Any]]) -> None:
        if missing := {STEPS, RUNS} - state.keys():
            raise ValueError(f"the state lacks {', '.join(sorted(missing))}")
        if any(isinstance(layer, Dropout) and layer.rate > 0 for layer in self._scenario.layers):
            self._start_trainer(earlier_runs=int(state[RUNS]))
        self.load(dict(state))
        self._trainer.write_slots(state)
        self._trainer.steps = int(state[STEPS])

    def step(self, images: Images, labels: Labels) -> float:
        self._trainer.clear_sums()
        self._trainer.run(images, labels)
        return float(self._trainer.read(LOSS_SUM)) / len(labels)

    def train_epoch(self, train: TrainSet, epoch: int, meter: Meter) -> Sums:
        """Train one pass in a seeded permutation.

        ONNX Runtime returns from a step when the step is finished, on the GPU too. The loss and the correct
        predictions are summed on the device.
        """
        self._prepare(train)
        meter.begin()
        self._trainer.clear_sums()
        seen = 0
        for images, run in self._steps(train, epoch):
            run()
            seen += images
            if meter.step(images):
                self._trainer.synchronize()
                if not meter.mark():
                    break
        return Sums(seen, float(self._trainer.read(LOSS_SUM)), int(self._trainer.read(CORRECT)))

    def resident_steps(self, images: Images, labels: Labels) -> Callable[[int], None]:
        step = self._trainer.place(images, labels)  # the step's few scalars still come from the host

        def run(steps: int) -> None:
            self._trainer.clear_sums()
            for _ in range(steps):
                step()
            self._trainer.synchronize()

        return run

    def logits(self, images: Images) -> Logits:
        if self._evaluator is None:
            self._evaluator = self._runtime.open(evaluation_graph(self._scenario))
        binding = self._evaluator.io_binding()
        binding.bind_cpu_input(IMAGES, images)
        for name, tensor in self._trainer.tensors(self._layouts).items():
            binding.bind_ortvalue_input(name, tensor)
        binding.bind_output(self._evaluator.get_outputs()[0].name)
        self._evaluator.run_with_iobinding(binding)
        return np.asarray(binding.copy_outputs_to_cpu()[0])

    def predictor(self, batch: int) -> Callable[[Images], npt.NDArray[np.float32]]:
        # ONNX Runtime can fold and reorder the weights, because they are constants of this graph.
        graph = prediction_graph(self._scenario, self.weights(), batch)
        if self._options.settings.get("latency" if batch == 1 else "throughput") == "captured":
            shapes = (batch, *self._scenario.image), (batch, self._scenario.output.units)
            return captured_predictor(self._runtime, graph, *shapes)
        session = self._runtime.open(graph, plan_memory=True)
        return lambda images: session.run(None, {IMAGES: images})[0]

    def placement(self) -> Placement:
        session = self._trainer.session
        replayed = ", replayed as a CUDA graph" if isinstance(self._trainer, CapturedTrainer) else ""
        settings, nodes = self._options.settings, nodes_by_provider(session)
        captured = "captured" in (settings.get("latency"), settings.get("throughput"))
        return Placement(
            device=self._trainer.tensors([LOSS_SUM])[LOSS_SUM].device_name(),
            device_name=self._runtime.device_name(),
            provider=", ".join(sorted(nodes)),
            layout=layout(session),
            tf32=None if self._options.device == "cpu" else self._rounds_to_tf32(),
            threads=session.get_session_options().intra_op_num_threads,
            training="kit step graph" + replayed,
            loader=self._loader,
            denormals=denormals(self._runtime),
            nodes=nodes,
            workers=self._workers,
            serving="session of the inference graph" + (", replayed as a CUDA graph" if captured else ""),
        )

    def device_peak_bytes(self) -> int | None:
        return None if self._options.device == "cpu" else process_bytes_on_gpu()

    def _rounds_to_tf32(self) -> bool:
        # Conv falls back to TF32 if cuDNN has no other plan for its shape, so a matrix product alone proves too little.
        def build(scenario: Scenario, weights: Weights) -> OnnxRuntimeModel:
            return OnnxRuntimeModel(self._options, self._runtime, scenario, weights)

        return rounds_to_tf32(self._runtime) or step_rounds_to_tf32(build, self._scenario)

    def _start_trainer(self, earlier_runs: int) -> None:
        """Open new sessions of the training step.

        earlier_runs: of the sessions whose sequence of dropout masks continues. On the CPU, a kernel seeds each mask
        with its own seed plus the number of its earlier runs (`RandomGenerator::NextSeed` in
        core/framework/random_generator.h). On a GPU, the sequence is a new one.
        """
        captured = self._options.settings.get("step") == "captured"
        # In the layout NHWC, ONNX Runtime has no ConvTranspose on CUDA for kernels that are not constant.
        transposes = self._options.settings.get("layout") != "nhwc"
        seed = self._options.seed + earlier_runs
        step = build_step_graph(self._scenario, seed, transposes=transposes, gathers=captured)
        self._trainer = (CapturedTrainer if captured else Trainer)(self._runtime, step, self._scenario.batch)
        self._earlier_runs = earlier_runs

    def _prepare(self, train: TrainSet) -> None:
        """Hold or cache the set if the settings ask for it, and prepare the sizes of an epoch's batches."""
        if isinstance(self._trainer, CapturedTrainer) and isinstance(train, Arrays):
            self._trainer.hold(train)
            return
        if isinstance(train, Photos) and self._options.settings.get("feed") == "cached":
            self._cache(train)
        batch, images = self._scenario.batch, len(train)
        for size in {min(batch, images), images % batch} - {0}:  # the full one, and the short last one
            self._trainer.prepare(np.zeros((size, *self._scenario.image), np.float32), np.zeros(size, np.int64))

    def _steps(self, train: TrainSet, epoch: int) -> Iterable[tuple[int, Callable[[], None]]]:
        """Start an epoch. Return the number of images and the run of each step."""
        if isinstance(self._trainer, CapturedTrainer) and isinstance(train, Arrays):
            self._loader = "gather on the device, in the training step"
            return self._trainer.epoch(self._order(train, epoch))
        return ((len(batch[1]), partial(self._trainer.run, *batch)) for batch in self._batches(train, epoch))

    def _order(self, train: TrainSet, epoch: int) -> npt.NDArray[np.int64]:
        return np.random.default_rng([self._options.seed, epoch]).permutation(len(train))

    def _batches(self, train: TrainSet, epoch: int) -> Iterable[tuple[Images, Labels]]:
        """Return the batches of one epoch, with the short last one, in an order that depends on (seed, epoch)."""
        batch, seed = self._scenario.batch, self._options.seed
        if isinstance(train, Photos):
            cache = self._cache(train) if self._options.settings.get("feed") == "cached" else None
            once = ", photos decoded once" if cache else ""
            loader = PhotoLoader(train, batch, seed, epoch, self._options.photo_threads, cache)
            self._workers = loader.workers
            self._loader = f"kit photo loader (OpenCV), {loader.workers} threads{once}"
            return loader
        self._loader = "numpy gather, in the training thread"
        order = self._order(train, epoch)
        chosen = (order[start : start + batch] for start in range(0, len(order), batch))
        return ((train.images[indices], train.labels[indices]) for indices in chosen)

    def _cache(self, photos: Photos) -> list[Bytes]:
        if self._cached is None or self._cached[0] is not photos:
            self._cached = photos, cache_photos(photos, decode_photos(photos, self._options.photo_threads))
        return self._cached[1]
