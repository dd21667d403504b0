"""The tuned lane's training loops inside the graph, over a set that stays on the device.

With `loop = graph`, TensorFlow runs the loop, and each step is made of its kernels or is one program of XLA. With
`loop = compiled`, the loop is one program of XLA, which gathers the batches and trains any number of steps.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from scenarios.adapter import Images, Labels, Meter, Options, Photos, Sums, TrainSet
from scenarios.data.photos import draw_epoch
from scenarios.frameworks.tensorflow.pipelines import decode_photos, report_unreadable, to_floats
from scenarios.frameworks.tensorflow.tuned import TunedModel
from scenarios.spec import Scenario
from scenarios.weights import Weights

Steps = Callable[[list[Any], Any, int, int], None]


class GraphLoopModel(TunedModel):
    """`TunedModel` with a training loop inside the graph. One call runs a whole window of Keras' training steps."""

    def __init__(self, options: Options, scenario: Scenario, weights: Weights) -> None:
        self.loop = options.settings["loop"]
        super().__init__(options, scenario, weights)
        self._steps = self._make_steps(tf.float32, lambda images, labels: (images, labels))
        self._epoch_steps = self._steps
        self._resident: list[Any] = []  # the training set on the device

    def step(self, images: Images, labels: Labels) -> float:
        self.resident_steps(images, labels)(1)
        return float(self._model.get_metrics_result()["loss"])

    def train_epoch(self, train: TrainSet, epoch: int, meter: Meter) -> Sums:
        if self._fed is not train:
            self._place_set(train)
            data, batches = self._place_epoch(train, epoch)
            self._prepare(batches, lambda size: self._epoch_steps(data, batches[size], 0, 1))
        meter.begin()
        data, batches = self._place_epoch(train, epoch)
        self._seed_dropout(epoch)
        self._model.reset_metrics()
        seen = self._run_epoch(data, batches, meter)
        means = self._model.get_metrics_result()
        return Sums(seen, float(means["loss"]) * seen, round(float(means["accuracy"]) * seen))

    def resident_steps(self, images: Images, labels: Labels) -> Callable[[int], None]:
        *data, batches = self._place(images, labels, np.arange(len(labels))[None])

        def run(steps: int) -> None:
            self._model.reset_metrics()
            self._steps(data, batches, 0, steps)
            tf.test.experimental.sync_devices()

        return run

    def _jit_compile(self, purpose: str) -> bool | str:
        return True if purpose == "network" and self.loop == "compiled" else super()._jit_compile(purpose)

    def _make_steps(self, pixels: Any, make_batch: Callable[..., tuple[Any, Any]], *more: Any) -> Steps:
        """Return a function that trains steps on batches gathered from a set on the device.

        Its arguments: the set, as tensors with one row per image; the rows of each batch, (batches, batch size), which
        repeat after the last; the first step; the number of steps.

        pixels: data type of the images. make_batch: from the batch's rows of each tensor to images and labels. more:
        specifications of the set's tensors after images and labels.
        """
        whole_loop = self.loop == "compiled"
        train_step = tf.function(
            self._model.train_step, jit_compile=self._model.jit_compile and not whole_loop, reduce_retracing=True
        )

        def steps(data: Any, batches: Any, first: Any, count: Any) -> None:
            length, step = tf.shape(batches)[0], first
            while step < first + count:  # XLA would compile a loop over `tf.range` again for each first step and count
                chosen = batches[step % length]
                train_step(make_batch(*(tf.gather(rows, chosen) for rows in data)))
                step += 1

        # TensorFlow keeps int32 scalars on the host. Each step would wait for an int64 counter from the GPU.
        scalar = tf.TensorSpec((), tf.int32)
        images, labels = tf.TensorSpec((None, *self._scenario.image), pixels), tf.TensorSpec((None,), tf.int64)
        signature = [[images, labels, *more], tf.TensorSpec((None, None), tf.int64), scalar, scalar]
        compiled: Steps = tf.function(steps, input_signature=signature, jit_compile=whole_loop or None)
        return compiled

    def _place(self, *arrays: npt.NDArray[Any]) -> list[Any]:
        """Return the arrays as tensors on the device that trains."""
        with tf.device(self._model.trainable_variables[0].value.device):
            return [tf.convert_to_tensor(values) for values in arrays]

    def _place_set(self, train: TrainSet) -> None:
        if isinstance(train, Photos):
            pixels = np.empty((len(train), *train.size, 3), np.uint8)
            with report_unreadable(train):
                for row, photo in zip(pixels, decode_photos(train, self._options.threads), strict=True):
                    row[:] = photo
            maps = [tf.TensorSpec((None, 2, 3), tf.float32)] if train.augment else []
            self._epoch_steps = self._make_steps(tf.uint8, photo_batch, *maps)
            self._resident = self._place(pixels, train.labels)
            self._loader = "decoded photos, gathered and augmented in the graph, a window of steps in one call"
        else:
            self._epoch_steps = self._steps
            self._resident = self._place(train.images, train.labels)
            self._loader = "batches gathered in the graph, a window of steps in one call"
        self._fed, self._prepared = train, set()

    def _place_epoch(self, train: TrainSet, epoch: int) -> tuple[list[Any], dict[int, Any]]:
        """Return the set with the epoch's augmentation maps and, for each batch size, the rows of its batches."""
        order, maps = self._draw_epoch(train, epoch)
        batches = {rows.shape[1]: rows for rows in self._place(*cut_batches(order, self._scenario.batch))}
        return [*self._resident, *self._place(*maps)], batches

    def _draw_epoch(self, train: TrainSet, epoch: int) -> tuple[npt.NDArray[np.int64], list[npt.NDArray[np.float32]]]:
        """Return the order of the images (N,), and a list of their augmentation maps (N, 2, 3), if they have any."""
        if isinstance(train, Photos):
            order, maps = draw_epoch(train, self._options.seed, epoch)
            return order, [] if maps is None else [maps.astype(np.float32)]
        return np.random.default_rng([self._options.seed, epoch]).permutation(len(train)), []

    def _run_epoch(self, data: list[Any], batches: Mapping[int, Any], meter: Meter) -> int:
        """Train until the epoch ends or the meter stops it. Return the number of images.

        batches: for each batch size, the rows of its batches.
        """
        seen = 0
        for size, rows in batches.items():
            done = 0
            while done < len(rows):
                count = min(meter.due(), len(rows) - done)
                self._epoch_steps(data, rows, done, count)
                done, seen = done + count, seen + count * size
                if [meter.step(size) for _ in range(count)][-1]:
                    tf.test.experimental.sync_devices()
                    if not meter.mark():
                        return seen
        return seen


