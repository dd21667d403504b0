"""Start and control trials from the search's side: one fork server per allocator, and one of its forks per trial."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from scenarios.contract import allocators
from scenarios.contract.result import Objective
from scenarios.tuning import messages
from scenarios.tuning.messages import ForkRequest, ForkStarted, SearchSpace, TurnRequest, TurnResult
from scenarios.tuning.search import Settings, TrialFailed

T = TypeVar("T")

ROOT = Path(__file__).resolve().parents[2]
MAX_IMPORT_S = 300.0  # until a server has imported the framework
MAX_STOCK_S = 300.0  # until stock has made its first step
MAX_PROOF_S = 60.0  # in addition to the limit for a start
WARM_UP_S = 0.3
MAX_WAIT_S = 10.0  # for an answer, in addition to the length of the turn and the time until the fork was ready
# For a server only: the library behind numpy would otherwise start threads at import, before the forks.
SERVER_VARIABLES = {"OPENBLAS_NUM_THREADS": "1"}


class ForkServers:
    """The fork servers of one launch, by environment variables. data: folder that `shared_data.save` wrote."""

    def __init__(self, io: Path, data: Path) -> None:
        self._arguments = (str(io), str(data))
        self._servers: dict[tuple[tuple[str, str], ...], _ForkServer] = {}

    def close(self) -> None:
        """End all servers."""
        for server in self._servers.values():
            server.close()

    def search_space(self) -> SearchSpace:
        """Return the settings of the framework for this cell. Raise TrialFailed if the framework does not start."""
        return self._server({}).search_space

    def start(self, names: Iterable[str]) -> None:
        """Start the servers of these allocators at the same time, and wait for them. No trial runs until then."""
        for server in [self._server({allocators.AXIS: name}) for name in names]:
            with suppress(TrialFailed):  # each trial that needs this server fails with the same message
                _ = server.search_space

    def fork(self, request: ForkRequest, limit_s: float) -> ForkedTrial:
        """Return a new fork that is ready to work. Raise TrialFailed if it is not ready in `limit_s`."""
        return self._server(request.settings).fork(request, limit_s)

    def _server(self, settings: Settings) -> _ForkServer:
        variables = allocators.variables(settings)
        key = tuple(variables.items())
        if key not in self._servers:
            self._servers[key] = _ForkServer(self._arguments, variables)
        return self._servers[key]


class ForkedTrials:
    """Implement `search.TrialStarter` for one objective.

    base: settings of all candidates and of the search's stock. max_start_s: return the seconds until a candidate must
    have made its first step. It is not called before stock has started.
    """

    def __init__(
        self, servers: ForkServers, objective: Objective, base: Settings, max_start_s: Callable[[], float]
    ) -> None:
        self._servers, self._objective, self._base, self._max_start_s = servers, objective, base, max_start_s

    def start(self, settings: Settings, limit_s: float) -> ForkedTrial:
        request = ForkRequest({**self._base, **settings}, self._objective)
        trial = self._servers.fork(request, min(limit_s, self._max_start_s()) if settings else MAX_STOCK_S)
        try:
            trial.measure(WARM_UP_S)
        except BaseException:
            trial.close()
            raise
        return trial

    def prove(self, settings: Settings) -> None:
        request = ForkRequest({**self._base, **settings}, "proof")
        self._servers.fork(request, self._max_start_s() + MAX_PROOF_S).close()


class ForkedTrial:
    """Implement `search.Trial` with a fork. limit_s: time until it must be ready.

    All its processes are stopped between its turns. Otherwise those that load ahead, or spin while they wait, would
    take part in other trials' turns, and its own turn would begin with batches that cost nothing.
    """

    def __init__(self, channel: socket.socket, pid: int, limit_s: float) -> None:
        self._channel, self._pid = channel, pid
        began = time.monotonic()
        try:
            self._receive_rate(limit_s)
        except BaseException:
            self.close()
            raise
        self._max_wait_s = MAX_WAIT_S + time.monotonic() - began

    def measure(self, seconds: float) -> float:
        self._signal(signal.SIGCONT)
        with suppress(BrokenPipeError):  # if it died, the missing answer shows it
            messages.send(self._channel, TurnRequest(seconds))
        return self._receive_rate(seconds + self._max_wait_s)

    def close(self) -> None:
        self._channel.close()
        self._signal(signal.SIGKILL)  # a process that hangs would not notice the closed socket

    def _receive_rate(self, limit_s: float) -> float:
        result = _receive(self._channel, TurnResult, limit_s)
        self._signal(signal.SIGSTOP)
        if result.failure:
            raise TrialFailed(result.failure)
        return result.rate

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._pid, number)


class _ForkServer:
    """One fork server. Its ended forks stay zombies until it ends, so their process ids are not used again."""

    def __init__(self, arguments: tuple[str, ...], variables: dict[str, str]) -> None:
        self._control, theirs = messages.socket_pair()
        self._failure = ""
        command = (sys.executable, "-P", "-m", "scenarios.tuning.fork_server", str(theirs.fileno()), *arguments)
        path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = os.environ | {"PYTHONPATH": path} | SERVER_VARIABLES | variables
        with theirs:
            self._process = subprocess.Popen(command, env=environment, pass_fds=[theirs.fileno()])

    @cached_property
    def search_space(self) -> SearchSpace:
        """Return the server's first message. Raise TrialFailed if the framework does not start."""
        return self._receive(SearchSpace, MAX_IMPORT_S)

    def fork(self, request: ForkRequest, limit_s: float) -> ForkedTrial:
        _ = self.search_space
        ours, theirs = messages.socket_pair()
        try:
            with theirs:
                messages.send(self._control, request, [theirs.fileno()])
            pid = self._receive(ForkStarted, MAX_WAIT_S).pid
        except BaseException as error:
            ours.close()
            if isinstance(error, OSError):
                raise TrialFailed(f"Its fork server has ended: {error}") from error
            raise
        return ForkedTrial(ours, pid, limit_s)

    def close(self) -> None:
        self._control.close()
        self._process.kill()
        self._process.wait()

    def _receive(self, kind: type[T], limit_s: float) -> T:
        """Return the server's next message. Raise TrialFailed if there is none.

        A server that once sent none is killed, because a later message would answer an earlier request.
        """
        if self._failure:
            raise TrialFailed(self._failure)
        try:
            return _receive(self._control, kind, limit_s)
        except TrialFailed as error:
            self._failure = str(error)
            self._process.kill()
            raise


def _receive(channel: socket.socket, kind: type[T], limit_s: float) -> T:
    """Return the next message. Raise TrialFailed if there is none within `limit_s`."""
    channel.settimeout(limit_s)
    try:
        found = messages.receive(channel, kind)
    except TimeoutError:
        raise TrialFailed(f"It gave no answer for {limit_s:.0f} s.") from None
    except ConnectionResetError:
        found = None
    if found is None:
        raise TrialFailed("It crashed. The launch's log may contain the cause.")
    return found
