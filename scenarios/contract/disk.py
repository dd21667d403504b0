"""Recognize a full disk in exceptions and in the output of programs."""

import errno
import re

NO_SPACE = {errno.ENOSPC, errno.EDQUOT}
NO_SPACE_TEXT = re.compile(r"no space left on device|disk quota exceeded", re.IGNORECASE)


def is_full(error: BaseException) -> bool:
    """Return whether an exception says that the disk is full, or was raised because of one that says so.

    Frameworks often raise an exception of their own that has only the text of the cause.
    """
    chain: list[BaseException] = []
    found: BaseException | None = error
    while found is not None and found not in chain:  # an exception may be its own cause
        chain.append(found)
        found = found.__cause__ or found.__context__
    return any(NO_SPACE_TEXT.search(str(each)) or getattr(each, "errno", None) in NO_SPACE for each in chain)
