"""Load photos as the cat-and-dog studies do, with Keras' ImageDataGenerator and one worker: the pipeline's baseline.

    python -m benchmarks.keras_images PHOTOS --images 1920 --size 64

In addition to TensorFlow, the generator needs scipy.
"""

from __future__ import annotations

import itertools
import sys
from contextlib import redirect_stdout

from keras.src.legacy.preprocessing.image import ImageDataGenerator

from benchmarks import side


def main() -> None:
    """Load epochs of batches on request."""
    args = side.photo_parser().parse_args()
    size = (args.size, args.size)
    augment = ImageDataGenerator(rescale=1 / 255, shear_range=0.2, zoom_range=0.2, horizontal_flip=True)
    with redirect_stdout(sys.stderr):  # it prints the number of photos
        batches = augment.flow_from_directory(
            args.photos, target_size=size, batch_size=side.PHOTO_BATCH, class_mode="binary"
        )
    numbers = itertools.cycle(range(batches.samples // side.PHOTO_BATCH))  # whole batches

    def epoch() -> None:
        for number in itertools.islice(numbers, args.images // side.PHOTO_BATCH):
            batches[number]

    side.serve({side.COMMAND: side.Loop(0, args.images, lambda: None, epoch)})


if __name__ == "__main__":
    main()
