"""NATS and the log, with nats-py: what is stored of what it publishes, who else has it, and what it hears of what others publish."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from nats.errors import TimeoutError as NothingCameError

from tests.interop.nats_clients import TIMEOUT_S, Connected, connected, received
from tests.interop.nats_servers import POLYMQ, NatsOptions, NatsServer, ending
from tests.interop.raw import Raw
from tests.interop.servers import free_ports

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription


class LogServer(NatsServer):
    """polymq with NATS and NSQ, which stores what matches `kept.>`."""

    def __init__(self, folder: Path, **settings: str) -> None:
        super().__init__(POLYMQ, "log", folder, NatsOptions())
        self.nsq = f"127.0.0.1:{free_ports(1)[0]}"
        self.settings = {"nsq.tcp": self.nsq, "nats.capture": "kept.>", **settings}

    def command(self) -> list[str]:
        """What runs it."""
        return [*super().command(), *(word for name, value in self.settings.items() for word in ("--polymq-set", f"{name}={value}"))]


@contextlib.contextmanager
def log_server(folder: Path, **settings: str) -> Iterator[LogServer]:
    server = LogServer(folder, **settings)
    with ending([server]):
        server.start()
        yield server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LogServer]:
    with log_server(tmp_path_factory.mktemp("log")) as started:
        yield started


class Asking:
    """A connection that asks the log."""

    def __init__(self, connection: Connected, answers: Subscription) -> None:
        self.client = connection.client
        self.answers = answers

    async def ask(self, request: str, **fields: object) -> list[Msg]:
        """All that is answered, the last message with a status included."""
        await self.client.publish(f"$POLYMQ.LOG.{request}", json.dumps(fields).encode(), reply=self.answers.subject)
        found: list[Msg] = []
        while not found or (request.startswith("READ") and "Status" not in (found[-1].headers or {})):
            found.append(await self.answers.next_msg(timeout=TIMEOUT_S))
        return found

    async def whole(self, topic: str) -> None:
        """Wait until all that a topic has may be read: after a start it is synced once more where syncs are promised."""
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            (found,) = await self.ask(f"INFO.{topic}")
            rows = json.loads(found.data)["partitions"]
            if all(row["readable"] == row["end"] for row in rows):
                return
            assert time.monotonic() < deadline, rows

    async def bodies(self, topic: str, **fields: object) -> list[bytes]:
        """What a topic has."""
        *found, end = await self.ask(f"READ.{topic}", **{"count": 1 << 40, **fields})
        assert (end.headers or {})["Status"] == "204"
        return [message.data for message in found]


@contextlib.asynccontextmanager
async def asking(server: NatsServer) -> AsyncIterator[Asking]:
    async with connected(server) as connection:
        inbox = connection.client.new_inbox()
        yield Asking(connection, await connection.subscribed(inbox))


def test_what_nats_publishes_is_consumed_by_nsq_and_read_from_the_log(server: LogServer) -> None:
    bodies = [b"%d" % number for number in range(500)]

    async def play() -> None:
        async with connected(server) as one, asking(server) as log:
            live = await one.subscribed("kept.orders")
            await one.client.publish("kept.orders", b"first", headers={"Key": "value"}, reply="answers")
            await one.published("kept.orders", *bodies)
            assert await received(live, 501) == [b"first", *bodies]
            first, _ = await log.ask("READ.kept.orders", count=1)
            assert first.headers is not None
            assert (first.headers["Key"], first.headers["Polymq-Reply"], first.headers["Polymq-Offset"]) == ("value", "answers", "0")
            assert await log.bodies("kept.orders", offset=1) == bodies

    asyncio.run(play())
    with Raw(server.nsq) as consumer:
        consumer.subscribe("kept.orders", "channel", ready=1000)
        assert [message.body for message in consumer.take(501)] == [b"first", *bodies]


def test_what_nsq_publishes_is_heard_by_nats_once(server: LogServer) -> None:
    async def play() -> None:
        async with connected(server) as one:
            exact, wide = await one.subscribed("kept.by.nsq"), await one.subscribed("kept.>")
            group = [await one.subscribed("kept.by.*", queue="group") for _ in range(2)]
            with Raw(server.nsq) as publisher:
                await asyncio.to_thread(publisher.publish, "kept.by.nsq", [b"1", b"2", b"3"])
            await one.published("kept.by.nsq", b"4")
            for subscription in (exact, wide):
                assert await received(subscription, 4) == [b"1", b"2", b"3", b"4"]
            shared: list[bytes] = []
            for member in group:
                with contextlib.suppress(NothingCameError):
                    while True:
                        shared.append((await member.next_msg(timeout=0.1)).data)
            assert sorted(shared) == [b"1", b"2", b"3", b"4"]

    asyncio.run(play())


def test_a_topic_is_followed_while_both_publish(server: LogServer) -> None:
    async def play() -> None:
        async with connected(server) as one, asking(server) as log:
            await one.published("kept.tail", b"0")
            tail = await log.client.subscribe("tail.of.it")
            (begun,) = await log.ask("FOLLOW.kept.tail", offset=0, to="tail.of.it")
            follow = json.loads(begun.data)["follow"]
            with Raw(server.nsq) as publisher:
                for number in range(1, 100, 2):
                    await one.published("kept.tail", b"%d" % number)
                    await asyncio.to_thread(publisher.publish, "kept.tail", [b"%d" % (number + 1)])
            assert await received(tail, 101) == [b"%d" % number for number in range(101)]
            (ended,) = await log.ask("CANCEL", follow=follow)
            assert json.loads(ended.data) == {"follow": follow, "next": 101}

    asyncio.run(play())


def test_a_request_to_a_subject_that_is_only_stored_has_no_responders(server: LogServer) -> None:
    async def play() -> None:
        async with connected(server) as one:
            with pytest.raises(Exception, match="no responders"):
                await one.client.request("kept.question", b"?", timeout=TIMEOUT_S)

    asyncio.run(play())


@pytest.mark.parametrize("durability", ["cache", "fsync"])
def test_kill_9_after_the_pong_loses_nothing(tmp_path: Path, durability: str) -> None:
    """The server is killed while one client publishes: all that was published before a PONG is in the log, and in order."""
    with log_server(tmp_path, **{"store.durability": durability}) as server:

        async def publish() -> int:
            """Publish without a client library: nats-py's `flush` returns at once while it is looking for the server again."""
            confirmed = number = 0
            reader, writer = await asyncio.open_connection("127.0.0.1", server.client_port)
            writer.write(b'CONNECT {"verbose":false,"pedantic":false}\r\n')
            threading.Timer(1.0, server.kill).start()
            with contextlib.suppress(OSError), contextlib.closing(writer):
                while True:
                    for _ in range(100):
                        body = b"%d" % number
                        writer.write(b"PUB kept.%d %d\r\n%b\r\n" % (number % 3, len(body), body))
                        number += 1
                    writer.write(b"PING\r\n")
                    while (line := await reader.readline()) != b"PONG\r\n":
                        if not line:
                            return confirmed
                        assert line.startswith(b"INFO ")
                    confirmed = number
            return confirmed

        async def read() -> list[list[int]]:
            async with asking(server) as log:
                for part in range(3):
                    await log.whole(f"kept.{part}")
                return [[int(body) for body in await log.bodies(f"kept.{part}")] for part in range(3)]

        confirmed = asyncio.run(publish())
        assert confirmed > 0
        server.kill()
        server.start()
        for part, found in enumerate(asyncio.run(read())):
            assert found == [part + 3 * index for index in range(len(found))]
            assert len(found) >= len(range(part, confirmed, 3))


