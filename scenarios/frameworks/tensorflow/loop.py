"""A training loop inside the graph: a whole window of Keras' training steps in one call, on batches gathered in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from scenarios.adapter import Arrays, Images, Labels, Meter


class GraphLoop:
    """Steps of a compiled Keras model, the very ones that `fit` makes, over images that lie on a device."""

    def __init__(self, model: Any, shape: tuple[int, ...], device: str) -> None:
        self._device = device
        train_step = tf.function(model.train_step, jit_compile=model.jit_compile, reduce_retracing=True)

        def steps(images: Any, labels: Any, order: Any, batch: Any, first: Any, count: Any) -> None:
            for step in tf.range(first, first + count):
                chosen = order[step * batch : (step + 1) * batch]
                train_step((tf.gather(images, chosen), tf.gather(labels, chosen)))

        many = tf.TensorSpec((None, *shape), tf.float32), tf.TensorSpec((None,), tf.int64)
        self._steps = tf.function(
            steps, input_signature=[*many, tf.TensorSpec((None,), tf.int64), *[tf.TensorSpec((), tf.int64)] * 3]
        )

    def place(self, images: Images, labels: Labels) -> Callable[[Any, int, int, int], None]:
        """Put a set on the device. The callable makes steps: order (places in the set), batch, first step, count."""
        with tf.device(self._device):
            placed = tf.convert_to_tensor(images), tf.convert_to_tensor(labels)
        return lambda order, batch, first, count: self._steps(*placed, order, batch, first, count)


class GraphFeed:
    """Epochs over one set. description: in words for the report."""

    description = "batches gathered in the graph, a window of steps in one call"

    def __init__(self, loop: GraphLoop, arrays: Arrays, batch: int, seed: int) -> None:
        self._batch, self._seed, self._images = batch, seed, len(arrays)
        self._steps = loop.place(arrays.images, arrays.labels)

    def epoch(self, epoch: int, meter: Meter) -> int:
        """Train one epoch, or until `meter` says that it is enough; returns the images seen."""
        images, batch = self._images, self._batch
        order = tf.constant(np.random.default_rng([self._seed, epoch]).permutation(images))
        steps = -(-images // batch)
        done = 0
        meter.begin()
        while done < steps:
            count = min(meter.due(), steps - done)
            self._steps(order, batch, done, count)
            sizes = [min(batch, images - step * batch) for step in range(done, done + count)]
            done += count
            if [meter.step(size) for size in sizes][-1]:
                tf.test.experimental.sync_devices()
                if not meter.mark():
                    break
        return min(images, done * batch)
