"""Outgoing connections over sockets of this machine."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import ssl
import time
from typing import TYPE_CHECKING, Any

import pytest

from polymq import limits
from polymq.config_values import Address, TcpAddress, UnixAddress
from polymq.gateways.contract import Peer
from polymq.gateways.effects import Send
from polymq.server import dialer as dialer_module
from polymq.server import resolver
from polymq.server.dialer import SocketDialer
from polymq.server.ports import ClientTls
from polymq.server.pump import Pump
from polymq.server.shell import Poller
from tests.unit.server.fakes import Broker, Gateway, Store
from tests.unit.server.test_layers import IDENTITY, server_context
from tests.unit.server.test_shell import RealClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SECOND_NS = 1_000_000_000


class Caller(Gateway):
    """Says hello and keeps what comes back."""

    def __init__(self, peer: Peer) -> None:
        super().__init__()
        self.peer = peer
        self.on["opened"] = lambda effects: effects.append(Send(b"hello\n"))
        self.reason = ""

    def upgrade_failed(self, reason: str, effects: list[Any]) -> None:
        self.reason = reason
        super().upgrade_failed(reason, effects)


class Running:
    """A pump and a dialer over a real poller, turned by hand."""

    def __init__(self) -> None:
        broker = Broker()
        self.poller = Poller()
        self.pump = Pump(broker, Store(broker.calls), RealClock(), self.poller)  # type: ignore[arg-type]  # deliveries are simpler here
        self.dialer = SocketDialer(self.pump, self.poller, RealClock())
        self.callers: list[Caller] = []
        self.failures: list[str] = []

    def factory(self, peer: Peer) -> Caller:
        self.callers.append(Caller(peer))
        return self.callers[-1]

    def dial(self, address: Address, *, timeout_ns: int = 10 * SECOND_NS, tls: ClientTls | None = None) -> Any:
        return self.dialer.dial(address, self.factory, timeout_ns=timeout_ns, failed=self.failures.append, tls=tls)

    def until(self, condition: Callable[[], object]) -> None:
        """Take turns until it holds."""
        give_up_at = time.monotonic() + 10
        while not condition():
            assert time.monotonic() < give_up_at
            for descriptor, _ in self.poller.poll(0.005):
                connection = self.poller.connections.get(descriptor)
                if connection is not None:
                    if connection.watched[1]:
                        self.pump.writable(connection)
                    self.pump.readable(connection)
                elif descriptor in self.poller.callbacks:
                    self.poller.callbacks[descriptor]()
            self.pump.end_turn()


@pytest.fixture
def running() -> Iterator[Running]:
    running = Running()
    yield running
    running.dialer.close()
    running.pump.abandon()
    assert not running.poller.callbacks
    assert not running.poller.connections
    running.poller.close()


@contextlib.contextmanager
def listening(host: str = "127.0.0.1", *, backlog: int = 5) -> Iterator[tuple[socket.socket, TcpAddress]]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family, backlog=backlog) as server:
        server.settimeout(10)
        yield server, TcpAddress(host, server.getsockname()[1])


def nobody() -> TcpAddress:
    """An address where nobody listens."""
    with listening() as (_, address):
        return address


def greet(running: Running, server: socket.socket) -> None:
    """Accept, and answer what the caller says."""
    running.until(lambda: running.callers)
    connected, _ = server.accept()
    with connected:
        running.until(lambda: True)
        assert connected.recv(100) == b"hello\n"
        connected.sendall(b"good day\n")
        running.until(lambda: b"good day" in running.callers[-1].calls)
    running.until(lambda: "ended" in running.callers[-1].calls)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_connection_is_opened_in_the_pump(running: Running, host: str) -> None:
    with listening(host) as (server, address):
        running.dial(address)
        assert not running.callers, "not before dial has returned"
        greet(running, server)
    assert running.callers[0].peer == Peer(host=host, port=address.port)
    assert running.failures == []


def test_a_unix_socket(running: Running, tmp_path: Path) -> None:
    path = str(tmp_path / "socket")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen()
        running.dial(UnixAddress(path))
        greet(running, server)
    assert running.callers[0].peer == Peer(host=path, port=0)


def test_a_name_is_looked_up_first(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    with listening() as (server, address):
        unused = nobody().port
        monkeypatch.setattr(resolver, "_look_up", lambda _host, port: [
            resolver.Resolved(socket.AF_INET, ("127.0.0.1", unused)),
            resolver.Resolved(socket.AF_INET, ("127.0.0.1", port)),
        ])  # fmt: skip
        running.dial(TcpAddress("somewhere.invalid", address.port))
        greet(running, server)
    assert running.failures == [], "the first address refused, the second did not"


def test_nobody_listens(running: Running, tmp_path: Path) -> None:
    running.dial(nobody())
    running.dial(UnixAddress(str(tmp_path / "missing")))
    assert running.failures == [], "not before dial has returned"
    running.until(lambda: len(running.failures) == 2)
    assert sorted(running.failures) == ["Connection refused", "No such file or directory"]


def test_a_name_that_does_not_exist(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolver, "_look_up", lambda _host, _port: "Name or service not known")
    running.dial(TcpAddress("missing.invalid", 80))
    running.until(lambda: running.failures)
    assert running.failures == ["Name or service not known"]


def test_a_name_that_is_not_found_in_time(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running.dialer._resolver, "resolve", lambda host, port, found: resolver.Resolution(host, port, found))
    running.dial(TcpAddress("slow.invalid", 80), timeout_ns=1_000_000)
    running.until(lambda: running.failures)
    assert running.failures == ["the name was not found in time"]


class Silent(socket.socket):
    """Never connects, as behind a firewall that swallows packets."""

    def connect_ex(self, _address: Any) -> int:
        return errno.EINPROGRESS


def test_no_answer_in_time(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    swallowed: list[Any] = []

    def make(family: int, kind: int) -> socket.socket:
        swallowed.append(True)
        return Silent(family, kind)

    monkeypatch.setattr("polymq.server.dialer.socket.socket", make)
    # A socket that has not begun to connect is reported as hung up at once: watch something that stays silent instead.
    kept: list[int] = []
    monkeypatch.setattr(running.poller, "add", lambda descriptor, _callback, **_rest: kept.append(descriptor))
    monkeypatch.setattr(resolver, "_look_up", lambda _host, port: [resolver.Resolved(socket.AF_INET, ("127.0.0.1", port))] * 2)
    running.dial(TcpAddress("silent.invalid", 80), timeout_ns=20_000_000)
    began = time.monotonic_ns()
    running.until(lambda: running.failures)
    assert running.failures == ["no answer in time"]
    assert len(swallowed) == 2, "both addresses had their share of the time"
    assert 10_000_000 < time.monotonic_ns() - began < 5 * SECOND_NS


def test_cancelling_in_every_state(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    running.dial(nobody()).cancel()
    with listening() as (_, address):
        running.dial(address).cancel()
        monkeypatch.setattr(resolver, "_look_up", lambda _host, port: [resolver.Resolved(socket.AF_INET, ("127.0.0.1", port))])
        running.dial(TcpAddress("somewhere.invalid", address.port)).cancel()
        done = running.dial(address)
        running.until(lambda: running.callers)
        done.cancel()
        assert running.pump.connections, "too late"
    assert not running.dialer._dials
    assert running.failures == []
    assert len(running.callers) == 1


def test_only_so_many_at_a_time(running: Running) -> None:
    with listening(backlog=1024) as (_, address):
        for _ in range(limits.DIALS_MAX + 1):
            running.dial(address)
        running.until(lambda: running.failures)
    assert running.failures == ["too many connections are being made"]


def test_out_of_descriptors(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(_family: int, _kind: int) -> socket.socket:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr("polymq.server.dialer.socket.socket", none_left)
    running.dial(TcpAddress("127.0.0.1", 80))
    running.until(lambda: running.failures)
    assert running.failures == ["Too many open files"]


def test_a_connection_to_itself_is_none() -> None:
    with socket.socket() as looped:
        looped.bind(("127.0.0.1", 0))
        looped.connect(looped.getsockname())
        assert dialer_module._is_itself(looped)


def test_a_factory_that_fails_is_told_of(running: Running, caplog: pytest.LogCaptureFixture) -> None:
    def broken(_peer: Peer) -> Gateway:
        raise ValueError("broken")

    with listening() as (_, address):
        running.dialer.dial(address, broken, timeout_ns=10 * SECOND_NS, failed=running.failures.append)
        running.until(lambda: running.failures)
    assert running.failures == ["broken"]
    assert "could not be used" in caplog.text


# TLS


def client_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(IDENTITY)
    return context


@contextlib.contextmanager
def serve_tls(running: Running, server: socket.socket) -> Iterator[ssl.SSLSocket]:
    """Accept, and shake hands while the pump turns."""
    running.until(lambda: running.callers)
    connected, _ = server.accept()
    connected.setblocking(False)
    with server_context().wrap_socket(connected, server_side=True, do_handshake_on_connect=False) as wrapped:

        def step() -> bool:
            try:
                wrapped.do_handshake()
            except ssl.SSLWantReadError:
                return False
            return True

        running.until(step)
        yield wrapped


def test_tls_is_spoken_from_the_first_byte(running: Running) -> None:
    with listening() as (server, address):
        running.dial(address, tls=ClientTls(client_context(), "test.invalid"))
        with serve_tls(running, server) as connected:
            heard = bytearray()

            def listen() -> bytes:
                with contextlib.suppress(ssl.SSLWantReadError):
                    heard.extend(connected.recv(100))
                return bytes(heard)

            running.until(listen)
            assert heard == b"hello\n"
            connected.send(b"good day\n")
            running.until(lambda: b"good day" in running.callers[0].calls)


def test_a_certificate_of_somebody_else(running: Running) -> None:
    with listening() as (server, address):
        running.dial(address, tls=ClientTls(client_context(), "other.invalid"))
        with pytest.raises((ssl.SSLError, ConnectionError)), serve_tls(running, server) as connected:
            connected.recv(1)
        running.until(lambda: "ended" in running.callers[0].calls)
    assert "CERTIFICATE_VERIFY_FAILED" in running.callers[0].reason
    assert running.callers[0].calls == ["opened", "upgrade_failed", "ended"]


def test_a_name_that_tls_cannot_check(running: Running) -> None:
    with listening() as (_, address):
        running.dial(address, tls=ClientTls(client_context(), ".invalid"))
        running.until(lambda: running.failures)
    assert not running.pump.connections
