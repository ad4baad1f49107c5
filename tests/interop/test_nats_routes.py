"""polymq as a member of clusters of real nats-servers, old and new: what its clients and theirs get, and who joins and comes back how."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import re
import time
from typing import TYPE_CHECKING

import pytest
from nats.errors import NoRespondersError

from tests.interop.nats_clients import TIMEOUT_S, connected, drained, received, settled, shared
from tests.interop.nats_secrets import tls_block
from tests.interop.nats_servers import NATS_KINDS, POLYMQ, NatsOptions, NatsServer, await_mesh, ending, nats_cluster
from tests.interop.test_nats_harness import every_pair

if TYPE_CHECKING:
    from pathlib import Path

    from nats.aio.msg import Msg

    from tests.unit.wire.authority import Authority

NEW, OLD = NATS_KINDS
PAIRS = ((POLYMQ, POLYMQ), (POLYMQ, NEW), (OLD, POLYMQ))
# Two of each sort, so that each is there twice for every other one.
LARGER = ((POLYMQ, NEW, OLD), (NEW, POLYMQ, POLYMQ), (OLD, NEW, POLYMQ, POLYMQ))
BODIES = [b"%d" % number for number in range(200)]


def named(kinds: tuple[str, ...]) -> str:
    return "+".join(kind.replace("nats-server-2.9", "old").replace("nats-server", "new") for kind in kinds)


pairs = pytest.mark.parametrize("kinds", PAIRS, ids=named)
larger = pytest.mark.parametrize("kinds", LARGER, ids=named)


@pytest.mark.parametrize("seeded", [False, True], ids=["explicit", "gossip"])
@pytest.mark.parametrize("kinds", [*PAIRS, *LARGER], ids=named)
def test_messages_pass_between_all_members(kinds: tuple[str, ...], tmp_path: Path, seeded: bool) -> None:
    with nats_cluster(kinds, tmp_path, seeded=seeded) as members:
        asyncio.run(every_pair(members))


@larger
def test_a_message_comes_once_to_every_listener_and_to_one_of_each_group(kinds: tuple[str, ...], tmp_path: Path) -> None:
    async def play(members: list[NatsServer]) -> None:
        async with contextlib.AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(connected(member)) for member in members]
            plain = [await client.subscribed("jobs.*") for client in clients]
            wide = [await client.subscribed(">") for client in clients]
            groups = [
                [await client.subscribed("jobs.work", queue=queue) for client in clients for _ in range(count)]
                for queue, count in (("one", 1), ("two", 2))
            ]
            known = [await client.subscribed(f"known.{number}") for number, client in enumerate(clients)]
            for source in clients:
                for number, subscription in enumerate(known):
                    await settled(source, subscription, f"known.{number}")
            await drained(*wide)
            for source in clients:
                await source.published("jobs.work", *BODIES)
            wanted = sorted(BODIES * len(clients))
            for subscription in (*plain, *wide):
                assert sorted(await received(subscription, len(wanted))) == wanted
            for members_of_group in groups:
                shares = await shared(members_of_group, len(wanted))
                assert sorted(itertools.chain.from_iterable(shares)) == wanted
                assert all(shares)

    with nats_cluster(kinds, tmp_path, seeded=True) as members:
        asyncio.run(play(members))


@pairs
def test_questions_are_answered_across(kinds: tuple[str, ...], tmp_path: Path) -> None:
    async def play(members: list[NatsServer]) -> None:
        for one, other in itertools.permutations(members):
            async with connected(one) as asking, connected(other) as answering:

                async def answer(message: Msg) -> None:
                    await message.respond(message.data * 2)

                await answering.client.subscribe("double", queue="services", cb=answer)
                known = await answering.subscribed("known")
                await settled(asking, known, "known")
                for number in range(50):
                    reply = await asking.client.request("double", b"%d" % number, timeout=TIMEOUT_S)
                    assert reply.data == b"%d" % number * 2
                with pytest.raises(NoRespondersError):
                    await asking.client.request("nobody.listens", b"", timeout=TIMEOUT_S)

    with nats_cluster(kinds, tmp_path) as members:
        asyncio.run(play(members))


@pairs
def test_headers_replies_and_large_messages_pass(kinds: tuple[str, ...], tmp_path: Path) -> None:
    async def play(members: list[NatsServer]) -> None:
        for one, other in itertools.permutations(members):
            async with connected(one) as source, connected(other) as target:
                subscription = await target.subscribed("whole.>")
                await settled(source, subscription, "whole.known")
                large = bytes(range(256)) * 4000
                await source.client.publish("whole.headers", large, reply="elsewhere", headers={"Key": "value", "Other": "täglich"})
                await source.client.publish("whole.empty", b"")
                message = await subscription.next_msg(timeout=TIMEOUT_S)
                assert (message.subject, message.reply, message.data) == ("whole.headers", "elsewhere", large)
                assert message.headers == {"Key": "value", "Other": "täglich"}
                message = await subscription.next_msg(timeout=TIMEOUT_S)
                assert (message.subject, message.reply, message.data, message.headers) == ("whole.empty", "", b"", None)

    with nats_cluster(kinds, tmp_path) as members:
        asyncio.run(play(members))


@pairs
def test_interest_that_ends_is_forgotten(kinds: tuple[str, ...], tmp_path: Path) -> None:
    """Who asks is told at once that nobody is there, and messages stop."""

    async def play(members: list[NatsServer]) -> None:
        for one, other in itertools.permutations(members):
            async with connected(one) as source:
                async with connected(other) as target:
                    few = await target.client.subscribe("few")
                    await few.unsubscribe(limit=3)
                    kept = await target.subscribed("few.known")
                    await settled(source, kept, "few.known")
                    await source.published("few", *BODIES)
                    assert await received(few, 3) == BODIES[:3]
                    await settled(source, kept, "few.known")
                deadline = time.monotonic() + TIMEOUT_S
                while True:
                    try:
                        await source.client.request("few.known", b"", timeout=0.05)
                    except NoRespondersError:
                        break
                    except TimeoutError:
                        pass
                    assert time.monotonic() < deadline

    with nats_cluster(kinds, tmp_path) as members:
        asyncio.run(play(members))


@pytest.mark.parametrize("victim", range(3))
def test_a_member_is_killed_and_comes_back(tmp_path: Path, victim: int) -> None:
    with nats_cluster((POLYMQ, NEW, OLD), tmp_path) as members:
        members[victim].kill()
        asyncio.run(every_pair([member for member in members if member is not members[victim]]))
        members[victim].start()
        await_mesh(members)
        asyncio.run(every_pair(members))


def test_a_member_that_was_told_of_is_killed_and_comes_back(tmp_path: Path) -> None:
    """Only the first one is in anybody's configuration, and it is not the one that is killed."""
    with nats_cluster((NEW, POLYMQ, OLD, POLYMQ), tmp_path, seeded=True) as members:
        for victim in (1, 2):
            members[victim].kill()
            members[victim].start()
            await_mesh(members)
        asyncio.run(every_pair(members))


