"""Start the measured processes, request epochs from them, and stop them. They run `benchmarks.side`."""

from __future__ import annotations

import argparse
import functools
import json
import os
import shlex
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from benchmarks.pairs import MIN_VALUES, Subject, print_line, ratios, summary, whole_number
from benchmarks.side import COMMAND
from kit.engines.local import INHERITED
from kit.host import machine_lock
from kit.host.machine import usable_cpus
from kit.model.environment import Environment
from kit.model.errors import KitError
from kit.model.progress import Progress
from kit.storage.run_names import new_run_id

ROOT = Path(__file__).resolve().parents[1]
# After a parallel region, idle threads spin before they sleep: 0.2 s in Intel's OpenMP runtime (KMP_BLOCKTIME), less
# in others. Wait longer than that before the other side's epoch.
SETTLE_S = 0.3
END_S = 30.0
TAIL_BYTES = 2000


@dataclass(frozen=True)
class Extent:
    """How much is measured: launches of both sides, and pairs of epochs per launch."""

    launches: int
    pairs: int

    @classmethod
    def add_options(
        cls, parser: argparse.ArgumentParser, images: int | None = 6_400, images_text: str = "%(default)s"
    ) -> None:
        """Add `--launches`, `--pairs` and `--images`. images: the default of `--images`. images_text: that default in
        the help."""
        count = whole_number(1)
        launches_help = f"launches of both sides; an interval needs {MIN_VALUES}; default: %(default)s"
        parser.add_argument("--launches", type=whole_number(MIN_VALUES), default=10, help=launches_help)
        parser.add_argument("--pairs", type=count, default=4, help="pairs of epochs per launch; default: %(default)s")
        parser.add_argument("--images", type=count, default=images, help=f"images per epoch; default: {images_text}")

    @classmethod
    def from_options(cls, args: argparse.Namespace) -> Extent:
        """Return the extent that the parsed options ask for."""
        return cls(args.launches, args.pairs)


@dataclass(frozen=True)
class Command:
    """How to start a side. variables: its complete environment."""

    arguments: tuple[str, ...]
    variables: Mapping[str, str]


def on_host(
    environment: Environment, home: Path, module: str, *arguments: str, variables: Mapping[str, str] | None = None
) -> Command:
    """Return the command of a side in the local engine's environment.

    home: used as HOME, because the Keras settings in the user's own (`~/.keras`) would apply to one side only.
    variables: additional environment variables."""
    fixed = {
        "HOME": str(home),
        "PYTHONPATH": str(ROOT),
        "PYTHONNOUSERSITE": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "TF_CPP_MIN_LOG_LEVEL": "1",
    }
    inherited = {name: os.environ[name] for name in INHERITED if name in os.environ}
    return Command((environment.reference, "-P", "-m", module, *arguments), inherited | fixed | dict(variables or {}))


@contextmanager
def exclusive_machine() -> Iterator[str]:
    """Hold the machine's measuring lock, as a run does, and yield the id of its holder.

    Processes that start during the block use the CPUs that a launch may use. Raise EngineError if a run is
    measuring.
    """
    run = f"bench-{new_run_id()}"
    with machine_lock.measuring(run):
        os.sched_setaffinity(0, usable_cpus())
        yield run


Epoch = Callable[[], float]  # trains one epoch and returns its seconds
Launch = Callable[[int], AbstractContextManager[tuple[Epoch, Epoch]]]  # number, from 0 -> our side and the baseline


def compare(subject: Subject, ours: Command, baseline: Command, extent: Extent, progress: Progress) -> float:
    """Compare two sides that run in separate processes, with `measure`. Raise KitError, too, if they do not do the same
    work."""

    @contextmanager
    def launch(_: int) -> Iterator[tuple[Epoch, Epoch]]:
        with _running(ours) as our_side, _running(baseline) as their_side:
            if our_side.work != their_side.work:
                works = f"one side has {our_side.work}, the other {their_side.work}"
                raise KitError(f"{subject.label}: {works}.", "Correct the recipe.")
            yield our_side.settled_epoch, their_side.settled_epoch

    return measure(subject, launch, extent, progress)


def compare_in_one_process(
    subject: Subject, commands: Sequence[Command], names: tuple[str, str], extent: Extent, progress: Progress
) -> float:
    """Compare two loops of one process, with `measure`. commands: used in rotation, one per launch. names: of the two
    loops, ours first."""

    @contextmanager
    def launch(number: int) -> Iterator[tuple[Epoch, Epoch]]:
        with _running(commands[number % len(commands)]) as both:
            ours, baseline = (functools.partial(both.epoch, name) for name in names)
            yield ours, baseline

    return measure(subject, launch, extent, progress)


def measure(subject: Subject, launch: Launch, extent: Extent, progress: Progress) -> float:
    """Measure all launches, print the line, and return the median over launches of the median ratio of their pairs.
    Raise KitError if a side dies.

    One launch is not enough. A process keeps the speed that it got by chance at its start, for example from the end of
    its heap, which decides how often freed memory returns to the system. Pairs of one launch cannot separate that
    chance from the overhead.
    """
    medians = []
    with progress.task(subject.label, total=extent.launches, unit="launches") as task:
        for number in range(extent.launches):
            with launch(number) as (ours, baseline):
                medians.append(statistics.median(ratios(ours, baseline, extent.pairs)))
            task.advance(1)
    print_line(subject.line(summary(medians, extent.launches * extent.pairs)))
    return statistics.median(medians)


class Side:
    """A running side. work: the size of its work, from its first answer."""

    def __init__(self, command: Command, process: subprocess.Popen[str], log: IO[bytes]) -> None:
        self._command, self._process, self._log = command, process, log
        self.work = self._answer()

    def epoch(self, loop: str = COMMAND) -> float:
        """Train one epoch of the named loop and return its seconds. Raise KitError if the process died."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # the missing answer reveals a dead process
            self._process.stdin.write(f"{loop}\n")
            self._process.stdin.flush()
        return self._answer()["seconds"]

    def settled_epoch(self) -> float:
        """Train one epoch after the threads of the other side went to sleep, and return its seconds."""
        time.sleep(SETTLE_S)
        return self.epoch()

    def _answer(self) -> dict[str, float]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._process.wait()
            self._log.seek(max(0, self._log.seek(0, os.SEEK_END) - TAIL_BYTES))
            tail = self._log.read().decode(errors="replace")
            raise KitError(
                f"`{shlex.join(self._command.arguments)}` ended with {self._process.returncode}:\n{tail}",
                "The last lines of its output name the cause.",
            )
        answer: dict[str, float] = json.loads(line)
        return answer


@contextmanager
def _running(command: Command) -> Iterator[Side]:
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            command.arguments,
            env=command.variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        try:
            yield Side(command, process, log)
        finally:
            _end(process)


def _end(process: subprocess.Popen[str]) -> None:
    """Close the process's input, which ends it also in a container. Kill it if it does not end."""
    with suppress(subprocess.TimeoutExpired, BrokenPipeError):
        process.communicate(timeout=END_S)
    process.kill()
    process.wait()
