"""What a fork does: trains, or predicts, by turns; or holds its settings against the reference, once."""

from __future__ import annotations

import itertools
import math
import socket
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from scenarios import weights
from scenarios.adapter import Adapter, Options
from scenarios.contract.request import REFERENCE_FILE, Request
from scenarios.data import part_of
from scenarios.measuring.measure import batch_of
from scenarios.prepare import decode
from scenarios.proof import checks
from scenarios.spec import Scenario
from scenarios.tuning.messages import Answer, Order, Turn, receive, send
from scenarios.tuning.shared_data import Sets

LOOK_S = 0.05  # between looks at the clock, for which the device is waited for


@dataclass(frozen=True)
class Subject:
    """What all forks of a server have in common. io: the launch's folder."""

    request: Request
    scenario: Scenario
    adapters: type[Adapter]
    data: Sets
    io: Path


def serve(channel: socket.socket, order: Order, subject: Subject) -> None:
    """Do the work until the other end is closed. Whatever the framework raises is an answer."""
    try:
        adapter = subject.adapters(replace(Options.of(subject.request), settings=order.settings))
        if order.work == "proof":
            send(channel, Answer(failure=_wrong(adapter, subject)))
        elif order.work == "training":
            _train(channel, adapter, subject)
        else:
            _predict(channel, adapter, subject, 1 if order.work == "latency" else subject.scenario.inference_batch)
    except Exception as error:  # noqa: BLE001 - the boundary: whatever a framework raises ends this candidate alone
        traceback.print_exc()
        send(channel, Answer(failure=f"{type(error).__name__}: {error}"[:500]))


class TurnMeter:
    """A `Meter` that trains by turns. Where one ends, its rate is told, and training rests until the next is asked for.
    The first turn is the first step alone. epoch_steps: after which there is a look in any case, since a new epoch
    drops what was not yet looked at."""

    def __init__(self, channel: socket.socket, epoch_steps: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.going = True
        self._channel = channel
        self._epoch_steps = epoch_steps
        self._clock = clock
        self._wanted_s = self._seconds = 0.0
        self._images = 0
        self._size = 1  # steps between looks
        self.begin()

    def begin(self) -> None:
        """A new epoch starts; what was pending from the last one is dropped."""
        self._steps = self._pending = 0
        self._from = self._clock()

    def due(self) -> int:
        """Steps until the next look."""
        return self._size - self._steps

    def step(self, images: int) -> bool:
        """Count one step."""
        self._steps += 1
        self._pending += images
        return self.due() <= 0

    def mark(self) -> bool:
        """Look whether the turn is over. False where no further one will be asked for."""
        seconds = self._clock() - self._from
        self._seconds += seconds
        self._images += self._pending
        if self._seconds >= self._wanted_s:
            self.going = self._next_turn()
        fitting = round(LOOK_S * self._steps / max(seconds, 1e-9))
        self._size = max(1, min(fitting, 2 * self._size, self._epoch_steps))
        self.begin()
        return self.going

    def _next_turn(self) -> bool:
        send(self._channel, Answer(rate=self._images / max(self._seconds, 1e-9)))
        turn = receive(self._channel, Turn)
        self._wanted_s, self._seconds, self._images = (turn.seconds if turn else 0.0), 0.0, 0
        return turn is not None


def _train(channel: socket.socket, adapter: Adapter, subject: Subject) -> None:
    initial = weights.initial_weights(subject.scenario, subject.request.seed)
    model = adapter.build(subject.scenario, initial)
    train = subject.data.train
    meter = TurnMeter(channel, math.ceil(len(train) / subject.scenario.batch))
    for epoch in itertools.count():
        model.load(initial)  # a step's cost depends on its numbers, and stock trains for longer than its rivals
        model.train_epoch(train, epoch, meter)
        if not meter.going:
            return


def _predict(channel: socket.socket, adapter: Adapter, subject: Subject, batch: int) -> None:
    model = adapter.build(subject.scenario, weights.initial_weights(subject.scenario, subject.request.seed))
    predict = model.predictor(batch)
    images = batch_of(decode(adapter, part_of(subject.data.test, batch)).images, batch)
    predict(images)
    send(channel, Answer())
    while turn := receive(channel, Turn):
        began, calls, seconds = time.monotonic(), 0, 0.0
        while not calls or seconds < turn.seconds:
            predict(images)
            calls += 1
            seconds = time.monotonic() - began
        send(channel, Answer(rate=calls * batch / seconds))


def _wrong(adapter: Adapter, subject: Subject) -> str:
    """What the settings compute otherwise than the reference; empty where they do not."""
    request = subject.request
    found = checks.prove(adapter, subject.scenario, request.seed, request.precision, subject.io / REFERENCE_FILE)
    return "" if found.passed else f"It does not compute the scenario's function: {checks.failures(found)}."
