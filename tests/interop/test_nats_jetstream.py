"""JetStream of real servers, used by nats-py through a polymq that is a member of their cluster and has none.

One cluster for all: two servers with JetStream and polymq between them and the clients. Most servers of a cluster must have JetStream when it is
started for the first time, or they find no leader.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Any

import pytest
from nats.errors import NoRespondersError
from nats.js.api import AckPolicy, ConsumerConfig, StreamConfig
from nats.js.errors import KeyNotFoundError, NotFoundError, ServiceUnavailableError

from tests.interop.nats_clients import TIMEOUT_S, connected
from tests.interop.nats_servers import NATS_KINDS, POLYMQ, NatsOptions, NatsServer, await_mesh, ending

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from nats.aio.msg import Msg
    from nats.js import JetStreamContext

    from tests.interop.nats_clients import Connected

NEW, OLD = NATS_KINDS
LEADER_TIMEOUT_S = 20
ACCOUNTS = """
    ONE: { jetstream: enabled, users: [
        { user: "one", password: "1" }
        { user: "few", password: "1", permissions: { publish: { deny: "$JS.API.STREAM.DELETE.>" } } }
    ] }
    TWO: { jetstream: enabled, users: [{ user: "two", password: "2" }] }
    NONE: { users: [{ user: "none", password: "0" }] }
