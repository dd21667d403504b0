"""Define the choices of data for a run. This module is separate because `kit --help` must not import pydantic."""

from typing import Literal

DataChoice = Literal["auto", "real", "synthetic"]  # auto: real data if present or quick to download, else synthetic