def test_the_first_member_is_killed_and_comes_back(tmp_path: Path) -> None:
    """The one that all others know by their configuration."""
    with nats_cluster((POLYMQ, NEW, POLYMQ), tmp_path, seeded=True) as members:
        members[0].kill()
        asyncio.run(every_pair(members[1:]))
        members[0].start()
        await_mesh(members)
        asyncio.run(every_pair(members))


@pytest.mark.parametrize("kinds", [(POLYMQ, NEW), (OLD, POLYMQ), (POLYMQ, POLYMQ)], ids=named)
def test_a_publisher_loses_messages_only_while_a_member_is_away(kinds: tuple[str, ...], tmp_path: Path) -> None:
    """The one at the other end is killed and comes back: what arrives is in order, never twice, and goes on within seconds."""

    async def play(members: list[NatsServer]) -> None:
        async with connected(members[0]) as source:
            got: list[int] = []
            async with connected(members[1]) as target:
                subscription = await target.subscribed("numbers")
                await settled(source, subscription, "numbers")
                for number in range(500):
                    await source.client.publish("numbers", b"%d" % number)
                await source.client.flush()
                got += [int(body) for body in await received(subscription, 500)]
            members[1].kill()
            members[1].start()
            number, away_until = 500, time.monotonic() + 30
            async with connected(members[1]) as target:
                subscription = await target.subscribed("numbers")
                while got[-1] < 500:
                    assert time.monotonic() < away_until
                    await source.published("numbers", b"%d" % number)
                    number += 1
                    with contextlib.suppress(TimeoutError):
                        got.append(int((await subscription.next_msg(timeout=0.05)).data))
                last = number
                await source.published("numbers", *(b"%d" % each for each in range(last, last + 500)))
                while got[-1] < last + 499:
                    got.append(int((await subscription.next_msg(timeout=TIMEOUT_S)).data))
                got += [int(body) for body in await received(subscription, 0)]
            assert got == sorted(set(got))
            assert got[-500:] == list(range(last, last + 500))

    with nats_cluster(kinds, tmp_path) as members:
        asyncio.run(play(members))


