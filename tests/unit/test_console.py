"""What a person sees, and units as people write them."""

import contextlib
import io
import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kit.cli import console
from kit.cli.console import Column, PlainProgress, RichProgress, plain_table
from kit.model.errors import UsageError
from kit.model.units import format_bytes, format_duration, parse_bytes, parse_duration


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_plain_progress_says_begin_and_end_and_does_not_flood() -> None:
    stream, clock = io.StringIO(), Clock()
    progress = PlainProgress(stream, clock)
    with progress.task("Downloading mnist", total=10 << 20, unit="B") as task:
        for _ in range(300):  # 30 s of ticks, ten a second
            clock.now += 0.1
            task.advance(1 << 15)
    lines = stream.getvalue().splitlines()
    assert lines[0] == "Downloading mnist ..."
    assert lines[-1] == "Downloading mnist: done, 30 s"
    middle = lines[1:-1]
    assert 2 <= len(middle) <= 3
    assert middle[0] == "Downloading mnist: 3.2 MiB of 10 MiB"


def test_plain_progress_tells_a_failure() -> None:
    stream = io.StringIO()
    progress = PlainProgress(stream, Clock())
    with pytest.raises(RuntimeError), progress.task("Image"):
        raise RuntimeError
    assert stream.getvalue().splitlines()[1::2] == ["Image: stopped, 0.0 s"]


def test_a_reader_that_went_away_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.close(reading)  # as `head -1` does after its line
    with open(writing, "w", encoding="utf-8") as stream:
        with PlainProgress(stream).task("Measuring") as task:
            task.advance(1)
        monkeypatch.setattr("sys.stdout", stream)
        console.print_table([Column("Cell")], [["x"]])
        assert Path(f"/proc/self/fd/{writing}").readlink() == Path(os.devnull)
    # and closing it, which writes what is left, did not raise either: a process would end with another exit code


def test_an_output_that_fails_otherwise_is_an_error() -> None:
    with open("/dev/full", "w", encoding="utf-8") as stream:
        with pytest.raises(OSError, match="No space left"):
            PlainProgress(stream).line("x")
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True

    def rows(self) -> list[str]:
        """What was written, without control sequences."""
        text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.getvalue())
        return [row.rstrip() for row in re.split(r"[\r\n]+", text)]


def test_bars_fit_a_terminal_of_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    label = "catdog-cnn+conv-dropout/onnxruntime/cuda/stock/fp32/b32"
    with console.show_progress() as progress, progress.task(label, total=825 << 20, unit="B") as task:
        assert isinstance(progress, RichProgress)
        task.advance(400 << 20)
        task.describe("from a host with a rather long name")
        progress.bars.refresh()
    rows = terminal.rows()
    assert any("400 MiB of 825 MiB" in row for row in rows)
    assert max(len(row) for row in rows if "MiB" in row) <= 80
    assert f"{label}: done, 0.0 s" in rows


def test_a_table_fits_a_terminal_of_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    console.print_table([Column("Cell"), Column("Images/s", number=True)], [["x" * 90, "7,412"], ["y [b]", "1"]])
    lines = terminal.rows()
    assert max(map(len, lines)) <= 80
    assert "".join(lines).count("x") == 90
    assert any("y [b]" in line for line in lines)


def test_plain_table_aligns() -> None:
    lines = plain_table([Column("Cell"), Column("Images/s", number=True)], [["a", "7,412"], ["long name", "1"]])
    assert lines == ["Cell       Images/s", "a             7,412", "long name         1"]
    assert plain_table([Column("Cell"), Column("n")], []) == ["Cell  n"]


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("10m", 600), ("1h30m", 5400), ("1.5h", 5400), (" 2M ", 120), ("1h0m5s", 3605)]
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
    with pytest.raises(UsageError, match="not a duration"):
        parse_duration(text)


def test_nobody_waits_for_longer_than_a_year() -> None:
    assert parse_duration("8784h") == 8784 * 3600
    with pytest.raises(UsageError, match="longer than a year"):
        parse_duration("8785h")


@pytest.mark.parametrize("text", ["", "4", "0g", "-1g", "4x", "4gg", "g", "4 g b", "inf", "9" * 400 + "g"])
def test_sizes_are_strict(text: str) -> None:
    with pytest.raises(UsageError, match="not an amount of memory"):
        parse_bytes(text)


@given(st.text(max_size=12))
def test_any_text_is_a_unit_or_a_usage_error(text: str) -> None:
    for parse in (parse_duration, parse_bytes):
        with contextlib.suppress(UsageError):
            assert parse(text) > 0


@given(st.integers(1, 1 << 52))
def test_sizes_read_back_within_what_is_shown(count: int) -> None:
    shown = format_bytes(count)
    if not shown.endswith(" B"):
        assert parse_bytes(shown) == pytest.approx(count, rel=0.06)


def test_formats() -> None:
    assert [format_bytes(n) for n in (0, 1000, 1023, 1024, 10 << 20, 3 << 30)] == [
        "0 B",
        "1000 B",
        "1023 B",
        "1.0 KiB",
        "10 MiB",
        "3.0 GiB",
    ]
    assert [format_duration(s) for s in (0.04, 9.96, 59.6, 65, 3599.7, 3661, 7199)] == [
        "0.0 s",
        "10 s",
        "1 min 00 s",
        "1 min 05 s",
        "1 h 00 min",
        "1 h 01 min",
        "2 h 00 min",
    ]


def test_what_a_stranger_wrote_cannot_command_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    stream = io.StringIO()
    PlainProgress(stream).line("\x1b]0;owned\x07 \x9b31m ü")
    console.print_table([Column("A")], [["\x1b[2J\u202eb"]])
    assert stream.getvalue() == "?]0;owned? ?31m ü\n"
    assert capsys.readouterr().out == "A\n??b\n".replace("??", "?[2J?")
