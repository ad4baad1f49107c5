"""Messages of the one API are settled once, and what nobody can send is refused."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from polymq.clients.broker_messages import BrokerMessage, OneByOne, Outgoing, cut, in_turn, together
from polymq.errors import ConnectionLost, LocalProtocolError, Refusal, RefusalCode, Unsupported

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence


class Notes:
    def __init__(self) -> None:
        self.seen: list[Any] = []

    @property
    def is_current(self) -> bool:
        return True

    def done(self) -> None:
        self.seen.append("done")

    def retry(self, delay: float) -> None:
        if delay > 1:
            raise Unsupported("not so late")
        self.seen.append(delay)

    def discard(self) -> None:
        self.seen.append("discard")


def test_a_message_is_settled_once() -> None:
    async def go() -> None:
        for name in ("done", "retry", "discard"):
            notes = Notes()
            message = BrokerMessage(notes, b"x")
            await getattr(message, name)()
            assert message.is_settled
            for other in ("done", "retry", "discard"):
                with pytest.raises(LocalProtocolError, match="settled before"):
                    await getattr(message, other)()
            assert len(notes.seen) == 1

    asyncio.run(go())


def test_a_retry_that_is_refused_settles_nothing() -> None:
    async def go() -> None:
        notes = Notes()
        message = BrokerMessage(notes, b"x")
        with pytest.raises(Unsupported):
            await message.retry(2)
        for wrong in (-1, float("nan"), float("inf")):
            with pytest.raises(LocalProtocolError, match="delay"):
                await message.retry(wrong)
        await message.retry(0.5)
        assert notes.seen == [0.5]

    asyncio.run(go())


@pytest.mark.parametrize("given", [{"body": "text"}, {"delay": -1}, {"delay": float("nan")}, {"headers": {"a": 1}}, {"key": 7}])
def test_what_nobody_can_send(given: dict[str, Any]) -> None:
    with pytest.raises(LocalProtocolError):
        Outgoing(**{"topic": "t", "body": b"", **given})


def test_one_by_one_survives_waits_that_are_cancelled() -> None:
    async def go() -> None:
        queue: asyncio.Queue[int] = asyncio.Queue()

        class Items:
            async def __aiter__(self) -> AsyncIterator[int]:
                while (item := await queue.get()) >= 0:
                    yield item

        items = OneByOne(Items())
        waiting = [asyncio.create_task(items.next()) for _ in range(2)]
        await asyncio.sleep(0)
        for each in waiting:
            each.cancel()
        await asyncio.wait(waiting)
        for number in (1, 2, -1):
            queue.put_nowait(number)
        assert sorted(await asyncio.gather(items.next(), items.next())) == [1, 2]  # type: ignore[type-var]
        assert await items.next() is None

    asyncio.run(go())


def test_messages_are_cut_into_runs_of_neighbours_that_fit() -> None:
    def runs(messages: list[Outgoing], count_max: int = 100, size_bytes_max: int = 100) -> list[list[int]]:
        return cut(messages, lambda each: None if each.delay else each.topic, count_max=count_max, size_bytes_max=size_bytes_max)

    three = [Outgoing("t", b"x" * 40)] * 3
    assert runs([]) == []
    assert runs(three) == [[0, 1], [2]]
    assert runs(three, size_bytes_max=1000) == [[0, 1, 2]]
    assert runs(three, count_max=2, size_bytes_max=1000) == [[0, 1], [2]]
    assert runs([Outgoing("t", b"x" * 500), *three]) == [[0], [1, 2], [3]]
    assert runs([Outgoing("t", b"x", headers={"n": "v" * 60})] * 2) == [[0], [1]]
    assert runs([Outgoing("t", b""), Outgoing("u", b""), Outgoing("t", b"")]) == [[0], [1], [2]]
    late = Outgoing("t", b"", delay=1)
    assert runs([late, late, Outgoing("t", b"")]) == [[0], [1], [2]]


def test_a_run_that_is_refused_is_published_one_by_one_to_see_which_it_is() -> None:
    runs: list[list[bytes]] = []

    async def publish_run(run: Sequence[Outgoing]) -> None:
        bodies = [each.body for each in run]
        runs.append(bodies)
        if b"bad" in bodies:
            raise Refusal(RefusalCode.BATCH_TOO_LARGE)
        if b"lost" in bodies:
            raise ConnectionLost("gone")

    async def go(*bodies: bytes) -> list[type | None]:
        found = await together([Outgoing("t", body) for body in bodies], publish_run)
        return [None if each is None else type(each) for each in found]

    assert asyncio.run(go(b"1", b"2")) == [None, None]
    assert runs == [[b"1", b"2"]]
    assert asyncio.run(go(b"1", b"bad", b"2")) == [None, Refusal, None]
    assert runs[1:] == [[b"1", b"bad", b"2"], [b"1"], [b"bad"], [b"2"]]
    assert asyncio.run(go(b"1", b"lost")) == [ConnectionLost, ConnectionLost]


@pytest.mark.parametrize("ttl", [-1, float("nan"), float("inf")])
def test_a_ttl_is_a_time(ttl: float) -> None:
    with pytest.raises(LocalProtocolError, match="TTL"):
        Outgoing("t", b"x", ttl=ttl)


def test_behind_a_run_that_is_lost_nothing_is_sent() -> None:
    runs: list[list[bytes]] = []

    async def publish_run(run: Sequence[Outgoing]) -> None:
        runs.append([each.body for each in run])
        if runs[-1] == [b"bad"]:
            raise Refusal(RefusalCode.BATCH_TOO_LARGE)
        if b"lost" in runs[-1]:
            raise ConnectionLost("gone")

    messages = [Outgoing("t", body) for body in (b"1", b"bad", b"2", b"lost", b"3", b"4")]
    found = asyncio.run(in_turn(messages, [[0], [1], [2, 3], [4, 5]], publish_run))
    assert [None if each is None else type(each) for each in found] == [None, Refusal, *[ConnectionLost] * 4]
    assert runs == [[b"1"], [b"bad"], [b"2", b"lost"]]
