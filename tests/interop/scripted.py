"""A server that does what a test says, connection by connection."""

from __future__ import annotations

import socket
import struct
import threading
from typing import TYPE_CHECKING, BinaryIO, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Scripted"]

TIMEOUT_S = 10
Peer = TypeVar("Peer")


class Scripted(Generic[Peer]):
    """Runs one script for each connection, in the order in which they come; `greet` makes of each what its script is given."""

    def __init__(self, greet: Callable[[socket.socket, BinaryIO], Peer], *scripts: Callable[[Peer], None]) -> None:
        self.greet = greet
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.settimeout(TIMEOUT_S)
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.problems: list[Exception] = []
        self.threads: list[threading.Thread] = []
        self.acceptor = threading.Thread(target=self._accept, args=(scripts,))
        self.acceptor.start()

    def _accept(self, scripts: tuple[Callable[[Peer], None], ...]) -> None:
        with self.listener:
            for script in scripts:
                connection, _ = self.listener.accept()
                self.threads.append(threading.Thread(target=self._serve, args=(script, connection)))
                self.threads[-1].start()

    def _serve(self, script: Callable[[Peer], None], connection: socket.socket) -> None:
        try:
            with connection, connection.makefile("rb") as file:
                connection.settimeout(TIMEOUT_S)
                script(self.greet(connection, file))
        except (AssertionError, OSError, struct.error) as problem:
            self.problems.append(problem)

    def check(self) -> None:
        """Wait for the scripts; none of them may have seen what it did not expect."""
        self.acceptor.join()
        for thread in self.threads:
            thread.join()
        assert self.problems == []
