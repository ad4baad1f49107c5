"""Who may come in to NATS, and what for: nats-py at polymq and at real servers, which must be the same to it."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from typing import TYPE_CHECKING, Any

import pytest
from nats.errors import Error

from tests.interop.nats_clients import TIMEOUT_S, connected, received
from tests.interop.nats_secrets import nkey_of, tls_block, tls_context
from tests.interop.nats_servers import SERVING_KINDS, NatsOptions, nats_server

if TYPE_CHECKING:
    from pathlib import Path

    from tests.interop.nats_clients import Connected
    from tests.interop.nats_servers import NatsServer
    from tests.unit.wire.authority import Authority

pytestmark = pytest.mark.parametrize("kind", SERVING_KINDS, scope="module")

# "pass", by bcrypt at cost 4.
HASHED = "$2a$04$abcdefghijklmnopqrstuufznL8bkzdtHwLhca4To/v9Lo9bA7fR6"


async def is_served(server: NatsServer, **options: Any) -> None:
    """Whoever gives this is let in."""
    async with connected(server, **options) as one:
        subscription = await one.subscribed("let.in")
        await one.published("let.in", b"x")
        assert await received(subscription, 1) == [b"x"]


async def is_refused(server: NatsServer, **options: Any) -> None:
    """Whoever gives this is not, and is told so."""
    with pytest.raises(Error, match="Authorization Violation"):
        async with connected(server, **options):
            pass


async def told(connection: Connected, count: int) -> None:
    """Wait until the library has handed on so many errors."""
    deadline = time.monotonic() + TIMEOUT_S
    while len(connection.errors) < count:
        assert time.monotonic() < deadline, connection.errors
        await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("rule", "right", "wrong"),
    [
        ('token: "s3cret"', [{"token": "s3cret"}], [{"token": "s3cre"}, {"user": "s3cret"}, {"user": "x", "password": "s3cret"}]),
        (f'token: "{HASHED}"', [{"token": "pass"}, {"token": "pass"}], [{"token": HASHED}]),
        ('user: "me", password: "pass"', [{"user": "me", "password": "pass"}], [{"user": "me", "password": "word"}, {"user": "me"}]),
        (
            f'users: [{{user: "me", password: "{HASHED}"}}, {{user: "you", password: "pass"}}]',
            [{"user": "me", "password": "pass"}, {"user": "you", "password": "pass"}, {"user": "me", "password": "pass"}],
            [{"user": "me", "password": HASHED}, {"user": "me", "password": "passe"}, {"user": "they", "password": "pass"}],
        ),
        (
            'users: [{nkey: NKEY}, {user: "me", password: "pass"}]',
            [{"nkeys_seed": "SEED"}, {"user": "me", "password": "pass"}],
            [{"user": "NKEY", "password": ""}, {"nkeys_seed": "OTHER"}],
        ),
    ],
    ids=["token", "hashed-token", "password", "bcrypt", "nkey"],
)
def test_secrets(kind: str, tmp_path: Path, rule: str, right: list[dict[str, str]], wrong: list[dict[str, str]]) -> None:
    public, seed = nkey_of(tmp_path)
    _, other = nkey_of(tmp_path, b"somebody else's seed of 32 bytes")
    names = {"NKEY": public, "SEED": str(seed), "OTHER": str(other)}

    async def play(server: NatsServer) -> None:
        for options in right:
            await is_served(server, **{name: names.get(value, value) for name, value in options.items()})
        for options in (*wrong, {}):
            await is_refused(server, **{name: names.get(value, value) for name, value in options.items()})

    with nats_server(kind, tmp_path, NatsOptions(authorization=rule.replace("NKEY", public))) as server:
        asyncio.run(play(server))


def test_who_says_nothing_may_be_taken_for_somebody(kind: str, tmp_path: Path) -> None:
    accounts = """
        ONE: { users: [{ user: "one", password: "1" }] }
        TWO: { users: [{ user: "two", password: "2" }] }
    """

    async def play(server: NatsServer) -> None:
        await is_refused(server, user="two", password="1")
        async with (
            connected(server) as nobody,
            connected(server, user="one", password="1") as one,
            connected(server, user="two", password="2") as two,
        ):
            near, far = await one.subscribed(">"), await two.subscribed(">")
            await nobody.published("shared", b"x")
            assert await received(near, 1) == [b"x"]
            assert await received(far, 0) == []

    with nats_server(kind, tmp_path, NatsOptions(accounts=accounts, more="no_auth_user: one")) as server:
        asyncio.run(play(server))


def test_many_that_come_at_once_with_hashed_passwords(kind: str, tmp_path: Path) -> None:
    async def play(server: NatsServer) -> None:
        async with contextlib.AsyncExitStack() as stack:
            come = [stack.enter_async_context(connected(server, user="me", password="pass")) for _ in range(50)]
            found = await asyncio.gather(*come)
        assert len(found) == 50

    # "pass", by bcrypt at cost 10.
    rule = 'timeout: 20, users: [{user: "me", password: "$2b$10$abcdefghijklmnopqrstuurOb.9fHu1HSgO8eKr.BJVKtmsPD3vs2"}]'
    with nats_server(kind, tmp_path, NatsOptions(authorization=rule)) as server:
        asyncio.run(play(server))


# -- what for ----------------------------------------------------------------------------------------------------------


def test_permissions(kind: str, tmp_path: Path) -> None:
    rules = """users: [
        { user: "one", password: "1", permissions: {
            publish: { allow: ["open.>", "q"], deny: ["open.not"] }
            subscribe: { allow: ["open.>", "groups workers.*", "_INBOX.>"], deny: ["open.not.>"] }
        } }
        { user: "two", password: "2" }
    ]"""

    async def play(server: NatsServer) -> None:
        async with connected(server, user="one", password="1") as one, connected(server, user="two", password="2") as two:
            everything = await two.subscribed(">")
            heard = await one.subscribed("open.>")
            await one.published("open.a", b"1")
            await one.published("open.not", b"2")
            await one.published("closed", b"3")
            await two.published("open.not.for.you", b"4")
            await two.published("open.b", b"5")
            assert await received(everything, 3) == [b"1", b"4", b"5"]
            assert await received(heard, 2) == [b"1", b"5"]
            for subject, queue in (("closed", ""), ("groups", ""), ("groups", "loafers"), ("groups", "workers.a"), ("open.not.a", "")):
                await one.subscribed(subject, queue=queue)
            await told(one, 6)
            assert [error.lower().removeprefix("nats: permissions violation for ") for error in one.errors] == [
                'publish to "open.not"',
                'publish to "closed"',
                'subscription to "closed"',
                'subscription to "groups"',
                'subscription to "groups" using queue "loafers"',
                'subscription to "open.not.a"',
            ]

    with nats_server(kind, tmp_path, NatsOptions(authorization=rules)) as server:
        asyncio.run(play(server))


def test_what_is_denied_to_a_queue_group_does_not_come_by_wildcards(kind: str, tmp_path: Path) -> None:
    """The old server gives it to who asks for more than that; we do as the newest."""
    users = """users: [
        { user: "bound", password: "1", permissions: { subscribe: { allow: ["t.>", "t.> q1", "t.> q2"], deny: ["t.no q1"] } } }
        { user: "free", password: "1" }
    ]"""

    async def play(server: NatsServer) -> None:
        async with connected(server, user="bound", password="1") as bound, connected(server, user="free", password="1") as free:
            denied = [await bound.subscribed("t.>", queue="q1")]
            allowed = [await bound.subscribed("t.>", queue="q2"), await bound.subscribed("t.>")]
            await free.published("t.no", b"no")
            await free.published("t.yes", b"yes")
            for subscription in allowed:
                assert await received(subscription, 2) == [b"no", b"yes"]
            expected = [b"no", b"yes"] if kind == "nats-server-2.9" else [b"yes"]
            for subscription in denied:
                assert await received(subscription, len(expected)) == expected

    with nats_server(kind, tmp_path, NatsOptions(authorization=users)) as server:
        asyncio.run(play(server))


def test_who_is_asked_may_answer_once(kind: str, tmp_path: Path) -> None:
    rules = """users: [
        { user: "service", password: "1", permissions: { subscribe: "ask", allow_responses: true } }
        { user: "client", password: "2" }
    ]"""

    async def play(server: NatsServer) -> None:
        async with connected(server, user="service", password="1") as service, connected(server, user="client", password="2") as client:
            asked = await service.subscribed("ask")
            for number in range(3):
                answer = asyncio.ensure_future(client.client.request("ask", b"%d" % number, timeout=TIMEOUT_S))
                question = await asked.next_msg(timeout=TIMEOUT_S)
                await question.respond(b"answer " + question.data)
                assert (await answer).data == b"answer %d" % number
                await service.published(question.reply, b"once more")
            await told(service, 3)
            assert all("permissions violation for publish" in error.lower() for error in service.errors)

    with nats_server(kind, tmp_path, NatsOptions(authorization=rules)) as server:
        asyncio.run(play(server))


# -- within TLS --------------------------------------------------------------------------------------------------------


def test_tls(kind: str, tmp_path: Path, authority: Authority) -> None:
    async def play(server: NatsServer) -> None:
        await is_served(server, tls=tls_context(authority), tls_hostname="localhost", token="t")
        await is_refused(server, tls=tls_context(authority), tls_hostname="localhost", token="u")

    options = NatsOptions(tls=tls_block(authority, "localhost"), authorization="token: t")
    with nats_server(kind, tmp_path, options) as server:
        asyncio.run(play(server))


def test_tls_with_certificates_of_clients(kind: str, tmp_path: Path, authority: Authority) -> None:
    async def play(server: NatsServer) -> None:
        await is_served(server, tls=tls_context(authority, authority.issue("nats-client")), tls_hostname="localhost")
        with pytest.raises((ssl.SSLError, OSError)):
            await is_served(server, tls=tls_context(authority), tls_hostname="localhost")

    with nats_server(kind, tmp_path, NatsOptions(tls=tls_block(authority, "localhost", verify=True))) as server:
        asyncio.run(play(server))


def test_tls_for_those_who_want_it(kind: str, tmp_path: Path, authority: Authority) -> None:
    async def play(server: NatsServer) -> None:
        await is_served(server, tls=tls_context(authority), tls_hostname="localhost")
        server.options = NatsOptions()  # so that the URL says nothing of TLS
        await is_served(server)

    with nats_server(kind, tmp_path, NatsOptions(tls=tls_block(authority, "localhost"), more="allow_non_tls: true")) as server:
        asyncio.run(play(server))


@pytest.mark.parametrize("delay", ["true", "300ms"])
def test_tls_before_anything_else(kind: str, tmp_path: Path, authority: Authority, delay: str) -> None:
    if kind == "nats-server-2.9":
        return  # it came with 2.10.4

    async def play(server: NatsServer) -> None:
        await is_served(server, tls=tls_context(authority), tls_hostname="localhost", tls_handshake_first=True)
        if delay != "true":
            await is_served(server, tls=tls_context(authority), tls_hostname="localhost")

    block = f"{tls_block(authority, 'localhost')}\nhandshake_first: {delay}"
    with nats_server(kind, tmp_path, NatsOptions(tls=block, tls_first=True)) as server:
        asyncio.run(play(server))
