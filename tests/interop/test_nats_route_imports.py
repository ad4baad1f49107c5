"""What accounts have of each other when one is at one server and the other at another: mixed clusters, which must be as clusters of real ones.

Every scene is played between each two members, in both directions; clusters of real servers alone are the control.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from typing import TYPE_CHECKING, Any

import pytest
from nats.errors import NoRespondersError

from tests.interop.nats_clients import TIMEOUT_S, Connected, connected, received, settled, shared
from tests.interop.nats_servers import NATS_KINDS, POLYMQ, NatsOptions, nats_cluster
from tests.interop.test_nats_accounts import ACCOUNTS

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription

    from tests.interop.nats_servers import NatsServer

NEW, OLD = NATS_KINDS
COUNT = 300
BODIES = sorted(b"%d" % number for number in range(COUNT))

pytestmark = pytest.mark.parametrize(
    "kinds", [(NEW, OLD), (POLYMQ, NEW), (OLD, POLYMQ), (POLYMQ, POLYMQ, NEW)], ids="+".join, scope="module"
)


class People:
    """Somebody of each account at two servers. `here` is where things begin."""

    def __init__(self, stack: contextlib.AsyncExitStack, here: NatsServer, there: NatsServer) -> None:
        self._stack = stack
        self.here = here
        self.there = there

    async def of(self, account: str, server: NatsServer) -> Connected:
        """Somebody new."""
        return await self._stack.enter_async_context(connected(server, user=account, password="1"))

    async def settle(self, account: str) -> None:
        """Wait until what has been wanted so far, in any account, is known at both servers."""
        one, other = await self.of(account, self.here), await self.of(account, self.there)
        for source, target in ((one, other), (other, one)):
            known = await target.subscribed("known.to.all")
            await settled(source, known, "known.to.all")
            await known.unsubscribe()


@pytest.fixture(scope="module")
def members(kinds: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory) -> Any:
    with nats_cluster(kinds, tmp_path_factory.mktemp("imports"), NatsOptions(accounts=ACCOUNTS)) as started:
        yield started


def play(members: list[NatsServer], scene: Callable[[People], Coroutine[Any, Any, None]]) -> None:
    """Play a scene between each two."""

    async def run(here: NatsServer, there: NatsServer) -> None:
        async with contextlib.AsyncExitStack() as stack:
            await scene(People(stack, here, there))

    for here, there in itertools.permutations(members, 2):
        asyncio.run(run(here, there))


async def heard(subscription: Subscription, count: int) -> list[tuple[str, bytes, str, str | None]]:
    """The next messages, sorted, after which nothing comes."""
    found = [await subscription.next_msg(timeout=TIMEOUT_S) for _ in range(count)]
    assert await received(subscription, 0) == []
    return sorted((each.subject, each.data, each.reply, (each.headers or {}).get("Key")) for each in found)


def test_streams(members: list[NatsServer]) -> None:
    """Published at one server, taken at both, under all names that the imports give them; once under each."""

    async def scene(people: People) -> None:
        gives = await people.of("gives", people.here)
        takers = [await people.of("takes", server) for server in (people.here, people.there)]
        others = [await people.of("other", server) for server in (people.here, people.there)]
        everything = [await taker.subscribed(">") for taker in takers]
        some = [await taker.subscribed("all.news.*.b") for taker in takers]
        exact = [await taker.subscribed("b.of.a") for taker in takers]
        elsewhere = [await other.subscribed("public") for other in others]
        await people.settle("gives")
        await gives.client.publish("news.a.b", b"1", reply="re.ply", headers={"Key": "value"})
        await gives.published("news.c", b"2")
        await gives.published("private", b"3")
        await gives.published("not.exported", b"4")
        await takers[0].published("b.of.a", b"5")
        for subscription in everything:
            assert await heard(subscription, 4) == [
                ("all.news.a.b", b"1", "re.ply", "value"),
                ("all.news.c", b"2", "", None),
                ("b.of.a", b"1", "re.ply", "value"),
                ("b.of.a", b"5", "", None),
            ]
        for subscription in some:
            assert await heard(subscription, 1) == [("all.news.a.b", b"1", "re.ply", "value")]
        for subscription in exact:
            assert sorted(await received(subscription, 2)) == [b"1", b"5"]
        for subscription in elsewhere:
            assert await heard(subscription, 1) == [("public", b"3", "", None)]

    play(members, scene)


def test_a_listener_that_goes_is_forgotten(members: list[NatsServer]) -> None:
    """Nothing is sent to where nobody takes it any more; who comes again gets it again."""

    async def scene(people: People) -> None:
        gives, takes = await people.of("gives", people.here), await people.of("takes", people.there)
        for _ in range(2):
            subscription = await takes.subscribed("all.news.x")
            await people.settle("gives")
            await gives.published("news.x", b"1")
            assert await received(subscription, 1) == [b"1"]
            await subscription.unsubscribe()
            await takes.client.flush(timeout=TIMEOUT_S)
            await people.settle("gives")
            asking = asyncio.create_task(gives.client.request("news.x", b"2", timeout=TIMEOUT_S))
            with pytest.raises(NoRespondersError):
                await asking

    play(members, scene)


def test_queue_groups_of_a_stream(members: list[NatsServer]) -> None:
    """Members of both accounts at both servers are one group, of which one gets each message."""

    async def scene(people: People) -> None:
        gives = await people.of("gives", people.here)
        crew = [await people.of(account, server) for account in ("gives", "takes") for server in (people.here, people.there)]
        group = [await each.subscribed("work", queue="q") for each in crew]
        alone = [await each.subscribed("work") for each in crew]
        await people.settle("gives")
        await gives.published("work", *BODIES)
        for subscription in alone:
            assert await received(subscription, COUNT) == BODIES
        shares = await shared(group, COUNT)
        assert sorted(itertools.chain.from_iterable(shares)) == BODIES
        assert all(shares)

    play(members, scene)


def test_services(members: list[NatsServer]) -> None:
    """Asked at one server, answered at the other, by the subject that the export has; answers come back once."""

    async def scene(people: People) -> None:
        takes, gives = await people.of("takes", people.here), await people.of("gives", people.there)
        asked: list[str] = []

        async def answer(message: Msg) -> None:
            asked.append(message.subject)
            await message.respond(message.subject.encode() + b" " + message.data)

        async def answers(message: Msg) -> None:
            for number in range(3):
                await message.respond(b"%d" % number)

        await gives.client.subscribe("sum.*", cb=answer)
        await gives.client.subscribe("many", cb=answers)
        await gives.client.flush()
        await people.settle("gives")
        for number in range(20):
            found = await takes.client.request(f"calculate.{number}.now", b"?", timeout=TIMEOUT_S)
            assert found.data == b"sum.%d ?" % number
        assert asked == [f"sum.{number}" for number in range(20)]
        inbox = await takes.subscribed("my.inbox")
        await takes.client.publish("many", b"", reply="my.inbox")
        assert await received(inbox, 3) == [b"0", b"1", b"2"]
        with pytest.raises(NoRespondersError):
            await takes.client.request("sum.1", b"", timeout=TIMEOUT_S)

    play(members, scene)


def test_services_that_several_answer(members: list[NatsServer]) -> None:
    """One member of a group answers, wherever the members are; a listener in the asker's own account hears the question as well."""

    async def scene(people: People) -> None:
        takes = await people.of("takes", people.here)
        crew = [await people.of("gives", server) for server in (people.here, people.there)]
        asked: list[bytes] = []

        async def answer(message: Msg) -> None:
            asked.append(message.data)
            await message.respond(b"yes")

        for each in crew:
            await each.client.subscribe("sum.*", queue="crew", cb=answer)
            await each.client.flush()
        near, far = [await (await people.of("takes", server)).subscribed("calculate.*.now") for server in (people.here, people.there)]
        await people.settle("gives")
        await people.settle("takes")
        for number in range(30):
            assert (await takes.client.request("calculate.1.now", b"%d" % number, timeout=TIMEOUT_S)).data == b"yes"
        await asyncio.sleep(0.1)
        wanted = [b"%d" % number for number in range(30)]
        assert asked == wanted
        assert [await received(each, 30) for each in (near, far)] == [wanted, wanted]

    play(members, scene)
