"""Queue groups over the servers of a cluster: each member's share of the messages, whoever publishes, and each message once.

A publisher's server chooses among its own members and those of others, which are told as weights; so each server's share must be as
its number of members. The bound is chi-square's at a billionth, so that it is not passed by chance.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from typing import TYPE_CHECKING, Any

import pytest

from tests.interop.nats_clients import TIMEOUT_S, Connected, connected, eventually, settled
from tests.interop.nats_servers import NATS_KINDS, POLYMQ, NatsOptions, nats_cluster

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from nats.aio.msg import Msg

    from tests.interop.nats_servers import NatsServer

NEW, OLD = NATS_KINDS
MESSAGE_COUNT = 6_000
# Members on each server; the first cluster is the control.
CLUSTERS = (((NEW, OLD), (1, 4)), ((POLYMQ, NEW, OLD), (1, 3, 6)), ((POLYMQ, POLYMQ, NEW), (5, 1, 2)), ((POLYMQ, NEW), (0, 3)))
# Standard deviations; six are passed once in a billion times.
DEVIATIONS = 6.0
ACCOUNTS = """
    ONE: { users: [{ user: "one", password: "1" }] }
    TWO: { users: [{ user: "two", password: "1" }] }
"""


def chi_square(found: Sequence[int], weights: Sequence[float]) -> float:
    """How far shares are from what they should be."""
    total, whole = sum(found), sum(weights)
    return sum((count - total * weight / whole) ** 2 / (total * weight / whole) for count, weight in zip(found, weights, strict=True))


def chi_square_max(degrees: int) -> float:
    """The bound, by Wilson and Hilferty's approximation."""
    part = 2 / (9 * degrees)
    return float(degrees * (1 - part + DEVIATIONS * part**0.5) ** 3)


def assert_shares(found: Sequence[int], weights: Sequence[float]) -> None:
    """Where there is nobody, nothing comes; else as much as is due."""
    assert all(count == 0 for count, weight in zip(found, weights, strict=True) if not weight), (found, weights)
    counts = [count for count, weight in zip(found, weights, strict=True) if weight]
    due = [weight for weight in weights if weight]
    if len(due) > 1:
        assert chi_square(counts, due) < chi_square_max(len(due) - 1), (found, weights)


def test_the_bound_tells_shares_apart() -> None:
    assert_shares([1000, 3050, 5950], [1, 3, 6])
    for wrong in ([3333, 3333, 3334], [1300, 2900, 5800], [5000, 1500, 3500]):
        with pytest.raises(AssertionError):
            assert_shares(wrong, [1, 3, 6])
    with pytest.raises(AssertionError):
        assert_shares([1, 5999], [0, 3])


class Group:
    """A queue group: what each of its members has got, by server."""

    def __init__(self, queue: str) -> None:
        self.queue = queue
        self.members: list[list[list[bytes]]] = []
        self._subscriptions: list[list[Any]] = []

    async def join(self, connection: Connected, subjects: Sequence[str]) -> None:
        """Add a server's members, one for each subject."""
        self.members.append([])
        self._subscriptions.append([])
        for subject in subjects:
            got: list[bytes] = []

            async def take(message: Msg, got: list[bytes] = got) -> None:
                got.append(message.data)

            self.members[-1].append(got)
            self._subscriptions[-1].append(await connection.client.subscribe(subject, queue=self.queue, cb=take))
        await connection.client.flush(timeout=TIMEOUT_S)

    async def leave(self, server: int, count: int) -> None:
        """Take some of a server's members away."""
        for subscription in self._subscriptions[server][:count]:
            await subscription.unsubscribe()

    async def filled(self, count: int) -> None:
        """Wait until so much has come, or nothing comes any more."""
        await eventually(lambda: sum(self.shares()) >= count)
        await asyncio.sleep(0.05)

    def shares(self) -> list[int]:
        """What has come to each server."""
        return [sum(map(len, members)) for members in self.members]

    def take_all(self) -> tuple[list[bytes], list[list[int]]]:
        """All that has come, in order, and how much to each member; and forget it."""
        found = sorted(body for members in self.members for got in members for body in got)
        counts = [[len(got) for got in members] for members in self.members]
        for got in itertools.chain.from_iterable(self.members):
            got.clear()
        return found, counts


async def known(connections: Sequence[Connected], subject: str) -> None:
    """Wait until every server, with one connection each, knows what every other one wants: what was told before this as well."""
    for target in connections:
        subscription = await target.subscribed(subject)
        for source in connections:
            if source is not target:
                await settled(source, subscription, subject)
        await subscription.unsubscribe()


