"""TensorFlow through Keras, as its tutorials have you type it: `compile`, `fit`, every default spelled out."""

from __future__ import annotations

import itertools
import os
import platform
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, ClassVar, Literal

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")  # the log keeps warnings, not what TensorFlow was built with
os.environ["KERAS_BACKEND"] = "tensorflow"

import cv2
import numpy as np
import numpy.typing as npt
import tensorflow as tf
from tensorflow import keras

from scenarios import spec
from scenarios.adapter import (
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
from scenarios.frameworks.tensorflow import feeds, settings
from scenarios.frameworks.tensorflow.kernels import denormals, make_kernel, onednn_version, rounds_to_tf32
from scenarios.frameworks.tensorflow.loop import GraphFeed, GraphLoop
from scenarios.frameworks.tensorflow.network import accuracy, build_layers, build_optimizer, loss_function
from scenarios.spec import Scenario
from scenarios.weights import Weights

# Two, as Keras' loader runs on these threads too and should not wait for a step; more would compete with the
# intra-op threads, which already fill the machine.
INTER_OP_THREADS = 2

Feed = feeds.ArrayFeed | feeds.PhotoFeed | feeds.CachedFeed | GraphFeed
TrainStep = Callable[[Any], dict[str, Any]]  # an iterator over batches to Keras' running means


class TensorFlowAdapter:
    """Meets `base.Adapter`."""

    name: ClassVar[str] = "tensorflow"
    optimizer_form: ClassVar[Literal["keras", "torch"]] = "keras"

    likely: ClassVar[Mapping[str, Sequence[str]]] = settings.LIKELY
    axes = staticmethod(settings.offered)

    def __init__(self, options: Options) -> None:
        refuse(options)
        gpus = tf.config.list_physical_devices("GPU")
        if options.device == "cuda" and not gpus:
            built = "was built with CUDA" if tf.test.is_built_with_cuda() else "was built without CUDA"
            raise DeviceUnavailable(f"TensorFlow {tf.__version__} sees no GPU; it {built}.")
        set_devices(gpus[:1] if options.device == "cuda" else [])
        set_threads(options.intra_op_threads)
        tf.config.experimental.enable_tensor_float_32_execution(options.precision == "tf32")
        keras.config.set_image_data_format("channels_last")
        keras.config.set_floatx("float32")
        keras.config.set_epsilon(1e-7)
        self._options = options

    def versions(self) -> dict[str, str]:
        """Python, TensorFlow, Keras, numpy, OpenCV, and the CUDA, cuDNN and oneDNN that TensorFlow was built with."""
        build = tf.sysconfig.get_build_info()
        libraries = {name: str(build[f"{name}_version"]) for name in ("cuda", "cudnn") if f"{name}_version" in build}
        if version := onednn_version():
            libraries["onednn"] = version
        return {
            "python": platform.python_version(),
            "tensorflow": str(tf.__version__),
            "keras": str(keras.__version__),
            "numpy": np.__version__,
            "opencv": cv2.__version__,
            **libraries,
        }

    def build(self, scenario: Scenario, weights: Weights) -> KerasModel:
        """A compiled model with these weights on the adapter's device."""
        require_offered(self.axes, self._options, scenario)
        return KerasModel(self._options, scenario, weights)

    def kernel(self, name: KernelName, size: int) -> Callable[[int], None]:
        """One primitive; matmul and convolution in bfloat16 where training takes that for its products."""
        dtype = tf.bfloat16 if self._options.precision == "bf16" else tf.float32
        return make_kernel(name, size, "GPU:0" if self._options.device == "cuda" else "CPU:0", dtype)

    def read_photos(self, photos: Photos) -> Images:
        """(N, H, W, 3) float32 in [0, 1], decoded and scaled by the same functions as for training."""
        return feeds.read_photos(photos, self._options.threads)


ADAPTER = TensorFlowAdapter


class KerasModel:
    """Meets `base.Model`."""

    def __init__(self, options: Options, scenario: Scenario, weights: Weights) -> None:
        self._options, self._settings = options, options.settings
        self._scenario = scenario
        self._parameters = spec.parameters(scenario)
        inputs, logits, outputs = build_layers(scenario, options.precision)
        self._keras = keras.Model(inputs, outputs)
        self._keras.compile(
            build_optimizer(scenario.optimizer, fused=self._settings.get("optimizer") == "fused"),
            loss_function(scenario),
            metrics=[accuracy(scenario)],
            jit_compile=self._jit_compile("network"),
        )
        # left to the first step, making the optimizer's variables would have it traced twice
        self._keras.optimizer.build(self._keras.trainable_variables)
        self._keras.make_train_function()
        self._train_step: TrainStep = self._keras.train_function
        up_to_logits = keras.Model(inputs, logits)
        self._logits = tf.function(
            lambda images: tf.cast(up_to_logits(images, training=False), tf.float32),
            input_signature=[tf.TensorSpec((None, *scenario.image), tf.float32)],
        )
        self._loop: GraphLoop | None = None
        if self._settings.get("loop") == "graph":
            self._loop = GraphLoop(self._keras, scenario.image, self._keras.trainable_variables[0].value.device)
        self._fed: tuple[TrainSet, Feed] | None = None
        self.load(weights)

    def weights(self) -> Weights:
        """Copies of the trainable variables; Keras' layout is the canonical one."""
        variables = self._keras.trainable_variables
        return {p.name: variable.numpy().copy() for p, variable in zip(self._parameters, variables, strict=True)}

    def load(self, weights: Weights) -> None:
        """Replace the weights; the optimizer's state and step count become 0. Nothing is traced anew."""
        for parameter, variable in zip(self._parameters, self._keras.trainable_variables, strict=True):
            variable.assign(weights[parameter.name])
        optimizer = self._keras.optimizer
        for variable in optimizer.variables:
            if variable is not optimizer.learning_rate:
                variable.assign(tf.zeros(variable.shape, variable.dtype))
        self._seed_dropout(0)

    def step(self, images: Images, labels: Labels) -> float:
        """One step of the very function that `fit` calls, or of the loop in the graph; returns the mean loss before the
        update."""
        self._keras.reset_metrics()
        if self._loop is not None:
            self._loop.place(images, labels)(np.arange(len(labels)), len(labels), 0, 1)
            return float(self._keras.get_metrics_result()["loss"])
        batch = tf.data.Dataset.from_tensor_slices((images, labels)).batch(len(labels))
        return float(self._train_step(iter(batch))["loss"])

    def train_epoch(self, train: TrainSet, epoch: int, meter: Meter) -> Sums:
        """One epoch of `Model.fit`, or of the loop in the graph."""
        feed = self._feed(train)
        self._seed_dropout(epoch)
        if isinstance(feed, GraphFeed):
            return self._loop_epoch(feed, epoch, meter)
        with feeds.unreadable_named(train) if isinstance(train, Photos) else nullcontext():
            return self._fit_epoch(feed.epoch(epoch), len(train), meter)

    def _fit_epoch(self, batches: Any, images_in_all: int, meter: Meter) -> Sums:
        """Steps are counted around the function that `fit` calls for each: a callback at the end of a batch would make
        Keras wait for the device after every step, to hand it the losses as numbers."""
        seen = 0

        def counted_step(iterator: Any) -> dict[str, Any]:
            nonlocal seen
            logs = self._train_step(iterator)
            images = min(self._scenario.batch, images_in_all - seen)
            seen += images
            if meter.step(images):
                tf.test.experimental.sync_devices()
                if not meter.mark():
                    self._keras.stop_training = True
            return logs

        self._keras.train_function = counted_step
        start = keras.callbacks.LambdaCallback(on_epoch_begin=lambda _epoch, _logs: meter.begin())
        history = self._keras.fit(batches, epochs=1, shuffle=False, verbose=0, callbacks=[start]).history
        return Sums(seen, history["loss"][0] * seen, round(history["accuracy"][0] * seen))

    def _loop_epoch(self, feed: GraphFeed, epoch: int, meter: Meter) -> Sums:
        self._keras.reset_metrics()
        seen = feed.epoch(epoch, meter)
        found = self._keras.get_metrics_result()
        return Sums(seen, float(found["loss"]) * seen, round(float(found["accuracy"]) * seen))

    def resident_steps(self, images: Images, labels: Labels) -> Callable[[int], None]:
        """The function that `fit` calls for each step, over an iterator that yields this batch again and again; or the
        loop in the graph. Keras takes any iterator; one of `tf.data` would hand the batch over from the host at each
        step."""
        if self._loop is not None:
            return self._resident_loop(self._loop.place(images, labels), len(labels))
        with tf.device(self._keras.trainable_variables[0].value.device):
            batch = tf.convert_to_tensor(images), tf.convert_to_tensor(labels)

        def run(steps: int) -> None:
            again = itertools.repeat(batch)
            self._keras.reset_metrics()
            for _ in range(steps):
                self._train_step(again)
            tf.test.experimental.sync_devices()

        return run

    def _resident_loop(self, place: Callable[[Any, int, int, int], None], batch: int) -> Callable[[int], None]:
        def run(steps: int) -> None:
            self._keras.reset_metrics()
            place(np.tile(np.arange(batch), steps), batch, 0, steps)
            tf.test.experimental.sync_devices()

        return run

    def logits(self, images: Images) -> Logits:
        """(N, units) before the last activation, dropout off; one traced function for every N."""
        found: Logits = self._logits(images).numpy()
        return found

    def predictor(self, batch: int) -> Callable[[Images], npt.NDArray[np.float32]]:
        """The network as one `tf.function` of this batch size on a copy of the weights: Keras' documentation advises
        to call the model itself, rather than `predict`, on inputs that fit in one batch."""
        weights = [tf.identity(variable.value) for variable in self._keras.trainable_variables]
        others = [tf.identity(variable.value) for variable in self._keras.non_trainable_variables]
        serve = tf.function(
            lambda images: self._keras.stateless_call(weights, others, images, training=False)[0],
            input_signature=[tf.TensorSpec((batch, *self._scenario.image), tf.float32)],
            jit_compile=bool(self._jit_compile("latency" if batch == 1 else "throughput")),
        )
        serve.get_concrete_function()  # traced here, not in the first call

        def predict(images: Images) -> npt.NDArray[np.float32]:
            found: npt.NDArray[np.float32] = serve(images).numpy()
            return found

        return predict

    def placement(self) -> Placement:
        """Where the weights lie (nodes: parameter tensors by device): TensorFlow runs an update on the device of the
        variable that it changes."""
        places = [tf.DeviceSpec.from_string(variable.value.device) for variable in self._keras.trainable_variables]
        place = places[0]
        cuda = place.device_type == "GPU"
        return Placement(
            device=device_label(place),
            device_name=gpu_name(place.device_index) if cuda else f"CPU ({platform.machine()})",
            provider="XLA" if self._keras.jit_compile else "TensorFlow kernels",
            layout="NHWC",
            tf32=rounds_to_tf32() if cuda else None,
            threads=tf.config.threading.get_intra_op_parallelism_threads(),
            training=f"Keras {'fit' if self._loop is None else 'graph'}, {type(self._keras.optimizer).__name__}",
            loader="none, single batches" if self._fed is None else self._fed[1].description,
            denormals=denormals(place.to_string(), jit_compile=self._keras.jit_compile),
            nodes=dict(Counter(map(device_label, places))),
        )

    def device_peak_bytes(self) -> int | None:
        """Peak of TensorFlow's GPU allocator."""
        return int(tf.config.experimental.get_memory_info("GPU:0")["peak"]) if self._options.device == "cuda" else None

    def _jit_compile(self, name: str) -> bool | str:
        """What Keras takes for the settings' own way, and for stock's: "auto" is XLA wherever a GPU is plugged in, even
        one hidden from this process."""
        if name in self._settings:
            return self._settings[name] == "compiled"
        return "auto" if self._options.device == "cuda" else False

    def _feed(self, train: TrainSet) -> Feed:
        """The loader over `train`, made once: epochs differ by what its variables hold."""
        if self._fed is None or self._fed[0] is not train:
            batch, seed, threads = self._scenario.batch, self._options.seed, self._options.threads
            if isinstance(train, Photos):
                photo_feed = feeds.CachedFeed if self._settings.get("feed") == "cached" else feeds.PhotoFeed
                feed: Feed = photo_feed(train, batch, seed, threads)
            elif self._loop is not None:
                feed = GraphFeed(self._loop, train, batch, seed)
            else:
                feed = feeds.ArrayFeed(train, batch, seed, threads)
            self._fed = train, feed
        return self._fed[1]

    def _seed_dropout(self, epoch: int) -> None:
        for place, layer in enumerate(self._keras.layers):
            if isinstance(layer, keras.layers.Dropout) and layer.rate > 0:
                words = np.random.SeedSequence([self._options.seed, epoch, place]).generate_state(1)
                layer.seed_generator.state.assign([int(words[0]), 0])


def refuse(options: Options) -> None:
    """Raise NotOffered for what this adapter does not do."""
    if options.devices != 1:
        raise NotOffered("The TensorFlow adapter trains on one device.")
    if options.precision == "tf32" and options.device == "cpu":
        raise NotOffered("TF32 is a mode of NVIDIA GPUs; the CPU has fp32 and bf16.")


def set_devices(gpus: list[Any]) -> None:
    """Make exactly these GPUs visible, memory taken as it is needed. Raises RuntimeError where TensorFlow already
    runs with others: one process serves one device."""
    tf.config.set_visible_devices(gpus, "GPU")
    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, True)


def set_threads(threads: int) -> None:
    """Raises RuntimeError where TensorFlow already runs with other thread counts."""
    try:
        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(INTER_OP_THREADS)
    except RuntimeError as error:
        running = tf.config.threading.get_intra_op_parallelism_threads()
        raise RuntimeError(
            f"TensorFlow already runs with {running} intra-op threads in this process and cannot change to {threads}; "
            "start a new process."
        ) from error


def device_label(place: Any) -> str:
    """A `tf.DeviceSpec` as the kit names devices: "cpu" or "cuda:0"."""
    return f"cuda:{place.device_index}" if place.device_type == "GPU" else str(place.device_type).lower()


def gpu_name(index: int) -> str:
    """The model of a visible GPU, as its driver tells it."""
    gpu = tf.config.get_visible_devices("GPU")[index]
    return str(tf.config.experimental.get_device_details(gpu)["device_name"])
