"""Define the errors of data sets in the worker."""


class DataProblem(Exception):
    """A data set cannot be used. remedy: what the user can do about it, in one sentence."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message)
        self.remedy = remedy


class DataUnavailable(DataProblem):
    """The files are missing."""


class DataCorrupt(DataProblem):
    """The files do not have the expected content."""


PHOTO_REMEDY = "Replace or remove the photo, then add the data set again with `kit data add`."


def unreadable(photo: str, reason: str) -> str:
    """Return the message about a photo that cannot be decoded. photo: its name for the user."""
    return f"{photo} is not a readable JPEG file ({reason})."
