"""Start as the fork server does, up to its forks: import a framework and list its settings for each scenario.

    python start_without_threads.py FRAMEWORK DEVICE

Fail if a thread runs then, or if a scenario has nothing to tune. No GPU is needed, also with packages for CUDA.
"""

import sys

from scenarios import catalog
from scenarios.adapter import Options
from scenarios.prepare import load_adapter
from scenarios.tuning.fork_server import require_no_threads

adapter = load_adapter(sys.argv[1])
for name, variants in catalog.load().items():
    axes = adapter.axes(Options(device=sys.argv[2]), variants[""])  # type: ignore[arg-type]
    if not any(len(values) > 1 for values in axes["training"].values()):
        sys.exit(f"{name} has no settings for training.")
require_no_threads()
