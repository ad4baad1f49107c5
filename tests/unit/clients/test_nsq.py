from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from polymq.clients.nsq import NsqConsumer, NsqOptions, NsqProducer
from polymq.errors import ConnectionLost, DeadlineExceeded, LocalProtocolError, Refusal, RefusalCode, RemoteProtocolError
from polymq.protocols.nsq import encode, events
from tests.unit.clients.worlds import Server, encode_message, in_virtual_time

OPTIONS = NsqOptions(deadline_seconds=5, reconnect_seconds_first=1.0, reconnect_seconds_max=4.0)


def producer(server: Server, options: NsqOptions = OPTIONS) -> NsqProducer:
    return NsqProducer("x:1", options, opener=server.open, random=lambda: 0.5)


def consumer(server: Server, max_in_flight: int = 100, options: NsqOptions = OPTIONS) -> NsqConsumer:
    return NsqConsumer("x:1", "t", "c", options, max_in_flight=max_in_flight, opener=server.open, random=lambda: 0.5)


# --- Producers --------------------------------------------------------------------------------------------------------


def test_publishing() -> None:
    async def go() -> None:
        server = Server()
        async with producer(server) as client:
            await client.publish("t", b"one")
            await client.publish("t", b"later", delay_ms=70)
            await client.publish_many("t", [b"a", b"b"])
            await asyncio.gather(*(client.publish("u", b"%d" % number) for number in range(2000)))
        assert server.steps[1:4] == [("PUB", b"t", b"one"), ("DPUB", b"t", 70, (b"later",)), ("MPUB", b"t", 0, (b"a", b"b"))]
        assert server.steps[4:] == [("PUB", b"u", b"%d" % number) for number in range(2000)]
        assert len(server.wires) == 1

    in_virtual_time(go())


def test_a_bounded_number_waits_for_answers() -> None:
    async def go() -> None:
        server = Server()
        async with producer(server) as client:
            server.refusals[events.Publish] = None
            tasks = [asyncio.create_task(client.publish("t", b"x")) for _ in range(1500)]
            await asyncio.sleep(0.1)
            assert len(server.took("PUB")) == 1000
            server.wires[0].reply(encode.ok_frames(1000))
            await asyncio.sleep(0.1)
            server.wires[0].reply(encode.ok_frames(500))
            await asyncio.gather(*tasks)

    in_virtual_time(go())


def test_a_lost_answer_is_told_and_not_repeated_and_the_next_publish_reconnects() -> None:
    async def go() -> None:
        server = Server()
        async with producer(server) as client:
            server.refusals[events.Publish] = None
            lost = asyncio.create_task(client.publish("t", b"x"))
            await asyncio.sleep(0.1)
            server.wires[0].end()
            with pytest.raises(ConnectionLost):
                await lost
            server.refusals.clear()
            await client.publish("t", b"y")
        assert server.took("PUB") == [("PUB", b"t", b"x"), ("PUB", b"t", b"y")]
        assert len(server.wires) == 2

    in_virtual_time(go())


def test_attempts_to_connect_back_off_until_the_deadline() -> None:
    async def go() -> None:
        server = Server()
        server.is_down = True
        with pytest.raises(DeadlineExceeded, match="nobody at x:1"):
            await producer(server, NsqOptions(deadline_seconds=12, reconnect_seconds_first=1, reconnect_seconds_max=4)).__aenter__()
        assert server.attempts_at == [0, 1, 3, 7, 11]

    in_virtual_time(go())


def test_a_publish_that_is_not_answered_in_time() -> None:
    async def go() -> None:
        server = Server()
        async with producer(server) as client:
            server.refusals[events.Publish] = None
            with pytest.raises(DeadlineExceeded):
                await client.publish("t", b"x")
            # Its answer, when it comes, is not taken for that of the next.
            server.refusals.clear()
            server.wires[0].reply(encode.response_frame(b"late"))
            await client.publish("t", b"y")
            assert server.wires[0].ended
            assert len(server.wires) == 2

    in_virtual_time(go())