@pairs
def test_clients_learn_of_the_other_members(kinds: tuple[str, ...], tmp_path: Path) -> None:
    async def play(members: list[NatsServer]) -> None:
        async with connected(members[0], allow_reconnect=True, reconnect_time_wait=0.05) as one:
            deadline = time.monotonic() + TIMEOUT_S
            while members[1].client_port not in {server.port for server in one.client.servers}:
                assert time.monotonic() < deadline, one.client.servers
                await one.client.flush(timeout=TIMEOUT_S)
                await asyncio.sleep(0.02)

    with nats_cluster(kinds, tmp_path) as members:
        for ordered in (members, members[::-1]):
            asyncio.run(play(ordered))


@pytest.mark.parametrize("kinds", [(POLYMQ, NEW), (OLD, POLYMQ)], ids=named)
def test_clients_are_told_nothing_if_so_configured(kinds: tuple[str, ...], tmp_path: Path) -> None:
    servers = [NatsServer(kind, f"m-{number}", tmp_path, NatsOptions(route_more="no_advertise: true")) for number, kind in enumerate(kinds)]

    async def play(member: NatsServer) -> None:
        async with connected(member) as one:
            await one.client.flush(timeout=TIMEOUT_S)
            await asyncio.sleep(0.1)
            assert {server.port for server in one.client.servers} == {member.client_port}

    with joined(servers):
        for server in servers:
            asyncio.run(play(server))


@contextlib.contextmanager
def joined(servers: list[NatsServer]):  # type: ignore[no-untyped-def]  # a generator
    for server in servers:
        server.clustered = True
        server.routes = [each for each in servers if each is not server]
    with ending(servers):
        for server in servers:
            server.start()
        await_mesh(servers)
        yield


@pairs
def test_a_cluster_with_a_secret_and_tls(kinds: tuple[str, ...], tmp_path: Path, authority: Authority) -> None:
    options = NatsOptions(
        authorization='user: "me", password: "pass"',
        route_user="route:r0ute",
        route_tls=tls_block(authority, "localhost", verify=True),
    )
    with nats_cluster((*kinds, POLYMQ), tmp_path, options, seeded=True) as members:
        asyncio.run(every_pair(members, user="me", password="pass"))


@pytest.mark.parametrize("kinds", [(POLYMQ, NEW), (NEW, POLYMQ)], ids=named)
@pytest.mark.parametrize("wrong", ["route:wrong", ""])
def test_a_member_without_the_secret_does_not_join(kinds: tuple[str, str], tmp_path: Path, wrong: str) -> None:
    guarded = NatsServer(kinds[0], "guarded", tmp_path, NatsOptions(route_user="route:right"))
    stranger = NatsServer(kinds[1], "stranger", tmp_path, NatsOptions(route_user=wrong))
    guarded.clustered = stranger.clustered = True
    stranger.routes = [guarded]
    with ending([guarded, stranger]):
        guarded.start()
        stranger.start()
        deadline = time.monotonic() + TIMEOUT_S
        while "Authorization Violation" not in stranger.log_text():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        # A real server that dials takes INFO for a route, each time until it is told otherwise.
        assert guarded.routed_to() == set()


