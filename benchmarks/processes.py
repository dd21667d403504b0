"""The processes that train: started, asked for epochs, ended. What they run is `benchmarks.side`."""

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

from benchmarks.pairs import LEAST, Subject, at_least, ratios, say, summary
from benchmarks.side import COMMAND
from kit.engines.local import INHERITED
from kit.host import machine_lock
from kit.host.machine import usable_cpus
from kit.model.environment import Environment
from kit.model.errors import KitError
from kit.model.progress import Progress
from kit.storage.run_names import new_run_id

ROOT = Path(__file__).resolve().parents[1]
# Threads that a parallel region leaves behind spin for a while before they sleep: 0.2 s in Intel's OpenMP runtime
# (KMP_BLOCKTIME), less in others. The other side's epoch begins after that.
SETTLE_S = 0.3
END_S = 30.0
TAIL_BYTES = 2000


@dataclass(frozen=True)
class Extent:
    """How much is measured. launches: of both processes. pairs: of epochs, in each launch."""

    launches: int
    pairs: int

    @classmethod
    def offer(
        cls, parser: argparse.ArgumentParser, images: int | None = 6_400, images_in_words: str = "%(default)s"
    ) -> None:
        """Options for it, and `--images`, an epoch's. images: the default, and in words."""
        enough = f"of both sides, at least {LEAST} for an interval; default: %(default)s"
        parser.add_argument("--launches", type=at_least(LEAST), default=10, help=enough)
        parser.add_argument("--pairs", type=at_least(1), default=4, help="of epochs, in a launch; default: %(default)s")
        parser.add_argument(
            "--images", type=at_least(1), default=images, help=f"in an epoch; default: {images_in_words}"
        )

    @classmethod
    def asked(cls, options: argparse.Namespace) -> Extent:
        """What the options say."""
        return cls(options.launches, options.pairs)


@dataclass(frozen=True)
class Command:
    """How to start a side. variables: its whole environment."""

    arguments: tuple[str, ...]
    variables: Mapping[str, str]


def on_host(
    environment: Environment, home: Path, module: str, *arguments: str, variables: Mapping[str, str] | None = None
) -> Command:
    """A side in the local engine's environment. home: stands in for the user's, whose Keras settings (`~/.keras`)
    would be in force on one side alone. variables: further ones of its environment."""
    own = {
        "HOME": str(home),
        "PYTHONPATH": str(ROOT),
        "PYTHONNOUSERSITE": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "TF_CPP_MIN_LOG_LEVEL": "1",
    }
    inherited = {name: os.environ[name] for name in INHERITED if name in os.environ}
    return Command((environment.reference, "-P", "-m", module, *arguments), inherited | own | dict(variables or {}))


@contextmanager
def alone() -> Iterator[str]:
    """Have the machine to ourselves, as a run has, and use the CPUs that a launch may use, on both sides. Gives the id
    that holds the machine's lock. Raises EngineError where a run is measuring."""
    run = f"bench-{new_run_id()}"
    with machine_lock.measuring(run):
        os.sched_setaffinity(0, usable_cpus())  # what is started from here on inherits it
        yield run


Epoch = Callable[[], float]  # trains one, and gives its seconds
Launch = Callable[[int], AbstractContextManager[tuple[Epoch, Epoch]]]  # by its number, from 0: both sides, ours first


def compare(subject: Subject, ours: Command, baseline: Command, extent: Extent, progress: Progress) -> float:
    """Compare two sides that are processes of their own; see `measure`. Raises KitError, too, where they do not do the
    same work."""

    @contextmanager
    def launch(_: int) -> Iterator[tuple[Epoch, Epoch]]:
        with _started(ours) as our_side, _started(baseline) as their_side:
            if our_side.work != their_side.work:
                works = f"one side has {our_side.work}, the other {their_side.work}"
                raise KitError(f"{subject.label}: {works}.", "Correct the recipe.")
            yield our_side.settled_epoch, their_side.settled_epoch

    return measure(subject, launch, extent, progress)


def compare_in_one(
    subject: Subject, commands: Sequence[Command], names: tuple[str, str], extent: Extent, progress: Progress
) -> float:
    """Compare two loops of one process; see `measure`. commands: of which launches take one after the other. names: of
    the loops, ours first."""

    @contextmanager
    def launch(number: int) -> Iterator[tuple[Epoch, Epoch]]:
        with _started(commands[number % len(commands)]) as both:
            ours, baseline = (functools.partial(both.epoch, name) for name in names)
            yield ours, baseline

    return measure(subject, launch, extent, progress)


def measure(subject: Subject, launch: Launch, extent: Extent, progress: Progress) -> float:
    """Measure, print the line, and return the median over launches, of each of which the median of its pairs counts.
    Raises KitError where a side dies.

    Several launches, since a process keeps for life what it was lucky or unlucky with at its start, as where its heap
    ends and so how often freed memory goes back to the system: pairs of one launch do not tell such luck from cost.
    """
    found = []
    with progress.task(subject.label, total=extent.launches, unit="launches") as task:
        for number in range(extent.launches):
            with launch(number) as (ours, baseline):
                found.append(statistics.median(ratios(ours, baseline, extent.pairs)))
            task.advance(1)
    say(subject.line(summary(found, extent.launches * extent.pairs)))
    return statistics.median(found)


class Side:
    """A side that is running. work: what it said of itself when it was ready."""

    def __init__(self, command: Command, process: subprocess.Popen[str], log: IO[bytes]) -> None:
        self._command, self._process, self._log = command, process, log
        self.work = self._answer()

    def epoch(self, loop: str = COMMAND) -> float:
        """Have it train one epoch; the seconds that it took. Raises KitError where it died."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # that it died shows in that there is no answer
            self._process.stdin.write(f"{loop}\n")
            self._process.stdin.flush()
        return self._answer()["seconds"]

    def settled_epoch(self) -> float:
        """`epoch`, begun when the threads of the other side have gone to sleep."""
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
                "Its last words name the cause.",
            )
        answer: dict[str, float] = json.loads(line)
        return answer


@contextmanager
def _started(command: Command) -> Iterator[Side]:
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
    """Close its input, at which it ends by itself, in a container, too; kill it where it does not."""
    with suppress(subprocess.TimeoutExpired, BrokenPipeError):
        process.communicate(timeout=END_S)
    process.kill()
    process.wait()