def test_a_server_that_never_answers_is_owed_nothing_for_ever() -> None:
    async def go() -> None:
        server = Server()
        async with producer(server) as client:
            server.refusals[events.Publish] = None
            for _ in range(5):
                results = await asyncio.gather(*(client.publish("t", b"x") for _ in range(3)), return_exceptions=True)
                assert any(isinstance(result, DeadlineExceeded) for result in results)
                assert client._connection is not None
                assert not client._connection.is_open
                await asyncio.sleep(0)
                assert not client._connection._waiting

    in_virtual_time(go())


def test_messages_that_waited_here_for_longer_than_the_server_waits_are_dropped() -> None:
    async def go() -> None:
        server = Server()
        options = NsqOptions(deadline_seconds=5, message_timeout_ms=2000)
        async with consumer(server, options=options) as client:
            server.deliver(1, 2)
            await asyncio.sleep(1.5)
            server.deliver(3, 4)
            await asyncio.sleep(1)
            found = []
            async for message in client:
                found.append(message.body)
                if message.body == b"3":
                    # 4 gets old in the hands of the iterator.
                    message.settle()
                    await asyncio.sleep(2)
                    server.deliver(1, 4, attempts=2)
                    await asyncio.sleep(0.1)
                elif message.body == b"4":
                    break
            assert found == [b"3", b"1", b"4"]
            assert client.expired == 3
            assert client._in_hand == 2

    in_virtual_time(go())


def test_what_nobody_takes_does_not_pile_up() -> None:
    async def go() -> None:
        server = Server()
        async with consumer(server, options=NsqOptions(deadline_seconds=5, message_timeout_ms=1000)) as client:
            for _ in range(50):
                server.deliver(1, 2)
                await asyncio.sleep(0.6)
            assert len(client._waiting) <= 2
            server.deliver(3)
            await asyncio.sleep(0.6)
            assert await take(client, 1) == [b"3"]
            assert client.expired == 100

    in_virtual_time(go())


def test_beginning_ends_when_nobody_waits_for_it_any_more() -> None:
    async def go() -> None:
        server = Server()
        server.refusals[events.Subscribe] = None
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await consumer(server).__aenter__()
        await asyncio.sleep(0)
        assert server.wires[0].ended
        assert len(asyncio.all_tasks()) == 1

    in_virtual_time(go())


def test_closing_ends_also_when_nobody_waits_for_it_any_more() -> None:
    async def go() -> None:
        server = Server()
        client = consumer(server)
        await client.__aenter__()
        server.deliver(1)
        await anext(client.batches())
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await client.close(grace_seconds=60)
        assert server.wires[0].ended
        assert len(asyncio.all_tasks()) == 1

    in_virtual_time(go())


def test_refused_and_odd_answers() -> None:
    async def go() -> None:
        server = Server()
        async with producer(server) as client:
            server.refusals[events.Publish] = b"E_PUB_FAILED PUB failed exiting"
            with pytest.raises(Refusal) as raised:
                await client.publish("t", b"x")
            assert raised.value.code is RefusalCode.SHUTTING_DOWN
            server.refusals[events.Publish] = None
            odd = asyncio.create_task(client.publish("t", b"x"))
            await asyncio.sleep(0.1)
            server.wires[-1].reply(encode.response_frame(b"what?"))
            with pytest.raises(RemoteProtocolError):
                await odd

    in_virtual_time(go())


def test_a_closed_producer() -> None:
    async def go() -> None:
        client = producer(Server())
        await client.close()
        with pytest.raises(ConnectionLost, match="closed"):
            await client.publish("t", b"x")

    in_virtual_time(go())


