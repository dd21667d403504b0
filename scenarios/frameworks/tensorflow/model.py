"""The stock lane in TensorFlow, written like a Keras tutorial: layers, `compile`, a `tf.data` pipeline, `fit`.

Defaults that change the result are spelled out. The tuned lane overrides parts of `KerasModel`: see `tuned.py`.
"""

import itertools
from collections.abc import Callable, Collection, Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from tensorflow import keras

from scenarios import spec
from scenarios.adapter import Arrays, Images, Labels, Logits, Meter, Options, Photos, State, Sums, TrainSet
from scenarios.contract.evidence import Placement
from scenarios.data.photos import draw_epoch
from scenarios.frameworks.rounding import step_rounds_to_tf32
from scenarios.frameworks.tensorflow import kernels
from scenarios.frameworks.tensorflow.pipelines import (
    pipeline_threads,
    prefetch,
    projective_rows,
    read_photo,
    report_unreadable,
    to_floats,
    warp,
)
from scenarios.spec import Adadelta, Adam, Conv, Dense, Dropout, Flatten, MaxPool, Scenario, Sgd
from scenarios.weights import Weights


def build_layers(scenario: Scenario, precision: str) -> tuple[Any, Any, Any]:
    """Return the symbolic input, logits and output. Weights are zero: the caller loads its own."""
    policy = keras.DTypePolicy("mixed_bfloat16" if precision == "bf16" else "float32")
    inputs = values = keras.Input(scenario.image, dtype="float32")
    for layer in scenario.layers:
        activation = None if layer is scenario.layers[-1] else getattr(layer, "activation", None)
        common = {"dtype": policy, "activation": activation, "kernel_initializer": "zeros"}
        match layer:
            case Conv(filters=filters, kernel=kernel, padding=padding):
                values = keras.layers.Conv2D(filters, kernel, padding=padding, **common)(values)
            case MaxPool(size=size):
                values = keras.layers.MaxPooling2D(size, dtype=policy)(values)
            case Dropout(rate=rate):
                values = keras.layers.Dropout(rate, seed=0, dtype=policy)(values)
            case Flatten():
                values = keras.layers.Flatten(dtype=policy)(values)
            case Dense(units=units):
                values = keras.layers.Dense(units, **common)(values)
    outputs = keras.layers.Activation(scenario.output.activation, dtype="float32")(values)
    return inputs, values, outputs


def build_optimizer(optimizer: spec.Optimizer, classes: Any = keras.optimizers) -> Any:
    """Return the optimizer with every hyperparameter that changes the update spelled out.

    classes: has Keras' optimizer classes, or drop-in replacements, as attributes.
    """
    match optimizer:
        case Sgd(learning_rate=rate):
            return classes.SGD(rate, momentum=0.0, nesterov=False)
        case Adam(learning_rate=rate, beta_1=beta_1, beta_2=beta_2, epsilon=epsilon):
            return classes.Adam(rate, beta_1=beta_1, beta_2=beta_2, epsilon=epsilon, amsgrad=False)
        case Adadelta(learning_rate=rate, rho=rho, epsilon=epsilon):
            return classes.Adadelta(rate, rho=rho, epsilon=epsilon)


def loss_function(scenario: Scenario) -> Any:
    """Return Keras' loss. Keras itself goes back to the logits from softmax or sigmoid outputs."""
    from_logits = scenario.output.activation == "linear"
    if scenario.loss == "binary":
        return keras.losses.BinaryCrossentropy(from_logits=from_logits)
    if scenario.output.activation == "sigmoid":
        return sigmoid_categorical
    return keras.losses.SparseCategoricalCrossentropy(from_logits=from_logits)


def sigmoid_categorical(labels: Any, outputs: Any) -> Any:
    """Return Keras' categorical loss of sigmoid outputs: clip, normalize to sum 1, -log of the label's share.

    Keras attaches the logits to what its sigmoid returns, and would take the softmax of those instead. A copy has no
    attached logits.
    """
    return keras.losses.sparse_categorical_crossentropy(labels, tf.identity(outputs))


