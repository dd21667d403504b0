"""Setup for all tests."""

from __future__ import annotations

import signal

# A shell starts background processes with SIGINT ignored. Tests that send SIGINT need the default handler.
signal.signal(signal.SIGINT, signal.default_int_handler)
