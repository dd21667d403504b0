"""The meter of a forked trial, which trains in turns, with epochs of any length."""

from __future__ import annotations

import threading

import pytest

from scenarios.tuning.messages import TurnRequest, TurnResult, receive, send, socket_pair
from scenarios.tuning.trial_process import TurnMeter


class Clock:
    """A clock that moves by `step_s` with each step."""

    def __init__(self, step_s: float) -> None:
        self.now, self.step_s = 0.0, step_s

    def __call__(self) -> float:
        return self.now


def train(meter: TurnMeter, clock: Clock, epoch_steps: int, images: int) -> int:
    """Train like an adapter until no other turn follows. Return the number of epochs."""
    epochs = 0
    while meter.active:
        meter.begin()
        epochs += 1
        for _ in range(epoch_steps):
            clock.now += clock.step_s
            if meter.step(images) and not meter.mark():
                break
    return epochs


@pytest.mark.parametrize(("epoch_steps", "step_s"), [(3, 1e-6), (3, 0.01), (1, 0.4), (1000, 0.001), (7, 0.04)])
def test_turns_are_answered_with_the_rate_of_steady_training(epoch_steps, step_s):
    ours, theirs = socket_pair()
    ours.settimeout(30)
    clock = Clock(step_s)
    meter = TurnMeter(theirs, epoch_steps, clock)
    fork = threading.Thread(target=train, args=(meter, clock, epoch_steps, 32))
    fork.start()
    first = receive(ours, TurnResult)
    assert first is not None, "the first step is a separate turn"
    for seconds in (0.3, 0.25):
        began = clock.now
        send(ours, TurnRequest(seconds))
        answer = receive(ours, TurnResult)
        assert answer is not None
        assert answer.rate == pytest.approx(32 / step_s)
        assert seconds <= clock.now - began <= seconds + 2 * max(0.05, step_s) + epoch_steps * step_s
    ours.close()
    fork.join(30)
    assert not fork.is_alive(), "it ends when the socket is closed"
    theirs.close()
