"""One small API over the four protocols: the same program with each of them, and what each of them cannot do."""

from __future__ import annotations

import asyncio
import itertools
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

import polymq
from polymq.clients import broker_sync
from polymq.clients.broker import Outgoing
from polymq.clients.nsq import NsqOptions
from polymq.errors import DeadlineExceeded, LocalProtocolError, Refusal, Unsupported
from polymq.testing.server import PolymqServer
from tests.interop.servers import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from polymq.clients.broker import Subscription
    from polymq.clients.broker_messages import BrokerMessage

PROTOCOLS = ("nsq", "nats", "rocketmq", "phpmq")
# Whose consumers share what comes by the name of a group.
GROUPED = ("nsq", "nats", "rocketmq")
PAGE = ROOT / "docs" / "CLIENTS_PYTHON.md"
NUMBERS = itertools.count()
BODIES = [b"x", bytes(range(256)), b"\r\n\r\nPING\r\n", b"b" * 300_000]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PolymqServer]:
    with PolymqServer(tmp_path_factory.mktemp("connect")) as started:
        yield started


@pytest.fixture
def topic() -> str:
    return f"connect{next(NUMBERS)}"


def url(server: PolymqServer, protocol: str) -> str:
    return f"{protocol}://{getattr(server, protocol)}"


def group(protocol: str) -> str:
    return "board" if protocol in GROUPED else ""


async def take(subscription: Subscription, seconds: float = 20.0) -> BrokerMessage:
    async with asyncio.timeout(seconds):
        message = await subscription.next()
    assert message is not None
    return message


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_publish_subscribe_and_settle(server: PolymqServer, topic: str, protocol: str) -> None:
    async def go() -> None:
        async with polymq.connect(url(server, protocol)) as broker:
            async with broker.subscribe(topic, group(protocol)) as subscription:
                await asyncio.gather(*(broker.publish(topic, body) for body in BODIES))
                found = []
                async with asyncio.timeout(20):
                    async for message in subscription:
                        found.append(message.body)
                        if message.time is not None:
                            assert abs(datetime.now(UTC) - message.time) < timedelta(minutes=1)
                        assert message.attempts in (1, None)
                        assert (message.key, message.tags, message.headers) == ("", "", {})
                        await message.done()
                        assert message.is_settled
                        with pytest.raises(LocalProtocolError):
                            await message.retry()
                        if len(found) == len(BODIES):
                            break
                assert sorted(found) == sorted(BODIES)
            # What was settled does not come again, to nobody.
            async with broker.subscribe(topic, group(protocol)) as subscription:
                with pytest.raises(TimeoutError):
                    await take(subscription, 1.0)
                await broker.publish(topic, b"later")  # and a wait that was cancelled has lost nothing
                message = await take(subscription)
                assert message.body == b"later"
                await message.discard()

    asyncio.run(go())


@pytest.mark.parametrize("protocol", ["nsq", "rocketmq", "phpmq"])
def test_a_retry_comes_again(server: PolymqServer, topic: str, protocol: str) -> None:
    async def go() -> None:
        async with polymq.connect(url(server, protocol)) as broker:
            await broker.publish(topic, b"again")
            subscription = broker.subscribe(topic, group(protocol))
            first = await take(subscription)
            await first.retry()
            second = await take(subscription)
            assert second.body == b"again"
            assert second.attempts in (2, None)
            await second.done()

    asyncio.run(go())


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_is_not_settled_comes_again_where_messages_do(server: PolymqServer, topic: str, protocol: str) -> None:
    async def go() -> None:
        async with polymq.connect(url(server, protocol)) as broker:
            async with broker.subscribe(topic, group(protocol)) as subscription:
                await broker.publish(topic, b"once")
                assert (await take(subscription)).body == b"once"
            async with broker.subscribe(topic, group(protocol)) as subscription:
                if protocol == "nats":
                    with pytest.raises(TimeoutError):
                        await take(subscription, 0.5)
                else:
                    message = await take(subscription)
                    assert message.body == b"once"
                    await message.done()

    asyncio.run(go())


def test_what_is_discarded_is_with_the_dead_letters_of_its_group(server: PolymqServer, topic: str) -> None:
    async def go() -> None:
        async with polymq.connect(f"rocketmq://{server.rocketmq}/{topic}-group") as broker:
            await broker.publish(topic, b"bad", key="BA9")
            await (await take(broker.subscribe(topic))).discard()
            message = await take(broker.subscribe(f"%DLQ%{topic}-group", group="undertaker"))
            assert (message.body, message.key) == (b"bad", "BA9")
            await message.done()

    asyncio.run(go())


