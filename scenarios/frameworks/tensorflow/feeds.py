"""What feeds `Model.fit`: `tf.data` pipelines over arrays and over photos, shuffled anew each epoch by seed.

A pipeline is built once for a set; what changes from epoch to epoch, order and augmentation, lies in variables that
it reads. Keras' own shuffle of arrays is not used: under a seed it repeats one order in every epoch, and setting
another seed for each makes TensorFlow drop its kernels, so that the first step of an epoch prepares the whole graph
again (80 ms for a small network, 600 ms for a deep one).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from scenarios.adapter import Arrays, Images, Photos
from scenarios.data.augment import Matrix
from scenarios.data.errors import PHOTO_REMEDY, DataCorrupt, unreadable
from scenarios.data.photos import PhotoLoader, drawn, kept
from scenarios.data.readers import short

READ_BATCH = 64
AHEAD = 2


class ArrayFeed:
    """Batches gathered out of arrays in memory, in parallel and ahead of the steps, as Keras' own adapter for arrays
    does it. description: in words for the report."""

    description = "tf.data over arrays in memory, whole-set shuffle"

    def __init__(self, arrays: Arrays, batch: int, seed: int, threads: int) -> None:
        self._seed = seed
        with tf.device("CPU:0"):
            images, labels = tf.convert_to_tensor(arrays.images), tf.convert_to_tensor(arrays.labels)
            self._order = tf.Variable(np.arange(len(arrays)))

        def gather(start: Any) -> tuple[Any, Any]:
            chosen = self._order[start : start + batch]
            return tf.gather(images, chosen), tf.gather(labels, chosen)

        starts = tf.data.Dataset.range(0, len(arrays), batch)
        self._batches = prefetched(starts.map(gather, num_parallel_calls=threads), threads)

    def epoch(self, epoch: int) -> Any:
        """The `tf.data.Dataset` of this epoch's batches: images (b, H, W, C), labels (b,), the short last one too."""
        self._order.assign(np.random.default_rng([self._seed, epoch]).permutation(self._order.shape[0]))
        return self._batches


class PhotoFeed:
    """JPEG files decoded and scaled in parallel, batched, then augmented by one projective transform a photo: Keras'
    random layers know no shear by an angle, and would interpolate once more for each of shear and zoom.
    description: in words for the report."""

    description = "tf.data over JPEG files, whole-set shuffle, one projective transform a photo"

    def __init__(self, photos: Photos, batch: int, seed: int, threads: int) -> None:
        self._photos = photos
        self._seed = seed
        with tf.device("CPU:0"):
            paths, labels = tf.constant([str(path) for path in photos.paths]), tf.convert_to_tensor(photos.labels)
            self._order = tf.Variable(np.arange(len(photos)))
            self._transforms = tf.Variable(tf.zeros((len(photos), 8)))

        def load(place: Any) -> tuple[Any, Any, Any]:
            chosen = self._order[place]
            return read_photo(paths[chosen], photos.size), labels[chosen], self._transforms[chosen]

        def augment(images: Any, labels: Any, transforms: Any) -> tuple[Any, Any]:
            return (images if photos.augment is None else warp(images, transforms)), labels

        read = tf.data.Dataset.range(len(photos)).map(load, num_parallel_calls=threads).batch(batch)
        self._batches = prefetched(read.map(augment, num_parallel_calls=threads), threads)

    def epoch(self, epoch: int) -> Any:
        """See `ArrayFeed.epoch`."""
        order, maps = drawn(self._photos, self._seed, epoch)
        self._order.assign(order)
        if maps is not None:
            self._transforms.assign(projective(maps))
        return self._batches


