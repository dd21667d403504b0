"""Test the parsers of option values."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer import BadParameter

from kit.cli import options
from kit.cli.values import parse_bytes, parse_duration, parse_folder, parse_share, parse_whole
from kit.model.errors import UsageError
from kit.model.formatting import format_bytes


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("10m", 600), ("1h30m", 5400), ("1.5h", 5400), (" 2M ", 120), ("1h0m5s", 3605), ("1 h 5s", 3605)],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    ("text", "count"), [("4g", 4 << 30), ("512m", 512 << 20), ("1.5GiB", 3 << 29), ("64 kb", 65536)]
)
def test_sizes(text: str, count: int) -> None:
    assert parse_bytes(text) == count


@pytest.mark.parametrize("text", ["", "10", "0s", "-5s", "s", "1m1h", "ten", "1e3s", "nan", "9" * 400 + "s"])
def test_durations_are_strict(text: str) -> None:
    with pytest.raises(BadParameter, match="not a duration"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["", "1.5", "x", "1e3", "0x10", "1 0"])
def test_whole_numbers_are_strict(text: str) -> None:
    assert parse_whole(" -12 ") == -12
    with pytest.raises(BadParameter, match=r"is not a whole number\.\nWrite digits only, for example 32\."):
        parse_whole(text)


def test_a_folder_without_a_name_is_refused() -> None:
    assert str(parse_folder("./runs")) == "runs"
    with pytest.raises(BadParameter, match="folder name is empty"):
        parse_folder("")


@pytest.mark.parametrize("text", ["", "4", "0g", "-1g", "4x", "4gg", "g", "4 g b", "inf", "9" * 400 + "g"])
def test_sizes_are_strict(text: str) -> None:
    with pytest.raises(BadParameter, match="not a size"):
        parse_bytes(text)


@given(st.text(max_size=12))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    for parse in (parse_duration, parse_bytes, parse_share):
        with contextlib.suppress(BadParameter):
            assert parse(text) >= 0


@given(st.integers(1, 1 << 52))
def test_sizes_read_back_within_what_is_shown(count: int) -> None:
    shown = format_bytes(count)
    if not shown.endswith(" B"):
        assert parse_bytes(shown) == pytest.approx(count, rel=0.06)


@pytest.mark.parametrize("text", ["5%", "5 %", "0.05", " 5.0% "])
def test_shares(text: str) -> None:
    assert parse_share(text) == pytest.approx(0.05)
    assert parse_share("0%") == 0


@pytest.mark.parametrize("text", ["5", "1", "100%", "-5%", "five", "", "%", "5%%", "0,05", "1e-2", "nan"])
def test_shares_are_strict(text: str) -> None:
    with pytest.raises(BadParameter, match="is not a share"):
        parse_share(text)


def test_other_choices_are_refused_with_the_nearest_one_and_the_list() -> None:
    assert options.Lane("tuned") == "tuned"
    with pytest.raises(UsageError, match=r"'tunned'\.\nDid you mean 'tuned'\? Choose from: stock, tuned\."):
        options.Lane("tunned")


def test_choices_are_listed_for_the_help() -> None:
    assert options.Precision.listed() == "fp32, tf32 or bf16"
