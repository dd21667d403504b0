"""Load photos with the kit's loader (OpenCV, one worker): the kit's side of a comparison.

python -m benchmarks.kit_images PHOTOS --images 1920 --size 64 --cached
"""

from __future__ import annotations

import itertools

import numpy as np

from benchmarks import side
from scenarios.adapter import Photos
from scenarios.data.photos import PhotoLoader, cache_photos, decode_photos
from scenarios.spec import Augment


def main() -> None:
    """Load epochs of batches on request."""
    parser = side.photo_parser()
    parser.add_argument("--cached", action="store_true", help="decode each photo once, before the first epoch")
    args = parser.parse_args()
    paths = sorted(args.photos.glob("*/*.jpg"))
    chosen = np.random.default_rng(0).permutation(len(paths))
    photos = Photos(
        [paths[index] for index in np.resize(chosen, args.images)],
        np.zeros(args.images, np.int64),
        (args.size, args.size),
        Augment(),
    )
    cache = cache_photos(photos, decode_photos(photos, 1)) if args.cached else None
    epochs = itertools.count()

    def epoch() -> None:
        for _ in PhotoLoader(photos, side.PHOTO_BATCH, 0, next(epochs), 1, cache):
            pass

    side.serve({side.COMMAND: side.Loop(0, len(photos), lambda: None, epoch)})


if __name__ == "__main__":
    main()
