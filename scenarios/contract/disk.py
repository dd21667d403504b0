"""Recognize a full disk in exceptions and in the output of programs."""

import errno
import re

NO_SPACE = {errno.ENOSPC, errno.EDQUOT}
NO_SPACE_TEXT = re.compile(r"no space left on device|disk quota exceeded", re.IGNORECASE)
# Limits with the same message: the shared memory of a container, and the kernel's limit of watched files.
OTHER_LIMITS = re.compile(r"shm|shared memory|</torch_|inotify", re.IGNORECASE)


def says_full(text: str) -> bool:
    """Return whether a message says that the disk is full."""
    return bool(NO_SPACE_TEXT.search(text)) and not OTHER_LIMITS.search(text)


def is_full(error: BaseException) -> bool:
    """Return whether an exception says that the disk is full, or was raised because of one that says so.

    Frameworks often raise an exception of their own that has only the text of the cause.
    """
    chain: list[BaseException] = []
    found: BaseException | None = error
    while found is not None and found not in chain:  # an exception may be its own cause
        chain.append(found)
        found = found.__cause__ or found.__context__
    numbered = [each for each in chain if getattr(each, "errno", None) in NO_SPACE]
    return any(says_full(str(each)) for each in chain) or any(not OTHER_LIMITS.search(str(each)) for each in numbered)
