"""Starts candidates: a fork server for each environment that they need, and a fork of it for each of them."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from scenarios.contract import allocators
from scenarios.contract.result import Objective
from scenarios.tuning.messages import Answer, Forked, Offer, Order, Turn, pair, receive, send
from scenarios.tuning.search import Settings, TrialFailed

T = TypeVar("T")

ROOT = Path(__file__).resolve().parents[2]
SERVER_S = 300.0  # until a framework is imported
STOCK_S = 300.0  # until stock has made its first step
PROOF_S = 60.0  # until settings are held against the reference
WARM_UP_S = 0.3
PATIENCE_S = 10.0  # beyond a turn's own length and a first step's, until a fork counts as hung
# Of a server: the library behind numpy would start threads with the import, before the forks.
OWN_VARIABLES = {"OPENBLAS_NUM_THREADS": "1"}


class ForkServers:
    """The fork servers of one launch, by environment. To be closed at the end; a context manager. data: see
    `handover`."""

    def __init__(self, io: Path, data: Path) -> None:
        self._arguments = (str(io), str(data))
        self._servers: dict[tuple[tuple[str, str], ...], _Server] = {}

    def __enter__(self) -> ForkServers:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for server in self._servers.values():
            server.close()

    def offer(self) -> Offer:
        """What the framework has for this cell. Raises TrialFailed."""
        return self._server({}).offer()

    def start(self, names: Iterable[str]) -> None:
        """Start the servers of these allocators side by side, and wait for them: nothing is measured meanwhile."""
        for server in [self._server({allocators.AXIS: name}) for name in names]:
            with suppress(TrialFailed):  # told to the candidates that need it
                server.offer()

    def fork(self, order: Order, limit_s: float) -> Fork:
        """A fork under these settings that is ready to work, within a time. Raises TrialFailed."""
        return self._server(order.settings).fork(order, limit_s)

    def _server(self, settings: Settings) -> _Server:
        variables = allocators.variables(settings)
        key = tuple(variables.items())
        if key not in self._servers:
            self._servers[key] = _Server(self._arguments, variables)
        return self._servers[key]


class ForkTrials:
    """Meets `search.Trials` for one objective. base: settings that all candidates, stock's place included, have.
    limit_s: what a candidate may take until it has made its first step; or twice what stock took."""

    def __init__(self, servers: ForkServers, objective: Objective, base: Settings, limit_s: float) -> None:
        self._servers, self._objective, self._base, self._limit_s = servers, objective, base, limit_s

    def start(self, settings: Settings, limit_s: float) -> Fork:
        """See `search.Trials`."""
        order = Order({**self._base, **settings}, self._objective)
        began = time.monotonic()
        trial = self._servers.fork(order, min(limit_s, self._limit_s) if settings else STOCK_S)
        if not settings:
            self._limit_s = max(self._limit_s, 2 * (time.monotonic() - began))
        try:
            trial.measure(WARM_UP_S)
        except BaseException:
            trial.close()
            raise
        return trial

    def prove(self, settings: Settings) -> None:
        """See `search.Trials`."""
        self._servers.fork(Order({**self._base, **settings}, "proof"), PROOF_S).close()


class Fork:
    """Meets `search.Trial`. limit_s: how long it may take to be ready.

    Between its turns all its processes are stopped: what loads ahead, or spins while it waits, would else take part in
    the other side's turn, and begin its own with batches that cost nothing.
    """

    def __init__(self, channel: socket.socket, pid: int, limit_s: float) -> None:
        self._channel, self._pid = channel, pid
        began = time.monotonic()
        try:
            self._answer(limit_s)
        except BaseException:
            self.close()
            raise
        self._patience_s = PATIENCE_S + time.monotonic() - began

    def measure(self, seconds: float) -> float:
        """See `search.Trial`."""
        self._signal(signal.SIGCONT)
        with suppress(BrokenPipeError):  # that it died shows in that there is no answer
            send(self._channel, Turn(seconds))
        return self._answer(seconds + self._patience_s)

    def close(self) -> None:
        """See `search.Trial`. Its processes are killed: one that hangs would not notice that nobody listens."""
        self._channel.close()
        self._signal(signal.SIGKILL)

    def _answer(self, limit_s: float) -> float:
        answer = _expect(self._channel, Answer, limit_s)
        self._signal(signal.SIGSTOP)
        if answer.failure:
            raise TrialFailed(answer.failure)
        return answer.rate

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._pid, number)


class _Server:
    """One fork server. Its forks that ended stay zombies until it ends, so that none of their ids is used anew."""

    def __init__(self, arguments: tuple[str, ...], variables: dict[str, str]) -> None:
        self._control, theirs = pair()
        self._offer: Offer | None = None
        self._failure = ""
        command = (sys.executable, "-P", "-m", "scenarios.tuning.fork_server", str(theirs.fileno()), *arguments)
        path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = os.environ | {"PYTHONPATH": path} | OWN_VARIABLES | variables
        with theirs:
            self._process = subprocess.Popen(command, env=environment, pass_fds=[theirs.fileno()])

    def offer(self) -> Offer:
        """See `ForkServers.offer`."""
        if self._offer is None:
            self._offer = self._reply(Offer, SERVER_S)
        return self._offer

    def fork(self, order: Order, limit_s: float) -> Fork:
        """See `ForkServers.fork`."""
        self.offer()
        ours, theirs = pair()
        try:
            with theirs:
                send(self._control, order, [theirs.fileno()])
            pid = self._reply(Forked, PATIENCE_S).pid
        except BaseException as error:
            ours.close()
            if isinstance(error, OSError):
                raise TrialFailed(f"Its server is gone: {error}") from error
            raise
        return Fork(ours, pid, limit_s)

    def close(self) -> None:
        """End it."""
        self._control.close()
        self._process.kill()
        self._process.wait()

    def _reply(self, kind: type[T], limit_s: float) -> T:
        """Its next message. A server that once gave none is given up: what it says later would answer something
        else. Raises TrialFailed."""
        if self._failure:
            raise TrialFailed(self._failure)
        try:
            return _expect(self._control, kind, limit_s)
        except TrialFailed as error:
            self._failure = str(error)
            self._process.kill()
            raise


def _expect(channel: socket.socket, kind: type[T], limit_s: float) -> T:
    """The next message. Raises TrialFailed where there is none."""
    channel.settimeout(limit_s)
    try:
        found = receive(channel, kind)
    except TimeoutError:
        raise TrialFailed(f"It gave no answer for {limit_s:.0f} s.") from None
    except ConnectionResetError:
        found = None
    if found is None:
        raise TrialFailed("It crashed; the launch's log may say why.")
    return found