def cut_batches(order: npt.NDArray[np.int64], batch: int) -> list[npt.NDArray[np.int64]]:
    """Cut an order (N,) into its whole batches, (N // batch, batch), and its short last one, (1, N % batch), if any."""
    whole = len(order) // batch * batch
    return [rows for rows in (order[:whole].reshape(-1, batch), order[whole:][None]) if rows.size]


def photo_batch(pixels: Any, labels: Any, maps: Any = None) -> tuple[Any, Any]:
    """Return images (b, H, W, 3) float32 in [0, 1] from bytes, augmented if there are maps, and their labels."""
    images = to_floats(pixels)
    return images if maps is None else warp(images, maps), labels


def warp(images: Any, maps: Any) -> Any:
    """Warp each of the images (b, H, W, C) by its map of `draw_maps`, (b, 2, 3): bilinear, edge pixels repeated.

    XLA has no kernel for the projective transform of `pipelines.warp`, so this gathers the four neighbors of each
    pixel. The positions are plain sums, because a matrix product may be rounded to TF32.
    """
    height, width, channels = images.shape[1:]
    columns, rows = tf.range(width, dtype=tf.float32), tf.range(height, dtype=tf.float32)[:, None]

    def neighbors(axis: int, length: int) -> tuple[Any, Any, Any]:
        """Return the neighbors before and after each position on an axis, and the weight of the latter: (b, H, W)."""
        by_column, by_row, shift = (maps[:, axis, term, None, None] for term in range(3))
        position = tf.clip_by_value(by_column * columns + by_row * rows + shift, 0, length - 1)
        before = tf.floor(position)
        first = tf.cast(before, tf.int32)
        return first, tf.minimum(first + 1, length - 1), position - before

    left, right, to_right = neighbors(0, width)
    upper, lower, to_lower = neighbors(1, height)
    pixels = tf.reshape(images, (-1, height * width, channels))

    def between(row: Any) -> Any:
        at_left, at_right = (tf.gather(pixels, row * width + column, batch_dims=1) for column in (left, right))
        return at_left + (at_right - at_left) * to_right[..., None]

    above, below = between(upper), between(lower)
    return above + (below - above) * to_lower[..., None]
