"""The adapters, one module a framework: see `base.py`."""

import os

# Before anything imports it: ONNX Runtime's telemetry would leave a device id in the cache folder, and send it.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"
