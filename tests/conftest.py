"""What holds for all tests."""

from __future__ import annotations

import signal

# A shell that starts a test run in the background has it ignore Ctrl-C; tests that send one need it heard.
signal.signal(signal.SIGINT, signal.default_int_handler)
