"""A consumer of several servers, in virtual time: who gets which share, when it changes, and what failures do."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from polymq.clients.nsq_opening import NsqOptions
from polymq.clients.nsq_subscriber import HandlerOptions, NsqSubscriber
from polymq.errors import ConnectFailed, DeadlineExceeded, LocalProtocolError, Refusal
from polymq.protocols.nsq import events
from tests.unit.clients.worlds import Server, in_virtual_time

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from polymq.clients.nsq import NsqMessage

# These servers send no heartbeats.
OPTIONS = NsqOptions(deadline_seconds=5, reconnect_seconds_first=0.1, reconnect_seconds_max=0.2, heartbeat_interval_ms=10**7)


def patient_server() -> Server:
    server = Server()
    server.settings = replace(server.settings, heartbeat_interval_ms_max=10**7)
    return server


class Servers:
    """As many servers as are asked for, by their addresses."""

    def __init__(self) -> None:
        self.at: defaultdict[str, Server] = defaultdict(patient_server)

    async def open(self, address: str, factory: Callable[[], asyncio.Protocol]) -> None:
        await self.at[address].open(address, factory)

    def ready(self) -> dict[str, int]:
        """The last RDY of each server that has a connection."""
        return {address: server.took("Ready")[-1][1] for address, server in self.at.items() if server.took("Ready")}


def subscriber(servers: Servers, *addresses: str, **options: Any) -> NsqSubscriber:
    return NsqSubscriber("t", "c", OPTIONS, addresses=addresses, opener=servers.open, random=lambda: 0.5, **options)


async def settle_down() -> None:
    await asyncio.sleep(0.3)


def test_what_is_in_flight_is_divided_and_divided_again() -> None:
    async def go() -> None:
        servers = Servers()
        async with subscriber(servers, "a:1", "b:1", "c:1", max_in_flight=10):
            await settle_down()
            assert sorted(servers.ready().values()) == [3, 3, 4]
            servers.at["b:1"].is_down = True
            servers.at["b:1"].wires[-1].end()
            await settle_down()
            assert (servers.ready()["a:1"], servers.ready()["c:1"]) == (5, 5)
            servers.at["b:1"].is_down = False
            await settle_down()
            assert sorted(servers.ready().values()) == [3, 3, 4]

    in_virtual_time(go())


def test_messages_of_all_servers_come_in_turn() -> None:
    async def go() -> None:
        servers = Servers()
        async with subscriber(servers, "a:1", "b:1") as every:
            await settle_down()
            servers.at["a:1"].deliver(1, 2)
            servers.at["b:1"].deliver(3, 4)
            seen = []
            async for message in every:
                seen.append(message.body)
                message.settle()
                if len(seen) == 4:
                    break
            await settle_down()
            assert sorted(seen) == [b"1", b"2", b"3", b"4"]
            assert [step[1] for step in servers.at["a:1"].took("FIN")] == [1, 2]

    in_virtual_time(go())


def test_with_more_servers_than_messages_places_move() -> None:
    async def go() -> None:
        servers = Servers()
        async with subscriber(servers, "a:1", "b:1", "c:1", max_in_flight=1):
            await settle_down()
            holders = []
            for _ in range(4):
                holders.append([address for address, count in servers.ready().items() if count])
                await asyncio.sleep(5)
            assert all(len(each) == 1 for each in holders)
            assert len({each[0] for each in holders[:3]}) == 3

    in_virtual_time(go())


def test_a_handler_settles_by_returning() -> None:
    async def go() -> None:
        servers = Servers()
        seen: list[bytes] = []

        async def handle(message: NsqMessage) -> None:
            seen.append(message.body)
            if message.body == b"2":
                message.requeue(7)
            await asyncio.sleep(0.01)

        async with subscriber(servers, "a:1") as every:
            task = asyncio.create_task(every.run(handle, concurrency=3))
            servers.at["a:1"].deliver(1, 2, 3)
            await settle_down()
            assert sorted(seen) == [b"1", b"2", b"3"]
            assert sorted(step[1] for step in servers.at["a:1"].took("FIN")) == [1, 3]
            assert servers.at["a:1"].took("Requeue") == [("Requeue", 2, 7)]
            await every.close()
            await task

    in_virtual_time(go())


def test_a_handler_that_fails_stops_everything_for_a_while() -> None:
    async def go() -> None:
        servers = Servers()
        broken = True

        async def handle(_message: NsqMessage) -> None:
            if broken:
                raise ValueError("the database is gone")

        async with subscriber(servers, "a:1", "b:1", max_in_flight=10, handling=HandlerOptions(backoff_seconds_first=1)) as every:
            task = asyncio.create_task(every.run(handle))
            await settle_down()
            assert servers.ready() == {"a:1": 5, "b:1": 5}
            servers.at["a:1"].deliver(1)
            await settle_down()
            assert servers.at["a:1"].took("Requeue") == [("Requeue", 1, 90_000)]
            assert servers.ready() == {"a:1": 0, "b:1": 0}
            await asyncio.sleep(1)
            assert sorted(servers.ready().values()) == [0, 1]
            servers.at["a:1"].deliver(2, attempts=2)
            await settle_down()
            assert servers.at["a:1"].took("Requeue")[-1] == ("Requeue", 2, 180_000)
            broken = False
            for wait in (2, 1):
                assert servers.ready() == {"a:1": 0, "b:1": 0}
                await asyncio.sleep(wait)
                assert sorted(servers.ready().values()) == [0, 1]
                servers.at["a:1"].deliver(3)
                await settle_down()
            assert servers.ready() == {"a:1": 5, "b:1": 5}
            await every.close()
            await task

    in_virtual_time(go())


def failing_then_well() -> Callable[[NsqMessage], Awaitable[None]]:
    async def handle(message: NsqMessage) -> None:
        if message.attempts == 1:
            raise ValueError("the database is gone")

    return handle


def test_after_a_failure_every_server_is_tried_in_its_turn() -> None:
    async def go() -> None:
        servers = Servers()
        names = ["a:1", "b:1", "c:1"]
        async with subscriber(servers, *names, max_in_flight=12) as every:
            task = asyncio.create_task(every.run(failing_then_well()))
            await settle_down()
            servers.at["b:1"].deliver(1)
            await asyncio.sleep(2)
            tried = []
            for _ in range(6):
                tried.append(next(name for name in names if servers.ready()[name]))
                assert sum(servers.ready().values()) == 1
                await asyncio.sleep(5)
            assert tried == ["a:1", "b:1", "c:1"] * 2
            await asyncio.sleep(5)
            assert servers.ready() == {"a:1": 0, "b:1": 1, "c:1": 0}
            servers.at["b:1"].deliver(2, attempts=2)
            await settle_down()
            assert set(servers.ready().values()) == {4}
            await every.close()
            await task

    in_virtual_time(go())


def test_a_trial_stays_where_its_message_is_being_handled() -> None:
    async def go() -> None:
        servers = Servers()
        allowed = asyncio.Event()

        async def handle(message: NsqMessage) -> None:
            await allowed.wait()
            raise ValueError(message.id)

        async with subscriber(servers, "a:1", "b:1", max_in_flight=10) as every:
            task = asyncio.create_task(every.run(handle))
            await settle_down()
            allowed.set()
            servers.at["b:1"].deliver(1)
            await asyncio.sleep(6)
            assert servers.ready() == {"a:1": 0, "b:1": 1}
            allowed.clear()
            servers.at["b:1"].deliver(2)
            await asyncio.sleep(20)
            assert servers.ready() == {"a:1": 0, "b:1": 1}
            allowed.set()
            await settle_down()
            assert servers.ready() == {"a:1": 0, "b:1": 0}  # a wait of 2 s
            await asyncio.sleep(2)
            assert servers.ready() == {"a:1": 0, "b:1": 1}
            await every.close()
            await task

    in_virtual_time(go())


def test_silence_does_not_count_while_nobody_may_send() -> None:
    async def go() -> None:
        servers = Servers()
        handling = HandlerOptions(backoff_seconds_first=21)
        async with subscriber(servers, "a:1", "b:1", max_in_flight=10, handling=handling) as every:
            task = asyncio.create_task(every.run(failing_then_well()))
            await settle_down()
            servers.at["a:1"].deliver(1)
            await asyncio.sleep(22)
            assert servers.ready() == {"a:1": 1, "b:1": 0}
            await every.close()
            await task

    in_virtual_time(go())


def test_a_message_that_fails_too_often_is_given_up() -> None:
    async def go() -> None:
        servers = Servers()

        async def handle(_message: NsqMessage) -> None:
            raise ValueError

        async with subscriber(servers, "a:1") as every:
            task = asyncio.create_task(every.run(handle))
            servers.at["a:1"].deliver(1, attempts=5)
            await settle_down()
            assert [step[1] for step in servers.at["a:1"].took("FIN")] == [1]
            assert every.given_up == 1
            await every.close()
            await task

    in_virtual_time(go())


def test_servers_are_found_and_left() -> None:
    async def go() -> None:
        servers, known, asked = Servers(), {"a:1"}, []

        async def find(address: str, topic: str, **_: object) -> set[str]:
            asked.append((asyncio.get_running_loop().time(), address, topic))
            if not known:
                raise ConnectFailed("nsqlookupd is gone")
            return set(known)

        async with subscriber(servers, lookups=["l:1", "l:2"], find=find) as every:
            assert every.addresses == ["a:1"]
            known.add("b:1")
            await asyncio.sleep(80)
            assert every.addresses == ["a:1", "b:1"]
            known.clear()
            await asyncio.sleep(80)
            assert every.addresses == ["a:1", "b:1"]
            known.add("b:1")
            await asyncio.sleep(80)
            assert every.addresses == ["a:1", "b:1"]  # it is still connected
            servers.at["a:1"].wires[-1].end()
            await settle_down()
            assert every.addresses == ["b:1"]
            await settle_down()
            assert servers.ready()["b:1"] == 200
        # Another one first each time, and the other as well when one fails; soon again when both do.
        assert [each[1] for each in asked] == ["l:1", "l:2", *["l:1", "l:2", "l:2", "l:1"] * 2, "l:1", "l:2", "l:2", "l:1"]
        assert sorted({round(each[0]) for each in asked}) == [0, 69, 138, 139, 141, 145, 153, 169, 238]

    in_virtual_time(go())


def test_the_next_nsqlookupd_is_asked_at_once_when_one_fails_or_knows_nobody() -> None:
    async def go() -> None:
        servers, asked = Servers(), []

        async def find(address: str, _topic: str, **_: object) -> set[str]:
            asked.append(address)
            if address == "l:1":
                raise ConnectFailed("nobody at l:1")
            return {"a:1"} if address == "l:3" else set()

        async with subscriber(servers, lookups=["l:1", "l:2", "l:3"], find=find) as every:
            assert asyncio.get_running_loop().time() == 0
            assert asked == ["l:1", "l:2", "l:3"]
            assert every.addresses == ["a:1"]
            await asyncio.sleep(80)
            assert asked[3:] == ["l:2", "l:3"]

    in_virtual_time(go())


def test_while_no_nsqlookupd_answers_they_are_asked_soon_again() -> None:
    async def go() -> None:
        servers, asked_at = Servers(), []

        async def find(*_: object, **__: object) -> set[str]:
            asked_at.append(asyncio.get_running_loop().time())
            if len(asked_at) < 5:
                raise ConnectFailed("nobody there")
            return {"a:1"}

        async with subscriber(servers, lookups=["l:1"], find=find) as every:
            assert every.addresses == []
            servers.at["a:1"].refusals.clear()
            await asyncio.sleep(20)
            assert every.addresses == ["a:1"]
        assert asked_at == pytest.approx([0, 1, 3, 7, 15])

    in_virtual_time(go())


def test_beginning_ends_when_nobody_waits_for_it_any_more() -> None:
    async def go() -> None:
        servers = Servers()
        servers.at["a:1"].refusals[events.Subscribe] = None
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await subscriber(servers, "a:1").__aenter__()
        assert len(asyncio.all_tasks()) == 1
        assert servers.at["a:1"].wires[-1].ended

    in_virtual_time(go())


def test_a_server_that_is_named_stays_whatever_nsqlookupd_says() -> None:
    async def go() -> None:
        servers = Servers()

        async def find(*_: object, **__: object) -> set[str]:
            return set()

        async with subscriber(servers, "a:1", lookups=["l:1"], find=find) as every:
            servers.at["a:1"].wires[-1].end()
            await settle_down()
            assert every.addresses == ["a:1"]
            assert len(servers.at["a:1"].wires) == 2

    in_virtual_time(go())


def test_one_server_that_refuses_does_not_matter_and_is_asked_again(caplog: pytest.LogCaptureFixture) -> None:
    async def go() -> None:
        servers = Servers()
        servers.at["a:1"].refusals[events.Subscribe] = b"E_SUB_FAILED SUB failed to add to channel - exceeds limit"
        async with subscriber(servers, "a:1", "b:1", max_in_flight=10) as every:
            await asyncio.sleep(1)
            assert servers.ready() == {"b:1": 10}
            assert every.addresses == ["a:1", "b:1"]
            # Longer and longer, but never longer than reconnect_seconds_max.
            assert servers.at["a:1"].attempts_at == pytest.approx([0, 0.1, 0.3, 0.5, 0.7, 0.9], abs=0.01)
            servers.at["a:1"].refusals.clear()
            await settle_down()
            assert servers.ready() == {"a:1": 5, "b:1": 5}
            servers.at["a:1"].deliver(1)
            async for message in every:
                message.settle()
                break

    in_virtual_time(go())
    warnings = [each.message for each in caplog.records if each.levelname == "WARNING"]
    assert warnings[0] == "a:1 refuses, and is asked again in 0.1 s: E_SUB_FAILED SUB failed to add to channel - exceeds limit"


def test_servers_that_refuse_after_they_have_let_us_in_are_asked_again(caplog: pytest.LogCaptureFixture) -> None:
    async def go() -> None:
        servers = Servers()
        async with subscriber(servers, "a:1", "b:1") as every:
            await settle_down()
            for server in servers.at.values():
                server.refusals[events.Subscribe] = b"E_AUTH_FAILED AUTH failed"
                server.wires[-1].end()
            seen: list[bytes] = []

            async def read() -> None:
                async for message in every:
                    seen.append(message.body)
                    message.settle()

            reading = asyncio.create_task(read())
            await asyncio.sleep(2)
            assert not reading.done()
            for server in servers.at.values():
                server.refusals.clear()
            await settle_down()
            servers.at["a:1"].deliver(1)
            servers.at["b:1"].deliver(2)
            await settle_down()
            assert sorted(seen) == [b"1", b"2"]
            await every.close()
            await reading

    in_virtual_time(go())
    assert "a:1 is tried again: E_AUTH_FAILED" in caplog.text


def test_a_protocol_that_breaks_is_begun_again() -> None:
    async def go() -> None:
        servers = Servers()
        async with subscriber(servers, "a:1"):
            await settle_down()
            servers.at["a:1"].wires[-1].refuse(b"E_INVALID RDY count 3 out of range 0-2")
            await settle_down()
            assert len(servers.at["a:1"].wires) == 2
            assert servers.ready() == {"a:1": 200}

    in_virtual_time(go())


def test_what_all_refuse_is_raised() -> None:
    async def go() -> None:
        servers = Servers()
        for address in ("a:1", "b:1"):
            servers.at[address].refusals[events.Subscribe] = b"E_BAD_CHANNEL no"
        with pytest.raises(Refusal, match="E_BAD_CHANNEL"):
            async with subscriber(servers, "a:1", "b:1"):
                pass

        async def find(*_: object, **__: object) -> set[str]:
            return {"a:1", "b:1"}

        async with subscriber(servers, lookups=["l:1"], find=find) as every:
            with pytest.raises(Refusal, match="E_BAD_CHANNEL"):
                await anext(aiter(every))

    in_virtual_time(go())


def test_a_server_that_refuses_is_forgotten_when_nobody_knows_it_any_more() -> None:
    async def go() -> None:
        servers, known = Servers(), {"a:1", "b:1"}
        servers.at["a:1"].refusals[events.Subscribe] = b"E_BAD_CHANNEL no"

        async def find(*_: object, **__: object) -> set[str]:
            return set(known)

        async with subscriber(servers, lookups=["l:1"], find=find) as every:
            await asyncio.sleep(2)
            known.remove("a:1")
            await asyncio.sleep(80)
            attempts = len(servers.at["a:1"].attempts_at)
            assert every.addresses == ["b:1"]
            await asyncio.sleep(5)
            assert len(servers.at["a:1"].attempts_at) == attempts

    in_virtual_time(go())


def test_nobody_there() -> None:
    async def go() -> None:
        servers = Servers()
        servers.at["a:1"].is_down = True
        with pytest.raises(DeadlineExceeded, match="none of a:1 answered within 5 s; last failures: a:1: nobody at a:1"):
            async with subscriber(servers, "a:1"):
                pass

    in_virtual_time(go())
    with pytest.raises(LocalProtocolError, match="HOST:PORT"):
        NsqSubscriber("t", "c", lookups=["l"])
    with pytest.raises(LocalProtocolError, match="topic"):
        NsqSubscriber("not a name", "c", lookups=["l:1"])
    with pytest.raises(LocalProtocolError, match="nobody to consume from"):
        NsqSubscriber("t", "c")
    with pytest.raises(LocalProtocolError, match="max_in_flight"):
        NsqSubscriber("t", "c", addresses=["a:1"], max_in_flight=0)
    with pytest.raises(LocalProtocolError, match="HOST:PORT"):
        NsqSubscriber("t", "c", addresses="a")
    with pytest.raises(LocalProtocolError, match="concurrency"):
        asyncio.run(NsqSubscriber("t", "c", addresses="a:1").run(lambda _: asyncio.sleep(0), concurrency=0))


@pytest.mark.parametrize(
    "options",
    [{"attempts_max": -1}, {"requeue_seconds": -1}, {"backoff_seconds_first": 0}, {"backoff_seconds_first": 9, "backoff_seconds_max": 8}],
)
def test_handler_options_that_make_no_sense(options: dict[str, Any]) -> None:
    with pytest.raises(LocalProtocolError):
        HandlerOptions(**options)


def test_closing_gives_back_what_nobody_has_seen() -> None:
    async def go() -> None:
        servers = Servers()
        async with subscriber(servers, "a:1") as every:
            servers.at["a:1"].deliver(1, 2, 3)
            async for message in every:
                message.settle()
                break
        assert sorted(step[1] for step in servers.at["a:1"].took("Requeue")) == [2, 3]

    in_virtual_time(go())
