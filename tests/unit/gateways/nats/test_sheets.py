from __future__ import annotations

from array import array
from typing import Any

import pytest

from polymq.gateways.buffers import BufferPool
from polymq.gateways.live_sheet import LiveSheet
from polymq.gateways.nats.sheets import Routed, write_routed
from polymq.gateways.outbox import Outbox
from polymq.protocols.nats.encode import encode_messages, encode_routed
from polymq.wire.live import LiveBatch, LiveMessage
from tests.unit.gateways.nats.harness import PLAIN, World


@pytest.fixture
def world() -> World:
    return World()


def test_who_is_told_the_same_is_sent_what_was_encoded_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every other difference than who listens is one in the bytes: each gets its own."""
    alike = [world.connect(PLAIN + b"SUB a 1\r\nSUB b 2\r\n") for _ in range(3)]
    other_sid = world.connect(PLAIN + b"SUB a 2\r\nSUB b 1\r\n")
    other_subjects = world.connect(PLAIN + b"SUB b 2\r\nSUB a 1 2\r\n")
    ending = world.connect(PLAIN + b"SUB a 1\r\nSUB b 2\r\nUNSUB 2 1\r\n")
    publisher = world.connect(PLAIN)
    encoded = []

    def encode(*arguments: Any, **more: Any) -> int:
        encoded.append(arguments)
        return encode_messages(*arguments, **more)

    monkeypatch.setattr("polymq.gateways.nats.sheets.encode_messages", encode)
    body = b"x" * 3000
    publisher.send(b"".join(b"PUB %b 3000\r\n%b\r\n" % (name, body) for name in (b"a", b"b", b"b")))

    def told(*messages: tuple[bytes, bytes]) -> bytes:
        return b"".join(b"MSG %b %b 3000\r\n%b\r\n" % (*each, body) for each in messages)

    for each in alike:
        assert each.hear() == told((b"a", b"1"), (b"b", b"2"), (b"b", b"2"))
    assert other_sid.hear() == told((b"a", b"2"), (b"b", b"1"), (b"b", b"1"))
    assert other_subjects.hear() == told((b"b", b"2"), (b"b", b"2"))
    assert ending.hear() == told((b"a", b"1"), (b"b", b"2"))
    assert len(encoded) == 4
    assert [each.client.out_message_count for each in alike] == [3, 3, 3]
    assert len({each.client.out_size_bytes for each in alike}) == 1


def test_servers_that_are_told_the_same_are_sent_what_was_encoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = LiveBatch.of([LiveMessage(b"a", b"x" * 3000), LiveMessage(b"b", b"NATS/1.0\r\n\r\n" + b"y" * 3000, header_size=12)])
    both, second = memoryview(array("i", [0, 7, 1, 7])), memoryview(array("i", [1, 7]))
    servers = [
        Routed(both, 2, b"A", {}, True),
        Routed(both[:], 2, b"A", {}, True),
        Routed(both, 2, b"A", {}, False),
        Routed(both, 2, b"B", {}, True),
        Routed(second, 1, b"A", {}, True),
        Routed(both, 2, b"A", {1: [b"q"]}, True),
        Routed(both, 2, b"A", {1: [b"q"]}, True),
    ]
    encoded = []

    def encode(*arguments: Any, **more: Any) -> int:
        encoded.append(arguments)
        return encode_routed(*arguments, **more)

    monkeypatch.setattr("polymq.gateways.nats.sheets.encode_routed", encode)
    pool, sheet = BufferPool(), LiveSheet()
    told = []
    for each in servers:
        outbox, alone = Outbox(pool), Outbox(pool)
        size = write_routed(batch, each, outbox, sheet, waiting_max=1 << 20)
        told.append(b"".join(outbox.views()))
        assert len(told[-1]) == size
        count = len(encoded)
        assert write_routed(batch, each, alone, None, waiting_max=1 << 20) == size
        assert b"".join(alone.views()) == told[-1]
        del encoded[count:]
    assert len(encoded) == len(servers) - 1
    assert len(set(told)) == 5


@pytest.mark.parametrize("shared", [False, True])
def test_what_is_too_much_is_not_written(shared: bool) -> None:
    batch = LiveBatch.of([LiveMessage(b"a", b"x" * 5000)])
    pairs = memoryview(array("i", [0, 0]))
    sheet = LiveSheet()
    if shared:
        assert write_routed(batch, Routed(pairs, 1, b"A", {}, True), Outbox(), sheet, waiting_max=6000) > 0
    outbox = Outbox()
    assert write_routed(batch, Routed(pairs, 1, b"A", {}, True), outbox, sheet, waiting_max=4999) == -1
    assert outbox.size_bytes == 0
