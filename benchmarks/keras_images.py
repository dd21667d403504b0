"""Keras' own loader of the cat-and-dog studies, ImageDataGenerator on a folder of JPEG files, with one worker.

    python -m benchmarks.keras_images PHOTOS --images 1920 --size 64

What the kit's image pipeline is measured against. Beside TensorFlow it needs scipy.
"""

from __future__ import annotations

import itertools
import sys
from contextlib import redirect_stdout

from keras.src.legacy.preprocessing.image import ImageDataGenerator

from benchmarks import side


def main() -> None:
    """Load epochs of batches as they are asked for."""
    options = side.photo_parser().parse_args()
    size = (options.size, options.size)
    augment = ImageDataGenerator(rescale=1 / 255, shear_range=0.2, zoom_range=0.2, horizontal_flip=True)
    with redirect_stdout(sys.stderr):  # it tells how many it found
        batches = augment.flow_from_directory(
            options.photos, target_size=size, batch_size=side.PHOTO_BATCH, class_mode="binary"
        )
    numbers = itertools.cycle(range(batches.samples // side.PHOTO_BATCH))  # whole batches

    def epoch() -> None:
        for number in itertools.islice(numbers, options.images // side.PHOTO_BATCH):
            batches[number]

    side.serve({side.COMMAND: side.Loop(0, options.images, lambda: None, epoch)})


if __name__ == "__main__":
    main()
