"""Define what a search, its fork servers and their forks send each other: JSON messages over pairs of Unix sockets.

server -> search   one `SearchSpace`; then `ForkStarted` after each request
search -> server   `ForkRequest`, together with the socket of the new fork
fork -> search     `TurnResult` when it is ready, and after each turn
search -> fork     `TurnRequest`; a fork ends when this socket is closed
"""

import socket
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from scenarios.contract.codec import from_json, to_json
from scenarios.contract.result import Objective

MESSAGE_BYTES = 1 << 16

T = TypeVar("T")


@dataclass(frozen=True)
class Axis:
    """A setting and its values, the stock value first. A list of these keeps its order, unlike the keys in JSON."""

    name: str
    values: list[str]


@dataclass(frozen=True)
class SearchSpace:
    """The settings of one cell.

    axes: for each objective, the settings of the framework, in the order in which to try them. likely: for each
    objective, the settings to try together before all others.
    """

    axes: dict[str, list[Axis]]
    likely: dict[str, dict[str, str]]


@dataclass(frozen=True)
class ForkRequest:
    """Ask for a fork that does this work under these settings."""

    settings: dict[str, str]
    work: Literal[Objective, "proof"]


@dataclass(frozen=True)
class ForkStarted:
    """Report a new fork, which leads its own process group."""

    pid: int


@dataclass(frozen=True)
class TurnRequest:
    """Ask for about this many seconds of work."""

    seconds: float


@dataclass(frozen=True)
class TurnResult:
    """Report the end of a turn, of the preparation, or of a proof.

    rate: speed in images/s (latency: calls/s); 0 if this was not a turn. failure: why the fork cannot go on, or "".
    """

    rate: float = 0.0
    failure: str = ""


def socket_pair() -> tuple[socket.socket, socket.socket]:
    """Return both ends of a connection that keeps messages separate."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def send(channel: socket.socket, message: Any, files: list[int] | None = None) -> None:
    """Send one message, with open files. Raise OSError if the other end is closed."""
    socket.send_fds(channel, [to_json(message).encode()], files or [])


def receive(channel: socket.socket, kind: type[T]) -> T | None:
    """Return the next message, or None if the other end is closed. Raise TimeoutError or ContractError."""
    found = channel.recv(MESSAGE_BYTES)
    return from_json(kind, found) if found else None
