"""Start an adapter on CUDA where there is no driver."""

import sys

from scenarios.adapter import DeviceUnavailable, Options
from scenarios.prepare import load_adapter


def start_on_cuda(framework: str) -> None:
    """Let the adapter try to use CUDA, so that this process loads what a launch loads. Exit if there is a driver."""
    try:
        load_adapter(framework)(Options(device="cuda"))
    except DeviceUnavailable:
        return
    sys.exit("These programs test what happens without a CUDA driver, but there is one.")
