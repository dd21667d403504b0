"""What can be wrong with a data set inside a worker. Each says what to do about it."""

from __future__ import annotations


class DataProblem(Exception):
    """A data set that cannot be used. remedy: what the reader can do about it, in one sentence."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy


class DataUnavailable(DataProblem):
    """The files are not there."""


class DataCorrupt(DataProblem):
    """The files are there and are not what they should be."""


PHOTO_REMEDY = "Replace or remove the photo and add the data set anew with `kit data add`."


def unreadable(photo: str, reason: str) -> str:
    """What is said of a photo that no decoder takes. photo: its name, for people."""
    return f"{photo} is not a readable JPEG file ({reason})."
