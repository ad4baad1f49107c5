"""The NATS receiver over a subscriber of the test's own; with servers it is run by tests/spark and tests/interop."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Self

from polymq.protocols.nats.frames import Delivered
from polymq.spool.feed import Feed
from polymq.spool.notes import read_note
from polymq.spool.portion import NO_SALT
from polymq.spool.receivers import nats
from polymq.wire.records import BatchHeader, read_messages, seal

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import pytest


class FakeSubscriber:
    """Gives what is in `queue`."""

    made: list[FakeSubscriber] = []  # noqa: RUF012

    def __init__(self, address: str, subject: str, _options: Any, *, queue: str, waiting_max: int) -> None:
        self.address, self.subject, self.group, self.waiting_max = address, subject, queue, waiting_max
        self.queue: asyncio.Queue[Delivered] = asyncio.Queue()
        self.closed = False
        FakeSubscriber.made.append(self)

    async def __aenter__(self) -> Self:
        return self

    async def __aiter__(self) -> AsyncIterator[Delivered]:
        while True:
            yield await self.queue.get()

    def waiting(self) -> list[Delivered]:
        return [self.queue.get_nowait() for _ in range(self.queue.qsize())]

    async def close(self) -> None:
        self.closed = True


def test_messages_come_with_subject_headers_and_reply_and_the_rest_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nats, "NatsSubscriber", FakeSubscriber)
    FakeSubscriber.made.clear()

    async def go() -> None:
        feed = Feed("nats", ("a.*", "b"), ("h:1",), queue_group="g", in_flight=9)
        made = nats.NatsReceiver(feed, lambda: 5)
        first, second = FakeSubscriber.made
        assert [(each.subject, each.group, each.waiting_max) for each in (first, second)] == [("a.*", "g", 9), ("b", "g", 9)]
        assert made.rest() == []
        await made.open()
        first.queue.put_nowait(Delivered("a.1", "1", "_INBOX.x", b"one", {"n": "v", "m": "ü"}))
        first.queue.put_nowait(Delivered("a.2", "1", "", b"two"))
        (portion,) = await made.take()
        assert (portion.count, portion.received, portion.salt) == (2, 2, NO_SALT)
        seal(portion.data, 0, portion.end, BatchHeader(count=2, base_time_ns=portion.time_ns))
        one, two = read_messages(portion.data, 0, 0, 0, 2, portion.end)
        assert (one.body, one.headers, one.time_ns) == (b"one", ((b"n", b"v"), (b"m", "ü".encode())), 5)
        assert read_note(one.key or b"") == (0, b"a.1", b"", b"_INBOX.x", None)
        assert (two.body, two.headers, read_note(two.key or b"")[1]) == (b"two", (), b"a.2")
        second.queue.put_nowait(Delivered("b", "1", "", b"three"))
        (rest,) = made.rest()
        assert rest.count == 1
        await made.close()
        assert first.closed
        assert second.closed

    asyncio.run(go())
