"""The orchestrator: builds environments, launches workers, keeps records, writes the report."""

import sys

from kit.assets import ROOT

__version__ = "0.1.0"

# The `scenarios` package of the chosen assets, before any other. The folder `docker` beside it has no __init__.py,
# so docker-py, a regular package, wins over it wherever it stands on the path.
sys.path.insert(0, str(ROOT))
