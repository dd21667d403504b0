"""The adapters, one folder per framework. `scenarios.adapter` defines their protocol."""

import os

# Set before anything imports ONNX Runtime, whose telemetry would store a device id in the cache folder and send it.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"
