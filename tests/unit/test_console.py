"""Test progress and tables on the console."""

import io
import re

import pytest

from kit.cli import console
from kit.cli.console import Column, RichProgress, plain_table
from kit.model.progress import PlainProgress


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_plain_progress_shows_begin_and_end_and_few_lines_in_between() -> None:
    lines: list[str] = []
    clock = Clock()
    progress = PlainProgress(lines.append, clock)
    with progress.task("Downloading mnist", total=10 << 20, unit="B") as task:
        for _ in range(300):  # 30 s of ticks, ten a second
            clock.now += 0.1
            task.advance(1 << 15)
    assert lines[0] == "Downloading mnist ..."
    assert lines[-1] == "Downloading mnist: done, 30 s"
    middle = lines[1:-1]
    assert 2 <= len(middle) <= 3
    assert middle[0] == "Downloading mnist: 3.2 MiB of 10 MiB"


def test_plain_progress_shows_a_failure() -> None:
    lines: list[str] = []
    progress = PlainProgress(lines.append, Clock())
    with pytest.raises(RuntimeError), progress.task("Image"):
        raise RuntimeError
    assert lines == ["Image ...", "Image: stopped, 0.0 s"]


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
    assert any(re.fullmatch(rf"{re.escape(label)}: done, [\d.]+ s", row) for row in rows)


def test_a_table_fits_a_terminal_of_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    console.print_table([Column("Cell"), Column("Images/s", number=True)], [["x" * 90, "7,412"], ["y [b]", "1"]])
    lines = terminal.rows()
    assert max(map(len, lines)) <= 80
    assert "".join(lines).count("x") == 90
    assert any("y [b]" in line for line in lines)


def test_a_terminal_shows_no_empty_column(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    console.print_table([Column("Cell"), Column("Accuracy"), Column("p50")], [["a", "", ""], ["b", "", "1"]])
    assert [row.split() for row in terminal.rows() if "─" not in row and row] == [["Cell", "p50"], ["a"], ["b", "1"]]


def test_plain_table_aligns() -> None:
    lines = plain_table([Column("Cell"), Column("Images/s", number=True)], [["a", "7,412"], ["long name", "1"]])
    assert lines == ["Cell       Images/s", "a             7,412", "long name         1"]
    assert plain_table([Column("Cell"), Column("n")], []) == ["Cell  n"]


def test_text_cannot_control_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    lines: list[str] = []
    PlainProgress(lines.append).line("\x1b]0;owned\x07 \x9b31m ü")
    console.print_table([Column("A")], [["\x1b[2J\u202eb"]])
    assert lines == ["?]0;owned? ?31m ü"]
    assert capsys.readouterr().out == "A\n??b\n".replace("??", "?[2J?")