BODIES = sorted(b"%d" % number for number in range(MESSAGE_COUNT))


async def published(source: Connected, group: Group, subject: str, weights: Sequence[int]) -> list[list[int]]:
    """Publish from one server: each message once, shares by the number of members. Gives the members' counts."""
    await source.published(subject, *BODIES)
    await group.filled(MESSAGE_COUNT)
    bodies, counts = group.take_all()
    assert bodies == BODIES
    assert_shares([sum(each) for each in counts], weights)
    return counts


@pytest.mark.parametrize(("kinds", "weights"), CLUSTERS, ids=lambda value: "+".join(map(str, value)))
def test_each_server_gets_messages_by_its_number_of_members(kinds: tuple[str, ...], weights: tuple[int, ...], tmp_path: Path) -> None:
    """From each server in turn; also after some members of each have left."""

    async def play(members: list[NatsServer]) -> None:
        async with contextlib.AsyncExitStack() as stack:
            sources = [await stack.enter_async_context(connected(member)) for member in members]
            targets = [await stack.enter_async_context(connected(member)) for member in members]
            group = Group("workers")
            for target, weight in zip(targets, weights, strict=True):
                await group.join(target, ["work.a"] * weight)
            for left in ([0] * len(weights), [weight // 2 for weight in weights]):
                for number, count in enumerate(left):
                    await group.leave(number, count)
                await known(targets, "known")
                now = [weight - count for weight, count in zip(weights, left, strict=True)]
                for source in sources:
                    counts = await published(source, group, "work.a", now)
                    for member, shares, gone in zip(members, counts, left, strict=True):
                        if member.kind == POLYMQ and any(shares):
                            assert_shares(shares, [0] * gone + [1] * (len(shares) - gone))

    with nats_cluster(kinds, tmp_path) as servers:
        asyncio.run(play(servers))


@pytest.mark.parametrize("kinds", [(NEW, OLD), (POLYMQ, NEW), (OLD, POLYMQ), (POLYMQ, POLYMQ)], ids="+".join)
def test_a_group_has_members_by_several_subjects(kinds: tuple[str, ...], tmp_path: Path) -> None:
    """Its weight on a server is the sum over all subjects that match; of two groups each gets its own."""
    subjects = (["work.*", "work.a", "work.other"], ["work.>", "work.a", "*.a", ">"])
    matching = (2, 4)

    async def play(members: list[NatsServer]) -> None:
        async with contextlib.AsyncExitStack() as stack:
            sources = [await stack.enter_async_context(connected(member)) for member in members]
            targets = [await stack.enter_async_context(connected(member)) for member in members]
            first, second = Group("first"), Group("second")
            for target, several in zip(targets, subjects, strict=True):
                await first.join(target, several)
                await second.join(target, ["work.a"] * 2)
            await known(targets, "known")
            first.take_all()
            for source in sources:
                counts = await published(source, first, "work.a", matching)
                assert counts[0][2] == 0
                await second.filled(MESSAGE_COUNT)
                bodies, counts = second.take_all()
                assert bodies == BODIES
                assert_shares([sum(each) for each in counts], (1, 1))

    with nats_cluster(kinds, tmp_path) as servers:
        asyncio.run(play(servers))


@pytest.mark.parametrize("kinds", [(NEW, OLD), (POLYMQ, NEW), (OLD, POLYMQ)], ids="+".join)
def test_groups_of_two_accounts_are_two(kinds: tuple[str, ...], tmp_path: Path) -> None:
    """The same names in another account have shares of their own."""
    weights = {"one": (1, 4), "two": (3, 1)}

    async def play(members: list[NatsServer]) -> None:
        async with contextlib.AsyncExitStack() as stack:
            groups = {name: Group("workers") for name in weights}
            sources: dict[str, list[Connected]] = {}
            for name, group in groups.items():
                people = {"user": name, "password": "1"}
                sources[name] = [await stack.enter_async_context(connected(member, **people)) for member in members]
                for connection, weight in zip(sources[name], weights[name], strict=True):
                    await group.join(connection, ["work"] * weight)
                await known(sources[name], "known")
            for name, number in itertools.product(weights, range(len(members))):
                await published(sources[name][number], groups[name], "work", weights[name])
            for group in groups.values():
                assert group.take_all()[0] == []

    with nats_cluster(kinds, tmp_path, NatsOptions(accounts=ACCOUNTS)) as servers:
        asyncio.run(play(servers))
