"""Test that interrupts and faults while uv makes an environment leave no process, and the next attempt succeeds."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kit.environments import uv_environments
from kit.environments.package_sources import Sources
from kit.model.environment import Environment, Framework
from kit.model.errors import DiskError, EngineError, ImageError, KitError
from kit.model.progress import Silent
from tests import faults
from tests.programs import HANG, at_line, interrupt, program, require_ended


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

    def ensure(self) -> Environment:
        return uv_environments.ensure(self.framework, "cpu", self.sources, self.folder, Silent())


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
def test_after_every_fault_of_uv_the_next_attempt_succeeds(
    uv: FakeUv, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    failures: dict[str, tuple[str, type[KitError]]] = {
        "program fails": (
            "echo no https://me:secret@host/simple; exit 1",
            EngineError if step == "venv" else ImageError,
        ),
        "program's disk full": ("echo write x: No space left on device; exit 2", DiskError),
        "program killed": ("kill -9 $$", EngineError if step == "venv" else ImageError),
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
        faults.note(fault, f"virtual environment: {step}", f"exit code {kind.exit_code}")
    (uv.folder / step).write_text(HANG.format(pids=tmp_path / "pids"))
    with monkeypatch.context() as patched:
        patched.setattr(uv_environments, "without_user_info", at_line("hanging", interrupt))
        with pytest.raises(KeyboardInterrupt):
            uv.ensure()
    require_ended(tmp_path / "pids")
    (uv.folder / step).unlink()
    require_whole(uv.ensure())
    faults.note("interrupt", f"virtual environment: {step}", "exit code 130")
    variables = (uv.folder / "install.env").read_text().splitlines()
    assert "UV_DEFAULT_INDEX=https://me:secret@host/simple" in variables
    assert "UV_FIND_LINKS=https://me:secret@host/wheels" in variables
    assert "secret" not in (uv.folder / "arguments").read_text()
    assert "secret" not in (uv.folder / "import.env").read_text()


@pytest.mark.parametrize("fault", faults.ERRORS)
def test_after_every_fault_of_the_disk_the_next_environment_is_whole(uv: FakeUv, fault: str) -> None:
    uv.ensure()  # imports modules
    shutil.rmtree(uv_environments.folder().parent)
    with faults.record() as calls:
        require_whole(uv.ensure())
    assert len(calls.places) >= 10
    for place in calls.places:
        shutil.rmtree(uv_environments.folder().parent)
        error = faults.ERRORS[fault]()

        def work(place: str = place, error: BaseException = error) -> None:
            with faults.at(place, error):
                require_whole(uv.ensure())

        ended = faults.attempt(work, error, DiskError, EngineError)
        assert not isinstance(ended.caught, EngineError) or "cannot be run" in ended.text
        require_whole(uv.ensure())
        faults.note(fault, f"virtual environment: {place}", ended.outcome)


@pytest.mark.parametrize("fault", faults.ERRORS)
def test_a_removal_of_an_environment_with_a_fault_leaves_no_complete_one(uv: FakeUv, fault: str) -> None:
    uv.ensure()
    functions = ("os.rmdir", "os.unlink")
    with faults.record(functions) as calls:
        assert len(uv_environments.remove_all()) == 1
    for nth in range(1, calls.places.total() + 1):
        uv.ensure()
        error = faults.ERRORS[fault]()

        def work(nth: int = nth, error: BaseException = error) -> None:
            with faults.at(nth, error, functions):
                uv_environments.remove_all()

        ended = faults.attempt(work, error, DiskError)
        require_whole(uv.ensure())
        faults.note(fault, "virtual environment: removal", ended.outcome)


@pytest.mark.parametrize("name", ["uv", "python"])
def test_a_program_that_may_not_be_run_is_an_engine_error(uv: FakeUv, name: str) -> None:
    """For example on a file system that is mounted with `noexec`."""
    (uv.folder / name).chmod(0o644)
    with pytest.raises(EngineError, match=f"{name} cannot be run: Permission denied"):
        uv.ensure()
    (uv.folder / name).chmod(0o755)
    require_whole(uv.ensure())
