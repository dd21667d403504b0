"""Test the prices of machines: options and files, what they mean together, and their faults."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kit.model.errors import UsageError
from kit.model.tariff import Tariff
from kit.planning.prices import MAX_BYTES, MAX_PRICE, MIN_PRICE, machine_prices, run_prices

LABELS = ("small", "big")
LIST = """
currency = "EUR"  # a comment
date = 2026-11-20
source = "Price list of Example Cloud"
[per_hour]
"""
ABOUT = ("EUR", "2026-11-20", "Price list of Example Cloud")


def written(folder: Path, content: str | bytes | None) -> Path | None:
    if content is None:
        return None
    file = folder / "prices.toml"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return file


def both(price: float, *about: str) -> Tariff:
    return Tariff({"cpu": price, "cuda": price}, *about)


@pytest.mark.parametrize(
    ("texts", "content", "expected"),
    [
        ([], None, {}),
        (["small=0.19/h"], None, {"small": both(0.19)}),
        (["big=1/h", "small=2/h"], None, {"small": both(2), "big": both(1)}),
        (["big/cpu=0.10EUR/h", "big/cuda=0.40EUR/h"], None, {"big": Tariff({"cpu": 0.1, "cuda": 0.4}, "EUR")}),
        ([" big / cuda = 0.40 EUR / h "], None, {"big": Tariff({"cuda": 0.4}, "EUR")}),
        (["small=1/h", "small/cuda=2/h"], None, {"small": Tariff({"cpu": 1, "cuda": 2})}),
        (["small/cuda=2/h", "small=1/h"], None, {"small": Tariff({"cpu": 1, "cuda": 2})}),
        (["small=1USD/h", "big=1000000/h"], None, {"small": both(1, "USD"), "big": both(1e6, "USD")}),
        ([], "[per_hour]\nbig = 1\n", {"big": both(1)}),
        (["small=1USD/h"], "per_hour.big = 2", {"small": both(1, "USD"), "big": both(2, "USD")}),
        (
            [],
            f"{LIST}small = 0.19\nbig = {{cpu = 0.10, cuda = 0.40}}\n",
            {"small": both(0.19, *ABOUT), "big": Tariff({"cpu": 0.1, "cuda": 0.4}, *ABOUT)},
        ),
        # Day and source are not those of a price from an option.
        (
            ["small=0.19/h"],
            f"{LIST}[per_hour.big]\r\ncuda = 0.40\r\n",
            {"small": both(0.19, "EUR"), "big": Tariff({"cuda": 0.4}, *ABOUT)},
        ),
    ],
)
def test_prices_of_machines(tmp_path: Path, texts: list[str], content: str | None, expected: dict[str, Tariff]) -> None:
    found = machine_prices(texts, written(tmp_path, content), LABELS)
    assert found == expected
    assert list(found) == [label for label in LABELS if label in expected]


@pytest.mark.parametrize(
    ("texts", "content", "expected"),
    [
        ([], None, None),
        (["0.40/h"], None, both(0.4)),
        ([" 0.40 EUR / h"], None, both(0.4, "EUR")),
        (["cpu=0.10/h", "cuda=0.40EUR/h"], None, Tariff({"cpu": 0.1, "cuda": 0.4}, "EUR")),
        ([" cuda = 3/h"], None, Tariff({"cuda": 3})),
        (["cuda=2/h", "1/h"], None, Tariff({"cpu": 1, "cuda": 2})),
        ([], f"{LIST}cpu = 1\ncuda = 0.40\n", Tariff({"cpu": 1, "cuda": 0.4}, *ABOUT)),
        # Day and source are not those of a price from an option.
        (["cuda=0.40/h"], f"{LIST}cpu = 0.10\n", Tariff({"cpu": 0.1, "cuda": 0.4}, "EUR")),
        ([], "\ufeff[per_hour]\ncpu = 0.000001\n", Tariff({"cpu": 1e-6})),
    ],
)
def test_prices_of_a_run(tmp_path: Path, texts: list[str], content: str | None, expected: Tariff | None) -> None:
    assert run_prices(texts, written(tmp_path, content)) == expected


@pytest.mark.parametrize(
    ("text", "message", "remedy"),
    [
        ("0.19/h", "The price '0.19/h' names no machine.", "for example small=0.40/h. Choose from: small, big."),
        ("smal=1/h", "Unknown machine 'smal'.", "Did you mean 'small'? Choose from: big, small."),
        ("=1/h", "Unknown machine ''.", "Choose from: big, small."),
        ("big/tpu=1/h", "Unknown device 'tpu'.", "Choose from: cpu, cuda."),
        ("big/=1/h", "Unknown device ''.", "Choose from: cpu, cuda."),
        ("big/cpu/cuda=1/h", "Unknown device 'cpu/cuda'.", "Choose from: cpu, cuda."),
        ("big=-0.4/h", "The price of 'big' is -0.4.", "Write a price of at least 0.000001, for example big=0.40/h."),
        ("big/cpu=0.00/h", "The price of 'big/cpu' is 0.00.", "for example big/cpu=0.40/h."),
        (f"big=0.{'0' * 319}1/h", "The price of 'big' is 0.000", "Write a price of at least 0.000001"),
        ("big=1000000.1/h", "The price of 'big' is 1000000.1.", "Write a price of at most 1,000,000, for example"),
        (f"big={'9' * 400}/h", f"The price of 'big' is {'9' * 100}.", "Write a price of at most 1,000,000"),
        ("big=cheap/h", "'big' is 'cheap', which is not a number.", "Write digits, with a point before decimals"),
        ("big=/h", "'big' is '', which is not a number.", "for example big=0.40/h."),
        ("big=0,40/h", "'big' is '0,40', which is not a number.", "with a point before decimals"),
        ("big=1e3/h", "'big' is '1e3', which is not a number.", "Write digits"),
        ("big=1 000/h", "'big' is '1 000', which is not a number.", "Write digits"),
        ("big=0x10/h", "'big' is '0x10', which is not a number.", "Write digits"),
        ("big=+1/h", "'big' is '+1', which is not a number.", "Write digits"),
        ("big=.5/h", "'big' is '.5', which is not a number.", "Write digits"),
        ("big=nan/h", "'big' is 'nan', which is not a number.", "Write digits"),
        ("big=\u0663/h", "'big' is '\u0663', which is not a number.", "Write digits"),
        ("big=$1/h", "'big' is '$1', which is not a number.", "Write digits"),
        ("big=0.40", "'big' is '0.40', without the unit /h.", "Write the price of an hour, for example big=0.40/h."),
        ("big=0.40/min", "'big' is '0.40/min', without the unit /h.", "for example big=0.40/h."),
        ("big=1eur/h", "The currency 'eur' is not a code of three capital letters.", "Write a code such as EUR."),
        ("big=1EURO/h", "The currency 'EURO' is not", "Write a code such as EUR."),
        ("big=1€/h", "The currency '€' is not", "Write a code such as EUR."),
        ("big=1EUR/h/h", "The currency 'EUR/h' is not", "Write a code such as EUR."),
    ],
)
def test_a_wrong_price_of_a_machine_is_refused(text: str, message: str, remedy: str) -> None:
    with pytest.raises(UsageError) as error:
        machine_prices([text], None, LABELS)
    assert error.value.exit_code == 2
    assert message in error.value.message
    assert remedy in error.value.remedy


@pytest.mark.parametrize(
    ("text", "message", "remedy"),
    [
        ("small=1/h", "Unknown device 'small'.", "Choose from: cpu, cuda."),
        ("=1/h", "Unknown device ''.", "Choose from: cpu, cuda."),
        ("-1/h", "The price is -1.", "Write a price of at least 0.000001, for example 0.40/h."),
        ("cuda=0/h", "The price of 'cuda' is 0.", "Write a price of at least 0.000001, for example cuda=0.40/h."),
        ("cpu/h", "The price is 'cpu', which is not a number.", "for example 0.40/h."),
        ("0.40", "The price is '0.40', without the unit /h.", "for example 0.40/h."),
        ("", "The price is '', without the unit /h.", "for example 0.40/h."),
    ],
)
def test_a_wrong_price_of_a_run_is_refused(text: str, message: str, remedy: str) -> None:
    with pytest.raises(UsageError) as error:
        run_prices([text], None)
    assert error.value.message == message
    assert remedy in error.value.remedy


@pytest.mark.parametrize(
    ("texts", "content", "message", "remedy"),
    [
        (["big=1/h", "big=1/h"], None, "'big' is priced twice.", "Remove one of both prices."),
        (["big/cpu=1/h", "big / cpu=2/h"], None, "'big/cpu' is priced twice.", "Remove one of both prices."),
        (["big=1/h"], f"{LIST}big = 1", "'big' is priced twice.", "Remove it from the options, or from the file."),
        (["big/cpu=1/h"], f"{LIST}big = {{cuda = 1}}", "'big' is priced twice.", "or from the file."),
        (["small=1USD/h", "big=1EUR/h"], None, "The prices are in EUR and USD.", "Write all prices in one currency."),
        (["small=1USD/h"], f"{LIST}big = 1", "The prices are in EUR and USD.", "Write all prices in one currency."),
    ],
)
def test_prices_of_machines_that_contradict_each_other_are_refused(
    tmp_path: Path, texts: list[str], content: str | None, message: str, remedy: str
) -> None:
    with pytest.raises(UsageError) as error:
        machine_prices(texts, written(tmp_path, content), LABELS)
    assert error.value.message == message
    assert remedy in error.value.remedy


@pytest.mark.parametrize(
    ("texts", "content", "message"),
    [
        (["1/h", "2/h"], None, "The run is priced twice."),
        (["cpu=1/h", "cpu=2/h"], None, "'cpu' is priced twice."),
        (["cpu=1/h"], f"{LIST}cpu = 1", "'cpu' is priced twice."),
        (["1/h"], f"{LIST}cpu = 1", "The run is priced twice."),
        (["cpu=1EUR/h", "cuda=1USD/h"], None, "The prices are in EUR and USD."),
        (["cuda=1USD/h"], f"{LIST}cpu = 1", "The prices are in EUR and USD."),
    ],
)
def test_prices_of_a_run_that_contradict_each_other_are_refused(
    tmp_path: Path, texts: list[str], content: str | None, message: str
) -> None:
    with pytest.raises(UsageError) as error:
        run_prices(texts, written(tmp_path, content))
    assert error.value.message == message


MACHINE = "[per_hour]\nbig = "


@pytest.mark.parametrize(
    ("content", "line", "message", "remedy"),
    [
        ('currency = "EUR"\n', 1, "The table [per_hour] is missing.", "Write the prices below [per_hour]"),
        ("# empty\n[per_hour]\n", 2, "per_hour is not a table with prices.", "for example big = 0.40."),
        ("per_hour = 0.40\n", 1, "per_hour is not a table with prices.", "Write the prices below [per_hour]"),
        (f"{MACHINE}{{}}\n", 2, "per_hour.big is not a table with prices.", "Write the prices below [per_hour]"),
        ("\nprice = 1\n[per_hour]\nbig = 1\n", 2, "Unknown field 'price'.", "currency, date, per_hour, source."),
        (f"{MACHINE}1\nmedium = 1\n", 3, "Unknown machine 'medium'.", "Choose from: big, small."),
        (f"{MACHINE}{{tpu = 1}}\n", 2, "Unknown device 'tpu'.", "Choose from: cpu, cuda."),
        ("[per_hour.big]\ncpu = 1\ntpu = 1\n", 3, "Unknown device 'tpu'.", "Choose from: cpu, cuda."),
        (f"{MACHINE}-0.4\n", 2, "The price of 'big' is -0.4.", "Write a price of at least 0.000001, for example 0.40."),
        (f"{MACHINE}{{cpu = 1, cuda = 0}}\n", 2, "The price of 'big/cuda' is 0.", "Write a price of at least 0.000001"),
        (
            "[per_hour.big]\ncpu = 1\ncuda = 0\n",
            3,
            "The price of 'big/cuda' is 0.",
            "Write a price of at least 0.000001",
        ),
        (f"{MACHINE}1000001\n", 2, "The price of 'big' is 1000001.", "Write a price of at most 1,000,000"),
        (f"{MACHINE}inf\n", 2, "The price of 'big' is inf, which is not a number.", "Write digits"),
        (f"{MACHINE}nan\n", 2, "The price of 'big' is nan, which is not a number.", "Write digits"),
        (f"{MACHINE}true\n", 2, "The price of 'big' is True, which is not a number.", "Write digits"),
        (f'{MACHINE}"0.40"\n', 2, "The price of 'big' is '0.40', which is not a number.", "for example 0.40."),
        (f"{MACHINE}[1]\n", 2, "The price of 'big' is [1], which is not a number.", "Write digits"),
        (f"{MACHINE}0x{'f' * 5000}\n", 2, "The price of 'big' is (too long to show), which is not a number.", "Write"),
        (f'currency = ""\n{MACHINE}1', 1, "The currency '' is not a code of three capital letters.", "such as EUR."),
        (f'currency = "euro"\n{MACHINE}1', 1, "The currency 'euro' is not a code of three capital letters.", "EUR"),
        (f"currency = 3\n{MACHINE}1", 1, "The currency 3 is not a code of three capital letters.", "such as EUR."),
        (f'\ndate = "2026-11-20"\n{MACHINE}1', 2, "date is not a day.", "without quotes"),
        (f"date = 20261120\n{MACHINE}1", 1, "date is not a day.", "example date = 2026-11-20."),
        (f"date = 2026-11-20T10:30:00\n{MACHINE}1", 1, "date is not a day.", "Write a day"),
        (f"source = '{'x' * 201}'\n{MACHINE}1", 1, "source has more than 200 characters.", "Write less."),
        ("[per_hour]\nbig.1 = 1\n", 2, "Unknown device '1'.", "Put a name with a dot or a space between quotes, for"),
        (f"{MACHINE}1e-320\n", 2, "The price of 'big' is 1e-320.", "Write a price of at least 0.000001"),
        ("x = [\n" + "1,\n" * 300 + f"]\n{MACHINE}1", 1, "Unknown field 'x'.", "Choose from"),
        (f"source = 3\n{MACHINE}1", 1, "source is 3, which is not a text.", "Write it between quotes."),
    ],
)
def test_a_fault_in_a_file_for_machines_is_reported_with_its_line(
    tmp_path: Path, content: str, line: int, message: str, remedy: str
) -> None:
    file = written(tmp_path, content)
    with pytest.raises(UsageError) as error:
        machine_prices([], file, LABELS)
    assert error.value.exit_code == 2
    assert error.value.message == f"{file}, line {line}: {message}"
    assert remedy in error.value.remedy


@pytest.mark.parametrize(
    ("content", "line", "message", "remedy"),
    [
        ("[per_hour]\ncpu = 1\nbig = 1\n", 3, "Unknown device 'big'.", "Choose from: cpu, cuda."),
        (f"{MACHINE}{{cpu = 1}}\n", 2, "Unknown device 'big'.", "Choose from: cpu, cuda."),
        (
            "[per_hour]\n\ncpu = 0\n",
            3,
            "The price of 'cpu' is 0.",
            "Write a price of at least 0.000001, for example 0.40.",
        ),
        ("per_hour.cpu = {cpu = 1}", 1, "The price of 'cpu' is {'cpu': 1}, which is not a number.", "Write digits"),
        ("[per_hour]", 1, "per_hour is not a table with prices.", "for example cuda = 0.40."),
    ],
)
def test_a_fault_in_a_file_for_a_run_is_reported_with_its_line(
    tmp_path: Path, content: str, line: int, message: str, remedy: str
) -> None:
    file = written(tmp_path, content)
    with pytest.raises(UsageError) as error:
        run_prices([], file)
    assert error.value.message == f"{file}, line {line}: {message}"
    assert remedy in error.value.remedy


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (f"{MACHINE}EUR\n", ": Invalid value (at line 2, column 7)."),
        (f"{MACHINE}1\nbig = 2\n", "(at line 3"),
        (f"date = 2026-02-30\n{MACHINE}1\n", ": Invalid date or datetime (at line 1, column 8)."),
        (f"{MACHINE}{'9' * 5000}\n", ": Exceeds the limit"),
        (f"a = {'[' * 9000}", ": "),
        (f"[{'a' * 4000}]\n[{'a' * 4000}]", "…."),
        (b'source = "\xff"\n', ": 'utf-8' codec can't decode byte 0xff"),
        (b"#" * (MAX_BYTES + 1), " is larger than 10 kB."),
    ],
    ids=["syntax", "twice", "date", "digits", "nested", "name", "encoding", "size"],
)
def test_a_file_that_is_not_toml_is_refused_by_name(tmp_path: Path, content: str | bytes, fault: str) -> None:
    file = written(tmp_path, content)
    with pytest.raises(UsageError) as error:
        machine_prices([], file, LABELS)
    assert error.value.message.startswith(str(file))
    assert fault in error.value.message


def test_a_file_that_cannot_be_read_is_refused_by_name(tmp_path: Path) -> None:
    for file, cause in ((tmp_path / "missing.toml", "No such file or directory"), (tmp_path, "not a plain file")):
        with pytest.raises(UsageError) as error:
            run_prices([], file)
        assert error.value.message == f"{file} cannot be read: {cause}."


PARTS = ("small", "big", "/", "cpu", "cuda", "=", "-", "0", "0.4", "9" * 400, ".", "EUR", " ", "\n", "/h", "h")


@given(st.lists(st.sampled_from(PARTS) | st.text(max_size=3), max_size=8).map("".join))
def test_any_text_is_a_price_or_is_refused(text: str) -> None:
    def check(tariffs: Iterable[Tariff | None]) -> None:
        (tariff,) = tariffs
        assert tariff is not None
        assert set(tariff.per_hour) in ({"cpu"}, {"cuda"}, {"cpu", "cuda"})
        assert all(math.isfinite(price) and MIN_PRICE <= price <= MAX_PRICE for price in tariff.per_hour.values())

    with contextlib.suppress(UsageError):
        check(machine_prices([text], None, LABELS).values())
    with contextlib.suppress(UsageError):
        check([run_prices([text], None)])
