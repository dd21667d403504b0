"""The tuned lane in TensorFlow: what each setting of `settings.py` changes in the stock model.

Two settings are applied elsewhere: the adapter sets the threads, and the launcher chooses the memory allocator.
"""

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf

from scenarios.adapter import Arrays, Images, Labels, Meter, Options, Photos, Sums, TrainSet
from scenarios.data.photos import PhotoLoader, cache_photos
from scenarios.frameworks.tensorflow.fused_optimizers import FUSED
from scenarios.frameworks.tensorflow.model import Feed, KerasModel, build_optimizer
from scenarios.frameworks.tensorflow.pipelines import decode, prefetch, report_unreadable
from scenarios.spec import Scenario
from scenarios.weights import Weights

Steps = Callable[[Any, int, int, int], None]


class TunedModel(KerasModel):
    """`KerasModel` with the settings of the tuned lane."""

    def _make_optimizer(self) -> Any:
        if self._options.settings.get("optimizer") == "fused":
            return build_optimizer(self._scenario.optimizer, FUSED)
        return super()._make_optimizer()

    def _make_feed(self, train: TrainSet) -> Feed:
        if isinstance(train, Photos) and self._options.settings.get("feed") == "cached":
            return CachedFeed(train, self._scenario.batch, self._options.seed, self._options.threads)
        return super()._make_feed(train)

    def _jit_compile(self, purpose: str) -> bool | str:
        if purpose in self._options.settings:
            return self._options.settings[purpose] == "compiled"
        return super()._jit_compile(purpose)


class CachedFeed:
    """Photos that are decoded once, rounded to bytes, and augmented (to bytes, too) by the kit's own loader in threads.

    Both roundings stay within one gray level of what `PhotoFeed` gives.
    """

    description = "kit photo loader over decoded photos, threads"

    def __init__(self, photos: Photos, batch: int, seed: int, threads: int) -> None:
        decoded = (np.rint(255 * image).astype(np.uint8) for images in decode(photos, threads) for image in images)
        with report_unreadable(photos):
            cache = cache_photos(photos, decoded)
        self._epoch = 0
        spec = tf.TensorSpec((None, *photos.size, 3), tf.float32), tf.TensorSpec((None,), tf.int64)
        loaded = tf.data.Dataset.from_generator(
            lambda: PhotoLoader(photos, batch, seed, self._epoch, threads, cache), output_signature=spec
        )
        self._batches = prefetch(loaded, threads)

    def epoch(self, epoch: int) -> Any:
        self._epoch = epoch
        return self._batches


class GraphLoopModel(TunedModel):
    """`TunedModel` with `loop = graph`: a training loop inside the graph.

    One call runs a whole window of Keras' training steps, on batches that are gathered in the graph.
    """

    loop: ClassVar[str] = "graph"

    def __init__(self, options: Options, scenario: Scenario, weights: Weights) -> None:
        super().__init__(options, scenario, weights)
        train_step = tf.function(self._model.train_step, jit_compile=self._model.jit_compile, reduce_retracing=True)

        def steps(images: Any, labels: Any, order: Any, batch: Any, first: Any, count: Any) -> None:
            for step in tf.range(first, first + count):
                chosen = order[step * batch : (step + 1) * batch]
                train_step((tf.gather(images, chosen), tf.gather(labels, chosen)))

        # TensorFlow keeps int32 scalars on the host. Each step would wait for an int64 counter from the GPU.
        vector, scalar = tf.TensorSpec((None,), tf.int64), tf.TensorSpec((), tf.int32)
        images = tf.TensorSpec((None, *scenario.image), tf.float32)
        self._steps = tf.function(steps, input_signature=[images, vector, vector, scalar, scalar, scalar])
        self._placed: Steps | None = None

    def step(self, images: Images, labels: Labels) -> float:
        self.resident_steps(images, labels)(1)
        return float(self._model.get_metrics_result()["loss"])

    def train_epoch(self, train: TrainSet, epoch: int, meter: Meter) -> Sums:
        assert isinstance(train, Arrays), "`loop` is not offered for photos"
        if self._placed is None or self._fed is not train:
            self._placed, self._fed = self._place(train.images, train.labels), train
            self._loader = "batches gathered in the graph, a window of steps in one call"
        self._prepare(len(train))
        self._seed_dropout(epoch)
        self._model.reset_metrics()
        images, batch = len(train), self._scenario.batch
        order = tf.constant(np.random.default_rng([self._options.seed, epoch]).permutation(images))
        steps = -(-images // batch)
        done = 0
        meter.begin()
        while done < steps:
            count = min(meter.due(), steps - done)
            self._placed(order, batch, done, count)
            sizes = [min(batch, images - step * batch) for step in range(done, done + count)]
            done += count
            if [meter.step(size) for size in sizes][-1]:
                tf.test.experimental.sync_devices()
                if not meter.mark():
                    break
        seen, means = min(images, done * batch), self._model.get_metrics_result()
        return Sums(seen, float(means["loss"]) * seen, round(float(means["accuracy"]) * seen))

    def resident_steps(self, images: Images, labels: Labels) -> Callable[[int], None]:
        placed, batch = self._place(images, labels), len(labels)

        def run(steps: int) -> None:
            self._model.reset_metrics()
            placed(np.tile(np.arange(batch), steps), batch, 0, steps)
            tf.test.experimental.sync_devices()

        return run

    def _place(self, images: Images, labels: Labels) -> Steps:
        """Put a set on the device. Return a function that runs steps over it.

        Its arguments: the order (positions in the set), the batch size, the first step, the number of steps.
        """
        with tf.device(self._model.trainable_variables[0].value.device):
            placed = tf.convert_to_tensor(images), tf.convert_to_tensor(labels)
        return lambda order, batch, first, count: self._steps(*placed, order, batch, first, count)
