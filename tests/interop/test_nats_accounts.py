"""What accounts have of each other: nats-py at polymq and at real servers, which must be the same to it."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import pytest
from nats.errors import NoRespondersError
from nats.errors import TimeoutError as NothingCameError

from tests.interop.nats_clients import TIMEOUT_S, connected, drained, received, settled, shared
from tests.interop.nats_servers import POLYMQ, SERVING_KINDS, NatsOptions, mixtures, nats_cluster, nats_server

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

    from tests.interop.nats_clients import Connected
    from tests.interop.nats_servers import NatsServer

pytestmark = pytest.mark.parametrize("kind", SERVING_KINDS, scope="module")

ACCOUNTS = """
    GIVES: {
        users: [{ user: "gives", password: "1" }]
        exports: [
            { stream: "news.>" }
            { stream: "work" }
            { stream: "private", accounts: [OTHER] }
            { service: "sum.*" }
            { service: "many", response_type: "stream" }
            { service: "nobody" }
        ]
    }
    TAKES: {
        users: [{ user: "takes", password: "1" }]
        imports: [
            { stream: { account: GIVES, subject: "news.*.*" }, to: "$2.of.$1" }
            { stream: { account: GIVES, subject: "news.>" }, prefix: "all" }
            { stream: { account: GIVES, subject: "work" } }
            { service: { account: GIVES, subject: "sum.*" }, to: "calculate.*.now" }
            { service: { account: GIVES, subject: "many" } }
            { service: { account: GIVES, subject: "nobody" } }
        ]
    }
    OTHER: {
        users: [{ user: "other", password: "1" }]
        exports: [{ stream: "all.>" }]
        imports: [{ stream: { account: GIVES, subject: "private" }, to: "public" }]
    }
"""


def play(kind: str, folder: Path, scene: Callable[[Connected, Connected, Connected], Coroutine[Any, Any, None]]) -> None:
    """Run a scene with somebody of each account."""

    async def run() -> None:
        async with contextlib.AsyncExitStack() as stack:
            people = [await stack.enter_async_context(connected(server, user=name, password="1")) for name in ("gives", "takes", "other")]
            await scene(*people)

    with nats_server(kind, folder, NatsOptions(accounts=ACCOUNTS)) as server:
        asyncio.run(run())


def test_streams(kind: str, tmp_path: Path) -> None:
    async def scene(gives: Connected, takes: Connected, other: Connected) -> None:
        everything, some, exact, elsewhere = (
            await takes.subscribed(">"),
            await takes.subscribed("all.news.*.b"),
            await takes.subscribed("b.of.a"),
            await other.subscribed(">"),
        )
        await gives.client.publish("news.a.b", b"1", reply="re.ply", headers={"Key": "value"})
        await gives.published("news.c", b"2")
        await gives.published("private", b"3")
        await gives.published("not.exported", b"4")
        await takes.published("b.of.a", b"5")
        found = [await everything.next_msg(timeout=TIMEOUT_S) for _ in range(4)]
        assert sorted((each.subject, each.data, each.reply, (each.headers or {}).get("Key")) for each in found) == [
            ("all.news.a.b", b"1", "re.ply", "value"),
            ("all.news.c", b"2", "", None),
            ("b.of.a", b"1", "re.ply", "value"),
            ("b.of.a", b"5", "", None),
        ]
        assert await received(everything, 0) == []
        assert await received(some, 1) == [b"1"]
        assert await received(exact, 2) == [b"1", b"5"]
        found = [await elsewhere.next_msg(timeout=TIMEOUT_S)]
        assert [(each.subject, each.data) for each in found] == [("public", b"3")]
        assert await received(elsewhere, 0) == []

    play(kind, tmp_path, scene)


def test_queue_groups_of_a_stream(kind: str, tmp_path: Path) -> None:
    async def scene(gives: Connected, takes: Connected, _: Connected) -> None:
        members = [
            await takes.subscribed("work", queue="q"),
            await takes.subscribed("work", queue="q"),
            await gives.subscribed("work", queue="q"),
        ]
        alone = await takes.subscribed("work")
        if kind != POLYMQ:  # nats-server may not yet have seen, in the other account, that somebody listens
            await settled(gives, alone, "work")
            await drained(*members)
        await gives.published("work", *(b"%d" % number for number in range(300)))
        assert len(await received(alone, 300)) == 300
        shares = await shared(members, 300)
        assert sorted(int(each) for share in shares for each in share) == list(range(300))
        assert all(len(share) > 30 for share in shares)

    play(kind, tmp_path, scene)


def test_services(kind: str, tmp_path: Path) -> None:
    async def scene(gives: Connected, takes: Connected, other: Connected) -> None:
        async def answer(message: Any) -> None:
            await message.respond(message.subject.encode() + b" " + message.data)

        async def answers(message: Any) -> None:
            for number in range(3):
                await message.respond(b"%d" % number)

        await gives.client.subscribe("sum.*", cb=answer)
        await gives.client.subscribe("many", cb=answers)
        await gives.client.flush()
        while kind != POLYMQ:  # nats-server may not yet have seen, in the other account, that somebody answers
            with contextlib.suppress(NoRespondersError):
                await takes.client.request("calculate.0.now", b"", timeout=TIMEOUT_S)
                break
        for number in range(20):
            found = await takes.client.request(f"calculate.{number}.now", b"?", timeout=TIMEOUT_S)
            assert found.data == b"sum.%d ?" % number
        inbox = await takes.subscribed("my.inbox")
        await takes.client.publish("many", b"", reply="my.inbox")
        assert await received(inbox, 3) == [b"0", b"1", b"2"]
        nowhere = [(takes, "sum.1"), (other, "sum.1")]
        if kind != "nats-server-2.9":  # where the asker waits for nothing
            nowhere.append((takes, "nobody"))
        for connection, subject in nowhere:
            with pytest.raises(NoRespondersError):
                await connection.client.request(subject, b"", timeout=TIMEOUT_S)

    play(kind, tmp_path, scene)


# THIRD imports of MIDDLE what MIDDLE imports of FIRST, which has given it to MIDDLE alone.
CHAIN = """
    FIRST: {
        users: [{ user: "first", password: "1" }]
        exports: [{ stream: "secret.>", accounts: [MIDDLE] }, { service: "sum", accounts: [MIDDLE] }]
    }
    MIDDLE: {
        users: [{ user: "middle", password: "1" }]
        imports: [{ stream: { account: FIRST, subject: "secret.>" } }, { service: { account: FIRST, subject: "sum" } }]
        exports: [{ stream: ">" }, { service: "sum" }]
    }
    THIRD: {
        users: [{ user: "third", password: "1" }]
        imports: [{ stream: { account: MIDDLE, subject: "secret.>" } }, { service: { account: MIDDLE, subject: "sum" } }]
    }
