"""A dialer that only keeps what it was asked for: the test says which dials succeed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polymq.gateways.contract import Peer
from tests.unit.server.fakes import Stream

if TYPE_CHECKING:
    from collections.abc import Callable

    from polymq.config_values import Address
    from polymq.gateways.contract import GatewayFactory
    from polymq.server.connection import Connection
    from polymq.server.ports import ClientTls
    from polymq.server.pump import Pump


class FakeDial:
    def __init__(self, pump: Pump, address: Address, factory: GatewayFactory, timeout_ns: int, failed: Callable[[str], None]) -> None:
        self._pump = pump
        self.address = address
        self.factory = factory
        self.timeout_ns = timeout_ns
        self.failed = failed
        self.tls: ClientTls | None = None
        self.cancelled = False
        self.done = False

    def cancel(self) -> None:
        self.cancelled = not self.done

    def connect(self) -> tuple[Stream, Connection]:
        """Let it succeed: the stream's `incoming` is what the server sends, `outgoing` what it got."""
        assert not self.cancelled
        assert not self.done
        self.done = True
        peer = Peer(host="192.0.2.7", port=80)
        stream = Stream()
        return stream, self._pump.open(stream, self.factory(peer), peer)

    def fail(self, reason: str = "Connection refused") -> None:
        assert not self.cancelled
        assert not self.done
        self.done = True
        self.failed(reason)


class FakeDialer:
    """The `Dialer` port. TLS is noted, not done."""

    def __init__(self, pump: Pump) -> None:
        self._pump = pump
        self.dials: list[FakeDial] = []

    def dial(
        self,
        address: Address,
        factory: GatewayFactory,
        *,
        timeout_ns: int,
        failed: Callable[[str], None],
        tls: ClientTls | None = None,
    ) -> FakeDial:
        dial = FakeDial(self._pump, address, factory, timeout_ns, failed)
        dial.tls = tls
        self.dials.append(dial)
        return dial

    @property
    def open(self) -> list[FakeDial]:
        """Those that nothing has become of so far."""
        return [dial for dial in self.dials if not dial.done and not dial.cancelled]
