"""Addresses of host names, looked up without holding a turn.

The system's resolver can only be called and waited for, up to half a minute when no name server answers. So it is
called in a few threads of our own: they are daemons, so that the process can end although one of them still waits.
"""

from __future__ import annotations

import contextlib
import ipaddress
import queue
import socket
import threading
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from polymq.limits import RESOLVER_THREADS_MAX

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Resolution", "Resolved", "Resolver", "resolve_literal"]


@dataclass(frozen=True, slots=True)
class Resolved:
    """One address of a name, as `socket` wants it."""

    family: int
    address: tuple[object, ...] | str


class Resolution:
    """One name that is being looked up. `cancel` makes sure that its `found` is not called any more."""

    __slots__ = ("answer", "found", "host", "port")

    def __init__(self, host: str, port: int, found: Callable[[list[Resolved] | str], None]) -> None:
        self.host = host
        self.port = port
        self.found: Callable[[list[Resolved] | str], None] | None = found
        self.answer: list[Resolved] | str = ""

    def cancel(self) -> None:
        """Nobody waits any more. A look-up that has begun runs to its end, for nothing."""
        self.found = None


class Resolver:
    """Looks names up. `wake_up` is called from its threads when `run_completions` has something to do."""

    def __init__(self, wake_up: Callable[[], None]) -> None:
        self._wake_up = wake_up
        self._jobs: queue.SimpleQueue[Resolution | None] = queue.SimpleQueue()
        self._ended: deque[Resolution] = deque()
        self._threads: list[threading.Thread] = []
        self._under_way = 0
        self._lock = threading.Lock()
        self._closed = False

    def resolve(self, host: str, port: int, found: Callable[[list[Resolved] | str], None]) -> Resolution:
        """Look `host` up; `found` gets its addresses, at least one, or what is wrong, in `run_completions`."""
        resolution = Resolution(host, port, found)
        self._under_way += 1
        if len(self._threads) < min(self._under_way, RESOLVER_THREADS_MAX):
            thread = threading.Thread(target=self._run, name=f"polymq-resolver-{len(self._threads)}", daemon=True)
            self._threads.append(thread)
            thread.start()
        self._jobs.put(resolution)
        return resolution

    def run_completions(self) -> None:
        """Hand out what has been found."""
        while self._ended:
            resolution = self._ended.popleft()
            self._under_way -= 1
            if resolution.found is not None:
                resolution.found(resolution.answer)

    def close(self) -> None:
        """Call nobody any more, `wake_up` included; threads end when they are done."""
        with self._lock:
            self._closed = True
        for _ in self._threads:
            self._jobs.put(None)

    def _run(self) -> None:
        while (resolution := self._jobs.get()) is not None:
            if resolution.found is not None:
                resolution.answer = _look_up(resolution.host, resolution.port)
            self._ended.append(resolution)
            with self._lock:
                if self._closed:
                    return
                self._wake_up()


def resolve_literal(host: str, port: int) -> list[Resolved]:
    """Give the address of a host that is an address already; nothing if it is a name, which has to be looked up."""
    with contextlib.suppress(ValueError, OSError):
        ipaddress.ip_address(host)
        return _addresses(host, port, socket.AI_NUMERICHOST)
    return []


def _look_up(host: str, port: int) -> list[Resolved] | str:
    try:
        return _addresses(host, port, 0) or "no address"
    except OSError as error:
        return error.strerror or str(error)
    except ValueError:  # among them what cannot be encoded
        return "not a host name"


def _addresses(host: str, port: int, flags: int) -> list[Resolved]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
    return [Resolved(family, address) for family, _, _, _, address in found]