"""


@contextlib.contextmanager
def members(kinds: Sequence[str], folder: Path, *, accounts: str = "", jetstream: bool = True) -> Iterator[list[NatsServer]]:
    """A cluster; all real servers of it have JetStream, if any is to have it."""
    found = []
    for number, kind in enumerate(kinds):
        store = f'jetstream {{ store_dir: "{folder}/js-{number}", max_mem: 64M, max_file: 256M }}'
        options = NatsOptions(accounts=accounts, more=store if jetstream and kind != POLYMQ else "")
        found.append(NatsServer(kind, f"js-{number}", folder, options))
    for member in found:
        member.clustered = True
        member.routes = [each for each in found if each is not member]
    with ending(found):
        for member in found:
            member.start()
        await_mesh(found)
        yield found


def of(connection: Connected) -> JetStreamContext:
    return connection.client.jetstream(timeout=TIMEOUT_S)


async def led(member: NatsServer, **login: str) -> None:
    """Wait until JetStream has a leader that answers through this member."""
    async with connected(member, **login) as one:
        deadline = time.monotonic() + LEADER_TIMEOUT_S
        while True:
            with contextlib.suppress(TimeoutError, ServiceUnavailableError):
                await one.client.jetstream(timeout=0.5).account_info()
                return
            assert time.monotonic() < deadline, member.log_text()[-2000:]
            await asyncio.sleep(0.05)


@pytest.fixture(scope="module", params=[(NEW, NEW, POLYMQ), (OLD, OLD, POLYMQ)], ids=["new", "old"])
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[NatsServer]]:
    """Two servers with JetStream, and polymq."""
    with members(request.param, tmp_path_factory.mktemp("jetstream")) as found:
        asyncio.run(led(found[2]))
        yield found


def test_streams_and_consumers_come_change_and_go(cluster: list[NatsServer]) -> None:
    async def play() -> None:
        async with connected(cluster[2]) as one:
            jetstream = of(one)
            made = await jetstream.add_stream(name="MADE", subjects=["made.>"])
            assert made.config.subjects == ["made.>"]
            assert made.cluster is not None
            assert made.cluster.leader in {"js-0", "js-1"}
            changed = await jetstream.update_stream(StreamConfig(name="MADE", subjects=["made.>", "more.>"], max_msgs=10))
            assert changed.config.max_msgs == 10
            for number in range(20):
                ack = await jetstream.publish("more.x", b"%d" % number, headers={"Nats-Msg-Id": f"{number}"})
                assert (ack.stream, ack.seq) == ("MADE", number + 1)
            assert (await jetstream.publish("more.x", b"19", headers={"Nats-Msg-Id": "19"})).duplicate
            assert (await jetstream.stream_info("MADE")).state.messages == 10
            assert (await jetstream.get_msg("MADE", seq=20)).data == b"19"
            await jetstream.add_consumer("MADE", ConsumerConfig(durable_name="dur", ack_policy=AckPolicy.EXPLICIT, filter_subject="more.x"))
            assert (await jetstream.consumer_info("MADE", "dur")).num_pending == 10
            assert [each.name for each in await jetstream.consumers_info("MADE")] == ["dur"]
            assert await jetstream.delete_consumer("MADE", "dur")
            with pytest.raises(NotFoundError):
                await jetstream.consumer_info("MADE", "dur")
            assert await jetstream.purge_stream("MADE")
            assert await jetstream.find_stream_name_by_subject("more.x") == "MADE"
            assert await jetstream.delete_stream("MADE")
            with pytest.raises(NotFoundError):
                await jetstream.stream_info("MADE")
            assert one.errors == []

    asyncio.run(play())


def test_messages_are_fetched_and_acknowledged_in_every_way(cluster: list[NatsServer]) -> None:
    async def play() -> None:
        async with connected(cluster[2]) as one:
            jetstream = of(one)
            await jetstream.add_stream(name="PULL", subjects=["pull.*"], num_replicas=2)
            for number in range(6):
                await jetstream.publish("pull.x", b"%d" % number, headers={"Number": f"{number}"})
            pulling = await jetstream.pull_subscribe("pull.*", durable="dur", config=ConsumerConfig(ack_wait=2, max_deliver=5))
            found = await pulling.fetch(6, timeout=TIMEOUT_S)
            assert [(each.subject, each.data, (each.headers or {})["Number"]) for each in found] == [
                ("pull.x", b"%d" % number, f"{number}") for number in range(6)
            ]
            assert [each.metadata.sequence.stream for each in found] == list(range(1, 7))
            await found[0].ack()
            await found[1].ack_sync(timeout=TIMEOUT_S)
            await found[2].nak()
            await found[3].term()
            again = [(await pulling.fetch(1, timeout=TIMEOUT_S))[0]]
            await again[0].ack_sync(timeout=TIMEOUT_S)
            # 4 is kept, and 5 comes again when its time is over.
            for _ in range(4):
                await asyncio.sleep(0.6)
                await found[4].in_progress()
            again += await pulling.fetch(1, timeout=TIMEOUT_S)
            assert [(each.data, each.metadata.num_delivered) for each in again] == [(b"2", 2), (b"5", 2)]
            await again[1].ack_sync(timeout=TIMEOUT_S)
            await found[4].ack_sync(timeout=TIMEOUT_S)
            info = await pulling.consumer_info()
            assert (info.num_ack_pending, info.num_pending) == (0, 0)
            with pytest.raises(TimeoutError):
                await pulling.fetch(1, timeout=0.2)
            await jetstream.delete_stream("PULL")
            with pytest.raises((NoRespondersError, ServiceUnavailableError, NotFoundError)):
                await one.client.request("$JS.API.CONSUMER.MSG.NEXT.PULL.dur", b"1", timeout=TIMEOUT_S)

    asyncio.run(play())


def test_messages_are_pushed_to_one_and_to_a_group(cluster: list[NatsServer]) -> None:
    async def play() -> None:
        async with connected(cluster[2]) as one, connected(cluster[0]) as other:
            jetstream = of(one)
            await of(other).add_stream(name="PUSH", subjects=["push.*"])
            plain = await jetstream.subscribe("push.x", ordered_consumer=True)
            group = [await jetstream.subscribe("push.x", queue="workers", durable="workers", manual_ack=True) for _ in range(2)]
            for number in range(20):
                await jetstream.publish("push.x", b"%d" % number)
            assert [(await plain.next_msg(timeout=TIMEOUT_S)).data for _ in range(20)] == [b"%d" % number for number in range(20)]
            found: list[Msg] = []
            while len(found) < 20:
                for member in group:
                    with contextlib.suppress(TimeoutError):
                        while True:
                            found.append(await member.next_msg(timeout=0.05))
                            await found[-1].ack()
            assert sorted(int(each.data) for each in found) == list(range(20))
            assert {each.subject for each in found} == {"push.x"}
            await one.client.flush(timeout=TIMEOUT_S)
            deadline = time.monotonic() + TIMEOUT_S
            while (await jetstream.consumer_info("PUSH", "workers")).num_ack_pending:
                assert time.monotonic() < deadline
            await jetstream.delete_stream("PUSH")

    asyncio.run(play())


def test_keys_and_objects_are_kept(cluster: list[NatsServer]) -> None:
    async def play() -> None:
        async with connected(cluster[2]) as one, connected(cluster[1]) as other:
            keys = await of(one).create_key_value(bucket="keys", history=3)
            watching: Any = await keys.watchall()
            assert await watching.updates(timeout=TIMEOUT_S) is None  # that is all for now
            first = await keys.put("a.b", b"1")
            await keys.update("a.b", b"2", last=first)
            await keys.create("c", b"3")
            assert (await keys.get("a.b")).value == b"2"
            assert (await (await of(other).key_value("keys")).get("c")).value == b"3"
            assert sorted(await keys.keys()) == ["a.b", "c"]
            assert [each.value for each in await keys.history("a.b")] == [b"1", b"2"]
            await keys.delete("c")
            with pytest.raises(KeyNotFoundError):
                await keys.get("c")
            seen = [await watching.updates(timeout=TIMEOUT_S) for _ in range(4)]
            assert [(each.key, each.value) for each in seen if each is not None] == [("a.b", b"1"), ("a.b", b"2"), ("c", b"3"), ("c", b"")]
            await of(one).delete_key_value("keys")
            objects = await of(one).create_object_store("objects")
            body = bytes(range(256)) * 4000
            await objects.put("large", body)
            assert (await objects.get("large")).data == body
            assert (await (await of(other).object_store("objects")).get("large")).data == body
            await objects.delete("large")
            await of(one).delete_object_store("objects")

    asyncio.run(play())


def test_a_consumer_goes_on_after_polymq_was_killed(cluster: list[NatsServer]) -> None:
    """The stream is made and filled by way of a real server; who reads it by way of polymq loses nothing and gets nothing twice."""

    async def fill(first: int) -> None:
        async with connected(cluster[0]) as other:
            for number in range(first, first + 50):
                await of(other).publish("killed.x", b"%d" % number)

    async def read(count: int) -> list[int]:
        async with connected(cluster[2]) as one:
            pulling = await of(one).pull_subscribe("killed.*", durable="dur", config=ConsumerConfig(max_ack_pending=100))
            found: list[int] = []
            while len(found) < count:
                for message in await pulling.fetch(min(10, count - len(found)), timeout=TIMEOUT_S):
                    await message.ack_sync(timeout=TIMEOUT_S)
                    found.append(int(message.data))
            return found

    async def play() -> None:
        async with connected(cluster[0]) as other:
            await of(other).add_stream(name="KILLED", subjects=["killed.*"])
        await fill(0)
        assert await read(30) == list(range(30))
        cluster[2].kill()
        await fill(50)
        cluster[2].start()
        await_mesh(cluster)
        await led(cluster[2])
        assert await read(70) == list(range(30, 100))
        async with connected(cluster[2]) as one:
            assert await of(one).delete_stream("KILLED")

    asyncio.run(play())


def test_accounts_and_users_have_what_is_theirs(tmp_path: Path) -> None:
    async def play(found: list[NatsServer]) -> None:
        await led(found[2], user="one", password="1")
        async with connected(found[2], user="one", password="1") as one, connected(found[2], user="two", password="2") as two:
            await of(one).add_stream(name="MINE", subjects=["mine"])
            await of(one).publish("mine", b"1")
            with pytest.raises(NotFoundError):
                await of(two).stream_info("MINE")
            assert (await of(two).account_info()).streams == 0
            assert (await of(one).account_info()).streams == 1
            # Nobody is somebody else by saying so.
            said = {"Nats-Request-Info": '{"acc":"ONE"}'}
            answer = await two.client.request("$JS.API.STREAM.NAMES", b"", timeout=TIMEOUT_S, headers=said)
            assert b'"streams":null' in answer.data or b'"total":0' in answer.data
        for member in (found[0], found[2]):
            async with connected(member, user="few", password="1") as few:
                with pytest.raises(TimeoutError):
                    await few.client.jetstream(timeout=0.3).delete_stream("MINE")
                assert few.errors == ['nats: permissions violation for publish to "$js.api.stream.delete.mine"']
                assert (await of(few).stream_info("MINE")).state.messages == 1
        async with connected(found[2], user="none", password="0") as none:
            with pytest.raises(ServiceUnavailableError):
                await of(none).account_info()

    with members((NEW, NEW, POLYMQ), tmp_path, accounts=ACCOUNTS) as found:
        asyncio.run(play(found))


@pytest.mark.parametrize("kinds", [(POLYMQ, NEW), (NEW, NEW), (POLYMQ, POLYMQ), (POLYMQ, OLD)], ids="+".join)
def test_where_nobody_has_it_who_asks_is_told_at_once(kinds: tuple[str, str], tmp_path: Path) -> None:
    """As by the newest servers: 2.9 without JetStream lets its own clients wait."""

    async def play(member: NatsServer) -> None:
        async with connected(member) as one:
            for subject in ("$JS.API.INFO", "$JS.API.STREAM.NAMES", "$JS.API.CONSUMER.MSG.NEXT.S.C", "$JS.API.NONSENSE"):
                with pytest.raises(NoRespondersError):
                    await one.client.request(subject, b"", timeout=TIMEOUT_S)
            with pytest.raises(ServiceUnavailableError):
                await of(one).account_info()

    with members(kinds, tmp_path, jetstream=False) as found:
        asyncio.run(play(found[0]))
