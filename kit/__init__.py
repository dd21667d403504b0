"""The orchestrator: builds environments, launches workers, keeps records, writes the report."""

import sys

from kit.assets import ROOT

__version__ = "0.1.0"

# In an installed wheel the `scenarios` package lies among the assets; in a checkout beside this package. Appended,
# so that the folder `docker` there never hides docker-py.
if str(ROOT) not in sys.path:
    sys.path.append(str(ROOT))
