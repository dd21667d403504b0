"""Parse the values of options: choices, whole numbers, folders, durations, sizes and shares."""

import re
from enum import StrEnum
from pathlib import Path
from typing import NoReturn

from typer import BadParameter

from kit.model.errors import unknown

SECONDS = {"h": 3600, "m": 60, "s": 1}
BYTES = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
NUMBER = r"[0-9]{1,9}(?:\.[0-9]{1,9})?"


class Choice(StrEnum):
    """The choices of an option. The class is also the option's parser: it raises UsageError for any other text."""

    @classmethod
    def _missing_(cls, value: object) -> NoReturn:
        raise unknown(cls.__name__, str(value), map(str, cls))

    @classmethod
    def listed(cls) -> str:
        """Return the choices for a help text, for example `fp32, tf32 or bf16`."""
        *others, last = cls
        return f"{', '.join(others)} or {last}"


def choices(kind: str, *names: str) -> type[Choice]:
    """Return an enumeration of these names. kind: the word for such a name in messages, for example `device`."""
    return Choice(kind, {name.upper(): name for name in names})  # type: ignore[call-arg,return-value]


def parse_whole(text: str | int) -> int:
    """Return the whole number in the text. Raise BadParameter if the text is not a whole number."""
    try:
        return int(text)
    except ValueError:
        raise BadParameter(f"{text!r} is not a whole number.\nWrite digits only, for example 32.") from None


def parse_folder(text: str | Path) -> Path:
    """Return the folder. Raise BadParameter if the name is empty, because `Path("")` is the current folder."""
    if text == "":
        raise BadParameter("The folder name is empty.\nWrite a name, for example reports, or . for the current folder.")
    return Path(text)


def parse_name(text: str) -> str:
    """Return the name of a run. Raise BadParameter if it is empty, as an unset variable of a shell is."""
    if text == "":
        raise BadParameter("The name of the run is empty.\nWrite the folder of the run, or its id.")
    return text


def parse_duration(text: str) -> float:
    """Return the seconds in `90s`, `10m`, `1h30m`, `1 h 30 m` or `1.5h`.

    Raise BadParameter if the text is not a duration or is zero.
    """
    found = re.fullmatch(r"\s*".join(rf"(?:({NUMBER})\s*{unit})?" for unit in SECONDS), text.strip().lower())
    parts = zip(found.groups(), SECONDS.values(), strict=True) if found else ()
    seconds = sum(float(part) * unit for part, unit in parts if part)
    if seconds <= 0:
        raise BadParameter(f"{text!r} is not a duration.\nWrite a number with its unit, for example 90s, 10m or 1h30m.")
    return seconds


def parse_bytes(text: str) -> int:
    """Return the bytes in `4g`, `512m` or `1.5GiB`. The units k, m, g and t are powers of 1024.

    Raise BadParameter if the text is not a size or is zero.
    """
    found = re.fullmatch(rf"({NUMBER})\s*([kmgt])(?:i?b)?", text.strip().lower())
    size = int(float(found[1]) * BYTES[found[2]]) if found else 0
    if size <= 0:
        raise BadParameter(f"{text!r} is not a size.\nWrite a number with its unit, for example 512m, 4g or 1.5g.")
    return size


def parse_share(text: str | float) -> float:
    """Return the share in `5%`, `5 %` or `0.05`: at least 0 and less than 1. Raise BadParameter for anything else."""
    found = re.fullmatch(rf"({NUMBER})\s*(%?)", str(text).strip())
    share = float(found[1]) / (100 if found[2] else 1) if found else 1.0
    if share >= 1:
        raise BadParameter(f"{text!r} is not a share.\nWrite a percentage or a number below 1, for example 5% or 0.05.")
    return share
