from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from polymq.clients.phpmq_messages import PhpmqBatch, PhpmqMessage
from polymq.errors import LocalProtocolError
from polymq.protocols.phpmq import frames
from polymq.protocols.phpmq.frames import WireMessage

if TYPE_CHECKING:
    from polymq.clients.phpmq_connection import PhpmqConnection


class Open:
    is_open = True


def message(sent: list[bytes], *, legacy: bool, number: int = 1) -> PhpmqMessage:
    wire = WireMessage(b"q", b"x", b"%032d" % number, None)

    def send(data: bytes) -> bool:
        sent.append(data)
        return True

    return PhpmqMessage(wire, cast("PhpmqConnection", Open()), send, legacy=legacy)


def test_the_older_dialect_does_with_what_it_has() -> None:
    sent: list[bytes] = []
    message(sent, legacy=True).requeue()
    message(sent, legacy=True).dead_letter()
    acknowledged = frames.acknowledge("q", [b"%032d" % 1])
    assert sent == [frames.send("q", b"x", ttl_s=None) + acknowledged, acknowledged]
    with pytest.raises(LocalProtocolError):
        message(sent, legacy=True).requeue(ttl_seconds=1)


def test_what_is_wrong_is_said_before_anything_is_sent() -> None:
    sent: list[bytes] = []
    one = message(sent, legacy=False)
    with pytest.raises(LocalProtocolError):
        one.requeue(ttl_seconds=-1)
    assert not one.is_settled
    assert one.is_current
    one.settle()
    for again in (one.settle, one.requeue, one.dead_letter):
        with pytest.raises(LocalProtocolError):
            again()
    assert len(sent) == 1


def test_a_batch_settles_what_is_left() -> None:
    sent: list[bytes] = []
    batch = PhpmqBatch(b"q", [message(sent, legacy=False, number=index) for index in range(3)])
    next(iter(batch)).dead_letter()
    batch.settle()
    assert sent == [frames.dead_letter("q", b"%032d" % 0), *[frames.acknowledge("q", [b"%032d" % index]) for index in (1, 2)]]
