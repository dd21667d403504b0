"""An example of an engine: the local engine under another name."""

from kit.engines.base import EngineEntry
from kit.engines.local import LocalEngine


class ExampleEngine(LocalEngine):
    """Start launches as the local engine does."""

    name = "example"


ENGINES = (EngineEntry("example", "the example engine", ExampleEngine, makes="environment", takes_interpreter=True),)
