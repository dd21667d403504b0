"""What a person sees: progress while the kit works, tables at the end. Rich on a terminal, plain lines where there is
none. Progress goes to stderr, so that stdout holds nothing but results."""

from __future__ import annotations

import re


def harmless(text: str) -> str:
    """The text without what a terminal would obey, nor what UTF-8 or XML cannot hold: records and data sets may come
    from strangers."""
    return re.sub(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]", "?", text)
