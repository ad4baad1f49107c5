from __future__ import annotations

import socket
import threading
from typing import Any

import pytest

from polymq import limits
from polymq.server.resolver import Resolved, Resolver, resolve_literal


class Names:
    """Stands in for the system's resolver: some names take until they are let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[str] = []
        self.gate = threading.Event()
        monkeypatch.setattr("polymq.server.resolver.socket.getaddrinfo", self)

    def __call__(self, host: str, port: int, **_rest: Any) -> list[Any]:
        self.asked.append(host)
        if host.startswith("slow"):
            self.gate.wait(10)
        if host == "missing":
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        if host == "nothing":
            return []
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.1", port))]


class Waiting:
    """A resolver whose completions the test waits for."""

    def __init__(self) -> None:
        self.awake = threading.Semaphore(0)
        self.resolver = Resolver(self.awake.release)
        self.found: list[Any] = []

    def wait(self, count: int = 1) -> None:
        for _ in range(count):
            assert self.awake.acquire(timeout=10)
        self.resolver.run_completions()


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("here", [Resolved(socket.AF_INET, ("192.0.2.1", 80))]),
        ("missing", "Name or service not known"),
        ("nothing", "no address"),
    ],
)
def test_a_name_is_found_or_is_not(name: str, found: object, monkeypatch: pytest.MonkeyPatch) -> None:
    Names(monkeypatch)
    waiting = Waiting()
    waiting.resolver.resolve(name, 80, waiting.found.append)
    waiting.wait()
    assert waiting.found == [found]
    waiting.resolver.close()


def test_what_is_no_name_at_all() -> None:
    waiting = Waiting()
    waiting.resolver.resolve("a" * 64 + ".invalid", 80, waiting.found.append)
    waiting.wait()
    assert waiting.found == ["not a host name"]
    waiting.resolver.close()


def test_slow_names_hold_no_more_than_so_many_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    names = Names(monkeypatch)
    waiting = Waiting()
    count = limits.RESOLVER_THREADS_MAX + 5
    resolutions = [waiting.resolver.resolve(f"slow{index}", 80, waiting.found.append) for index in range(count)]
    assert len(waiting.resolver._threads) == limits.RESOLVER_THREADS_MAX
    for resolution in resolutions[limits.RESOLVER_THREADS_MAX :]:
        resolution.cancel()
    names.gate.set()
    waiting.wait(count)
    assert len(waiting.found) == limits.RESOLVER_THREADS_MAX
    assert len(names.asked) == limits.RESOLVER_THREADS_MAX, "what nobody waits for is not looked up"
    waiting.resolver.close()


def test_nobody_is_called_after_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    names = Names(monkeypatch)
    waiting = Waiting()
    waiting.resolver.resolve("slow", 80, waiting.found.append)
    (thread,) = waiting.resolver._threads
    waiting.resolver.close()
    names.gate.set()
    thread.join(10)
    assert not thread.is_alive()
    assert not waiting.awake.acquire(blocking=False)


def test_an_address_needs_no_looking_up() -> None:
    assert resolve_literal("127.0.0.1", 5) == [Resolved(socket.AF_INET, ("127.0.0.1", 5))]
    assert [found.family for found in resolve_literal("::1", 5)] == [socket.AF_INET6]
    assert resolve_literal("localhost", 5) == []
    assert resolve_literal("fe80::1%nowhere", 5) == []
