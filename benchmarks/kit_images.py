"""The kit's side: its photo loader, which decodes by OpenCV, with one worker.

python -m benchmarks.kit_images PHOTOS --images 1920 --size 64 --cached
"""

from __future__ import annotations

import itertools

import numpy as np

from benchmarks import side
from scenarios.adapter import Photos
from scenarios.data.photos import PhotoLoader, decode_all, kept
from scenarios.spec import Augment


def main() -> None:
    """Load epochs of batches as they are asked for."""
    parser = side.photo_parser()
    parser.add_argument("--cached", action="store_true", help="decode each photo once, before the first epoch")
    options = parser.parse_args()
    paths = sorted(options.photos.glob("*/*.jpg"))
    chosen = np.random.default_rng(0).permutation(len(paths))
    photos = Photos(
        [paths[index] for index in np.resize(chosen, options.images)],
        np.zeros(options.images, np.int64),
        (options.size, options.size),
        Augment(),
    )
    cache = kept(photos, decode_all(photos, 1)) if options.cached else None
    epochs = itertools.count()

    def epoch() -> None:
        for _ in PhotoLoader(photos, side.PHOTO_BATCH, 0, next(epochs), 1, cache):
            pass

    side.serve({side.COMMAND: side.Loop(0, len(photos), lambda: None, epoch)})


if __name__ == "__main__":
    main()
