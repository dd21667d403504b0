"""The tuned lane in TensorFlow: what each setting of `settings.py` changes in the stock model.

Three settings are applied elsewhere: the adapter sets the threads, the launcher chooses the memory allocator, and
`graph_loop.py` has the training loops inside the graph.
"""

from typing import Any

import tensorflow as tf

from scenarios.adapter import Photos, TrainSet
from scenarios.data.photos import PhotoLoader, cache_photos
from scenarios.frameworks.tensorflow.fused_optimizers import FUSED
from scenarios.frameworks.tensorflow.model import Feed, KerasModel, build_optimizer
from scenarios.frameworks.tensorflow.pipelines import decode_photos, prefetch, report_unreadable


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
    """Photos that are decoded once, and augmented by the kit's own loader in threads.

    The loader rounds augmented photos to bytes, so they are within one gray level of what `PhotoFeed` gives.
    """

    description = "kit photo loader over decoded photos, threads"

    def __init__(self, photos: Photos, batch: int, seed: int, threads: int) -> None:
        with report_unreadable(photos):
            cache = cache_photos(photos, decode_photos(photos, threads))
        self._epoch = 0
        spec = tf.TensorSpec((None, *photos.size, 3), tf.float32), tf.TensorSpec((None,), tf.int64)
        loaded = tf.data.Dataset.from_generator(
            lambda: PhotoLoader(photos, batch, seed, self._epoch, threads, cache), output_signature=spec
        )
        self._batches = prefetch(loaded, threads)

    def epoch(self, epoch: int) -> Any:
        self._epoch = epoch
        return self._batches