def test_closing_while_connecting_leaves_no_connection() -> None:
    async def go() -> None:
        server = Server()
        server.is_down = True
        client = producer(server)
        publishing = asyncio.create_task(client.publish("t", b"x"))
        await asyncio.sleep(0.1)
        await client.close()
        server.is_down = False
        with pytest.raises(ConnectionLost, match="closed"):
            await publishing
        assert server.wires[0].ended
        assert server.took("PUB") == []

    in_virtual_time(go())


# --- Consumers --------------------------------------------------------------------------------------------------------


async def take(client: NsqConsumer, count: int) -> list[bytes]:
    bodies = []
    async for message in client:
        bodies.append(message.body)
        message.settle()
        if len(bodies) == count:
            break
    return bodies


def test_consuming_settles_in_one_write() -> None:
    async def go() -> None:
        server = Server()
        async with consumer(server, 7) as client:
            await asyncio.sleep(0.1)
            assert server.took("Subscribe", "Ready") == [("Subscribe", b"t", b"c"), ("Ready", 7)]
            server.deliver(*range(50))
            before = len(server.wires[0].writes)
            assert await take(client, 50) == [b"%d" % number for number in range(50)]
            await client.flush()
            assert server.took("FIN") == [("FIN", number) for number in range(50)]
            assert len(server.wires[0].writes) == before + 1
            assert client.failures == 0

    in_virtual_time(go())


def test_ready_is_what_the_server_allows() -> None:
    async def go() -> None:
        server = Server()
        async with consumer(server, 100_000):
            await asyncio.sleep(0.1)
            assert server.took("Ready") == [("Ready", 2500)]

    in_virtual_time(go())
    with pytest.raises(LocalProtocolError):
        NsqConsumer("x:1", "t", "c", max_in_flight=0)
    with pytest.raises(LocalProtocolError):
        NsqConsumer("x:1", "t!", "c")


def test_leaving_the_loop_loses_nothing() -> None:
    async def go() -> None:
        server = Server()
        async with consumer(server) as client:
            server.deliver(1, 2, 3)
            assert await take(client, 1) == [b"1"]
            assert await take(client, 2) == [b"2", b"3"]

    in_virtual_time(go())


def test_closing_gives_back_what_nobody_has_looked_at() -> None:
    async def go() -> None:
        server = Server()
        async with consumer(server) as client:
            server.deliver(1, 2, 3)
            assert await take(client, 1) == [b"1"]
            server.deliver(4, 5)
            await asyncio.sleep(0.1)
        assert sorted(server.took("FIN", "Requeue")) == [
            ("FIN", 1),
            ("Requeue", 2, 0),
            ("Requeue", 3, 0),
            ("Requeue", 4, 0),
            ("Requeue", 5, 0),
        ]
        assert server.took("Cls") == [("Cls",)]
        assert [message async for message in client] == []
        await client.close()

    in_virtual_time(go())


def test_closing_with_grace_waits_for_what_is_in_hand() -> None:
    async def go() -> None:
        server = Server()
        client = consumer(server)
        await client.__aenter__()
        server.deliver(1)
        batch = await anext(client.batches())
        closing = asyncio.create_task(client.close(grace_seconds=10))
        await asyncio.sleep(3)
        assert not closing.done()
        batch.settle()
        await closing
        assert server.took("Cls", "FIN") == [("Cls",), ("FIN", 1)]

    in_virtual_time(go())


def test_a_lost_connection_is_replaced_and_its_messages_are_forgotten() -> None:
    async def go() -> None:
        server = Server()
        async with consumer(server) as client:
            server.deliver(1, 2)
            in_hand = await anext(aiter(client))
            server.wires[0].end()
            await asyncio.sleep(2)
            in_hand.settle()
            assert not in_hand.is_current
            server.deliver(2, 3)
            assert await take(client, 2) == [b"2", b"3"]
            await client.flush()
            assert server.took("FIN") == [("FIN", 2), ("FIN", 3)]
            assert len(server.took("Subscribe")) == 2

    in_virtual_time(go())


