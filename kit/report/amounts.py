"""Write prices, costs and times with their intervals."""

from collections.abc import Callable

from kit.analysis.costs import Estimate
from kit.model.formatting import DEVICES
from kit.model.tariff import Tariff
from kit.report import text


def amount(of: Estimate | None, currency: str = "") -> str:
    """Return an amount with its interval, for example `0.0123 EUR (0.0119 to 0.0128)`.

    currency: "" if it is unknown.
    """
    if of is None:
        return text.MISSING
    between = ends(of)
    return text.number(of.value) + unit(currency) + (f" ({between})" if between else "")


def ends(of: Estimate, shown: Callable[[float], str] = text.number) -> str:
    """Return the ends of the interval of an estimate, for example `0.0119 to 0.0128`, or "" if it has none."""
    return "" if of.low is None or of.high is None else f"{shown(of.low)} to {shown(of.high)}"


def unit(currency: str) -> str:
    """Return what follows an amount: the currency after a space, or "" if none was named."""
    return f"{text.NO_BREAK}{currency}" if currency else ""


def hourly(tariff: Tariff) -> str:
    """Return the price of an hour: `0.19 EUR`, `0.1 EUR (CPU) or 0.4 EUR (GPU)`, `0.4 EUR (GPU; no price for the CPU)`.

    The last two are those of tariffs with prices by device.
    """
    found = {device: f"{price:,.10g}{unit(tariff.currency)}" for device, price in sorted(tariff.per_hour.items())}
    if len(found) == len(DEVICES) and len(set(tariff.per_hour.values())) == 1:
        return next(iter(found.values()))
    lack = "".join(f"; no price for the {title}" for device, title in DEVICES.items() if device not in found)
    return " or ".join(f"{price} ({DEVICES[device]}{lack})" for device, price in found.items())


def origin(tariff: Tariff) -> str:
    """Return source and date of the prices, or "" if neither is known."""
    return ", ".join(part for part in (tariff.source, text.day(tariff.date) if tariff.date else "") if part)