def test_what_cannot_be_stored_is_told_and_the_connection_stays(tmp_path: Path) -> None:
    async def play(server: LogServer) -> Any:
        async with connected(server) as one:
            live = await one.subscribed("kept.>")
            await one.published("kept.1", b"a")
            await one.published("kept.2", b"b")
            await one.published("kept.1", b"c")
            assert await received(live, 3) == [b"a", b"b", b"c"]
            async with asking(server) as log:
                assert await log.bodies("kept.1") == [b"a", b"c"]
            return one.errors

    with log_server(tmp_path, **{"nats.capture_topics_max": "1"}) as server:
        errors = asyncio.run(play(server))
    assert len(errors) == 1
    assert 'permissions violation for publish to "kept.2": not stored' in errors[0].lower()


def test_no_header_that_somebody_publishes_misleads_who_reads_the_log(server: LogServer) -> None:
    """Read as NATS_LOG.md says, by a library that takes the last of several headers and knows a status by its name."""
    own = [{}, {"Polymq-Offset": "999999", "Polymq-Topic": "other"}, {"Status": "200 OK"}, {"A": "b"}]

    async def play() -> None:
        async with connected(server) as one, asking(server) as log:
            for number, headers in enumerate(own):
                await one.client.publish("kept.headers", b"%d" % number, headers=headers)
            await one.client.flush()
            blocks = (b"NATS/1.0 503\r\n\r\n", b"NATS/1.0\r\nno colon\r\n Polymq-Offset: 77\r\n\r\n", b"NATS/1.0\r\nX:  v  \r\n\r\n")
            reader, writer = await asyncio.open_connection("127.0.0.1", server.client_port)
            with contextlib.closing(writer):
                writer.write(b'CONNECT {"verbose":false,"headers":true}\r\n')
                writer.writelines(b"HPUB kept.headers %d %d\r\n%b\r\n" % (len(block), len(block), block) for block in blocks)
                writer.write(b"PING\r\n")
                while await reader.readline() != b"PONG\r\n":
                    pass
            found = await log.ask("READ.kept.headers")
            read = []
            for message in found:
                assert message.headers is not None
                if "Polymq-Offset" not in message.headers:
                    break
                assert message.headers["Polymq-Topic"] == "kept.headers"
                read.append(int(message.headers["Polymq-Offset"]))
            assert read == list(range(7))
            assert (found[2].headers or {})["Polymq-Status"] == "200 OK"
            assert (found[3].headers or {})["A"] == "b"
            for offset in range(7):
                answered = await log.client.request(
                    "$POLYMQ.LOG.READ.kept.headers", b'{"count": 1, "offset": %d}' % offset, timeout=TIMEOUT_S
                )
                assert (answered.headers or {})["Polymq-Offset"] == str(offset)

    asyncio.run(play())