def accuracy(scenario: Scenario) -> Any:
    """Return the metric that Keras takes for "accuracy". One unit predicts class 1 if that is more likely than not.

    Its variables are created here. If the first step created them, the step would be traced twice.
    """
    if scenario.loss == "binary":
        even_odds = 0.0 if scenario.output.activation == "linear" else 0.5
        return keras.metrics.BinaryAccuracy("accuracy", threshold=even_odds)
    return keras.metrics.SparseCategoricalAccuracy("accuracy")


class Feed(Protocol):
    """The batches of one training set. description: in words, for the report. workers: see `Placement`.

    A pipeline is built once per set. What changes from epoch to epoch, order and augmentation, is in variables that
    the pipeline reads. Keras' own shuffle of arrays is not used: with a fixed seed it repeats the same order in every
    epoch, and a new seed for each epoch makes TensorFlow drop its kernels, so that the first step of an epoch
    prepares the whole graph again (80 ms for a small network, 600 ms for a deep one).
    """

    description: str
    workers: int | None

    def epoch(self, epoch: int) -> Any:
        """Return the `tf.data.Dataset` of this epoch: images (b, H, W, C), labels (b,), the short last batch too."""


class ArrayFeed:
    """Batches gathered from arrays in memory, in parallel and ahead of the steps, as Keras' own adapter for arrays
    does it."""

    description = "tf.data over arrays in memory, whole-set shuffle"
    workers: int | None = None

    def __init__(self, arrays: Arrays, batch: int, seed: int, threads: int) -> None:
        self._seed = seed
        with tf.device("CPU:0"):
            images, labels = tf.convert_to_tensor(arrays.images), tf.convert_to_tensor(arrays.labels)
            self._order = tf.Variable(np.arange(len(arrays)))

        def gather(start: Any) -> tuple[Any, Any]:
            chosen = self._order[start : start + batch]
            return tf.gather(images, chosen), tf.gather(labels, chosen)

        starts = tf.data.Dataset.range(0, len(arrays), batch)
        self._batches = prefetch(starts.map(gather, num_parallel_calls=threads), threads)

    def epoch(self, epoch: int) -> Any:
        self._order.assign(np.random.default_rng([self._seed, epoch]).permutation(self._order.shape[0]))
        return self._batches


class PhotoFeed:
    """JPEG files decoded and scaled in parallel, batched, then augmented by one projective transform per photo.

    Keras' random layers have no shear by an angle, and would interpolate once more for each of shear and zoom.
    """

    def __init__(self, photos: Photos, batch: int, seed: int, threads: int) -> None:
        self._photos, self._seed = photos, seed
        with tf.device("CPU:0"):
            paths, labels = tf.constant([str(path) for path in photos.paths]), tf.convert_to_tensor(photos.labels)
            self._order = tf.Variable(np.arange(len(photos)))
            self._transforms = tf.Variable(tf.zeros((len(photos), 8)))

        def load(place: Any) -> tuple[Any, Any, Any]:
            chosen = self._order[place]
            return read_photo(paths[chosen], photos.size), labels[chosen], self._transforms[chosen]

        def augment(pixels: Any, labels: Any, transforms: Any) -> tuple[Any, Any]:
            images = to_floats(pixels)
            return (images if photos.augment is None else warp(images, transforms)), labels

        read = tf.data.Dataset.range(len(photos)).map(load, num_parallel_calls=threads).batch(batch)
        self._batches = prefetch(read.map(augment, num_parallel_calls=threads), threads)
        self.workers: int | None = pipeline_threads(self._batches)
        self.description = (
            f"tf.data over JPEG files, {self.workers} threads, whole-set shuffle, one projective transform a photo"
        )

    def epoch(self, epoch: int) -> Any:
        order, maps = draw_epoch(self._photos, self._seed, epoch)
        self._order.assign(order)
        if maps is not None:
            self._transforms.assign(projective_rows(maps))
        return self._batches