"""


@pytest.mark.parametrize("clustered", [False, True])
def test_streams_are_not_handed_on_and_services_are(kind: str, tmp_path: Path, clustered: bool) -> None:
    """What an account exports is what is published in it: a stream that it imports goes to nobody else, at no server."""

    async def scene(first: Connected, middle: Connected, third: Connected) -> None:
        heard, own, group = (
            await third.subscribed("secret.>"),
            await middle.subscribed("secret.>"),
            await middle.subscribed("secret.>", "q"),
        )
        await third.subscribed("secret.>", "q")
        await settled(first, own, "secret.settled")
        await settled(middle, heard, "secret.settled")
        while own.pending_msgs:
            await own.next_msg()
        while group.pending_msgs:
            await group.next_msg()
        await first.published("secret.x", *(b"%d" % number for number in range(20)))
        assert await received(own, 20) == await received(group, 20) == [b"%d" % number for number in range(20)]
        await middle.published("secret.own", b"of middle")
        assert await received(heard, 1) == [b"of middle"]
        assert await received(own, 1) == [b"of middle"]

        async def answer(message: Any) -> None:
            await message.respond(b"sum of " + message.data)

        await first.client.subscribe("sum", cb=answer)
        await first.client.flush()
        deadline = asyncio.get_running_loop().time() + TIMEOUT_S
        while True:
            with contextlib.suppress(NoRespondersError, NothingCameError):  # until servers know of it; the old one says nothing meanwhile
                assert (await third.client.request("sum", b"1", timeout=1)).data == b"sum of 1"
                break
            assert asyncio.get_running_loop().time() < deadline

    async def run(servers: list[NatsServer]) -> None:
        async with contextlib.AsyncExitStack() as stack:
            people = [
                await stack.enter_async_context(connected(server, user=name, password="1"))
                for server, name in zip((servers[0], servers[-1], servers[-1]), ("first", "middle", "third"), strict=True)
            ]
            await scene(people[0], people[1], people[2])

    options = NatsOptions(accounts=CHAIN)
    with nats_cluster(mixtures(kind)[1][::-1] if clustered else [kind], tmp_path, options) as servers:
        asyncio.run(run(servers))
