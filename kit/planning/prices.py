"""Read the prices of machines from options and from a TOML file.

An option is for example `small=0.19EUR/h`. A file has prices of an hour in its table [per_hour], and may name their
currency, their date and their source.
"""

import datetime
import re
import tomllib
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, ValidationError

from kit.model.errors import UsageError, unknown
from kit.model.formatting import shortened
from kit.model.tariff import Tariff
from kit.planning.catalog import DEVICES
from kit.planning.toml_lines import line_of
from kit.storage.safe_read import read_plain
from scenarios.contract.cell import Device

MAX_BYTES = 10_000  # of a price file. tomllib needs 4 GB for some files of 64 kB.
MAX_SOURCE = 200  # characters
MIN_PRICE, MAX_PRICE = 1e-6, 1e6
NUMBER = r"-?[0-9]+(?:\.[0-9]+)?"
CURRENCY = "[A-Z]{3}"
# By pydantic's name of a price's fault. The remedy of all other faults is NO_NUMBER.
REMEDIES = {
    "greater_than_equal": f"Write a price of at least {MIN_PRICE:f}",
    "less_than_equal": f"Write a price of at most {MAX_PRICE:,.0f}",
}
QUOTES = 'Put a name with a dot or a space between quotes, for example "big.1" = 0.40.'
NO_NUMBER = "Write digits, with a point before decimals"


@dataclass(frozen=True)
class _Price:
    """One price. label: of the machine, "" for a run. device: "" for both devices. currency: "" if none was named."""

    label: str
    device: str
    per_hour: float
    currency: str

    @property
    def name(self) -> str:
        """Return `LABEL`, `LABEL/DEVICE` or `DEVICE`, or "" for both devices of a run."""
        return "/".join(filter(None, (self.label, self.device)))


@dataclass(frozen=True)
class _Listed:
    """The prices of a file. date: ISO 8601."""

    prices: Sequence[_Price] = ()
    date: str = ""
    source: str = ""


def _form(value: object) -> str:
    return "devices" if isinstance(value, dict) else "number"


Amount = Annotated[float, Field(ge=MIN_PRICE, le=MAX_PRICE)]
MachinePrice = Annotated[
    Annotated[Amount, Tag("number")] | Annotated[dict[Device, Amount], Field(min_length=1), Tag("devices")],
    Discriminator(_form),
]


