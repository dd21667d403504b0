"""Import a framework, load the data, and fork for each trial, so that a trial starts at once.

    python -m scenarios.tuning.fork_server SOCKET IO_FOLDER DATA_FOLDER

SOCKET is the number of an open file, one end of a socket pair. DATA_FOLDER was written by `shared_data.save`. The
server first sends the `SearchSpace`. Each message after that is a `ForkRequest` with the socket of the new fork. The
server must not run code of the framework, because a framework's threads do not survive a fork.
"""

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
from scenarios.tuning import shared_data, trial_process
from scenarios.tuning.messages import MESSAGE_BYTES, Axis, ForkRequest, ForkStarted, SearchSpace, send


def search_space(adapter: type[Adapter], request: Request, scenario: Scenario) -> SearchSpace:
    """Return the settings that the adapter has for this cell."""
    found = adapter.axes(Options.of(request), scenario)
    axes = {objective: [Axis(*axis) for axis in values.items()] for objective, values in found.items()}
    return SearchSpace(
        axes, {objective: likely_settings(adapter.likely, values) for objective, values in found.items()}
    )


def likely_settings(likely: Mapping[str, Sequence[str]], axes: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Return, for each setting, the first likely value that is available and is not the stock value.

    axes: all available values of each setting. The stock value is the first.
    """
    available = {
        name: [value for value in likely.get(name, ()) if value in values[1:]] for name, values in axes.items()
    }
    return {name: values[0] for name, values in available.items() if values}


def main(arguments: list[str] | None = None) -> None:
    """Serve until the other end is closed."""
    parser = argparse.ArgumentParser(prog="scenarios.tuning.fork_server")
    parser.add_argument("socket", type=int)
    parser.add_argument("io", type=Path)
    parser.add_argument("data", type=Path)
    options = parser.parse_args(arguments)
    control = socket.socket(fileno=options.socket)
    request = from_json(Request, (options.io / REQUEST_FILE).read_bytes())
    scenario = find_scenario(request)
    adapter = load_adapter(request.cell.framework)
    space = search_space(adapter, request, scenario)
    require_no_threads()
    send(control, space)
    train, test = (shared_data.load(options.data, scenario, name) for name in ("train", "test"))
    task = trial_process.Task(request, scenario, adapter, train, test, options.io)
    while True:
        message, files, _, _ = socket.recv_fds(control, MESSAGE_BYTES, 1)
        if not message:
            return
        channel = socket.socket(fileno=files[0])
        if (pid := os.fork()) == 0:
            try:
                os.setpgid(0, 0)
                control.close()
                trial_process.run(channel, from_json(ForkRequest, message), task)
                sys.stdout.flush()
            except BaseException:  # noqa: BLE001 - the fork must not return into the server's code
                traceback.print_exc()
            finally:
                os._exit(0)
        with suppress(PermissionError, ProcessLookupError):  # the fork has already done it, or has ended
            os.setpgid(pid, pid)
        channel.close()
        send(control, ForkStarted(pid))


def require_no_threads() -> None:
    """Raise RuntimeError if other threads run. A fork would not have them, and would wait for them forever."""
    if (threads := len(list(Path("/proc/self/task").iterdir()))) > 1:
        raise RuntimeError(f"{threads - 1} threads run after the import. Forks would not have them.")


if __name__ == "__main__":
    main()
