"""Define which data a run may ask for. This module is separate because `kit --help` must not import pydantic."""

from typing import Literal

DataChoice = Literal["auto", "real", "synthetic"]  # auto: real if it is here or quick to get, else synthetic
