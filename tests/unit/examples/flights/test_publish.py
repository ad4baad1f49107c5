from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

import pytest
from examples.flights.publish import Pace, Published, publish

from polymq.errors import ConnectionLost

if TYPE_CHECKING:
    from collections.abc import Sequence


class FakeProducer:
    """Takes batches; loses the answer to those whose turn is named."""

    def __init__(self, lost: set[int]) -> None:
        self.taken: list[list[bytes]] = []
        self._lost = lost

    async def publish_many(self, topic: str, bodies: Sequence[bytes]) -> None:
        assert topic == "flights"
        self.taken.append(list(bodies))
        if len(self.taken) - 1 in self._lost:
            raise ConnectionLost("gone")


class Time:
    def __init__(self) -> None:
        self.now = 0.0

    def read(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds


def opened(per_second: float, time: Time) -> Pace:
    pace = Pace(per_second, time.read, time.sleep)
    pace.open()
    return pace


def test_after_the_head_start_everybody_waits() -> None:
    async def play() -> list[bool]:
        time = Time()
        pace = Pace(10, time.read, time.sleep, head_start=10)
        turns = [asyncio.create_task(pace.turn(5)) for _ in range(3)]
        await asyncio.sleep(0)
        before = [turn.done() for turn in turns]
        pace.open()
        await asyncio.gather(*turns)
        return before

    assert asyncio.run(play()) == [True, True, False]


def test_a_batch_without_an_answer_is_published_again() -> None:
    producer, state, time = FakeProducer({1, 2}), Published(), Time()
    work = deque([[b"a", b"b"], [b"c"], [b"d"]])
    asyncio.run(publish(producer, work, opened(1000, time), state))
    assert producer.taken == [[b"a", b"b"], [b"c"], [b"c"], [b"c"], [b"d"]]
    assert (state.acknowledged, state.repeated) == (4, 2)


def test_the_pace_is_kept_and_lost_time_is_not_made_up_for() -> None:
    time = Time()
    pace = opened(10, time)

    async def turns() -> list[float]:
        moments = []
        for index in range(5):
            if index == 3:
                time.now += 100
            await pace.turn(5)
            moments.append(time.now)
        return moments

    assert asyncio.run(turns()) == pytest.approx([0, 0.5, 1.0, 101.0, 101.5])


def test_a_goal_is_waited_for() -> None:
    async def play() -> None:
        state = Published()
        waiting = asyncio.create_task(state.reaches(10))
        await asyncio.sleep(0)
        state.add(9)
        await asyncio.sleep(0)
        assert not waiting.done()
        state.add(1)
        await waiting
        await state.reaches(5)

    asyncio.run(play())