@pytest.mark.parametrize("protocol", ["nsq", "rocketmq"])
def test_a_delay_is_kept(server: PolymqServer, topic: str, protocol: str) -> None:
    async def go() -> None:
        async with polymq.connect(url(server, protocol)) as broker, broker.subscribe(topic, group(protocol)) as subscription:
            begin = asyncio.get_running_loop().time()
            await broker.publish(topic, b"later", delay=1.5)
            message = await take(subscription)
            assert asyncio.get_running_loop().time() - begin >= 1.4
            await message.done()

    asyncio.run(go())


@pytest.mark.parametrize(
    ("protocol", "given"),
    [
        ("rocketmq", {"key": "BA9", "tags": "delays", "headers": {"gate": "A7", "über": "ä 漢"}}),
        ("nats", {"headers": {"Gate": "A7", "to": "a: b"}}),
    ],
)
def test_fields_come_back_as_they_were(server: PolymqServer, topic: str, protocol: str, given: dict[str, Any]) -> None:
    async def go() -> None:
        async with polymq.connect(url(server, protocol)) as broker, broker.subscribe(topic, group(protocol)) as subscription:
            await broker.publish(topic, b"x", **given)
            message = await take(subscription)
            assert message.headers == given["headers"]
            assert message.key == given.get("key", "")
            assert message.tags == given.get("tags", "")
            await message.done()

    asyncio.run(go())


REFUSED: list[tuple[str, dict[str, Any]]] = [
    *((protocol, {name: value}) for protocol in ("nsq", "phpmq") for name, value in (("key", "k"), ("tags", "t"), ("headers", {"a": "b"}))),
    ("phpmq", {"delay": 1}),
    ("nats", {"key": "k"}),
    ("nats", {"tags": "t"}),
    ("nats", {"delay": 1}),
    ("rocketmq", {"key": "two  blanks"}),
    *((protocol, {"ttl": 1}) for protocol in ("nsq", "nats", "rocketmq")),
    *((protocol, {"order": "o"}) for protocol in ("nsq", "nats", "phpmq")),
]


@pytest.mark.parametrize(("protocol", "given"), REFUSED)
def test_what_a_protocol_cannot_carry_is_refused_before_anything_is_sent(
    server: PolymqServer, topic: str, protocol: str, given: dict[str, Any]
) -> None:
    async def go() -> None:
        async with polymq.connect(url(server, protocol)) as broker, broker.subscribe(topic, group(protocol)) as subscription:
            with pytest.raises(Unsupported, match=r": |, or"):
                await broker.publish(topic, b"x", **given)
            await broker.publish(topic, b"only")
            message = await take(subscription)
            assert message.body == b"only"
            await message.done()

    asyncio.run(go())


def test_retries_that_a_protocol_does_not_have_leave_the_message(server: PolymqServer, topic: str) -> None:
    async def go(protocol: str, delay: float) -> None:
        name = f"{topic}{protocol}"
        async with polymq.connect(url(server, protocol)) as broker, broker.subscribe(name, group(protocol)) as subscription:
            await broker.publish(name, b"x")
            message = await take(subscription)
            with pytest.raises(Unsupported):
                await message.retry(delay)
            assert not message.is_settled
            await message.done()

    asyncio.run(go("nats", 0))
    asyncio.run(go("phpmq", 1))
    asyncio.run(go("rocketmq", 7201))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_groups(server: PolymqServer, topic: str, protocol: str) -> None:
    async def go() -> None:
        async with polymq.connect(url(server, protocol)) as broker:
            if protocol == "phpmq":
                with pytest.raises(Unsupported, match="leave the group out"):
                    broker.subscribe(topic, "board")
            elif protocol != "nats":
                with pytest.raises(LocalProtocolError, match="say which one"):
                    broker.subscribe(topic)
        if protocol in GROUPED:
            async with polymq.connect(f"{url(server, protocol)}/board") as broker, broker.subscribe(topic) as subscription:
                await broker.publish(topic, b"x")
                await (await take(subscription)).done()

    asyncio.run(go())


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_synchronous_face(server: PolymqServer, topic: str, protocol: str) -> None:
    with broker_sync.connect(url(server, protocol)) as broker:
        subscription = broker.subscribe(topic, group(protocol))
        for number in range(3):
            broker.publish(topic, b"%d" % number)
        found = []
        for message in subscription.messages(timeout_seconds=20):
            found.append(message.body)
            message.done()
            assert message.is_settled
            with pytest.raises(LocalProtocolError):
                message.discard()
            if len(found) == 3:
                break
        assert sorted(found) == [b"0", b"1", b"2"]
        assert list(subscription.messages(timeout_seconds=0.3)) == []
        broker.publish(topic, b"more")
        message = next(subscription.messages(timeout_seconds=20))
        assert message.body == b"more"
        message.discard()
        subscription.close()
        assert list(subscription) == []


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_both_find_their_server_again(tmp_path_factory: pytest.TempPathFactory, topic: str, protocol: str) -> None:
    async def go(server: PolymqServer) -> None:
        async with polymq.connect(url(server, protocol)) as broker, broker.subscribe(topic, group(protocol)) as subscription:
            await broker.publish(topic, b"before")
            await (await take(subscription)).done()
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start)
            async with asyncio.timeout(40):
                while True:
                    # At first the connection may not know that it is lost, and with NATS the subscription may not be there.
                    try:
                        await broker.publish(topic, b"after")
                        while (message := await take(subscription, 1.0)).body != b"after":
                            await message.done()
                    except (TimeoutError, polymq.errors.PolyMQError):
                        continue
                    await message.done()
                    break

    with PolymqServer(tmp_path_factory.mktemp("killed")) as server:
        asyncio.run(go(server))