def test_consumers_back_off_too() -> None:
    async def go() -> None:
        server = Server()
        server.refusals[events.Subscribe] = b"E_SUB_FAILED SUB failed exiting"
        with pytest.raises(DeadlineExceeded):
            await consumer(server, options=NsqOptions(deadline_seconds=12, reconnect_seconds_first=1, reconnect_seconds_max=4)).__aenter__()
        assert server.attempts_at == [0, 1, 3, 7, 11]

    in_virtual_time(go())


@pytest.mark.parametrize(
    ("text", "kind"),
    [(b'E_BAD_CHANNEL SUB channel name "c" is not valid', Refusal), (b"E_INVALID cannot SUB with heartbeats disabled", LocalProtocolError)],
)
def test_a_refused_subscription_is_raised(text: bytes, kind: type[Exception]) -> None:
    async def go() -> None:
        server = Server()
        server.refusals[events.Subscribe] = text
        with pytest.raises(kind):
            await consumer(server).__aenter__()

    in_virtual_time(go())


def test_a_refusal_passes_for_who_was_let_in_once(caplog: pytest.LogCaptureFixture) -> None:
    async def go() -> None:
        server = Server()
        async with consumer(server) as client:
            server.refusals[events.Subscribe] = b"E_AUTH_FAILED AUTH failed"
            server.wires[0].end()
            await asyncio.sleep(6)
            server.refusals.clear()
            await asyncio.sleep(6)
            server.deliver(1)
            assert await take(client, 1) == [b"1"]

    in_virtual_time(go())
    assert "x:1 is tried again: E_AUTH_FAILED" in caplog.text


def test_a_server_that_is_gone_and_comes_back_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    async def go() -> None:
        server = Server()
        async with consumer(server):
            server.is_down = True
            server.wires[0].end()
            await asyncio.sleep(60)
            assert [each.message for each in caplog.records if each.name == "polymq.clients.nsq" and each.levelname != "DEBUG"] == [
                "x:1 is tried again: the server closed the connection",
                "x:1 is tried again: x:1: nobody at x:1",
            ]
            server.is_down = False
            await asyncio.sleep(10)

    with caplog.at_level("INFO"):
        in_virtual_time(go())
    assert caplog.records[-1].message == "x:1 is there again"


def test_what_breaks_later_reaches_who_iterates() -> None:
    async def go() -> None:
        server = Server()
        async with consumer(server) as client:
            server.wires[0].refuse(b"E_INVALID RDY count 3 out of range 0-2")
            with pytest.raises(LocalProtocolError, match="out of range"):
                await take(client, 1)

    in_virtual_time(go())


def test_a_settle_that_came_too_late_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    async def go() -> None:
        server = Server()
        async with consumer(server) as client:
            server.wires[0].reply(encode.error_frame(b"E_FIN_FAILED FIN 0123456789abcdef failed ID not in flight"))
            await client.flush()
            assert client.failures == 1
        with pytest.raises(ConnectionLost):
            await client.flush()

    in_virtual_time(go())
    assert "ID not in flight" in caplog.text


def test_only_the_first_of_many_failures_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    async def go() -> None:
        server = Server()
        async with consumer(server) as client:
            server.wires[0].reply(encode.error_frame(b"E_FIN_FAILED FIN x failed ID not in flight") * 5)
            await client.flush()
            assert client.failures == 5

    in_virtual_time(go())
    assert [record.levelname for record in caplog.records if "not in flight" in record.message].count("WARNING") == 1


def test_a_subscription_without_an_answer() -> None:
    async def go() -> None:
        server = Server()
        server.refusals[events.Subscribe] = None
        client = consumer(server)
        with pytest.raises(DeadlineExceeded):
            await client.__aenter__()
        assert server.wires[0].ended

    in_virtual_time(go())