class KerasModel:
    """The stock lane's `scenarios.adapter.Model`."""

    loop = "fit"  # what calls the training step, for the report

    def __init__(self, options: Options, scenario: Scenario, weights: Weights) -> None:
        self._options, self._scenario = options, scenario
        self._parameters = spec.parameters(scenario)
        inputs, logits, outputs = build_layers(scenario, options.precision)
        self._model = keras.Model(inputs, outputs)
        self._model.compile(
            optimizer=self._make_optimizer(),
            loss=loss_function(scenario),
            metrics=[accuracy(scenario)],
            jit_compile=self._jit_compile("network"),
        )
        # If the first step created the optimizer's variables, it would be traced twice.
        self._model.optimizer.build(self._model.trainable_variables)
        self._model.make_train_function()
        # The function that `fit` calls for each step: from an iterator over batches to Keras' running means.
        self._train_step: Callable[[Any], dict[str, Any]] = self._model.train_function
        up_to_logits = keras.Model(inputs, logits)
        self._logits = tf.function(
            lambda images: tf.cast(up_to_logits(images, training=False), tf.float32),
            input_signature=[tf.TensorSpec((None, *scenario.image), tf.float32)],
        )
        self._feed: Feed | None = None
        self._fed: TrainSet | None = None
        self._loader = "none, single batches"
        self._workers: int | None = None
        self._prepared: set[int] = set()  # batch sizes
        self.load(weights)

    def weights(self) -> Weights:
        variables = self._model.trainable_variables  # Keras' layout is the canonical one
        return {p.name: variable.numpy().copy() for p, variable in zip(self._parameters, variables, strict=True)}

    def load(self, weights: Weights) -> None:
        """Replace the weights, and set the optimizer's state and step count to 0. Nothing is traced again."""
        for parameter, variable in zip(self._parameters, self._model.trainable_variables, strict=True):
            variable.assign(weights[parameter.name])
        for variable in self._optimizer_variables().values():
            variable.assign(tf.zeros(variable.shape, variable.dtype))
        self._seed_dropout(0)

    def state(self) -> State:
        slots = {name: np.array(variable.numpy()) for name, variable in self._optimizer_variables().items()}
        return self.weights() | slots

    def restore(self, state: Mapping[str, npt.NDArray[Any]]) -> None:
        variables = self._optimizer_variables()
        if missing := variables.keys() - state.keys():
            raise ValueError(f"the state lacks {', '.join(sorted(missing))}")
        self.load(dict(state))
        for name, variable in variables.items():
            variable.assign(state[name])

    def step(self, images: Images, labels: Labels) -> float:
        self._model.reset_metrics()
        batch = tf.data.Dataset.from_tensor_slices((images, labels)).batch(len(labels))
        return float(self._train_step(iter(batch))["loss"])

    def train_epoch(self, train: TrainSet, epoch: int, meter: Meter) -> Sums:
        if self._feed is None or self._fed is not train:
            self._feed, self._fed = self._make_feed(train), train
            self._loader, self._workers = self._feed.description, self._feed.workers
        batch = self._scenario.batch
        self._prepare({min(batch, len(train)), len(train) % batch} - {0}, self._step_on_zeros)
        meter.begin()
        self._seed_dropout(epoch)
        with report_unreadable(train) if isinstance(train, Photos) else nullcontext():
            return self._fit(self._feed.epoch(epoch), len(train), meter)

    def _fit(self, batches: Any, images_per_epoch: int, meter: Meter) -> Sums:
        """Call `Model.fit`, and count its steps by a function around the one that it calls for each step.

        A callback at the end of a batch would make Keras wait for the device after every step, because Keras hands
        the callback the losses as numbers.
        """
        seen = 0

        def counted_step(iterator: Any) -> dict[str, Any]:
            nonlocal seen
            logs = self._train_step(iterator)
            images = min(self._scenario.batch, images_per_epoch - seen)
            seen += images
            if meter.step(images):
                tf.test.experimental.sync_devices()
                if not meter.mark():
                    self._model.stop_training = True
            return logs

        self._model.train_function = counted_step
        history = self._model.fit(batches, epochs=1, shuffle=False, verbose=0).history
        return Sums(seen, history["loss"][0] * seen, round(history["accuracy"][0] * seen))

    def resident_steps(self, images: Images, labels: Labels) -> Callable[[int], None]:
        with tf.device(self._model.trainable_variables[0].value.device):
            batch = tf.convert_to_tensor(images), tf.convert_to_tensor(labels)

        def run(steps: int) -> None:
            # Keras takes any iterator. One of `tf.data` would copy the batch from the host at each step.
            repeated = itertools.repeat(batch)
            self._model.reset_metrics()
            for _ in range(steps):
                self._train_step(repeated)
            tf.test.experimental.sync_devices()

        return run

    def logits(self, images: Images) -> Logits:
        return np.asarray(self._logits(images).numpy())

    def predictor(self, batch: int) -> Callable[[Images], npt.NDArray[np.float32]]:
        """Return the network as one `tf.function` of this batch size, on a copy of the weights.

        Keras' documentation recommends calling the model itself rather than `predict` on inputs that fit in one batch.
        """
        weights = [tf.identity(variable.value) for variable in self._model.trainable_variables]
        others = [tf.identity(variable.value) for variable in self._model.non_trainable_variables]
        serve = tf.function(
            lambda images: self._model.stateless_call(weights, others, images, training=False)[0],
            input_signature=[tf.TensorSpec((batch, *self._scenario.image), tf.float32)],
            jit_compile=bool(self._jit_compile("latency" if batch == 1 else "throughput")),
        )
        serve.get_concrete_function()  # traces now, not in the first call
        return lambda images: serve(images).numpy()

    def placement(self) -> Placement:
        tf32 = self._rounds_to_tf32() if self._options.device == "cuda" else None
        compiled = any(self._jit_compile(purpose) for purpose in ("latency", "throughput"))
        serving = f"tf.function of the model{', compiled by XLA' if compiled else ''}"
        placed = kernels.placement(self._model, self.loop, self._loader, tf32)
        return replace(placed, workers=self._workers, serving=serving)

    def device_peak_bytes(self) -> int | None:
        return int(tf.config.experimental.get_memory_info("GPU:0")["peak"]) if self._options.device == "cuda" else None

    def _optimizer_variables(self) -> dict[str, Any]:
        """Return the optimizer's state and its step count, by their names in a `State`."""
        optimizer = self._model.optimizer
        variables = (variable for variable in optimizer.variables if variable is not optimizer.learning_rate)
        return {f"optimizer/{number}": variable for number, variable in enumerate(variables)}

    def _make_optimizer(self) -> Any:
        return build_optimizer(self._scenario.optimizer)

    def _make_feed(self, train: TrainSet) -> Feed:
        batch, seed = self._scenario.batch, self._options.seed
        if isinstance(train, Photos):
            return PhotoFeed(train, batch, seed, self._options.photo_threads)
        return ArrayFeed(train, batch, seed, self._options.threads)

    def _jit_compile(self, _purpose: str) -> bool | str:
        """Return Keras' `jit_compile` for a purpose: "network" (training), "latency" or "throughput".

        Keras' default "auto" would choose XLA on the CPU too, on a machine whose GPU is hidden from this process.
        """
        return "auto" if self._options.device == "cuda" else False

    def _prepare(self, sizes: Collection[int], train_step: Callable[[int], object]) -> None:
        """Train a step of each batch size of an epoch, and undo its updates, before a clock runs.

        XLA compiles a step for each batch size when it first runs, and TensorFlow's kernels choose cuDNN's algorithms
        for each. Otherwise the short last batch would do so in a measured window.
        """
        new = set(sizes) - self._prepared
        if not new or not (self._model.jit_compile or self._options.device == "cuda"):
            return
        variables = [*self._model.trainable_variables, *self._model.optimizer.variables]
        before = [tf.identity(variable.value) for variable in variables]
        for size in sorted(new):
            train_step(size)
        for variable, value in zip(variables, before, strict=True):
            variable.assign(value)
        self._prepared |= new

    def _step_on_zeros(self, size: int) -> None:
        self.step(np.zeros((size, *self._scenario.image), np.float32), np.zeros(size, np.int64))

    def _rounds_to_tf32(self) -> bool:
        """Return whether large products, or float32 steps that run as this model's steps do, round to TF32.

        The libraries may have no TF32 kernel for the shapes of a small network.
        """
        options = replace(self._options, precision="fp32")
        build = partial(type(self), options)
        return kernels.rounds_to_tf32() or step_rounds_to_tf32(build, self._scenario)

    def _seed_dropout(self, epoch: int) -> None:
        for place, layer in enumerate(self._model.layers):
            if isinstance(layer, keras.layers.Dropout) and layer.rate > 0:
                words = np.random.SeedSequence([self._options.seed, epoch, place]).generate_state(1)
                layer.seed_generator.state.assign([int(words[0]), 0])