@pytest.mark.parametrize("kinds", [(POLYMQ, NEW), (OLD, POLYMQ)], ids=named)
def test_accounts_are_apart_across_a_cluster(kinds: tuple[str, ...], tmp_path: Path) -> None:
    accounts = """
        ONE: { users: [{ user: "one", password: "1" }] }
        TWO: { users: [{ user: "two", password: "2" }] }
    """

    async def play(source: NatsServer, target: NatsServer) -> None:
        async with (
            connected(source, user="one", password="1") as publisher,
            connected(target, user="one", password="1") as one,
            connected(target, user="two", password="2") as two,
        ):
            near, far = await one.subscribed(">"), await two.subscribed(">")
            await settled(publisher, near, "shared")
            await publisher.published("shared", *BODIES)
            assert await received(near, len(BODIES)) == BODIES
            assert await received(far, 0) == []

    with nats_cluster(kinds, tmp_path, NatsOptions(accounts=accounts)) as members:
        for source, target in itertools.permutations(members):
            asyncio.run(play(source, target))


@pytest.mark.parametrize("kinds", [(POLYMQ, NEW), (OLD, POLYMQ)], ids=named)
def test_import_and_export_hold_at_the_server_that_says_them(kinds: tuple[str, ...], tmp_path: Path) -> None:
    rules = 'authorization { permissions { import: ["in.>"], export: ["out.>"] } }'
    ours = kinds.index(POLYMQ)
    servers = [
        NatsServer(kind, f"m-{number}", tmp_path, NatsOptions(route_more=rules if number == ours else ""))
        for number, kind in enumerate(kinds)
    ]

    async def play(limited: NatsServer, other: NatsServer) -> None:
        async with connected(limited) as one, connected(other) as two:
            inside, outside = await one.subscribed(">"), await two.subscribed(">")
            allowed_in, allowed_out = await one.subscribed("in.a"), await two.subscribed("out.a")
            await settled(two, allowed_in, "in.a")
            await settled(one, allowed_out, "out.a")
            for subscription in (inside, outside):
                await received(subscription, subscription.pending_msgs)
            await two.published("in.a", b"1")
            await two.published("out.a", b"2")
            await one.published("out.a", b"3")
            await one.published("in.a", b"4")
            assert await received(allowed_in, 2) == [b"1", b"4"]
            assert await received(allowed_out, 2) == [b"2", b"3"]

    with joined(servers):
        asyncio.run(play(servers[ours], servers[1 - ours]))


def test_names_that_were_made_up_become_one(tmp_path: Path) -> None:
    servers = [NatsServer(kind, f"m-{number}", tmp_path, NatsOptions()) for number, kind in enumerate((POLYMQ, NEW, POLYMQ))]
    for server in servers:
        server.cluster_name = ""
    with joined(servers):
        asyncio.run(every_pair(servers))
        assert len({server.told_cluster() for server in servers}) == 1


def test_a_server_of_another_cluster_is_refused(tmp_path: Path) -> None:
    for kinds in ((POLYMQ, NEW), (NEW, POLYMQ)):
        one, other = (NatsServer(kind, f"{number}-{kinds[0]}", tmp_path, NatsOptions()) for number, kind in enumerate(kinds))
        one.clustered = other.clustered = True
        other.cluster_name = "elsewhere"
        other.routes = [one]
        with ending([one, other]):
            one.start()
            other.start()
            deadline = time.monotonic() + TIMEOUT_S
            while not re.search("Cluster Name Conflict|is of the cluster 'interop', not 'elsewhere'", other.log_text()):
                assert time.monotonic() < deadline, other.log_text()
                time.sleep(0.05)
            assert (one.routed_to(), other.routed_to()) == (set(), set())