def test_what_is_captured_goes_when_it_is_old(tmp_path: Path) -> None:
    async def play(server: LogServer) -> None:
        async with connected(server) as one, asking(server) as log:
            deadline, start = time.monotonic() + TIMEOUT_S, 0
            while not start:
                await one.published("kept.old", *(bytes(4096) for _ in range(20)))
                (found,) = await log.ask("INFO.kept.old")
                start = json.loads(found.data)["partitions"][0]["start"]
                assert time.monotonic() < deadline, "nothing has gone"
                await asyncio.sleep(0.05)
            (gone,) = await log.ask("READ.kept.old", offset=0)
            assert (gone.headers or {})["Status"] == "416"
            assert json.loads(gone.data)["start"] >= start

    with log_server(tmp_path, **{"nats.capture_age": "1s"}) as server:
        asyncio.run(play(server))


# -- who may do what ---------------------------------------------------------------------------------------------------

USERS = """users: [
    { user: "admin", password: "1" }
    { user: "clerk", password: "1", permissions: {
        publish: ["$POLYMQ.LOG.>", "kept.new"]
        subscribe: ["_INBOX.>"]
    } }
]"""


def secured(folder: Path, options: NatsOptions) -> LogServer:
    server = LogServer(folder)
    server.options = options
    return server


def test_the_log_is_not_sent_where_its_reader_may_not_publish(tmp_path: Path) -> None:
    """A clerk stores an order, and has it read to where commands are taken: nothing comes. In his inbox it does."""

    async def play(server: LogServer) -> None:
        async with connected(server, user="admin", password="1") as admin, connected(server, user="clerk", password="1") as clerk:
            commands = await admin.subscribed("admin.>")
            await clerk.published("kept.new", b"reboot")
            for request in ("READ.kept.new", "FOLLOW.kept.new", "INFO.kept.new", "TOPICS", "READ.nothing"):
                await clerk.client.publish(f"$POLYMQ.LOG.{request}", b"", reply="admin.cmd")
            await clerk.client.flush()
            assert await received(commands, 0) == []
            found = await clerk.client.request("$POLYMQ.LOG.TOPICS", b"", timeout=TIMEOUT_S)
            assert "topics" in json.loads(found.data), "an inbox, to which he may not publish"
            found = await clerk.client.request("$POLYMQ.LOG.FOLLOW.kept.new", b'{"to": "admin.cmd"}', timeout=TIMEOUT_S)
            assert (found.headers or {})["Status"] == "403", "he may not listen to the topic"
            assert await received(commands, 0) == []

    server = secured(tmp_path, NatsOptions(authorization=USERS))
    with ending([server]):
        server.start()
        asyncio.run(play(server))


