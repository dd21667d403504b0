"""Define where packages come from when environments and images are made: options, else pip's configuration.

Sources are not part of an environment's identity: the lock's hashes decide which files are accepted.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from kit.host import pip_config
from kit.model.errors import UsageError

# PyTorch publishes its CPU builds (+cpu) on a separate page.
CPU_WHEELS = "https://download.pytorch.org/whl/cpu/torch/"
# Docker's grammar (distribution/reference): host, path, tag, digest.
HOST = r"(?:(?:localhost|[A-Za-z0-9-]*[.:][A-Za-z0-9.:-]*)/)?"
PART = r"[a-z0-9]+(?:(?:\.|__?|-+)[a-z0-9]+)*"
IMAGE_NAME = re.compile(rf"{HOST}{PART}(?:/{PART})*(?::\w[\w.-]{{0,127}})?(?:@[a-z0-9]+:[0-9a-fA-F]{{32,}})?", re.ASCII)


@dataclass(frozen=True)
class Sources:
    """The sources of packages and images.

    index_url: package index; None: the installer's default. find_links: a folder or page with more wheels, for CPU
    environments only (in a CUDA build it would shadow the CUDA wheel). ca_bundle: certificates of a proxy or mirror, as
    a PEM file. base_image: the image from which images are built.
    """

    index_url: str | None = None
    find_links: str = CPU_WHEELS
    ca_bundle: Path | None = None
    base_image: str = "debian:bookworm-slim"

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Self:
        """Read `KIT_INDEX_URL`, `KIT_FIND_LINKS`, `KIT_CA_BUNDLE` and `KIT_BASE_IMAGE`. pip's own settings replace
        unset ones, so that a machine on which pip works needs no second configuration.

        Raise UsageError if the CA bundle is missing or cannot be read, or if the base image is not a name.
        """
        given = os.environ if environment is None else environment
        pip = pip_config.read(given)
        base_image = given.get("KIT_BASE_IMAGE") or cls.base_image
        if not IMAGE_NAME.fullmatch(base_image):
            raise UsageError(
                f"The base image {base_image!r} is not the name of an image.",
                f"Set --base-image or KIT_BASE_IMAGE to a name, for example {cls.base_image}.",
            )
        return cls(
            index_url=given.get("KIT_INDEX_URL") or pip.get("index-url"),
            find_links=given.get("KIT_FIND_LINKS") or next(iter(pip.get("find-links", "").split()), CPU_WHEELS),
            ca_bundle=pip_config.ca_bundle(given, pip),
            base_image=base_image,
        )

    def find_links_folder(self) -> Path | None:
        """Return the wheel folder, None if `find_links` is a page. Raise UsageError if the folder is missing."""
        if "://" in self.find_links:
            return None
        folder = Path(self.find_links).absolute()
        if not folder.is_dir():
            raise UsageError(f"The wheel folder {folder} is missing.", "Set KIT_FIND_LINKS to a folder or a URL.")
        return folder

    def variables(self) -> dict[str, str]:
        """Return the environment for a program that fetches packages: that of this process, with the CA bundle."""
        return {**os.environ, **({"SSL_CERT_FILE": str(self.ca_bundle)} if self.ca_bundle else {})}

    def index_variables(self) -> dict[str, str]:
        """Return the variable that names the index to uv. As an argument, every user of the machine could read it, and
        a URL may contain a password."""
        return {"UV_DEFAULT_INDEX": self.index_url} if self.index_url else {}

    def wheel_variables(self) -> dict[str, str]:
        """Return the variable that names `find_links` to uv. Raise UsageError if the folder is missing."""
        return {"UV_FIND_LINKS": str(self.find_links_folder() or self.find_links)}
