"""Test the name of the program in messages. A shell must find the program by it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kit.cli import console
from kit.host import program


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """Return a program named kit."""
    made = tmp_path / "a b" / "kit"
    made.parent.mkdir()
    made.write_text("#!/bin/sh\necho it is me\n")
    made.chmod(0o755)
    return made


@pytest.mark.parametrize("on_path", [True, False])
def test_a_shell_finds_the_program_by_its_name(script, monkeypatch, on_path):
    monkeypatch.setenv("PATH", f"{script.parent if on_path else '/nowhere'}:/usr/bin:/bin")
    monkeypatch.setattr(sys, "argv", [str(script), "run"])
    name = program.called()
    assert (name == "kit") is on_path
    assert subprocess.run(["sh", "-c", name], capture_output=True, text=True, check=True).stdout == "it is me\n"


def test_a_command_gets_the_name_that_a_shell_finds(monkeypatch):
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setattr(sys, "argv", [".venv/bin/kit", "run"])
    assert program.as_called("kit run --all --framework kit") == ".venv/bin/kit run --all --framework kit"


def test_the_commands_in_a_message_get_the_name_that_a_shell_finds(monkeypatch):
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setattr(sys, "argv", [".venv/bin/kit", "run"])
    shown = program.in_messages("Use `kit data fetch` or `kit doctor`, not `kitty` or kit.")
    assert shown == "Use `.venv/bin/kit data fetch` or `.venv/bin/kit doctor`, not `kitty` or kit."


def test_a_relative_path_stays_relative(script, monkeypatch):
    monkeypatch.chdir(script.parent.parent)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setattr(sys, "argv", ["a b/kit", "run"])
    assert program.called() == "'a b/kit'"


def test_a_program_started_as_a_module_is_called_kit(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["/somewhere/kit/__main__.py"])
    assert program.called() == "kit"


def test_notes_and_remarks_name_the_program_as_a_shell_finds_it(monkeypatch, capsys):
    monkeypatch.setattr(program, "called", lambda: ".venv/bin/kit")
    console.print_notes(["`kit study show NAME` shows a study."])
    console.print_remark("Run `kit doctor`.")
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == (
        "`.venv/bin/kit study show NAME` shows a study.\n",
        "Run `.venv/bin/kit doctor`.\n",
    )
