from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING

import pytest

from polymq.config_values import TcpAddress
from polymq.server.statsd import Sender, StatsdSender, open_datagrams, packets

if TYPE_CHECKING:
    from collections.abc import Generator


ADDRESS = TcpAddress("statsd", 8125)


def test_packets_hold_whole_lines() -> None:
    lines = [b"a:1|c\nbb:1|c\n", b"c:1|c\n", b"d" * 30 + b":1|g\n", b"e:1|c\n"]
    assert list(packets(lines, 13)) == [b"a:1|c\nbb:1|c\n", b"c:1|c\n", b"d" * 30 + b":1|g\n", b"e:1|c\n"]
    assert list(packets(lines, 12)) == [b"a:1|c\n", b"bb:1|c\n", b"c:1|c\n", b"d" * 30 + b":1|g\n", b"e:1|c\n"]
    assert list(packets([], 12)) == []


class FakeSender:
    def __init__(self, *, broken_after: int = 1000) -> None:
        self.sent: list[bytes] = []
        self.broken_after = broken_after
        self.closed = False

    def sendto(self, data: bytes) -> None:
        if len(self.sent) >= self.broken_after:
            raise OSError(111, "Connection refused")
        self.sent.append(data)

    def close(self) -> None:
        self.closed = True


class Rig:
    """A sender whose time is counted: it ends after `reports` intervals."""

    def __init__(self, senders: list[FakeSender | OSError], lines: list[bytes], *, packet_size_bytes: int = 508) -> None:
        self.senders = list(senders)
        self.lines = lines
        self.slept: list[float] = []
        self.closed_iterators = 0
        self.sender = StatsdSender(
            ADDRESS,
            self.report,
            interval_ns=60_000_000_000,
            packet_size_bytes=packet_size_bytes,
            connect=self.connect,
            sleep=self.sleep,
            now=lambda: sum(self.slept),
        )

    def report(self) -> Generator[bytes, None, None]:
        try:
            yield from self.lines
        finally:
            self.closed_iterators += 1

    async def connect(self, address: TcpAddress) -> Sender:
        assert address == ADDRESS
        found = self.senders.pop(0)
        if isinstance(found, OSError):
            raise found
        return found

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        if not self.senders and seconds > 1:
            raise asyncio.CancelledError

    def run(self) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            asyncio.run(self.sender.run())


def test_a_report_every_interval() -> None:
    first, second = FakeSender(), FakeSender()
    rig = Rig([first, second], [b"a:1|c\n", b"b:2|g\n"])
    rig.run()
    assert (first.sent, second.sent) == ([b"a:1|c\nb:2|g\n"], [b"a:1|c\nb:2|g\n"])
    assert rig.slept == [60, 60, 60]
    assert first.closed
    assert second.closed


def test_a_long_report_makes_pauses() -> None:
    sender = FakeSender()
    rig = Rig([sender], [b"%d:1|c\n" % number for number in range(10, 60)], packet_size_bytes=7)
    rig.run()
    assert len(sender.sent) == 50
    assert rig.slept == pytest.approx([60, *[0.02] * 6, 60 - 6 * 0.02])


def test_a_receiver_that_is_not_there_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    sender = FakeSender()
    rig = Rig([OSError(-2, "Name or service not known"), sender], [b"a:1|c\n"])
    with caplog.at_level(logging.ERROR):
        rig.run()
    assert [record.getMessage() for record in caplog.records] == ["statsd at statsd:8125 cannot be reached: Name or service not known"]
    assert sender.sent == [b"a:1|c\n"]


def test_a_socket_that_fails_ends_the_report(caplog: pytest.LogCaptureFixture) -> None:
    broken, sender = FakeSender(broken_after=1), FakeSender()
    rig = Rig([broken, sender], [b"a:1|c\n", b"b:1|c\n", b"c:1|c\n"], packet_size_bytes=6)
    with caplog.at_level(logging.ERROR):
        rig.run()
    assert "statsd at statsd:8125 takes nothing: Connection refused" in caplog.text
    assert broken.closed
    assert (broken.sent, len(sender.sent)) == ([b"a:1|c\n"], 3)
    assert rig.closed_iterators == 2


def test_the_real_socket() -> None:
    received: list[bytes] = []
    arrived = asyncio.Event()

    class Receiver(asyncio.DatagramProtocol):
        def datagram_received(self, data: bytes, addr: object) -> None:
            received.append(data)
            arrived.set()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_datagram_endpoint(Receiver, local_addr=("127.0.0.1", 0))
        port = transport.get_extra_info("sockname")[1]
        sender = await open_datagrams(TcpAddress("127.0.0.1", port))
        sender.sendto(b"a:1|c\n")
        await arrived.wait()
        sender.close()
        transport.close()

    asyncio.run(main())
    assert received == [b"a:1|c\n"]
