"""Define the picture of augmented photos that the first launch of a cell with augmentation leaves.

It shows photos of the synthetic set only, so a report may contain it.
"""

import re
from dataclasses import dataclass

AUGMENTED_FILE = "augmented.jpg"  # in the scratch folder of the launch
MAX_PICTURE_BYTES = 20_000  # a report contains it
VERSIONS = 5  # augmented ones of each photo

DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class AugmentedPicture:
    """A picture of synthetic photos before and after augmentation. Its file is `pictures/<digest>.jpg` of the run.

    It has one row for each class. Each row has one photo at the size that the network sees, then VERSIONS augmented
    versions, made by the kit's own loader. digest: SHA-256 (hex) of the JPEG file, which has at most MAX_PICTURE_BYTES.
    """

    digest: str

    @property
    def file(self) -> str:
        """Return the name of the file in the folder `pictures`."""
        return f"{self.digest}.jpg"

    def check(self) -> None:
        """Raise ValueError if the digest is not a SHA-256 in hex. Its file could then have any name."""
        if not DIGEST.fullmatch(self.digest):
            raise ValueError(f"{self.digest!r:.100} is not the SHA-256 of a picture")
