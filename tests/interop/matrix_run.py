"""One row of the matrix: one protocol publishes, readers of all of them consume, and the broker is killed while they do."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from tests.interop.matrix_publishers import PUBLISHERS
from tests.interop.matrix_readers import AGAIN, LIVE, READERS, NatsReader, Reader, read_log
from tests.interop.matrix_traffic import COUNT, Parcel, topic_of, traffic
from tests.interop.nats_clients import eventually

if TYPE_CHECKING:
    from polymq.testing.server import PolymqServer

__all__ = ["BATCH", "KILL_AT", "LIVE_AHEAD_MAX", "Row", "play"]

BATCH = 100
# The publisher is never more than so many messages ahead of a reader, so that the kill finds all of them at work.
AHEAD_MAX = 1_500
# Nor of the live subscription, which may miss what is published around the kill: before that, and until it is back. So that is bounded.
LIVE_AHEAD_MAX = 500
KILL_AT = 4_000
WRITING_S = 0.002
PATIENCE_S = 200


@dataclass(repr=False, eq=False)
class Row:
    """What happened. `tries`: how often each message was sent; `begun_ns`: when for the first time."""

    publisher: str
    parcels: list[Parcel]
    tries: list[int] = field(default_factory=lambda: [0] * COUNT)
    begun_ns: list[int] = field(default_factory=lambda: [0] * COUNT)
    readers: dict[str, Reader] = field(default_factory=dict)
    # All of the log by NATS, and the numbers in the order of each partition.
    log: Reader | None = None
    orders: list[list[int]] = field(default_factory=list)
    acknowledged: set[int] = field(default_factory=set)
    # What the live subscription must have heard: what was acknowledged when it was asked for, before the kill.
    owed: frozenset[int] = frozenset()
    is_publishing: bool = False
    kill_now: asyncio.Event = field(default_factory=asyncio.Event)
    # From which number on messages were first sent after the kill; and after the live subscription was back.
    killed_at: int = 0
    live_again_at: int = 0

    def slowest(self) -> int:
        """How many messages the slowest of those readers has seen who get everything."""
        return min(each.seen_count for name, each in self.readers.items() if name != LIVE)

    def may_go_on(self, number: int) -> bool:
        """Whether the readers have come far enough for this message to be published."""
        if not self.killed_at:
            live_lead = number - self.readers[LIVE].seen_count
        else:
            live_lead = number - self.killed_at if not self.live_again_at else 0
        return number - self.slowest() <= AHEAD_MAX and live_lead <= LIVE_AHEAD_MAX

    def undelayed(self, numbers: set[int]) -> frozenset[int]:
        """Those that go out at once."""
        return frozenset(number for number in numbers if not self.parcels[number].delay_ms)


async def publish(row: Row, server: PolymqServer) -> None:
    """Publish everything in order, each message until it is acknowledged; at the end no batch is left behind."""
    publisher = PUBLISHERS[row.publisher](server, topic_of(row.publisher))
    await publisher.open()
    for reader in row.readers.values():
        await reader.open()
    for first in range(0, COUNT, BATCH):
        left = row.parcels[first : first + BATCH]
        while left:
            await eventually(partial(row.may_go_on, first), timeout_s=PATIENCE_S)
            for each in left:
                row.tries[each.number] += 1
                row.begun_ns[each.number] = row.begun_ns[each.number] or time.time_ns()
            if len(row.acknowledged) >= KILL_AT:
                row.kill_now.set()
            row.is_publishing = True
            acknowledged = await publisher.publish(left)
            row.is_publishing = False
            row.acknowledged |= acknowledged
            left = [each for each in left if each.number not in acknowledged]
    await publisher.close()


async def kill(row: Row, server: PolymqServer) -> None:
    """Kill the broker when everybody is at work, and start it again."""
    live = row.readers[LIVE]
    assert isinstance(live, NatsReader)
    await row.kill_now.wait()
    row.owed = row.undelayed(row.acknowledged)
    await eventually(lambda: row.owed <= live.times.keys(), timeout_s=PATIENCE_S)
    # A batch has been written by then, and its publisher has not seen all answers.
    await asyncio.sleep(WRITING_S)
    await eventually(lambda: row.is_publishing, timeout_s=PATIENCE_S)
    server.kill()
    row.killed_at = next(number for number in range(COUNT) if not row.tries[number])
    for reader in row.readers.values():
        reader.safe_until = reader.settled_before_the_kill()
    await asyncio.to_thread(server.start)
    for reader in row.readers.values():
        reader.back_at = len(reader.sightings)
        reader.revive()
    await live.is_back.wait()
    row.live_again_at = next((number for number in range(COUNT) if not row.tries[number]), COUNT)


def is_complete(row: Row) -> bool:
    """Whether all that is owed has come, also what was given back."""
    live = row.readers[LIVE]
    returned = all(each.times[number] > 1 for name, each in row.readers.items() if name in ("nsq", "rocketmq") for number in AGAIN)
    return row.slowest() == COUNT and returned and all(number in live.times for number in range(row.live_again_at, COUNT))


async def play(publisher: str, server: PolymqServer) -> Row:
    """Play the row to its end, or as far as it gets in time: the tests say what is missing."""
    row = Row(publisher, traffic(publisher))
    numbers = {each.body: each.number for each in row.parcels}
    row.readers = {name: make(server, topic_of(publisher), numbers) for name, make in READERS.items()}
    try:
        async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
            group.create_task(kill(row, server))
            await group.create_task(publish(row, server))
            await eventually(lambda: is_complete(row), timeout_s=PATIENCE_S)
    except TimeoutError:
        pass
    for reader in row.readers.values():
        await reader.close()
    row.log, row.orders = await read_log(server, topic_of(publisher), numbers)
    return row
