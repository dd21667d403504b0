"""Put pictures on pages of kit."""

from base64 import b64encode

from markupsafe import Markup


def jpeg_address(content: bytes) -> Markup:
    """Return a JPEG file as the address of an `img`."""
    return Markup("data:image/jpeg;base64,{}").format(b64encode(content).decode())
