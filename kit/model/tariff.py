"""Define the tariff of a machine."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Tariff:
    """What an hour of a machine costs.

    per_hour: price by device, `cpu` or `cuda`, above 0; a device without a price is left out. currency: code of three
    letters such as EUR, or "" if none was named. date: day of the prices (ISO 8601), or "". source: where the prices
    come from, or "".
    """

    per_hour: Mapping[str, float]
    currency: str = ""
    date: str = ""
    source: str = ""
