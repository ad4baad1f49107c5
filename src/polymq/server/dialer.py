"""Outgoing connections: found, made and handed to the pump without waiting for anything.

A dial goes through three waits, each with a deadline: for the name's addresses (`resolver.py`), for one address after
the other to answer, and, once the pump has the connection, whatever its gateway waits for. Several addresses share
what is left of the time, so that one that swallows packets does not cost the others their turn.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
from functools import partial
from typing import TYPE_CHECKING, Final

from polymq.config_values import UnixAddress, format_address
from polymq.gateways.contract import Peer
from polymq.limits import DIALS_MAX
from polymq.server.layers import TlsLayer
from polymq.server.network import SocketStream
from polymq.server.resolver import Resolved, Resolver, resolve_literal
from polymq.server.shell import WakeUp

if TYPE_CHECKING:
    from collections.abc import Callable

    from polymq.config_values import Address
    from polymq.core.ports import Clock
    from polymq.gateways.contract import Gateway, GatewayFactory
    from polymq.server.ports import ClientTls
    from polymq.server.pump import Pump
    from polymq.server.resolver import Resolution
    from polymq.server.shell import Poller
    from polymq.server.timers import Alarm

__all__ = ["SocketDialer"]

_AT_ONCE: Final = 0  # a due time that is always past

log = logging.getLogger(__name__)


class _Dial:
    """One outgoing connection on its way. Whatever it waits for is in one of the last three fields."""

    __slots__ = ("_dialer", "address", "alarm", "deadline_ns", "factory", "failed", "left", "reason", "resolution", "socket", "tls")

    def __init__(
        self,
        dialer: SocketDialer,
        address: Address,
        factory: GatewayFactory,
        deadline_ns: int,
        failed: Callable[[str], None],
        tls: ClientTls | None,
    ) -> None:
        self._dialer = dialer
        self.address = address
        self.factory = factory
        self.deadline_ns = deadline_ns
        self.failed = failed
        self.tls = tls
        self.left: list[Resolved] = []  # addresses that have not been tried
        self.reason = ""  # what was wrong with the last one
        self.alarm: Alarm | None = None
        self.resolution: Resolution | None = None
        self.socket: socket.socket | None = None

    def cancel(self) -> None:
        """Give it up."""
        self._dialer.give_up(self)


class SocketDialer:
    """The `Dialer` over sockets."""

    def __init__(self, pump: Pump, poller: Poller, clock: Clock) -> None:
        self._pump = pump
        self._poller = poller
        self._clock = clock
        self._wake_up = WakeUp()
        self._resolver = Resolver(self._wake_up)
        self._dials: set[_Dial] = set()
        poller.add(self._wake_up.fileno(), self._resolved)

    def dial(
        self,
        address: Address,
        factory: GatewayFactory,
        *,
        timeout_ns: int,
        failed: Callable[[str], None],
        tls: ClientTls | None = None,
    ) -> _Dial:
        """Connect to `address`; see `ports.Dialer`."""
        dial = _Dial(self, address, factory, self._clock.monotonic_ns() + timeout_ns, failed, tls)
        if len(self._dials) >= DIALS_MAX:
            self._fail_soon(dial, "too many connections are being made")
            return dial
        self._dials.add(dial)
        if isinstance(address, UnixAddress):
            dial.left = [Resolved(socket.AF_UNIX, address.path)]
        else:
            dial.left = resolve_literal(address.host, address.port)
            if not dial.left:
                dial.resolution = self._resolver.resolve(address.host, address.port, partial(self._found, dial))
                dial.alarm = self._pump.call_at(dial.deadline_ns, partial(self._fail, dial, "the name was not found in time"))
                return dial
        self._connect(dial)
        return dial

    def close(self) -> None:
        """Give everything up that is under way."""
        for dial in list(self._dials):
            self.give_up(dial)
        self._poller.remove(self._wake_up.fileno())
        self._resolver.close()
        self._wake_up.close()

    def give_up(self, dial: _Dial) -> None:
        """Forget a dial and what it waits for."""
        self._dials.discard(dial)
        self._rest(dial)
        if dial.socket is not None:
            dial.socket.close()
            dial.socket = None

    # Names

    def _resolved(self) -> None:
        self._wake_up.clear()
        self._resolver.run_completions()

    def _found(self, dial: _Dial, found: list[Resolved] | str) -> None:
        self._rest(dial)
        if isinstance(found, str):
            self._fail_soon(dial, found)
        else:
            dial.left = found
            self._connect(dial)

    # Connecting

    def _connect(self, dial: _Dial) -> None:
        """Begin with the next address that can be begun with."""
        while dial.left:
            resolved = dial.left.pop(0)
            try:
                dial.socket = connecting = socket.socket(resolved.family, socket.SOCK_STREAM)
                connecting.setblocking(False)
                code = connecting.connect_ex(resolved.address)
            except OSError as error:
                code = error.errno or errno.EINVAL
            if code in (0, errno.EINPROGRESS):
                now_ns = self._clock.monotonic_ns()
                share_ns = max(0, dial.deadline_ns - now_ns) // (len(dial.left) + 1)
                dial.alarm = self._pump.call_at(now_ns + share_ns, partial(self._next, dial, "no answer in time"))
                self._poller.add(connecting.fileno(), partial(self._answered, dial), writable=True)
                return
            self._hang_up(dial, os.strerror(code))
        self._fail_soon(dial, dial.reason)

    def _next(self, dial: _Dial, reason: str) -> None:
        """Give this address up for the next one."""
        self._rest(dial)
        self._hang_up(dial, reason)
        self._connect(dial)

    def _hang_up(self, dial: _Dial, reason: str) -> None:
        dial.reason = reason
        if dial.socket is not None:
            dial.socket.close()
            dial.socket = None

    def _answered(self, dial: _Dial) -> None:
        """The address has answered, or the system has given it up."""
        connected = dial.socket
        assert connected is not None
        code = connected.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if not code and _is_itself(connected):
            code = errno.ECONNREFUSED
        if code:
            self._next(dial, os.strerror(code))
            return
        self._rest(dial)
        self._dials.discard(dial)
        dial.socket = None
        try:
            gateway, peer, layer = self._prepare(dial, connected)
        except Exception as error:  # its factory's bug, or a name that TLS cannot check: nobody else's concern
            log.exception("%s: a connection could not be used", format_address(dial.address))
            connected.close()
            dial.failed(str(error))
            return
        self._pump.open(SocketStream(connected), gateway, peer, layer)

    def _prepare(self, dial: _Dial, connected: socket.socket) -> tuple[Gateway, Peer, TlsLayer | None]:
        if connected.family == socket.AF_UNIX:
            assert isinstance(dial.address, UnixAddress)
            peer = Peer(host=dial.address.path, port=0)
        else:
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            host, port = connected.getpeername()[:2]
            peer = Peer(host=host, port=port)
        layer = TlsLayer(dial.tls.context, dial.tls.server_name) if dial.tls is not None else None
        return dial.factory(peer), peer, layer

    # Failing

    def _fail_soon(self, dial: _Dial, reason: str) -> None:
        """Fail in the next turn: whoever dials wants to have the dial before it is told."""
        self._rest(dial)
        dial.alarm = self._pump.call_at(_AT_ONCE, partial(self._fail, dial, reason))

    def _fail(self, dial: _Dial, reason: str) -> None:
        self.give_up(dial)
        dial.failed(reason)

    def _rest(self, dial: _Dial) -> None:
        """Wait for nothing."""
        if dial.alarm is not None:
            dial.alarm.cancel()
            dial.alarm = None
        if dial.resolution is not None:
            dial.resolution.cancel()
            dial.resolution = None
        if dial.socket is not None:
            self._poller.remove(dial.socket.fileno())


def _is_itself(connected: socket.socket) -> bool:
    """Whether a connection to a free port of this machine was given that very port, and so meets itself."""
    return connected.family != socket.AF_UNIX and connected.getsockname() == connected.getpeername()
