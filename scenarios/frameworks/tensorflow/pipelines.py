"""Parts of `tf.data` pipelines: photos read, scaled and augmented by TensorFlow, and the threads of a pipeline."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from scenarios.adapter import Images, Photos
from scenarios.data.augment import Matrix
from scenarios.data.errors import PHOTO_REMEDY, DataCorrupt, unreadable
from scenarios.data.readers import short

READ_BATCH = 64
PREFETCHED_BATCHES = 2


def prefetch(dataset: Any, threads: int) -> Any:
    """Return `dataset` with `threads` private threads, which work PREFETCHED_BATCHES ahead.

    Graph rewriting is off, because it would copy the arrays in the graph at the start of each epoch. Autotuning is
    off, because the tuner wakes 10, 30, 70, ... 2,550, 5,110 ms after an epoch's first batch, and an iterator that is
    dropped waits for the next of these times: an epoch of 3 s may end after 5.1 s.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    options.threading.private_threadpool_size = threads
    options.experimental_optimization.apply_default_optimizations = False
    return dataset.prefetch(PREFETCHED_BATCHES).with_options(options)


def pipeline_threads(dataset: Any) -> int:
    """Return the number of private threads of a pipeline, as TensorFlow reports it."""
    return int(dataset.options().threading.private_threadpool_size)


def read_photo(path: Any, size: tuple[int, int]) -> Any:
    """Decode one JPEG file as RGB, and scale it by nearest neighbor: (H, W, 3) bytes.

    The accurate cosine transform gives the pixels of Pillow and OpenCV, which the other frameworks' loaders use.
    TensorFlow's faster default differs from it by up to 4% of full scale.
    """
    pixels = tf.io.decode_jpeg(tf.io.read_file(path), channels=3, dct_method="INTEGER_ACCURATE")
    return scale(pixels, size)


def scale(pixels: Any, size: tuple[int, int]) -> Any:
    """Scale pixels (h, w, C) to (H, W, C), as `Scenario.scaling` defines it.

    `tf.image.resize` computes positions in float32. At some sizes, it rounds a position that lies exactly between two
    pixels to the wrong side.
    """
    lengths = tf.shape(pixels)
    rows, columns = ((2 * tf.range(size[axis]) + 1) * lengths[axis] // (2 * size[axis]) for axis in (0, 1))
    return tf.gather(tf.gather(pixels, rows), columns, axis=1)


def to_floats(pixels: Any) -> Any:
    """Return bytes as float32 in [0, 1]."""
    return tf.cast(pixels, tf.float32) / 255


def decode_photos(photos: Photos, threads: int) -> Iterator[npt.NDArray[np.uint8]]:
    """Yield the decoded photos (H, W, 3) in their order, without augmentation."""
    paths = tf.data.Dataset.from_tensor_slices([str(path) for path in photos.paths])
    read = paths.map(lambda path: read_photo(path, photos.size), num_parallel_calls=threads)
    chunks = prefetch(read.batch(READ_BATCH), threads).as_numpy_iterator()
    return (pixels for chunk in chunks for pixels in chunk)


def read_photos(photos: Photos, threads: int) -> Images:
    """Return all photos in their own order, without augmentation: (N, H, W, 3) float32 in [0, 1].

    Raise DataCorrupt if a photo cannot be read.
    """
    images = np.empty((len(photos), *photos.size, 3), np.float32)
    with report_unreadable(photos):
        for index, pixels in enumerate(decode_photos(photos, threads)):
            np.divide(pixels, np.float32(255), out=images[index])
    return images


def projective_rows(maps: Matrix) -> npt.NDArray[np.float32]:
    """Return the (N, 2, 3) maps of `draw_maps` as the (N, 8) rows of TensorFlow's projective transform.

    Both map (column, row) of the result to a position in the original.
    """
    return np.pad(maps.reshape(len(maps), 6), ((0, 0), (0, 2))).astype(np.float32)


def warp(images: Any, transforms: Any) -> Any:
    """Transform each image of (N, H, W, C) by its row of `projective_rows`: bilinear, edge pixels repeated outside."""
    return tf.raw_ops.ImageProjectiveTransformV3(
        images=images,
        transforms=transforms,
        output_shape=images.shape[1:3],
        fill_value=0.0,
        interpolation="BILINEAR",
        fill_mode="NEAREST",
    )


@contextmanager
def report_unreadable(photos: Photos) -> Iterator[None]:
    """Turn TensorFlow's error about a file, which does not name the file, into a DataCorrupt that does."""
    try:
        yield
    except (tf.errors.InvalidArgumentError, tf.errors.NotFoundError):
        for path in photos.paths:
            try:
                read_photo(str(path), (1, 1))
            except tf.errors.OpError as error:
                raise DataCorrupt(unreadable(short(path), type(error).__name__), PHOTO_REMEDY) from error
        raise
