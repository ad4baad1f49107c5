"""A bridge settles what the target has acknowledged and nothing else, in order, whatever fails in between."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from polymq.clients import bridge as bridge_module
from polymq.clients.bridge import Bridge, BridgeOptions, MessageRefused
from polymq.clients.bridge_ends import Tally
from polymq.errors import (
    ConnectFailed,
    ConnectionLost,
    DeadlineExceeded,
    LocalProtocolError,
    PolyMQError,
    Refusal,
    RefusalCode,
    RemoteProtocolError,
)
from tests.unit.clients.bridge_fakes import FakeSource, FakeTarget

BODIES = [b"%d" % number for number in range(10)]


@pytest.fixture(autouse=True)
def _without_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bridge_module, "_BACKOFF_SECONDS_FIRST", 1e-9)
    monkeypatch.setattr(bridge_module, "_BACKOFF_SECONDS_MAX", 1e-9)
    monkeypatch.setattr(bridge_module, "_GRACE_SECONDS", 1e-3)


def made(source: FakeSource, target: FakeTarget, **options: Any) -> Bridge:
    notes: list[str] = []
    return Bridge(source, target, Tally(), BridgeOptions(**options), note=notes.append, clock_ns=lambda: 100)


def run(source: FakeSource, target: FakeTarget, **options: Any) -> Tally:
    bridge = made(source, target, **options)

    async def go() -> None:
        async with asyncio.timeout(20):
            await bridge.run()

    asyncio.run(go())
    assert source.is_closed
    assert target.is_closed
    return bridge.tally


def test_everything_is_moved_settled_and_kept() -> None:
    source, target = FakeSource(BODIES), FakeTarget()
    tally = run(source, target)
    assert target.got == source.settled == BODIES
    assert (tally.moved, tally.size_bytes, tally.again, tally.is_whole) == (10, 10, 0, True)
    assert source.kept[-1] == (10, True)


@pytest.mark.parametrize("error", [ConnectionLost("l"), DeadlineExceeded("d"), Refusal(RefusalCode.STORE_FULL)])
def test_what_is_not_acknowledged_is_sent_again_from_there_on(error: PolyMQError) -> None:
    # The target has the sixth, and only its answer was lost; what came behind it is sent again as well, so the order stays.
    source = FakeSource(BODIES, batch=10)
    target = FakeTarget(lambda number, body: error if number < 2 and body == b"5" else None)
    tally = run(source, target)
    assert target.attempts == [BODIES, BODIES[5:], BODIES[5:]]
    assert source.settled == BODIES
    assert (tally.moved, tally.again) == (10, 5)


def test_what_the_target_sends_twice_by_itself_is_counted_once() -> None:
    """Where it looks for the one that a server refuses; and once more because of a loss."""
    source = FakeSource(BODIES, batch=10)
    target = FakeTarget(lambda number, body: ConnectionLost("l") if number == 0 and body == b"5" else None)
    target.repeated = {0, 1}
    tally = run(source, target)
    assert target.attempts == [BODIES, BODIES[5:]]
    # 0 and 1 of the first attempt, and everything from 5 on, of which the second one has 5 and 6 twice.
    assert tally.again == 2 + 5


def test_a_crash_between_publish_and_settle_loses_nothing() -> None:
    class Crash(BaseException):
        pass

    class Dying(FakeSource):
        async def settle(self, messages: Any) -> None:
            raise Crash

    source, target = Dying(BODIES), FakeTarget()

    async def go() -> None:
        await made(source, target).run()

    with pytest.raises(Crash):
        asyncio.run(go())
    assert target.got
    assert source.settled == []  # so the next run, with the cursor as it was, moves them again
    again = FakeSource(BODIES)
    run(again, target)
    assert set(target.got) == set(BODIES)
    assert again.settled == BODIES


def test_a_refused_message_ends_it_behind_what_came_before() -> None:
    source = FakeSource(BODIES, batch=10)
    target = FakeTarget(lambda _number, body: LocalProtocolError("too large") if body == b"4" else None)
    with pytest.raises(MessageRefused, match=r"1 bytes: too large(.|\n)*--skip-refused"):
        run(source, target)
    assert source.settled == BODIES[:4]
    assert source.kept[-1] == (4, True)


def test_refused_messages_are_left_out_and_counted_when_that_is_wanted() -> None:
    source = FakeSource(BODIES, batch=10)
    target = FakeTarget(lambda _number, body: Refusal(RefusalCode.BATCH_TOO_LARGE) if body in b"4" else None)
    tally = run(source, target, skips_refused=True)
    assert target.got == [each for each in BODIES if each != b"4"]
    assert source.settled == BODIES
    assert (tally.moved, tally.skipped, tally.is_whole) == (9, 1, False)


def test_refusing_everything_is_not_about_single_messages() -> None:
    source = FakeSource([b"x"] * 500, batch=500)
    with pytest.raises(MessageRefused, match="first 100 messages"):
        run(source, FakeTarget(lambda _number, _body: LocalProtocolError("never")), skips_refused=True)
    assert len(source.settled) == 100


@pytest.mark.parametrize("error", [Refusal(RefusalCode.FORBIDDEN), Refusal(RefusalCode.TOPIC_NOT_FOUND), RemoteProtocolError("odd")])
def test_what_is_about_all_messages_ends_it_at_once(error: PolyMQError) -> None:
    source = FakeSource(BODIES)
    with pytest.raises(type(error)):
        run(source, FakeTarget(lambda _number, _body: error), skips_refused=True)
    assert source.settled == []


def test_a_topic_that_was_there_before_will_be_there_again() -> None:
    target = FakeTarget(lambda number, _body: Refusal(RefusalCode.TOPIC_NOT_FOUND) if number == 1 else None)
    source = FakeSource(BODIES, batch=4)
    assert run(source, target, held_messages_max=1).moved == 10
    assert source.settled == BODIES


def test_patience_has_an_end_when_that_is_wanted() -> None:
    times = iter(range(1000))
    source = FakeSource(BODIES)
    bridge = Bridge(
        source,
        FakeTarget(lambda _number, _body: ConnectFailed("away")),
        Tally(),
        BridgeOptions(patience_seconds=3),
        note=lambda _text: None,
        monotonic=lambda: next(times),
    )
    with pytest.raises(ConnectFailed):
        asyncio.run(bridge.run())
    assert source.settled == []
    assert source.is_closed


def test_a_source_that_is_away_is_asked_again() -> None:
    source = FakeSource(BODIES)
    source.failures = [ConnectFailed("away"), ConnectionLost("again"), Refusal(RefusalCode.SHUTTING_DOWN)]
    assert run(source, FakeTarget()).moved == 10


def test_a_source_that_says_no_ends_it_behind_what_was_read() -> None:
    class Forbidding(FakeSource):
        async def read(self) -> Any:
            if self.read_count == 6:
                raise Refusal(RefusalCode.FORBIDDEN)
            return await super().read()

    source, target = Forbidding(BODIES), FakeTarget()
    with pytest.raises(Refusal):
        run(source, target)
    assert target.got == source.settled == BODIES[:6]


def test_it_stops_behind_a_number_of_messages() -> None:
    source, target = FakeSource(BODIES, behind="wait"), FakeTarget()
    assert run(source, target, count=7).moved == 7
    assert target.got == source.settled == BODIES[:7]


def test_idle_is_the_end_only_when_everything_is_moved() -> None:
    lost = FakeTarget(lambda number, _body: ConnectionLost("l") if number < 5 else None)
    source = FakeSource(BODIES, behind="idle")
    bridge = made(source, lost, ends_when_idle=True)
    asyncio.run(bridge.run())
    assert (bridge.tally.moved, bridge.has_idled) == (10, True)
    assert source.settled == BODIES


def test_what_is_over_is_settled_and_what_comes_again_is_left() -> None:
    source, target = FakeSource(BODIES), FakeTarget()
    source.expired, source.unwanted = {b"1", b"2"}, {b"7"}
    tally = run(source, target)
    assert (tally.moved, tally.expired) == (7, 2)
    assert set(source.settled) == set(BODIES) - {b"7"}
    assert set(target.got) == set(BODIES) - {b"1", b"2", b"7"}


def test_what_is_held_is_bounded() -> None:
    source = FakeSource([b"x"] * 1000, batch=10, behind="wait")
    target = FakeTarget()
    target.hangs = True

    async def go(**options: int) -> None:
        bridge = made(source, target, **options)
        running = asyncio.create_task(bridge.run())
        for _ in range(500):
            await asyncio.sleep(0)
        bridge.stop()
        await running
        assert bridge.has_stopped

    asyncio.run(go(held_messages_max=50))
    assert source.read_count == 50
    assert source.settled == []
    source.read_count = 0
    asyncio.run(go(held_size_bytes_max=20_000))
    assert 30 <= source.read_count <= 50  # of some 500 bytes each


@pytest.mark.parametrize("trouble", ["hangs", "fails", "idle"])
def test_a_stop_ends_it_in_order_whatever_it_waits_for(trouble: str) -> None:
    source = FakeSource(BODIES if trouble != "idle" else [], behind="wait")
    target = FakeTarget(lambda _number, _body: ConnectFailed("away") if trouble == "fails" else None)
    target.hangs = trouble == "hangs"

    async def go() -> None:
        bridge = made(source, target)
        running = asyncio.create_task(bridge.run())
        for _ in range(20):
            await asyncio.sleep(0)
        bridge.stop()
        async with asyncio.timeout(20):
            await running

    asyncio.run(go())
    assert source.settled == []
    assert source.kept[-1] == (0, True)
    assert source.is_closed
    assert target.is_closed


def test_a_stop_while_connecting_ends_it() -> None:
    class Away(FakeSource):
        async def open(self) -> None:
            await asyncio.Event().wait()

    source = Away(BODIES)

    async def go() -> None:
        bridge = made(source, FakeTarget())
        running = asyncio.create_task(bridge.run())
        await asyncio.sleep(0)
        bridge.stop()
        async with asyncio.timeout(20):
            await running

    asyncio.run(go())
    assert source.is_closed


def test_a_bug_in_the_source_is_not_waited_for() -> None:
    class Broken(FakeSource):
        async def read(self) -> Any:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run(Broken(BODIES), FakeTarget())


def test_trouble_at_the_end_is_noted() -> None:
    class Rude(FakeSource):
        async def close(self) -> None:
            self.is_closed = True
            raise ConnectionLost("rude")

    notes: list[str] = []
    source, target = Rude(BODIES), FakeTarget()
    asyncio.run(Bridge(source, target, Tally(), note=notes.append).run())
    assert notes == ["closing: rude"]
    assert target.is_closed


def test_what_is_over_is_not_settled_before_what_stands_before_it() -> None:
    # A source with positions would begin behind both.
    source = FakeSource([b"refused", b"over", b"behind"])
    source.expired = {b"over"}
    target = FakeTarget(lambda _number, body: Refusal(RefusalCode.BATCH_TOO_LARGE) if body == b"refused" else None)
    with pytest.raises(MessageRefused):
        run(source, target)
    assert source.settled == []
    source = FakeSource([b"0", b"over", b"2"])
    source.expired = {b"over"}
    target = FakeTarget(lambda number, body: ConnectionLost("l") if body == b"2" and number < 2 else None)
    tally = run(source, target)
    assert source.settled == [b"0", b"over", b"2"]
    assert target.attempts == [[b"0", b"2"], [b"2"], [b"2"]]
    assert (tally.moved, tally.expired) == (2, 1)
