"""The harness for NATS itself, on real servers with nats-py: what it starts serves, is closed to those who may not, and ends.

What a server has to do is shown where polymq is tested; here it is shown that a failure there would be the server's.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import TYPE_CHECKING

import pytest
from nats.errors import Error, NoRespondersError

from tests.interop.nats_clients import TIMEOUT_S, connected, received, settled
from tests.interop.nats_secrets import nkey_of, tls_block, tls_context
from tests.interop.nats_servers import NATS_KINDS, NatsOptions, NatsServer, await_mesh, ending, mixtures, nats_cluster, nats_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.unit.wire.authority import Authority

pytestmark = pytest.mark.parametrize("kind", NATS_KINDS, scope="module")


@pytest.fixture(scope="module")
def single(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    with nats_server(kind, tmp_path_factory.mktemp(kind)) as server:
        yield server


def test_messages_pass(single: NatsServer, kind: str) -> None:
    async def play() -> None:
        async with connected(single) as one, connected(single) as other:
            plain = await one.subscribed("passed.*")
            members = [await one.subscribed("passed.>", queue="group") for _ in range(3)]
            await other.published("passed.on", *(b"%d" % number for number in range(30)))
            assert await received(plain, 30) == [b"%d" % number for number in range(30)]
            shares = [await received(member, member.pending_msgs) for member in members]
            assert sorted(int(each) for share in shares for each in share) == list(range(30))
            await other.client.publish("passed.headers", b"x", reply="elsewhere", headers={"Key": "value"})
            message = await plain.next_msg(timeout=TIMEOUT_S)
            assert (message.headers, message.reply, message.data) == ({"Key": "value"}, "elsewhere", b"x")

    asyncio.run(play())


def test_questions_are_answered(single: NatsServer, kind: str) -> None:
    async def play() -> None:
        async with connected(single) as one, connected(single) as other:
            asked = await one.subscribed("question")
            answer = asyncio.ensure_future(other.client.request("question", b"6 x 7", timeout=TIMEOUT_S))
            await (await asked.next_msg(timeout=TIMEOUT_S)).respond(b"42")
            assert (await answer).data == b"42"
            with pytest.raises(NoRespondersError):
                await other.client.request("nobody.listens", b"", timeout=TIMEOUT_S)

    asyncio.run(play())


def test_a_server_ends_and_its_ports_are_free(kind: str, tmp_path: Path) -> None:
    with nats_server(kind, tmp_path, name="a") as first, nats_server(kind, tmp_path, name="b") as second:
        assert first.server_id() != second.server_id()
        ports = [port for server in (first, second) for port in (server.client_port, server.http_port)]
        assert len({*ports}) == 4
        process = first.process
        assert process is not None
    assert process.returncode in {0, 1}
    for port in ports:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=2)


def test_a_server_that_does_not_start_says_why(kind: str, tmp_path: Path) -> None:
    with (
        pytest.raises(pytest.fail.Exception, match=r"did not start[\s\S]*nonsense"),
        nats_server(kind, tmp_path, NatsOptions(more="nonsense: 7")),
    ):
        pass


def test_a_server_that_ends_by_itself_is_a_failure(kind: str, tmp_path: Path) -> None:
    with pytest.raises(pytest.fail.Exception, match="ended by itself with -9"), nats_server(kind, tmp_path) as server:
        assert server.process is not None
        server.process.kill()
        server.process.wait()


# -- who may come in ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "right", "wrong"),
    [
        ('token: "s3cret"', {"token": "s3cret"}, {"token": "s3cre"}),
        ('user: "me", password: "pass"', {"user": "me", "password": "pass"}, {"user": "me", "password": "word"}),
        # "pass", by bcrypt at cost 4.
        (
            'users: [{user: "me", password: "$2a$04$abcdefghijklmnopqrstuufznL8bkzdtHwLhca4To/v9Lo9bA7fR6"}]',
            {"user": "me", "password": "pass"},
            {"user": "me", "password": "$2a$04$abcdefghijklmnopqrstuufznL8bkzdtHwLhca4To/v9Lo9bA7fR6"},
        ),
        ("users: [{nkey: NKEY}]", {"nkeys_seed": "SEED"}, {}),
    ],
    ids=["token", "password", "bcrypt", "nkey"],
)
def test_secrets(kind: str, tmp_path: Path, rule: str, right: dict[str, str], wrong: dict[str, str]) -> None:
    public, seed = nkey_of(tmp_path)
    right = {name: value.replace("SEED", str(seed)) for name, value in right.items()}

    async def play(server: NatsServer) -> None:
        async with connected(server, **right) as one:
            subscription = await one.subscribed("let.in")
            await one.published("let.in", b"x")
            assert await received(subscription, 1) == [b"x"]
        for options in (wrong, {}):
            with pytest.raises(Error, match="Authorization Violation"):
                async with connected(server, **options):
                    pass

    with nats_server(kind, tmp_path, NatsOptions(authorization=rule.replace("NKEY", public))) as server:
        asyncio.run(play(server))


def test_permissions_and_accounts(kind: str, tmp_path: Path) -> None:
    accounts = """
        ONE: { users: [
            { user: "one", password: "1", permissions: { publish: { deny: ["secret.>"] } } }
            { user: "uno", password: "1" }
        ] }
        TWO: { users: [{ user: "two", password: "2" }] }
    """

    async def play(server: NatsServer) -> None:
        async with (
            connected(server, user="one", password="1") as one,
            connected(server, user="uno", password="1") as uno,
            connected(server, user="two", password="2") as two,
        ):
            near, far = await uno.subscribed(">"), await two.subscribed(">")
            await one.published("shared", b"mine")
            await one.published("secret.shared", b"not allowed")
            assert await received(near, 1) == [b"mine"]
            assert await received(far, 0) == []
            assert [error.lower() for error in one.errors] == ['nats: permissions violation for publish to "secret.shared"']

    with nats_server(kind, tmp_path, NatsOptions(accounts=accounts)) as server:
        asyncio.run(play(server))


def test_tls(kind: str, tmp_path: Path, authority: Authority) -> None:
    async def play(server: NatsServer) -> None:
        client = tls_context(authority, authority.issue("nats-client"))
        async with connected(server, tls=client, tls_hostname="localhost") as one:
            subscription = await one.subscribed("private")
            await one.published("private", b"x" * 100_000)
            assert await received(subscription, 1) == [b"x" * 100_000]
        with pytest.raises((ssl.SSLError, OSError)):
            async with connected(server, tls=tls_context(authority), tls_hostname="localhost"):
                pass  # a client without a certificate

    with nats_server(kind, tmp_path, NatsOptions(tls=tls_block(authority, "localhost", verify=True))) as server:
        asyncio.run(play(server))


# -- clusters -------------------------------------------------------------------------------------------------------------


async def every_pair(members: list[NatsServer], **options: object) -> None:
    """What is published at one server is received at every one, once and in order."""
    bodies = [b"%d" % number for number in range(50)]
    for source in members:
        for target in members:
            async with connected(source, **options) as one, connected(target, **options) as other:
                subject = f"from.{source.name}.to.{target.name}"
                subscription = await other.subscribed(subject)
                await settled(one, subscription, subject)
                await one.published(subject, *bodies)
                assert await received(subscription, len(bodies)) == bodies


@pytest.mark.parametrize("seeded", [False, True], ids=["explicit", "gossip"])
@pytest.mark.parametrize("number", range(3), ids=["two", "mixed", "three"])
def test_a_cluster_passes_messages_between_all_of_its_members(kind: str, tmp_path: Path, number: int, seeded: bool) -> None:
    with nats_cluster(mixtures(kind)[number], tmp_path, seeded=seeded) as members:
        asyncio.run(every_pair(members))


def test_a_queue_group_across_a_cluster_gets_each_message_once(kind: str, tmp_path: Path) -> None:
    async def play(members: list[NatsServer]) -> None:
        async with connected(members[0]) as one, connected(members[0]) as near, connected(members[1]) as far:
            groups = [await near.subscribed("jobs", queue="workers"), await far.subscribed("jobs", queue="workers")]
            plain = await far.subscribed("jobs.known")
            await settled(one, plain, "jobs.known")
            await one.published("jobs", *(b"%d" % number for number in range(200)))
            # This goes the same ways as the jobs, behind them.
            await one.published("jobs.known", b"all published")
            await plain.next_msg(timeout=TIMEOUT_S)
            for each in (near, far):
                await each.client.flush(timeout=TIMEOUT_S)
            shares = [await received(group, group.pending_msgs) for group in groups]
            assert sorted(int(each) for share in shares for each in share) == list(range(200))

    with nats_cluster(mixtures(kind)[1], tmp_path) as members:
        asyncio.run(play(members))


def test_a_member_is_killed_and_comes_back(kind: str, tmp_path: Path) -> None:
    with nats_cluster(mixtures(kind)[2], tmp_path) as members:
        members[1].kill()
        asyncio.run(every_pair([members[0], members[2]]))
        members[1].start()
        await_mesh(members)
        asyncio.run(every_pair(members))


def test_clients_learn_of_the_other_members(kind: str, tmp_path: Path) -> None:
    async def play(members: list[NatsServer]) -> None:
        async with connected(members[0], allow_reconnect=True, reconnect_time_wait=0.05) as one:
            deadline = asyncio.get_running_loop().time() + TIMEOUT_S
            while len(one.client.servers) < 2:
                assert asyncio.get_running_loop().time() < deadline, one.client.servers
                await one.client.flush(timeout=TIMEOUT_S)
                await asyncio.sleep(0.02)
            members[0].stop()
            while one.client.connected_url is None or one.client.connected_url.port != members[1].client_port or one.client.is_reconnecting:
                assert asyncio.get_running_loop().time() < deadline, one.client.connected_url
                await asyncio.sleep(0.02)
            subscription = await one.subscribed("moved")
            await one.published("moved", b"x")
            assert await received(subscription, 1) == [b"x"]

    with nats_cluster(mixtures(kind)[1], tmp_path) as members:
        asyncio.run(play(members))


def test_a_cluster_with_a_secret_and_tls(kind: str, tmp_path: Path, authority: Authority) -> None:
    options = NatsOptions(
        authorization='user: "me", password: "pass"',
        tls=tls_block(authority, "localhost"),
        route_user="route:r0ute",
        route_tls=tls_block(authority, "localhost", verify=True),
    )
    with nats_cluster(mixtures(kind)[1], tmp_path, options) as members:
        asyncio.run(every_pair(members, user="me", password="pass", tls=tls_context(authority), tls_hostname="localhost"))


def test_a_member_that_may_not_join_is_noticed(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.interop.nats_servers.MESH_TIMEOUT_S", 1.0)
    guarded = NatsServer(kind, "guarded", tmp_path, NatsOptions(route_user="route:right"))
    stranger = NatsServer(kind, "stranger", tmp_path, NatsOptions(route_user="route:wrong"))
    guarded.clustered = stranger.clustered = True
    stranger.routes = [guarded]
    with ending([guarded, stranger]):
        guarded.start()
        stranger.start()
        with pytest.raises(pytest.fail.Exception, match="no route from guarded to stranger, stranger to guarded"):
            await_mesh([guarded, stranger])
        assert "Authentication Failure" in guarded.log_text()
