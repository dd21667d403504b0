"""A process that has imported the framework and loaded the data, and forks for each candidate, which so starts at once.

    python -m scenarios.tuning.fork_server SOCKET IO_FOLDER DATA_FOLDER

SOCKET is the number of an open file, one end of a pair; DATA_FOLDER is one of `handover`. The server first sends its
`Offer`. Each message that then comes is an order for a fork, with the file that the fork shall talk through. Nothing of
the framework may run here: a framework's threads do not survive a fork.
"""

from __future__ import annotations

import argparse
import os
import socket
import sys
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from scenarios.adapter import Adapter, Options
from scenarios.contract.codec import from_json
from scenarios.contract.request import REQUEST_FILE, Request
from scenarios.prepare import find_scenario, load_adapter
from scenarios.spec import Scenario
from scenarios.tuning import shared_data, trial
from scenarios.tuning.messages import MESSAGE_BYTES, Axis, Forked, Offer, Order, send


def offer(adapters: type[Adapter], request: Request, scenario: Scenario) -> Offer:
    """What the adapter has for this cell."""
    found = adapters.axes(Options.of(request), scenario)
    axes = {objective: [Axis(*axis) for axis in values.items()] for objective, values in found.items()}
    return Offer(axes, {objective: likely(adapters.likely, values) for objective, values in found.items()})


def likely(wishes: Mapping[str, Sequence[str]], axes: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Of the values that are wished for each setting, the first that there is and that is not stock's own. axes: all
    values, stock's own first."""
    wished = {name: [value for value in wishes.get(name, ()) if value in values[1:]] for name, values in axes.items()}
    return {name: values[0] for name, values in wished.items() if values}


def main(arguments: list[str] | None = None) -> None:
    """Serve until the other end is closed."""
    parser = argparse.ArgumentParser(prog="scenarios.tuning.fork_server")
    parser.add_argument("socket", type=int)
    parser.add_argument("io", type=Path)
    parser.add_argument("data", type=Path)
    asked = parser.parse_args(arguments)
    control = socket.socket(fileno=asked.socket)
    request = from_json(Request, (asked.io / REQUEST_FILE).read_bytes())
    scenario = find_scenario(request)
    adapters = load_adapter(request.framework)
    require_no_threads()
    send(control, offer(adapters, request, scenario))
    subject = trial.Subject(request, scenario, adapters, shared_data.load(asked.data, scenario), asked.io)
    while True:
        message, files, _, _ = socket.recv_fds(control, MESSAGE_BYTES, 1)
        if not message:
            return
        channel = socket.socket(fileno=files[0])
        if (pid := os.fork()) == 0:
            try:
                os.setpgid(0, 0)
                control.close()
                trial.serve(channel, from_json(Order, message), subject)
                sys.stdout.flush()
            except BaseException:  # noqa: BLE001 - told, and no further: the way out belongs to the server
                traceback.print_exc()
            finally:
                os._exit(0)
        with suppress(PermissionError, ProcessLookupError):  # the fork was faster with it
            os.setpgid(pid, pid)
        channel.close()
        send(control, Forked(pid))


def require_no_threads() -> None:
    """Raise RuntimeError where threads run beside this one: a fork would not have them, and wait for them for ever."""
    if (threads := len(list(Path("/proc/self/task").iterdir()))) > 1:
        raise RuntimeError(f"{threads - 1} threads run after the import, which forks would not have.")


if __name__ == "__main__":
    main()
