"""One topic, groups of several protocols: each group gets everything; and one group whose members come through three protocols.

`phpmq.group` names the group that is a topic's queue; an NSQ channel of that name is the same group, and, if `nats.work_groups` names it, so is
a NATS queue group.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from polymq.clients.nats import NatsOptions, NatsSubscriber
from polymq.clients.nsq import NsqConsumer, NsqOptions
from polymq.clients.phpmq import PhpmqConsumer, PhpmqOptions
from polymq.clients.rocketmq import ConsumeOptions, RocketMQConsumer
from polymq.protocols.rocketmq.names import to_topic
from polymq.testing.server import PolymqServer
from tests.interop.matrix_publishers import PUBLISHERS
from tests.interop.matrix_table import PROTOCOLS
from tests.interop.matrix_traffic import Parcel
from tests.interop.nats_clients import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from pathlib import Path

TOPIC = "matrix.groups"
BATCH = 50
WINDOW = 40
# What a member by NATS has been given and not read is settled at nobody, and what its library has read waits in a window of ours.
NATS_UNREAD = 256 + WINDOW
PATIENCE_S = 60
POLL_S = 0.005


def parcels(first: int, count: int) -> list[Parcel]:
    return [Parcel(number, b"%d" % number) for number in range(first, first + count)]


async def until(check: Callable[[], bool]) -> None:
    """Wait until something is so; what is not in time is said by what is asserted next."""
    await eventually(check, timeout_s=PATIENCE_S)


@dataclass(repr=False, eq=False)
class Publishing:
    """Numbered messages by all four protocols, in turn; `tries` says how often each was sent."""

    server: PolymqServer
    count: int
    tries: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    acknowledged: set[int] = field(default_factory=set)
    is_open: bool = False

    async def run(self, may_go_on: Callable[[], bool]) -> None:
        """Publish all; `may_go_on` is asked before each batch, also the first, when the topic is there."""
        # RocketMQ's makes the topic, with four queues.
        publishers = [PUBLISHERS[name](self.server, TOPIC) for name in sorted(PROTOCOLS, reverse=True)]
        for each in publishers:
            await each.open()
        self.is_open = True
        for turn, first in enumerate(range(0, self.count, BATCH)):
            await until(may_go_on)
            left = parcels(first, BATCH)
            while left:
                for parcel in left:
                    self.tries[parcel.number] += 1
                self.acknowledged |= await publishers[turn % len(publishers)].publish(left)
                left = [parcel for parcel in left if parcel.number not in self.acknowledged]
        for each in publishers:
            await each.close()


def test_groups_of_three_protocols_each_get_everything(tmp_path: Path) -> None:
    """A channel, a queue and a RocketMQ group are three groups, whoever has published."""
    count = 2_000
    found: dict[str, list[bytes]] = {}

    async def channel(server: PolymqServer) -> None:
        async with NsqConsumer(server.nsq, TOPIC, "board") as consumer:
            bodies = found["channel"] = []
            async for message in consumer:
                bodies.append(message.body)
                message.settle()

    async def queue(server: PolymqServer) -> None:
        async with PhpmqConsumer(server.phpmq, TOPIC) as consumer:
            bodies = found["queue"] = []
            async for message in consumer:
                bodies.append(message.content)
                message.settle()

    async def group(server: PolymqServer) -> None:
        name = to_topic(TOPIC)
        assert name is not None
        async with RocketMQConsumer(server.rocketmq, "watch", name, consuming=ConsumeOptions(begin_from="first")) as consumer:
            bodies = found["group"] = []
            async for message in consumer:
                bodies.append(message.body)
                message.settle()

    async def go(server: PolymqServer) -> None:
        publishing = Publishing(server, count)
        # A group that is not the topic's first begins with what comes next.
        work = asyncio.create_task(publishing.run(lambda: len(found) == 3))
        await until(lambda: publishing.is_open)
        members = [asyncio.create_task(each(server)) for each in (channel, queue, group)]
        await work
        await until(lambda: all(len(bodies) >= count for bodies in found.values()))
        for each in members:
            each.cancel()
        await asyncio.wait(members)

    with PolymqServer(tmp_path, deadline_seconds=60) as server:
        asyncio.run(go(server))
    wanted = sorted(b"%d" % number for number in range(count))
    assert {name: sorted(bodies) == wanted for name, bodies in found.items()} == dict.fromkeys(found, True)


@dataclass(eq=False)
class Given:
    """One delivery: to which member, and whether that has settled it for certain."""

    number: int
    member: str
    is_settled: bool = False
    is_certain: bool = True


@dataclass(repr=False, eq=False)
class Crew:
    """Members of one group who come and go."""

    server: PolymqServer
    chance: random.Random
    given: list[Given] = field(default_factory=list)
    names: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    # Who has a message in hand, and what came to somebody else meanwhile.
    hands: dict[int, str] = field(default_factory=dict)
    clashes: list[str] = field(default_factory=list)
    # How many deliveries of members by NATS may still be of before the kill.
    unsure_count: int = 0

    @property
    def settled(self) -> set[int]:
        return {each.number for each in self.given if each.is_settled}

    async def member(self, kind: str, stay: int) -> None:
        """Be a member for `stay` messages, then leave without having settled the last one, and all that has come behind it."""
        name = f"{kind} {self.names[kind]}"
        self.names[kind] += 1
        deliveries = {"nsq": by_nsq, "phpmq": by_phpmq, "nats": by_nats}[kind](self.server)
        async for body, settle in deliveries:
            given = Given(int(body), name)
            if kind == "nats" and self.unsure_count:
                self.unsure_count -= 1
                given.is_certain = False
            self.given.append(given)
            if given.number in self.hands:
                self.clashes.append(f"{given.number} came to {name} while {self.hands[given.number]} had it")
            self.hands[given.number] = name
            if self.chance.random() < 0.05:
                await asyncio.sleep(POLL_S)
            stay -= 1
            self.hands.pop(given.number, None)
            if not stay:
                break
            settle()
            given.is_settled = True
        await deliveries.aclose()

    async def shift(self, kind: str) -> None:
        """Have one member after the other, for as long as this is not cancelled."""
        while True:
            # Who leaves by NATS loses what it has read and not handled: those stay.
            await self.member(kind, -1 if kind == "nats" else self.chance.randrange(50, 400))

    def killed(self) -> None:
        """Note the kill: of the last that each member has settled, nobody knows whether the broker has heard it."""
        latest: dict[str, int] = defaultdict(int)
        for each in reversed(self.given):
            latest[each.member] += 1
            if latest[each.member] <= (NATS_UNREAD if each.member.startswith("nats") else WINDOW):
                each.is_certain = False
        self.hands.clear()


async def by_nsq(server: PolymqServer) -> AsyncGenerator[tuple[bytes, Callable[[], None]], None]:
    options = NsqOptions(reconnect_seconds_first=0.05, reconnect_seconds_max=0.1)
    async with NsqConsumer(server.nsq, TOPIC, "workers", options, max_in_flight=WINDOW) as consumer:
        async for message in consumer:
            yield message.body, message.settle


async def by_phpmq(server: PolymqServer) -> AsyncGenerator[tuple[bytes, Callable[[], None]], None]:
    options = PhpmqOptions(reconnect_seconds_first=0.05, reconnect_seconds_max=0.1)
    async with PhpmqConsumer(server.phpmq, TOPIC, options, window=WINDOW) as consumer:
        async for message in consumer:
            yield message.content, message.settle


async def by_nats(server: PolymqServer) -> AsyncGenerator[tuple[bytes, Callable[[], None]], None]:
    options = NatsOptions(reconnect_seconds_first=0.05, reconnect_seconds_max=0.1)
    async with NatsSubscriber(server.nats, TOPIC, options, queue="workers", waiting_max=WINDOW) as subscriber:
        async for message in subscriber:
            yield message.body, lambda: None


@pytest.mark.timeout(180)
def test_one_group_shares_its_work_over_three_protocols(tmp_path: Path) -> None:
    """Members come and go, the broker is killed: everything is done, and what was settled comes to nobody else."""
    count = 6_000
    crew: Crew | None = None

    async def go(server: PolymqServer) -> Publishing:
        nonlocal crew
        crew = there = Crew(server, random.Random(6))
        publishing = Publishing(server, count)
        work = asyncio.create_task(publishing.run(lambda: len(publishing.acknowledged) - len(there.given) < 1_000))
        await until(lambda: len(publishing.acknowledged) > 500)
        shifts = [asyncio.create_task(there.shift(kind)) for kind in ("nsq", "phpmq") * 3 + ("nats",)]
        await until(lambda: len(there.given) > count // 2)
        server.kill()
        there.killed()
        at_kill = len(there.given)
        await asyncio.to_thread(server.start)
        # What was on its way to a member at the kill is settled at nobody.
        for each in there.given[at_kill:]:
            each.is_certain = False
        there.unsure_count = NATS_UNREAD
        await work
        await until(lambda: len(there.settled) == count)
        for shift in shifts:
            shift.cancel()
        await asyncio.wait(shifts)
        return publishing

    settings = {"phpmq.group": "workers", "nats.work_groups": "workers", "server.on_disconnect": "requeue"}
    with PolymqServer(tmp_path, settings, deadline_seconds=60) as server:
        publishing = asyncio.run(go(server))
    assert crew is not None
    assert sorted(crew.settled) == list(range(count))
    # All protocols had their part, and members have changed.
    kinds = {kind: sum(each.is_settled for each in crew.given if each.member.startswith(kind)) for kind in ("nsq", "phpmq", "nats")}
    assert min(kinds.values()) > count // 50, kinds
    assert min(crew.names["nsq"], crew.names["phpmq"]) > 6, crew.names
    assert crew.names["nats"] == 1
    done: dict[int, int] = defaultdict(int)
    again = []
    for each in crew.given:
        if done[each.number] >= publishing.tries[each.number]:
            again.append(f"{each.number} came to {each.member} although it was done")
        done[each.number] += each.is_settled and each.is_certain
    assert again == []
    assert [each for each in crew.clashes if publishing.tries[int(each.split()[0])] == 1] == []