class _PriceFile(BaseModel):
    """The content of a price file. remedy: what to do if it is not valid."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    remedy: ClassVar[str]

    currency: Annotated[str, Field(pattern=f"^{CURRENCY}$")] = ""
    date: datetime.date | None = None
    source: Annotated[str, Field(max_length=MAX_SOURCE)] = ""

    @property
    @abstractmethod
    def prices(self) -> list[_Price]:
        """Return the prices one by one."""


class _MachineFile(_PriceFile):
    """Prices by label of the machine, for both devices or by device."""

    remedy: ClassVar[str] = "Write the prices below [per_hour], for example big = 0.40. " + QUOTES

    per_hour: Annotated[dict[str, MachinePrice], Field(min_length=1)]

    @property
    def prices(self) -> list[_Price]:
        """Return the prices one by one."""
        found: list[_Price] = []
        for label, price in self.per_hour.items():
            if isinstance(price, dict):
                found += [_Price(label, device, amount, self.currency) for device, amount in price.items()]
            else:
                found.append(_Price(label, "", price, self.currency))
        return found


class _RunFile(_PriceFile):
    """Prices by device."""

    remedy: ClassVar[str] = "Write the prices below [per_hour], for example cuda = 0.40."

    per_hour: Annotated[dict[Device, Amount], Field(min_length=1)]

    @property
    def prices(self) -> list[_Price]:
        """Return the prices one by one."""
        return [_Price("", device, amount, self.currency) for device, amount in self.per_hour.items()]


def machine_prices(texts: Sequence[str], file: Path | None, labels: Sequence[str]) -> dict[str, Tariff]:
    """Return the tariffs of machines that are compared, by label. A machine without a price has none.

    texts: `LABEL=AMOUNT[CURRENCY]/h` or `LABEL/DEVICE=AMOUNT[CURRENCY]/h`. A price for a device wins over one for the
    machine. labels: of all machines, at least one. Raise UsageError if a price or the file is not valid, if something
    is priced twice, or if currencies differ.
    """
    given = [_machine_price(text, labels) for text in texts]
    listed = _read(file, _MachineFile, labels)
    _check_once(given, listed.prices)
    currency = _currency([*given, *listed.prices])
    tariffs: dict[str, Tariff] = {}
    for label in labels:  # the prices of a machine are all from options, or all from the file
        if per_hour := _by_device(price for price in listed.prices if price.label == label):
            tariffs[label] = Tariff(per_hour, currency, listed.date, listed.source)
        elif per_hour := _by_device(price for price in given if price.label == label):
            tariffs[label] = Tariff(per_hour, currency)
    return tariffs


def run_prices(texts: Sequence[str], file: Path | None) -> Tariff | None:
    """Return the tariff of the machine of one run, or None if there is neither a text nor a file.

    texts: `DEVICE=AMOUNT[CURRENCY]/h`, or `AMOUNT[CURRENCY]/h` for both devices. A price for a device wins over one for
    both. Raise UsageError as `machine_prices` does.
    """
    given = [_run_price(text) for text in texts]
    listed = _read(file, _RunFile, [""])
    _check_once(given, listed.prices)
    prices = [*given, *listed.prices]
    about = () if given else (listed.date, listed.source)  # they are not those of a price from an option
    return Tariff(_by_device(prices), _currency(prices), *about) if prices else None


def _by_device(prices: Iterable[_Price]) -> dict[str, float]:
    found: dict[str, float] = {}
    for price in sorted(prices, key=lambda price: price.device):  # those for both devices, "", are first
        devices: Sequence[str] = [price.device] if price.device else DEVICES
        found.update(dict.fromkeys(devices, price.per_hour))
    return found


def _check_once(given: Iterable[_Price], listed: Sequence[_Price]) -> None:
    """Raise UsageError if two texts have the same name, or if a text prices a machine or device of the file."""
    in_file = {price.label or price.device for price in listed}
    in_file |= {price.label for price in listed}  # "": a text for both devices of a run
    seen: set[str] = set()
    for price in given:
        if (priced := price.label or price.device) in in_file:
            raise _twice(priced, "Remove it from the options, or from the file.")
        if price.name in seen:
            raise _twice(price.name, "Remove one of both prices.")
        seen.add(price.name)


def _twice(name: str, remedy: str) -> UsageError:
    priced = f"{name!r:.100}" if name else "The run"
    return UsageError(f"{priced} is priced twice.", remedy)


def _currency(prices: Iterable[_Price]) -> str:
    """Return the currency of all prices, "" if none was named. Raise UsageError if there are several."""
    found = sorted({price.currency for price in prices if price.currency})
    if len(found) > 1:
        raise UsageError(f"The prices are in {' and '.join(found)}.", "Write all prices in one currency.")
    return found[0] if found else ""


def _machine_price(text: str, labels: Sequence[str]) -> _Price:
    name, equals, price = text.partition("=")
    if not equals:
        raise UsageError(
            f"The price {text!r:.100} names no machine.",
            f"Write a machine before it, for example {labels[0]}=0.40/h. Choose from: {', '.join(labels)}.",
        )
    label, slash, device = (part.strip() for part in name.partition("/"))
    if label not in labels:
        raise unknown("machine", label, labels)
    if slash:
        _check_device(device)
    return _Price(label, device, *_parse(f"{label}{slash}{device}", price))


def _run_price(text: str) -> _Price:
    name, equals, price = text.partition("=")
    if not equals:
        return _Price("", "", *_parse("", text))
    device = name.strip()
    _check_device(device)
    return _Price("", device, *_parse(device, price))


def _check_device(name: str) -> None:
    if name not in DEVICES:
        raise unknown("device", name, DEVICES)


def _parse(name: str, text: str) -> tuple[float, str]:
    """Return the amount and the currency in `AMOUNT[CURRENCY]/h`. Raise UsageError for any other text.

    name: of what the price is for, in messages; "" for both devices of a run.
    """
    example = f"{name}=0.40/h" if name else "0.40/h"
    hourly = re.fullmatch(r"(.*)/\s*h", text.strip(), re.DOTALL)
    if not hourly:
        raise UsageError(
            f"{_price_of(name)} is {text.strip()!r:.100}, without the unit /h.",
            f"Write the price of an hour, for example {example}.",
        )
    content = hourly[1].strip()
    currency = content.lstrip("-.,0123456789").strip()
    amount = content.removesuffix(currency).strip()
    if not re.fullmatch(NUMBER, amount) or re.search(r"\d", currency):  # the latter: 1e3 and 1 000
        raise _bad_price(name, f"{content!r:.100}", "", example)
    if currency and not re.fullmatch(CURRENCY, currency):
        raise _bad_currency(f"{currency!r:.100}")
    per_hour = float(amount)
    if not MIN_PRICE <= per_hour <= MAX_PRICE:
        kind = "less_than_equal" if per_hour > MAX_PRICE else "greater_than_equal"
        raise _bad_price(name, f"{amount:.100}", kind, example)
    return per_hour, currency


def _price_of(name: str) -> str:
    return f"The price of {name!r:.100}" if name else "The price"


def _bad_price(name: str, shown: str, kind: str, example: str) -> UsageError:
    """Return the error for a price. shown: what it is. kind: see REMEDIES, else it is not a number."""
    which = "" if kind in REMEDIES else ", which is not a number"
    remedy = REMEDIES.get(kind, NO_NUMBER)
    return UsageError(f"{_price_of(name)} is {shown}{which}.", f"{remedy}, for example {example}.")


def _bad_currency(shown: str) -> UsageError:
    return UsageError(f"The currency {shown} is not a code of three capital letters.", "Write a code such as EUR.")


def _read(file: Path | None, form: type[_PriceFile], labels: Sequence[str]) -> _Listed:
    """Return the prices of a file, or none without a file. Raise UsageError, with file and line, if it is not valid.

    labels: those that prices may have.
    """
    if file is None:
        return _Listed()
    text, content = _read_toml(file, form.remedy)
    try:
        parsed = form.model_validate(content)
    except ValidationError as error:
        found = error.errors(include_url=False)[0]
        place = found["loc"]
        keys = (*place[:2], *place[3:])  # below a machine, pydantic adds the tag of the price's form
        raise _located(file, text, keys, _fault(form, keys, found["type"], found["input"])) from error
    for price in parsed.prices:
        if price.label not in labels:
            raise _located(file, text, ("per_hour", price.label), unknown("machine", price.label, labels))
    return _Listed(parsed.prices, parsed.date.isoformat() if parsed.date else "", parsed.source)


def _read_toml(file: Path, remedy: str) -> tuple[str, dict[str, Any]]:
    """Return the text of a file and its content. Raise UsageError if it cannot be read or is not valid TOML."""
    try:
        content = read_plain(file)
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}.", "Name a readable file of prices.") from error
    if len(content) > MAX_BYTES:
        raise UsageError(f"{file} is larger than {MAX_BYTES // 1000} kB.", "Name a file of prices.")
    try:
        text = content.decode("utf-8-sig")  # Notepad writes a byte order mark
        return text, tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # errors in TOML and Unicode are ValueErrors
        raise UsageError(f"{file}: {shortened(str(error), MAX_SOURCE)}.", f"Correct the file. {remedy}") from error


def _located(file: Path, text: str, keys: Sequence[str | int], error: UsageError) -> UsageError:
    return UsageError(f"{file}, line {line_of(text, keys)}: {error.message}", error.remedy)


def _fault(form: type[_PriceFile], keys: Sequence[str | int], kind: str, value: object) -> UsageError:
    """Return the error for a value of a file. kind: pydantic's name of the fault."""
    if kind == "extra_forbidden":
        return unknown("field", str(keys[-1]), form.model_fields)
    if kind == "literal_error":
        error = unknown("device", str(value), DEVICES)
        return UsageError(error.message, f"{error.remedy} {QUOTES}" if form is _MachineFile else error.remedy)
    if kind == "string_too_long":
        return UsageError(f"{keys[0]} has more than {MAX_SOURCE} characters.", "Write less.")
    if kind == "missing":
        return UsageError("The table [per_hour] is missing.", form.remedy)
    if kind in {"too_short", "dict_type"}:
        return UsageError(f"{'.'.join(map(str, keys)):.100} is not a table with prices.", form.remedy)
    if keys[0] == "per_hour":
        return _bad_price("/".join(map(str, keys[1:])), _shown(value), kind, "0.40")
    if keys[0] == "currency":
        return _bad_currency(_shown(value))
    if keys[0] == "date":
        remedy = "Write a day without quotes, for example date = 2026-11-20."
        return UsageError("date is not a day.", remedy)
    return UsageError(f"{keys[0]} is {_shown(value)}, which is not a text.", "Write it between quotes.")


def _shown(value: object) -> str:
    try:
        return f"{value!r:.100}"
    except (ValueError, RecursionError):  # Python writes no number with thousands of digits, and no deep table
        return "(too long to show)"
