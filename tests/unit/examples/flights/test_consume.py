from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from examples.flights.consume import Consumed, consume, identity
from examples.flights.verify import read_settled

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path


@dataclass
class FakeMessage:
    body: bytes
    attempts: int = 1


class FakeBatch:
    def __init__(self, *messages: FakeMessage) -> None:
        self._messages = messages
        self.settled = 0

    def __iter__(self) -> Iterator[FakeMessage]:
        return iter(self._messages)

    def settle(self) -> None:
        self.settled += 1


class FakeConsumer:
    def __init__(self, *batches: FakeBatch) -> None:
        self._batches = batches

    async def batches(self) -> AsyncIterator[FakeBatch]:
        for batch in self._batches:
            yield batch


def flight(number: int, delay: str) -> bytes:
    return b'{"time_hour":"2013-01-01T10:00:00Z","carrier":"AA","flight":%d,"dep_delay":%s}' % (number, delay.encode())


def test_a_message_tells_its_flight_and_delay() -> None:
    assert identity(flight(7, "null")) == (("2013-01-01T10:00:00Z", "AA", 7), None)
    assert identity(flight(7, "-3"))[1] == -3


def test_what_is_settled_is_written_down_with_repeats(tmp_path: Path) -> None:
    batches = [FakeBatch(FakeMessage(flight(1, "16")), FakeMessage(flight(2, "null"))), FakeBatch(FakeMessage(flight(1, "16"), attempts=2))]
    state = Consumed()
    asyncio.run(consume(FakeConsumer(*batches), tmp_path / "consumer-0.tsv", state))
    assert [batch.settled for batch in batches] == [1, 1]
    assert (state.settled, len(state.flights), state.late) == (3, 2, 2)
    flights, count = read_settled(tmp_path)
    assert (flights, count) == (state.flights, 3)
    assert (tmp_path / "consumer-0.tsv").read_text().splitlines()[-1] == "2013-01-01T10:00:00Z\tAA\t1\t2"
