"""Test that interrupts and faults while uv makes an environment leave no process, and the next attempt succeeds."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from kit.environments import uv_environments
from kit.environments.package_sources import Sources
from kit.model.environment import Environment, Framework
from kit.model.errors import DiskError, EngineError, ImageError, KitError
from kit.model.progress import Silent
from tests import faults
from tests.builds import HANG, OS_ERRORS, Interrupting, first_calls, outcome, program, require_ended


class FakeUv:
    """A program `uv` that makes an environment of two files. Its Python is a program, too.

    Each of its three steps does what the file of its name says: it fails with that exit code after it wrote the text,
    or hangs.
    """

    def __init__(self, folder: Path, framework: Framework, sources: Sources) -> None:
        self.folder, self.framework, self.sources = folder, framework, sources
        step = f"step() {{ [ -e {folder}/$1 ] && . {folder}/$1; env > {folder}/$1.env; }}\n"
        python = program(folder / "python", step + "step import\n")
        script = (
            f'echo "$@" >> {folder}/arguments\n{step}if [ $1 = venv ]; then for home; do :; done\n'
            f'rm -rf "$home"; mkdir -p "$home/bin"; cp {python} "$home/bin/python"; step venv\n'
            f'else echo package > "$(dirname "$4")/../package"; step install; fi\n'
        )
        self.path = program(folder / "uv", script)

    def ensure(self, progress: Silent | None = None) -> Environment:
        return uv_environments.ensure(self.framework, "cpu", self.sources, self.folder, progress or Silent())


@pytest.fixture
def uv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeUv:
    """Return the program in its own folder, with an index that has a password."""
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "cpu.lock").write_text("tiny==1.0+cpu --hash=sha256:00\n")
    framework = Framework("tiny", "Tiny", ("cpu",), (), None, None, None, tmp_path / "tiny")
    fake = FakeUv(tmp_path, framework, Sources("https://me:secret@host/simple", "https://me:secret@host/wheels"))
    monkeypatch.setattr(uv_environments, "_uv", lambda: str(fake.path))
    monkeypatch.setenv("KIT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr("os.fsync", lambda descriptor: None)  # the power is never cut
    return fake


def require_whole(environment: Environment) -> None:
    """Fail if the environment lacks a file."""
    home = Path(environment.reference).parents[1]
    assert {path.name for path in home.iterdir()} == {"bin", "package", uv_environments.MARKER}


@pytest.mark.parametrize("step", ["venv", "install", "import"])
def test_after_every_fault_of_uv_the_next_attempt_succeeds(uv: FakeUv, tmp_path: Path, step: str) -> None:
    failures: dict[str, tuple[str, type[KitError]]] = {
        "exit code": ("echo no https://me:secret@host/simple; exit 1", EngineError if step == "venv" else ImageError),
        "disk full": ("echo write x: No space left on device; exit 2", DiskError),
        "killed": ("kill -9 $$", EngineError if step == "venv" else ImageError),
    }
    for fault, (script, kind) in failures.items():
        (uv.folder / step).write_text(script)
        with pytest.raises(kind) as caught:
            uv.ensure()
        assert caught.value.remedy
        assert "secret" not in str(caught.value)
        (uv.folder / step).unlink()
        environment = uv.ensure()
        require_whole(environment)
        shutil.rmtree(Path(environment.reference).parents[1])
        faults.note(fault, f"virtual environment: {step}", f"{kind.__name__} (exit code {kind.exit_code})")
    (uv.folder / step).write_text(HANG.format(pids=tmp_path / "pids"))
    with pytest.raises(KeyboardInterrupt):
        uv.ensure(Interrupting("hanging"))
    require_ended(tmp_path / "pids")
    (uv.folder / step).unlink()
    require_whole(uv.ensure())
    faults.note("interrupt", f"virtual environment: {step}", "interrupted")
    assert "secret" in (uv.folder / "install.env").read_text()
    assert "secret" not in (uv.folder / "arguments").read_text()
    assert "secret" not in (uv.folder / "import.env").read_text()


@pytest.mark.parametrize("fault", ["interrupt", *OS_ERRORS])
def test_after_every_fault_of_the_disk_the_next_environment_is_whole(uv: FakeUv, fault: str) -> None:
    with faults.at(0, KeyboardInterrupt()) as calls:
        require_whole(uv.ensure())
    assert len(first_calls(calls)) >= 10
    for place, nth in first_calls(calls).items():
        shutil.rmtree(uv_environments.folder().parent)
        error = KeyboardInterrupt() if fault == "interrupt" else OS_ERRORS[fault]()

        def attempt(nth: int = nth, error: BaseException = error) -> None:
            with faults.at(nth, error):
                uv.ensure()

        ended = outcome(attempt, error)
        require_whole(uv.ensure())
        faults.note(fault, f"virtual environment: {place}", ended)


def test_an_interrupted_removal_of_an_environment_leaves_no_complete_one(uv: FakeUv) -> None:
    uv.ensure()
    functions = ("os.rmdir", "os.unlink")
    with faults.at(0, KeyboardInterrupt(), functions) as calls:
        assert len(uv_environments.remove_all()) == 1
    for nth in range(1, len(calls.places) + 1):
        uv.ensure()
        with suppress(KeyboardInterrupt), faults.at(nth, KeyboardInterrupt(), functions):
            uv_environments.remove_all()
        require_whole(uv.ensure())


@pytest.mark.parametrize("name", ["uv", "python"])
def test_a_program_that_may_not_be_run_is_an_engine_error(uv: FakeUv, name: str) -> None:
    """For example on a file system that is mounted with `noexec`."""
    (uv.folder / name).chmod(0o644)
    with pytest.raises(EngineError, match=f"{name} cannot be run: Permission denied"):
        uv.ensure()
    (uv.folder / name).chmod(0o755)
    require_whole(uv.ensure())
