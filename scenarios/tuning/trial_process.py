"""Run one trial in a forked process: train or predict in turns, or compare the settings with the reference once."""

import itertools
import math
import socket
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from scenarios import weights
from scenarios.adapter import Adapter, Options, TrainSet
from scenarios.contract.request import REFERENCE_FILE, Request
from scenarios.data import part_of
from scenarios.measuring.inference import fill_batch
from scenarios.prepare import decode
from scenarios.proof import checks
from scenarios.spec import Scenario
from scenarios.tuning.messages import ForkRequest, TurnRequest, TurnResult, receive, send

CLOCK_INTERVAL_S = 0.05  # between clock readings; each one synchronizes the device


@dataclass(frozen=True)
class Task:
    """What all forks of a server have in common. io: the launch's folder."""

    request: Request
    scenario: Scenario
    adapter: type[Adapter]
    train: TrainSet
    test: TrainSet
    io: Path


def run(channel: socket.socket, wanted: ForkRequest, task: Task) -> None:
    """Do the work until the other end is closed. Report any exception of the framework as a failure."""
    request, scenario = task.request, task.scenario
    try:
        adapter = task.adapter(replace(Options.of(request), settings=wanted.settings))
        if wanted.work == "proof":
            proof = checks.prove(adapter, scenario, request.seed, request.cell.precision, task.io / REFERENCE_FILE)
            wrong = "" if proof.passed else f"It does not compute the scenario's function: {checks.failures(proof)}."
            send(channel, TurnResult(failure=wrong))
        elif wanted.work == "training":
            _train(channel, adapter, task)
        else:
            _predict(channel, adapter, task, 1 if wanted.work == "latency" else scenario.inference_batch)
    except Exception as error:  # noqa: BLE001 - an exception of the framework ends only this trial
        traceback.print_exc()
        send(channel, TurnResult(failure=f"{type(error).__name__}: {error}"[:500]))


class TurnMeter:
    """A `Meter` that trains in turns.

    At the end of a turn it sends the rate, and training waits for the next request. The first turn is the first step
    alone. epoch_steps: maximum number of steps between clock readings, because a new epoch drops the steps after the
    last reading.
    """

    def __init__(self, channel: socket.socket, epoch_steps: int, clock: Callable[[], float]) -> None:
        self.active = True
        self._channel = channel
        self._epoch_steps = epoch_steps
        self._clock = clock
        self._wanted_s = self._seconds = 0.0
        self._images = 0
        self._interval = 1  # steps between clock readings
        self.begin()

    def begin(self) -> None:
        self._steps = self._pending_images = 0
        self._start = self._clock()

    def due(self) -> int:
        return self._interval - self._steps

    def step(self, images: int) -> bool:
        self._steps += 1
        self._pending_images += images
        return self.due() <= 0

    def mark(self) -> bool:
        seconds = self._clock() - self._start
        self._seconds += seconds
        self._images += self._pending_images
        if self._seconds >= self._wanted_s:
            send(self._channel, TurnResult(rate=self._images / max(self._seconds, 1e-9)))
            turn = receive(self._channel, TurnRequest)
            self.active = turn is not None
            self._wanted_s, self._seconds, self._images = (turn.seconds if turn else 0.0), 0.0, 0
        fitting = round(CLOCK_INTERVAL_S * self._steps / max(seconds, 1e-9))
        self._interval = max(1, min(fitting, 2 * self._interval, self._epoch_steps))
        self.begin()
        return self.active


def _train(channel: socket.socket, adapter: Adapter, task: Task) -> None:
    initial = weights.initial_weights(task.scenario, task.request.seed)
    model = adapter.build(task.scenario, initial)
    meter = TurnMeter(channel, math.ceil(len(task.train) / task.scenario.batch), time.monotonic)
    for epoch in itertools.count():
        model.load(initial)  # a step's cost depends on the weights, and stock trains longer than the candidates
        model.train_epoch(task.train, epoch, meter)
        if not meter.active:
            return


def _predict(channel: socket.socket, adapter: Adapter, task: Task, batch: int) -> None:
    model = adapter.build(task.scenario, weights.initial_weights(task.scenario, task.request.seed))
    predict = model.predictor(batch)
    images = fill_batch(decode(adapter, part_of(task.test, batch)).images, batch)
    predict(images)
    send(channel, TurnResult())
    while turn := receive(channel, TurnRequest):
        began, calls, seconds = time.monotonic(), 0, 0.0
        while not calls or seconds < turn.seconds:
            predict(images)
            calls += 1
            seconds = time.monotonic() - began
        send(channel, TurnResult(rate=calls * batch / seconds))
