"""The orchestrator: it builds environments, launches workers, keeps records and writes the report."""

import sys

try:
    from kit.assets import ROOT
except KeyboardInterrupt:  # in the first milliseconds, before `kit.cli.main` handles signals
    sys.stderr.write("Interrupted.\n")
    sys.exit(130)

__version__ = "0.1.0"

# Import the `scenarios` package of the chosen assets before any other. The folder `docker` next to it has no
# __init__.py, so the regular package docker-py takes precedence in any order of the path.
sys.path.insert(0, str(ROOT))
