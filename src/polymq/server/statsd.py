"""Sends statistics to statsd, a report every interval, as UDP packets that nobody waits for.

A report is made and sent in small steps with pauses between them, so that thousands of topics neither hold a turn nor
flood the receiver. What cannot be sent is dropped and logged: statsd counts, it does not confirm. What a report says
is its maker's business (`gateways/nsq/statsd.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from typing import TYPE_CHECKING, Final, Protocol

from polymq.config_values import format_address

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator

    from polymq.config_values import TcpAddress

__all__ = ["Sender", "StatsdSender", "open_datagrams", "packets"]

_NS_PER_S: Final = 1_000_000_000
# A step makes packets of about so many lines; 5,000 topics with a channel each are 110 steps.
_PACKETS_PER_STEP: Final = 8
_PAUSE_S: Final = 0.02

log = logging.getLogger(__name__)


class Sender(Protocol):
    """An open way to the receiver. Nothing blocks; errors are OSError, or nothing at all."""

    def sendto(self, data: bytes) -> None: ...
    def close(self) -> None: ...


class _Deaf(asyncio.DatagramProtocol):
    """Nobody answers; a receiver that is not there is no news."""


async def open_datagrams(address: TcpAddress) -> Sender:
    """Open a UDP socket to an address, whose name is looked up in the background; raises OSError."""
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(_Deaf, remote_addr=(address.host, address.port))
    return transport


def packets(pieces: Iterable[bytes], size_bytes_max: int) -> Iterator[bytes]:
    """Put lines together, as many as fit in a packet; a line that is longer than a packet goes by itself.

    Source: internal/writers/boundary_buffered_writer.go, NSQ 1.3.0.
    """
    packet = bytearray()
    for piece in pieces:
        for line in piece.splitlines(keepends=True):
            if packet and len(packet) + len(line) > size_bytes_max:
                yield bytes(packet)
                packet.clear()
            packet += line
    if packet:
        yield bytes(packet)


class StatsdSender:
    """Sends what `lines` gives to `address`, every `interval_ns`, until it is cancelled."""

    def __init__(
        self,
        address: TcpAddress,
        lines: Callable[[], Generator[bytes, None, None]],
        *,
        interval_ns: int,
        packet_size_bytes: int,
        connect: Callable[[TcpAddress], Awaitable[Sender]] = open_datagrams,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._address = address
        self._lines = lines
        self._interval_s = interval_ns / _NS_PER_S
        self._packet_size_bytes = packet_size_bytes
        self._connect = connect
        self._sleep = sleep
        self._now = now

    async def run(self) -> None:
        """Send report after report; one that takes longer than the interval is followed by the next at once."""
        due = self._now() + self._interval_s
        while True:
            await self._sleep(max(0.0, due - self._now()))
            due = max(due, self._now()) + self._interval_s
            try:
                sender = await self._connect(self._address)
            except OSError as error:
                log.error("statsd at %s cannot be reached: %s", format_address(self._address), error.strerror or error)
                continue
            try:
                await self._report(sender)
            finally:
                sender.close()

    async def _report(self, sender: Sender) -> None:
        lines = self._lines()
        with contextlib.closing(lines):
            for index, packet in enumerate(packets(lines, self._packet_size_bytes)):
                if index and index % _PACKETS_PER_STEP == 0:
                    await self._sleep(_PAUSE_S)
                try:
                    sender.sendto(packet)
                except OSError as error:
                    log.error("statsd at %s takes nothing: %s", format_address(self._address), error.strerror or error)
                    return
