"""Format the checksums of a prepared data set like `sha256sum`. The host writes them, and workers compare them."""

from collections.abc import Mapping

FILE = "SHA256SUMS"  # in the folder of the data set


def to_text(digests: Mapping[str, str]) -> str:
    """Return one line per file, sorted by name. digests: SHA-256 (hex) by name, relative to the folder of the set."""
    return "".join(f"{digest}  {name}\n" for name, digest in sorted(digests.items()))


def from_text(text: str) -> dict[str, str]:
    """Return SHA-256 (hex) by name. Raise ValueError if a line has no name."""
    pairs = (line.split("  ", 1) for line in text.splitlines())
    return {name: digest for digest, name in pairs}