class CachedFeed:
    """Photos that were decoded once, rounded to bytes, and are augmented by the kit's own loader in threads, to bytes,
    too: both at most one grey level away from what `PhotoFeed` gives. description: in words for the report."""

    description = "kit photo loader over decoded photos, threads"

    def __init__(self, photos: Photos, batch: int, seed: int, threads: int) -> None:
        decoded = (np.rint(255 * image).astype(np.uint8) for images in decode(photos, threads) for image in images)
        with unreadable_named(photos):
            cache = kept(photos, decoded)
        self._epoch = 0
        spec = tf.TensorSpec((None, *photos.size, 3), tf.float32), tf.TensorSpec((None,), tf.int64)
        loaded = tf.data.Dataset.from_generator(
            lambda: PhotoLoader(photos, batch, seed, self._epoch, threads, cache), output_signature=spec
        )
        self._batches = prefetched(loaded, threads)

    def epoch(self, epoch: int) -> Any:
        """See `ArrayFeed.epoch`."""
        self._epoch = epoch
        return self._batches


def decode(photos: Photos, threads: int) -> Any:
    """All photos in their own order, without augmentation: chunks (n, H, W, 3) float32 in [0, 1]."""
    paths = tf.data.Dataset.from_tensor_slices([str(path) for path in photos.paths])
    read = paths.map(lambda path: read_photo(path, photos.size), num_parallel_calls=threads)
    return prefetched(read.batch(READ_BATCH), threads).as_numpy_iterator()


def read_photos(photos: Photos, threads: int) -> Images:
    """All photos in their own order, without augmentation: (N, H, W, 3) float32 in [0, 1]. Raises DataCorrupt."""
    images = np.empty((len(photos), *photos.size, 3), np.float32)
    with unreadable_named(photos):
        for index, chunk in enumerate(decode(photos, threads)):
            images[index * READ_BATCH :][: len(chunk)] = chunk
    return images


def read_photo(path: Any, size: tuple[int, int]) -> Any:
    """Decode one JPEG file as RGB and scale it bilinearly, without averaging over the pixels it drops, as Keras'
    `image_dataset_from_directory` does: (H, W, 3) float32 in [0, 1].

    The accurate cosine transform is what Pillow and OpenCV, and so the other frameworks' loaders, see; TensorFlow's
    faster default is up to 4 % of full scale away from it.
    """
    pixels = tf.io.decode_jpeg(tf.io.read_file(path), channels=3, dct_method="INTEGER_ACCURATE")
    return tf.image.resize(pixels, size) / 255


def projective(maps: Matrix) -> npt.NDArray[np.float32]:
    """(N, 2, 3) maps of `draw_maps` as the (N, 8) rows that TensorFlow's projective transform takes: both lead from
    (column, row) of the outcome to the place in the original."""
    return np.pad(maps.reshape(len(maps), 6), ((0, 0), (0, 2))).astype(np.float32)


def warp(images: Any, transforms: Any) -> Any:
    """`images` (N, H, W, C) seen through one row of `projective` each: bilinear, edge pixels repeated outside."""
    return tf.raw_ops.ImageProjectiveTransformV3(
        images=images,
        transforms=transforms,
        output_shape=images.shape[1:3],
        fill_value=0.0,
        interpolation="BILINEAR",
        fill_mode="NEAREST",
    )


def prefetched(dataset: Any, threads: int) -> Any:
    """`dataset` on `threads` threads of its own, AHEAD batches before they are needed.

    Its graph is not rewritten, for which the arrays that it holds would be copied at the start of each epoch. Nothing
    in it is tuned while it runs: the tuner wakes 10, 30, 70, ... 2,550, 5,110 ms after an epoch's first batch, and an
    iterator that is dropped waits for its next waking, so that an epoch of 3 s may end after 5.1 s.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    options.threading.private_threadpool_size = threads
    options.experimental_optimization.apply_default_optimizations = False
    return dataset.prefetch(AHEAD).with_options(options)


@contextmanager
def unreadable_named(photos: Photos) -> Iterator[None]:
    """Turn TensorFlow's error about a file, which does not name it, into DataCorrupt, which does."""
    try:
        yield
    except (tf.errors.InvalidArgumentError, tf.errors.NotFoundError) as error:
        for path in photos.paths:
            if reason := _failure(str(path)):
                raise DataCorrupt(unreadable(short(path), reason), PHOTO_REMEDY) from error
        raise


def _failure(path: str) -> str:
    try:
        read_photo(path, (1, 1))
    except tf.errors.OpError as error:
        return type(error).__name__
    return ""
