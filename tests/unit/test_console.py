"""Test progress and tables on the console."""

import io
import re

import pytest

from kit.cli import console
from kit.cli.console import Column, plain_table
from kit.cli.live import LiveProgress, phase_line
from kit.model.progress import Outcome, PlainProgress


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


def test_a_plain_phase_begins_and_ends_with_one_line() -> None:
    lines: list[str] = []
    clock = Clock()
    progress = PlainProgress(lines.append, clock)
    with progress.phase("Images", 3) as phase:
        phase.now("TensorFlow on the CPU", 60.0)
        phase.advance(1)
        phase.result("a figure")
        progress.log("a line for the log")
        clock.now = 204.0
        phase.end(Outcome("3 built"))
    with progress.phase("Data") as phase:
        phase.end(Outcome("synthetic: 1 data set is not available", good=False))
    assert lines == [
        "Images ...",
        "a line for the log",
        "Images: 3 built, 3 min 24 s",
        "Data ...",
        "Data: ! synthetic: 1 data set is not available, 0.0 s",
    ]


def test_titles_of_columns_are_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    console._print_rich([Column("[gpu]"), Column("b/[/b]", number=True)], [["x", "1"]])
    assert capsys.readouterr().out.split()[:2] == ["[gpu]", "b/[/b]"]


def test_plain_progress_shows_a_failure() -> None:
    lines: list[str] = []
    progress = PlainProgress(lines.append, Clock())
    with pytest.raises(RuntimeError), progress.phase("Images"), progress.task("image"):
        raise RuntimeError
    assert lines == ["Images ...", "image ...", "image: ! stopped, 0.0 s", "Images: ! stopped, 0.0 s"]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True

    def rows(self) -> list[str]:
        """What was written, without control sequences."""
        text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.getvalue())
        return [row.rstrip() for row in re.split(r"[\r\n]+", text)]


def live(terminal: Terminal, monkeypatch: pytest.MonkeyPatch, columns: int = 80) -> LiveProgress:
    """Return what shows progress on a terminal. Call it in the test: pytest replaces stderr before."""
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stderr", terminal)
    shown = console.show_progress()
    assert isinstance(shown, LiveProgress)
    return shown


def test_live_rows_show_how_far_the_phase_is_and_what_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    with live(terminal, monkeypatch) as progress, progress.phase("Measuring") as phase:
        phase.expect(18)
        phase.advance(11)
        phase.now("fashion-mlp in TensorFlow", 100.0)
        phase.result("mnist-cnn in PyTorch: 3,490 images/s")
        progress.refresh()
        progress.log("only in the log")
        phase.end(Outcome("18 cells"))
    rows = terminal.rows()
    assert any(re.fullmatch("Measuring  ━+[╸╺]?━*  11 of 18, about 2 min left", row) for row in rows)
    assert max(map(len, rows)) == 80
    assert " " * 11 + "fashion-mlp in TensorFlow" in rows
    assert " " * 11 + "mnist-cnn in PyTorch: 3,490 images/s" in rows
    assert "Measuring  ✓ 18 cells" in rows
    assert not any("only in the log" in row for row in rows)


@pytest.mark.parametrize(("columns", "longest"), [(60, 60), (80, 80), (200, 80)])
def test_a_step_is_shown_while_it_runs_and_fits_the_terminal(
    monkeypatch: pytest.MonkeyPatch, columns: int, longest: int
) -> None:
    terminal = Terminal()
    label = "Download " + "x" * 90
    with live(terminal, monkeypatch, columns) as progress, progress.phase("Data", 4) as phase:
        with progress.task("Download train.gz from host", 825 << 20, "B") as task:
            task.advance(400 << 20)
            progress.refresh()
        with progress.task(label):
            progress.refresh()
        phase.end(Outcome("4 data sets ready"))
    rows = terminal.rows()
    assert any("Download train.gz from host 400 MiB of" in row for row in rows)
    assert max(map(len, rows)) == longest
    assert any(row.endswith("x…") for row in rows)


@pytest.mark.parametrize(
    ("outcome", "took", "width", "lines"),
    [
        (Outcome("3 built"), "3 min 24 s", 80, ["Images     ✓ 3 built" + " " * 50 + "3 min 24 s"]),
        (Outcome("1 failed", good=False), "", 80, ["Images     ! 1 failed"]),
        (
            Outcome("a long outcome " * 3),
            "28 s",
            40,
            ["Images     ✓ a long outcome a long  28 s", " " * 13 + "outcome a long"],
        ),
    ],
)
def test_a_phase_leaves_one_line_with_its_time_at_the_right_end(
    outcome: Outcome, took: str, width: int, lines: list[str]
) -> None:
    assert phase_line("Images", outcome, took, width).plain.splitlines()[: len(lines)] == lines


@pytest.mark.parametrize(("variable", "colors"), [("NO_COLOR", False), ("UNUSED", True)])
def test_no_color_is_respected(monkeypatch: pytest.MonkeyPatch, variable: str, colors: bool) -> None:
    terminal = Terminal()
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv(variable, "1")
    with live(terminal, monkeypatch) as progress, progress.phase("Images") as phase:
        phase.end(Outcome("3 built"))
    assert ("\x1b[32m✓" in terminal.getvalue()) is colors


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