def test_a_subscription_that_is_not_answered_again_is_tried_again() -> None:
    async def go() -> None:
        server = Server()
        async with consumer(server) as client:
            server.refusals[events.Subscribe] = None
            server.wires[0].end()
            await asyncio.sleep(4)
            server.refusals.clear()
            await asyncio.sleep(10)
            server.deliver(1)
            assert await take(client, 1) == [b"1"]
            assert len(server.wires) == 3

    in_virtual_time(go())


def test_two_publishes_at_once_share_one_new_connection() -> None:
    async def go() -> None:
        server = Server()
        client = producer(server)
        await asyncio.gather(client.publish("t", b"x"), client.publish("t", b"y"))
        assert len(server.wires) == 1
        await client.close()

    in_virtual_time(go())


def test_closing_does_not_wait_for_a_server_that_takes_nothing() -> None:
    async def go() -> None:
        server = Server()
        client = producer(server)
        await client.publish("t", b"x")
        server.wires[0].close = lambda: None  # type: ignore[method-assign]  # a socket whose buffer never empties
        await client.close()
        assert server.wires[0].ended

    in_virtual_time(go())


def test_grace_ends() -> None:
    async def go() -> None:
        server = Server()
        client = consumer(server)
        await client.__aenter__()
        server.deliver(1)
        await anext(client.batches())
        before = asyncio.get_running_loop().time()
        await client.close(grace_seconds=3)
        assert asyncio.get_running_loop().time() - before == pytest.approx(3, abs=0.1)
        assert server.took("FIN") == []

    in_virtual_time(go())


def test_closing_while_connecting() -> None:
    async def go() -> None:
        server = Server()
        async with consumer(server) as client:
            server.is_down = True
            server.wires[0].end()
            await asyncio.sleep(10)
        assert [message async for message in client] == []
        with pytest.raises(ConnectionLost):
            await client.flush()

    in_virtual_time(go())


def test_a_fault_of_the_client_reaches_who_iterates(caplog: pytest.LogCaptureFixture) -> None:
    async def go() -> None:
        server = Server()
        async with consumer(server) as client:
            server.is_down = True

            def bug() -> float:
                raise ZeroDivisionError

            client._link.backoff.next_seconds = bug  # type: ignore[method-assign]  # there is no other way to have one
            server.wires[0].end()
            with pytest.raises(ConnectionLost, match="ZeroDivisionError"):
                await take(client, 1)

    in_virtual_time(go())
    assert "consuming has stopped" in caplog.text


def test_not_connected_yet() -> None:
    async def go() -> None:
        with pytest.raises(ConnectionLost, match="not connected"):
            await consumer(Server()).flush()

    in_virtual_time(go())


def test_a_flush_without_an_answer() -> None:
    async def go() -> None:
        server = Server()
        async with consumer(server) as client:
            server.refusals[events.ForeignId] = None
            with pytest.raises(DeadlineExceeded, match="settling"):
                await client.flush()

    in_virtual_time(go())


@pytest.mark.parametrize("compression", ["", "deflate"])
def test_a_server_that_sends_far_more_than_it_may_is_not_read_until_somebody_takes(compression: str) -> None:
    async def go() -> None:
        server = Server()
        async with consumer(server, 10, replace(OPTIONS, deflate=bool(compression), message_timeout_ms=900_000)) as client:
            wire = server.wires[0]
            body = bytes(64 * 1024)  # a piece for each message
            for first in range(1, 101, 5):
                wire.reply(b"".join(encode_message(number, body) for number in range(first, first + 5)))
            wire.reply(encode.HEARTBEAT_FRAME)
            await asyncio.sleep(200)  # it is we who are silent
            assert wire.paused
            assert 20 < client.received <= 25
            assert server.took("Nop") == []
            seen = 0
            async for batch in client.batches():
                seen += len(batch)
                batch.settle()
                if seen == 100:
                    break
            await asyncio.sleep(0.1)
            assert not wire.paused
            assert server.took("Nop") == [("Nop",)]
            assert len(server.wires) == 1

    in_virtual_time(go())