def test_who_may_not_is_told_with_nats(tmp_path: Path) -> None:
    users = tmp_path / "users.conf"
    users.write_text('authorization { users = [ { user: ann, password: "s:/@", permissions: { publish: "ok.>", subscribe: ["ok.>"] } } ] }')

    async def go(address: str) -> None:
        for login in ("", "ann:wrong@"):
            with pytest.raises(Refusal):
                async with polymq.connect(f"nats://{login}{address}"):
                    pass
        async with polymq.connect(f"nats://ann:s%3A%2F%40@{address}") as broker:
            with pytest.raises(Refusal):
                await broker.publish("no", b"x")
            with pytest.raises(Refusal):
                await take(broker.subscribe("no"))
            async with broker.subscribe("ok.*") as subscription:
                results = await asyncio.gather(*(broker.publish(each, b"x") for each in ("ok.1", "no", "ok.2")), return_exceptions=True)
                assert [isinstance(each, Refusal) for each in results] == [False, True, False]
                await take(subscription)
                await take(subscription)
            with pytest.raises(LocalProtocolError, match="at most"):
                await broker.publish("ok.1", bytes(2 * 1024 * 1024))

    with PolymqServer(tmp_path / "server", {"nats.config": users}) as server:
        asyncio.run(go(server.nats))


def test_nobody_there(server: PolymqServer) -> None:
    async def go() -> None:
        async with polymq.connect("nsq://127.0.0.1:1", NsqOptions(deadline_seconds=0.3)):
            pass

    with pytest.raises(DeadlineExceeded):
        asyncio.run(go())


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_many_at_a_time(server: PolymqServer, topic: str, protocol: str) -> None:
    bodies = [b"%d" % number for number in range(2500)]

    async def go() -> None:
        async with polymq.connect(url(server, protocol)) as broker:
            async with broker.subscribe(topic, group(protocol), window=5000) as subscription:
                await broker.publish_many(topic, bodies)
                found: list[bytes] = []
                while len(found) < len(bodies):
                    async with asyncio.timeout(20):
                        messages = await subscription.take()
                    assert messages
                    for message in messages:
                        assert message.is_current
                        found.append(message.body)
                        await message.done()
                        assert not message.is_current
                assert sorted(found) == sorted(bodies)
                if protocol in ("nats", "phpmq"):
                    assert found == bodies
            with pytest.raises(LocalProtocolError, match="bytes, not"):
                await broker.publish_many(topic, ["text"])  # type: ignore[list-item]

    asyncio.run(go())


