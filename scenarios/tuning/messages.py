"""What passes between a search, its fork servers and their forks: JSON over pairs of Unix sockets, a message at a time.

search -> server   an `Order`, and with it the file through which the fork talks
server -> search   its `Offer`, once; to each order `Forked`
fork -> search     an `Answer` as soon as it is ready, and to each `Turn`
search -> fork     a `Turn`; a fork whose other end is closed ends
"""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from scenarios.contract.codec import from_json, to_json
from scenarios.contract.result import Objective

MESSAGE_BYTES = 1 << 16

T = TypeVar("T")


@dataclass(frozen=True)
class Axis:
    """A setting and its values, stock's own first."""

    name: str
    values: list[str]


@dataclass(frozen=True)
class Offer:
    """axes: of each objective, the settings that the framework has for this cell, in the order in which to try them.
    likely: those of them that are to be tried together before all others."""

    axes: dict[str, list[Axis]]
    likely: dict[str, dict[str, str]]


@dataclass(frozen=True)
class Order:
    """What a fork is for."""

    settings: dict[str, str]
    work: Literal[Objective, "proof"]


@dataclass(frozen=True)
class Forked:
    """A fork was made: the leader of a process group of its own."""

    pid: int


@dataclass(frozen=True)
class Turn:
    """Work for about so long."""

    seconds: float


@dataclass(frozen=True)
class Answer:
    """rate: of the turn, in images/s (latency: calls/s); 0 where there was none. failure: why there is none and will be
    none; empty where all is well."""

    rate: float = 0.0
    failure: str = ""


def pair() -> tuple[socket.socket, socket.socket]:
    """Both ends of a connection that keeps messages apart."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def send(channel: socket.socket, message: Any, files: list[int] | None = None) -> None:
    """Send one message. Raises OSError where nobody is there any more."""
    socket.send_fds(channel, [to_json(message).encode()], files or [])


def receive(channel: socket.socket, kind: type[T]) -> T | None:
    """The next message; None where the other end is closed. Raises TimeoutError, ContractError."""
    found = channel.recv(MESSAGE_BYTES)
    return from_json(kind, found) if found else None