def test_nobody_ends_what_another_one_follows(server: LogServer) -> None:
    async def play() -> None:
        async with connected(server) as one, asking(server) as log, asking(server) as other:
            await one.published("kept.followed", b"0")
            tail = await log.client.subscribe("followed.tail")
            (begun,) = await log.ask("FOLLOW.kept.followed", offset=0, to="followed.tail")
            follow = json.loads(begun.data)["follow"]
            (refused,) = await other.ask("CANCEL", follow=follow)
            assert (refused.headers or {})["Status"] == "400"
            for guess in map(str, range(20)):
                (refused,) = await other.ask("CANCEL", follow=guess)
                assert (refused.headers or {})["Status"] == "400"
            await one.published("kept.followed", b"1")
            assert await received(tail, 2) == [b"0", b"1"]
            (ended,) = await log.ask("CANCEL", follow=follow)
            assert json.loads(ended.data) == {"follow": follow, "next": 2}

    asyncio.run(play())


ACCOUNTS = """
    OWNER: { users: [{ user: "owner", password: "1" }], exports: [{ service: "$POLYMQ.LOG.>", response_type: "stream" }] }
    GUEST: { users: [{ user: "guest", password: "1" }], imports: [{ service: { account: OWNER, subject: "$POLYMQ.LOG.>" }, to: "log.>" }] }
"""


def test_the_log_of_another_account_is_not_read_by_an_import(tmp_path: Path) -> None:
    async def play(server: LogServer) -> None:
        async with connected(server, user="owner", password="1") as owner, connected(server, user="guest", password="1") as guest:
            await owner.published("kept.x", b"of the owner")
            await guest.published("kept.x", b"of the guest")
            for request in ("TOPICS", "INFO.kept.x", "READ.kept.x"):
                found = await guest.client.request(f"log.{request}", b"", timeout=TIMEOUT_S)
                assert (found.headers or {})["Status"] == "403"
                assert "import" in json.loads(found.data)["message"]
            found = await guest.client.request("$POLYMQ.LOG.INFO.kept.x", b"", timeout=TIMEOUT_S)
            assert json.loads(found.data)["partitions"][0]["readable"] == 1, "its own"

    server = secured(tmp_path, NatsOptions(accounts=ACCOUNTS))
    with ending([server]):
        server.start()
        asyncio.run(play(server))


READERS = """users: [
    {{ user: "admin", password: "1" }}
    {{ user: "reader", password: "1", permissions: {{ publish: ["$POLYMQ.LOG.>", "tail.>"], subscribe: ["_INBOX.>", {}] }} }}
]"""


def test_who_may_not_read_any_more_follows_no_more(tmp_path: Path) -> None:
    """A reload takes a topic from who follows it, to his inbox and to where somebody else listens."""

    async def play(server: LogServer) -> None:
        async with connected(server, user="admin", password="1") as admin, connected(server, user="reader", password="1") as reader:
            theirs, mine = await admin.subscribed("tail.1"), await reader.subscribed(inbox := reader.client.new_inbox())
            await admin.published("kept.secret", b"0")
            for payload in (b'{"offset": 0, "to": "tail.1"}', b'{"offset": 0}'):
                await reader.client.publish("$POLYMQ.LOG.FOLLOW.kept.secret", payload, reply=inbox)
            assert (await theirs.next_msg(timeout=TIMEOUT_S)).data == b"0"
            begun = [await mine.next_msg(timeout=TIMEOUT_S) for _ in range(3)]
            assert [b"follow" in message.data for message in begun].count(True) == 2
            server.options = NatsOptions(authorization=READERS.format('"else"'))
            server.configuration.write_text(server.text(), encoding="utf-8")
            assert server.process is not None
            server.process.send_signal(signal.SIGHUP)
            deadline = time.monotonic() + TIMEOUT_S
            while "reloaded: " not in server.log_text():
                assert time.monotonic() < deadline, server.log_text()
                await asyncio.sleep(0.02)
            await reader.client.flush()
            await admin.published("kept.secret", b"1")
            for subscription in (theirs, mine):
                assert ((await subscription.next_msg(timeout=TIMEOUT_S)).headers or {})["Status"] == "403"
            await admin.published("kept.secret", b"2")
            assert await received(theirs, 0) == await received(mine, 0) == []

    server = secured(tmp_path, NatsOptions(authorization=READERS.format('"kept.>"')))
    with ending([server]):
        server.start()
        asyncio.run(play(server))