def test_each_of_many_has_its_outcome(server: PolymqServer, topic: str) -> None:
    async def go() -> None:
        large = bytes(9 * 1024 * 1024)
        async with polymq.connect(f"nsq://{server.nsq}") as broker:
            sent = [Outgoing(topic, b"1"), Outgoing(topic, large), Outgoing(topic, b"2", tags="t"), Outgoing(topic, b"3", delay=0.01)]
            outcomes = await broker.publish_each(sent)
            assert [None if each is None else type(each) for each in outcomes] == [None, Refusal, Unsupported, None]
            with pytest.raises(Refusal):
                await broker.publish_many(topic, [large, b"x"])
        async with polymq.connect(f"nats://{server.nats}") as broker:
            outcomes = await broker.publish_each([Outgoing(topic, b"1"), Outgoing("a b", b"2"), Outgoing(topic, large)])
            assert [None if each is None else type(each) for each in outcomes] == [None, LocalProtocolError, LocalProtocolError]

    asyncio.run(go())


def test_an_order_is_kept_by_rocketmq(server: PolymqServer, topic: str) -> None:
    async def go() -> None:
        sent = [Outgoing(topic, b"%d" % number, order=("a", "b", 1)[number % 3]) for number in range(300)]
        async with polymq.connect(f"rocketmq://{server.rocketmq}/{topic}") as broker:
            assert await broker.publish_each(sent) == [None] * 300
            found: dict[object, list[int]] = {"a": [], "b": [], 1: []}
            async with broker.subscribe(topic) as subscription:
                while sum(map(len, found.values())) < 300:
                    message = await take(subscription)
                    found[message.order].append(int(message.body))
                    await message.done()
            assert found == {"a": list(range(0, 300, 3)), "b": list(range(1, 300, 3)), 1: list(range(2, 300, 3))}

    asyncio.run(go())


def test_a_group_of_rocketmq_begins_where_it_is_told(server: PolymqServer, topic: str) -> None:
    async def go() -> None:
        async with polymq.connect(f"rocketmq://{server.rocketmq}") as broker:
            await broker.publish(topic, b"old")
            begins: list[str | datetime] = ["first", datetime.now(UTC) - timedelta(minutes=1)]
            for number, begin in enumerate(begins):
                async with broker.subscribe(topic, f"{topic}-{number}", begin=begin) as subscription:
                    assert (await take(subscription)).body == b"old"
        for other in ("nsq", "nats", "phpmq"):
            async with polymq.connect(url(server, other)) as broker:
                with pytest.raises(Unsupported, match="begin"):
                    broker.subscribe(topic, group(other), begin="first")

    asyncio.run(go())


def test_a_ttl_comes_with_the_message(server: PolymqServer, topic: str) -> None:
    async def go() -> None:
        async with polymq.connect(f"phpmq://{server.phpmq}") as broker, broker.subscribe(topic) as subscription:
            await broker.publish(topic, b"x", ttl=60.5)
            message = await take(subscription)
            assert message.ttl is not None
            assert 50 <= message.ttl <= 61
            await message.done()
            await broker.publish(topic, b"x")
            assert (await take(subscription)).ttl is None

    asyncio.run(go())


def test_many_at_a_time_for_scripts(server: PolymqServer, topic: str) -> None:
    with broker_sync.connect(f"nsq://{server.nsq}") as broker:
        subscription = broker.subscribe(topic, "board")
        broker.publish_many(topic, [b"1", b"2"])
        assert broker.publish_each([Outgoing(topic, b"3")]) == [None]
        found = []
        for message in subscription.messages(timeout_seconds=20):
            found.append(message.body)
            message.done()
            if len(found) == 3:
                break
        assert sorted(found) == [b"1", b"2", b"3"]


def test_the_examples_of_the_page(server: PolymqServer) -> None:
    text = PAGE.read_text().partition("\n# One API for all four\n")[2].partition("\n# ")[0]
    first, many, second = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    program = subprocess.Popen(
        [sys.executable, "-u", "-c", first.replace("127.0.0.1:4150", server.nsq)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert program.stdout is not None
        assert program.stdout.readline() == "BA9 boards 1\n"
    finally:
        program.terminate()
        program.communicate(timeout=20)
    done = subprocess.run(
        [sys.executable, "-c", second.replace("127.0.0.1:9100", server.phpmq)], capture_output=True, text=True, check=True, timeout=30
    )
    assert done.stdout == "UA2 at A7\nno more\n"
    done = subprocess.run(
        [sys.executable, "-c", many.replace("127.0.0.1:9876", server.rocketmq)], capture_output=True, text=True, check=True, timeout=30
    )
    assert done.stdout == "['RocketMQ has no messages without a body: send one byte']\nall of them\n"


def test_importing_polymq_imports_no_client() -> None:
    program = "import sys, polymq; print([each for each in sys.modules if each.startswith(('polymq.', 'asyncio', 'ssl'))])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
