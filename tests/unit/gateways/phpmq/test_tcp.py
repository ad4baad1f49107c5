"""Playbooks: what a PHPMQ client sends, and what the gateway wants to happen."""

from __future__ import annotations

import logging
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from polymq.core import renewing
from polymq.core.access import STRANGER
from polymq.core.group import GroupKind
from polymq.errors import RefusalCode
from polymq.gateways.effects import Effect, Pause, Resume, SendAfter, SendAfterEach, SetTimer, TimerName, Upgrade
from polymq.gateways.phpmq.refusals import REASONS
from polymq.gateways.phpmq.tcp import PhpmqGateway
from polymq.limits import COMPLAINTS_PER_MINUTE_MAX
from polymq.phpmq_limits import EVENTS_PER_STEP_MAX, QUEUES_KNOWN_MAX, QUEUES_MADE_PER_TURN_MAX
from polymq.protocols.phpmq import frames
from tests.unit.core.conftest import SECOND_NS, World
from tests.unit.gateways.phpmq.clients import PEER, Client, closed, house_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from polymq.protocols.phpmq.frames import WireMessage


def contents(found: list[WireMessage]) -> list[bytes]:
    return [each.content for each in found]


def test_a_message_is_dispatched_in_the_dialect_of_the_connection(single: World) -> None:
    new, old = Client(single), Client(single)
    new.send(frames.send("Foo", b"a", ttl_s=3600) + frames.consume("Foo", 1))
    (first,) = new.turn(old)
    assert (first.queue, first.content, first.ttl_s) == (b"Foo", b"a", 3600)
    old.send(frames.send("Foo", b"b", ttl_s=None) + frames.consume("Foo", 1))
    (second,) = old.turn(new)
    assert (second.content, second.ttl_s) == (b"b", None)
    legacy = Client(single, house_of(single, legacy=True))
    new.send(frames.consume("Foo", 0))
    legacy.send(frames.consume("Foo", 1))
    assert [(each.content, each.ttl_s) for each in legacy.turn(new, old)] == [(b"a", None)]


def test_a_ttl_counts_down_and_ends(single: World) -> None:
    client = Client(single)
    client.send(frames.send("q", b"long", ttl_s=3600) + frames.send("q", b"short", ttl_s=300) + frames.send("q", b"ever"))
    client.turn()
    single.clock.now_ns += 300 * SECOND_NS
    client.send(frames.consume("q", 5))
    assert [(each.content, each.ttl_s) for each in client.turn()] == [(b"long", 3300), (b"ever", 0)]
    # What comes back is looked at again; what is out may still be acknowledged.
    single.clock.now_ns += 3300 * SECOND_NS
    client.send(frames.consume("q", 5))
    assert contents(client.turn()) == [b"ever"]


def test_a_queue_keeps_what_nobody_has_asked_for_yet(single: World) -> None:
    sender = Client(single)
    effects = sender.send(frames.send("q", b"1") + frames.send("q", b"2") + frames.send("r", b"3"))
    (answer,) = effects
    assert isinstance(answer, SendAfterEach)
    assert (answer.data, answer.sizes) == (b"", [0, 0])
    sender.turn()
    single.restart()
    consumer = Client(single)
    consumer.send(frames.consume("q", 9))
    assert contents(consumer.turn()) == [b"1", b"2"]


def test_the_window_is_what_may_be_out(single: World) -> None:
    client = Client(single)
    client.send(b"".join(frames.send("q", b"%d" % index) for index in range(5)) + frames.consume("q", 2))
    first, second = client.turn()
    assert contents([first, second]) == [b"0", b"1"]
    assert client.turn() == []
    (effect,) = client.send(frames.acknowledge("q", [second.id]))
    assert isinstance(effect, SendAfter)
    assert effect.ticket is single.store.journal.last_ticket
    assert contents(client.turn()) == [b"2"]
    assert (effect.data, effect.failure("why"), effect.publishes) == (b"", b"", False)


def test_a_new_request_returns_what_was_out_and_takes_its_place(single: World) -> None:
    client = Client(single)
    client.send(b"".join(frames.send("q", b"%d" % index) for index in range(4)) + frames.send("r", b"other") + frames.consume("q", 2))
    assert contents(client.turn()) == [b"0", b"1"]
    client.send(frames.consume("q", 3))
    assert contents(client.turn()) == [b"0", b"1", b"2"]
    client.send(frames.consume("r", 3))
    assert contents(client.turn()) == [b"other"]
    other = Client(single)
    other.send(frames.consume("q", 9))
    assert contents(other.turn(client)) == [b"0", b"1", b"2", b"3"]
    other.send(frames.consume("q", 0))
    assert other.turn(client) == []


def test_a_window_has_a_limit(single: World) -> None:
    client = Client(single, house_of(single, window_max=2))
    client.send(frames.send("q", b"x") * 3 + frames.consume("q", (1 << 62) - 1))
    assert len(client.turn()) == 2


def test_whoever_acknowledges_frees_the_slot_of_who_has_it(single: World) -> None:
    owner, other = Client(single), Client(single)
    owner.send(frames.send("q", b"1") + frames.send("q", b"2") + frames.consume("q", 1))
    (message,) = owner.turn(other)
    other.send(frames.acknowledge("q", [message.id]))
    # What goes out in its place waits for the journal as well.
    assert owner.rung
    effects: list[Effect] = []
    owner.gateway.woken(effects)
    assert [type(effect) for effect in effects] == [SendAfter]
    assert contents(owner.turn(other)) == [b"2"]
    effects.clear()
    owner.gateway.woken(effects)
    assert effects == []


def test_who_leaves_gives_back_at_once(single: World) -> None:
    first, second = Client(single), Client(single)
    first.send(frames.send("q", b"1") + frames.send("q", b"2") + frames.consume("q", 1))
    (message,) = first.turn()
    second.send(frames.consume("q", 5))
    assert contents(second.turn(first)) == [b"2"]
    first.gateway.ended()
    assert contents(second.turn()) == [b"1"]
    # Its id is good still, whoever has it now.
    Client(single).send(frames.acknowledge("q", [message.id]))
    second.turn()
    group = single.view("q").groups[0]
    assert (group.depth, group.leased) == (0, 1)


def test_a_message_that_nobody_has_is_acknowledged_too(single: World) -> None:
    client = Client(single)
    client.send(frames.send("q", b"1") + frames.consume("q", 1))
    (message,) = client.turn()
    client.send(frames.consume("q", 0))
    client.send(frames.acknowledge("q", [message.id]))
    assert client.turn() == []
    assert single.view("q").groups[0].depth == 0


def test_ids_of_others_are_ignored_and_counted(single: World) -> None:
    client = Client(single)
    client.send(frames.send("q", b"1") + frames.send("r", b"2") + frames.consume("q", 1))
    (message,) = client.turn()
    foreign = frames.acknowledge("q", [b"f" * 32, b"x", message.id[:31] + (b"0" if message.id[31:] != b"0" else b"1")])
    wrong_queue = frames.acknowledge("r", [message.id]) + frames.acknowledge("nowhere", [message.id])
    effects = client.send(foreign + wrong_queue + frames.requeue("q", b"f" * 32) + frames.dead_letter("q", b"f" * 32))
    assert not closed(effects)
    assert client.turn() == []
    assert client.house.foreign_ids == 5
    assert single.view("q").groups[0].leased == 1
    assert "nowhere" not in single.session.topic_names()


def test_who_requeues_and_leaves_at_once_has_requeued_once(single: World) -> None:
    client, other = Client(single), Client(single)
    client.send(frames.send("q", b"1") + frames.send("q", b"2") + frames.consume("q", 1))
    (first,) = client.turn()
    client.send(frames.requeue("q", first.id, ttl_s=50))
    client.gateway.ended()
    other.send(frames.consume("q", 5))
    assert [(each.content, each.ttl_s) for each in other.turn()] == [(b"2", 0), (b"1", 50)]


def test_who_requeues_and_consumes_anew_at_once_has_requeued_once(single: World) -> None:
    client = Client(single)
    client.send(frames.send("q", b"1") + frames.consume("q", 1))
    (first,) = client.turn()
    client.send(frames.requeue("q", first.id, ttl_s=50) + frames.consume("q", 5))
    assert [(each.content, each.ttl_s) for each in client.turn()] == [(b"1", 50)]


def test_who_requeues_more_than_the_disk_takes_is_not_read_meanwhile(single: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(renewing, "RENEWALS_MAX", 2)
    client = Client(single)
    client.send(b"".join(frames.send("q", b"%d" % index) for index in range(5)) + frames.consume("q", 5))
    ids = [each.id for each in client.turn()]
    (log,) = single.store.logs.values()
    log.cold = True
    effects = client.send(b"".join(frames.requeue("q", each, ttl_s=9) for each in ids) + frames.acknowledge("q", [ids[0]])[:-1])
    assert any(isinstance(effect, Pause) for effect in effects)
    single.clock.now_ns += 100 * SECOND_NS
    assert not closed(client.timer(TimerName.READ_DEADLINE))
    assert [type(effect) for effect in client.timer(TimerName.RETRY)] == [SetTimer]
    log.cold = False
    assert [(each.content, each.ttl_s) for each in client.turn()] == [(b"%d" % index, 9) for index in range(5)]
    assert [type(effect) for effect in client.timer(TimerName.RETRY)] == [Resume]
    assert not any(isinstance(effect, Pause) for effect in client.send(ids[0][-1:]))


def test_a_requeued_message_goes_to_the_end_with_its_new_ttl(single: World) -> None:
    client = Client(single)
    client.send(frames.send("q", b"1", ttl_s=10) + frames.send("q", b"2") + frames.consume("q", 1))
    (first,) = client.turn()
    client.send(frames.requeue("q", first.id, ttl_s=50))
    (second,) = client.turn()
    assert second.content == b"2"
    client.send(frames.acknowledge("q", [second.id]))
    (again,) = client.turn()
    assert (again.content, again.ttl_s) == (b"1", 50)
    assert again.id != first.id
    client.send(frames.acknowledge("q", [first.id]))
    assert client.turn() == []


def test_a_dead_letter_is_removed(single: World) -> None:
    client = Client(single)
    client.send(frames.send("q", b"1", ttl_s=10) + frames.send("q", b"2") + frames.consume("q", 1))
    (first,) = client.turn()
    client.send(frames.dead_letter("q", first.id))
    assert contents(client.turn()) == [b"2"]
    assert single.session.topic_names() == ["q"]


def test_a_dead_letter_is_copied_if_that_is_wanted(single: World) -> None:
    client = Client(single, house_of(single, copy_dead=True))
    client.send(frames.send("q", b"1") + frames.send("q", b"2") + frames.consume("q", 1))
    (first,) = client.turn()
    client.send(frames.dead_letter("q", first.id))
    assert contents(client.turn()) == [b"2"]
    client.send(frames.consume("q.phpmq.dead", 5))
    assert contents(client.turn()) == [b"1"]


@pytest.mark.parametrize(
    ("stream", "reason"),
    [
        (b"GET / HTTP/1.1\r\n", "header"),
        (b"H0100903", "type"),
        (frames.send("q", b"x")[:8] + b"\n" * 40, "packet"),
        (frames.consume("q", 5)[:-1] + b"-", "number"),
        (frames.send(b"q" * 255, b"x").replace(b"q" * 255, b"\xff" * 255), "name"),
    ],
)
def test_whoever_breaks_the_protocol_is_closed_alone(single: World, stream: bytes, reason: str) -> None:
    house = house_of(single)
    good, bad = Client(single, house), Client(single, house)
    effects = bad.send(frames.send("q", b"before") + stream + frames.send("q", b"behind"))
    assert closed(effects)
    assert house.closed == {reason: 1}
    good.send(frames.consume("q", 5))
    assert contents(good.turn(bad)) == [b"before"]


def test_an_empty_name_is_no_queue(single: World) -> None:
    empty = frames.send("q", b"x").replace(b"1qP02", b"0P02")
    client = Client(single)
    assert closed(client.send(empty))
    assert client.house.closed == {"name": 1}


def test_who_may_do_nothing_is_closed(single: World) -> None:
    house = house_of(single)
    gateway = PhpmqGateway(single.broker.session(STRANGER), PEER, house)
    effects: list[Effect] = []
    gateway.feed(memoryview(frames.send("q", b"x")), effects)
    assert closed(effects)
    assert house.closed == {"forbidden": 1}
    gateway.ended()


def test_every_refusal_has_its_reason() -> None:
    assert set(REASONS) == set(RefusalCode)


def test_a_message_has_to_come_to_its_end(single: World) -> None:
    client = Client(single, house_of(single, message_ns=10 * SECOND_NS))
    whole = frames.send("q", b"x" * 50)
    (timer,) = client.send(whole[:40])
    assert isinstance(timer, SetTimer)
    assert (timer.name, timer.due_ns) == (TimerName.READ_DEADLINE, single.clock.now_ns + 10 * SECOND_NS)
    # Another message has begun since: it has its own time.
    single.clock.now_ns += 6 * SECOND_NS
    client.send(whole[40:] + whole[:20])
    single.clock.now_ns += 4 * SECOND_NS
    (again,) = client.timer(TimerName.READ_DEADLINE)
    assert isinstance(again, SetTimer)
    single.clock.now_ns += 6 * SECOND_NS
    assert closed(client.timer(TimerName.READ_DEADLINE))
    assert client.house.closed == {"slow": 1}


@pytest.mark.parametrize("before", [b"", frames.send("q", b"x")], ids=["at the start", "behind a message"])
def test_the_time_of_a_message_begins_with_its_first_byte(single: World, before: bytes) -> None:
    client = Client(single, house_of(single, message_ns=10 * SECOND_NS))
    if before:
        client.send(before)
    # The pump calls for as little.
    assert client.gateway.need == 1
    assert any(isinstance(effect, SetTimer) for effect in client.send(b"H0100"))
    single.clock.now_ns += 10 * SECOND_NS
    assert closed(client.timer(TimerName.READ_DEADLINE))


def test_a_connection_may_be_silent_between_messages(single: World) -> None:
    client = Client(single)
    client.send(frames.send("q", b"x")[:30])
    client.send(frames.send("q", b"x")[30:])
    assert client.timer(TimerName.READ_DEADLINE) == []


def test_leases_end_if_the_settings_say_so(single: World) -> None:
    client = Client(single, house_of(single, lease_ns=SECOND_NS))
    for_ever = Client(single)
    client.send(frames.send("q", b"1") + frames.consume("q", 1))
    assert contents(client.turn()) == [b"1"]
    single.clock.now_ns += 2 * SECOND_NS
    assert contents(client.turn()) == [b"1"]
    for_ever.send(frames.send("r", b"2") + frames.consume("r", 1))
    assert contents(for_ever.turn()) == [b"2"]
    single.clock.now_ns += 10**9 * SECOND_NS
    assert for_ever.turn() == []


def test_what_waits_to_be_written_holds_the_window(single: World) -> None:
    client = Client(single)
    client.send(frames.send("q", b"x") + frames.consume("q", 1))
    effects: list[Effect] = []
    client.gateway.full(effects)
    assert client.turn() == []
    client.gateway.writable(effects)
    assert contents(client.turn()) == [b"x"]
    idle = Client(single)
    idle.gateway.full(effects)
    # Another queue is no way round it.
    idle.send(frames.send("r", b"y") + frames.consume("r", 1))
    assert idle.turn(client) == []
    idle.gateway.writable(effects)
    assert contents(idle.turn(client)) == [b"y"]
    assert effects == []


def test_a_group_of_another_kind_is_no_queue(single: World) -> None:
    single.session.ensure_topic("q")
    single.session.create_group("q", "phpmq", kind=GroupKind.CURSOR)
    for words in (frames.send("q", b"x"), frames.consume("q", 1)):
        client = Client(single)
        assert closed(client.send(words))
        assert client.house.closed == {"group": 1}


def test_a_connection_knows_so_many_queues(single: World) -> None:
    client = Client(single)
    for index in range(QUEUES_KNOWN_MAX + 2):
        client.send(frames.acknowledge(f"q{index}", [b"x"]))
    assert len(client.gateway._topics) == 2


@pytest.mark.parametrize("word", [lambda name: frames.send(name, b"x"), lambda name: frames.consume(name, 1)], ids=["send", "consume"])
def test_who_makes_many_queues_makes_some_in_each_turn(single: World, word: Callable[[str], bytes]) -> None:
    client = Client(single)
    names = [f"q{index:03}" for index in range(200)]
    made = [0]
    effects = client.send(b"".join(map(word, names)) + frames.send("q000", b"last") + frames.send("cut off", b"x")[:-1])
    while True:
        made.append(len(single.session.topic_names()))
        if not any(isinstance(effect, Pause) for effect in effects):
            break
        assert client.rung
        client.rung = False
        # What is not read yet has no time that runs out.
        assert not any(isinstance(effect, SetTimer) for effect in effects)
        effects = []
        client.gateway.woken(effects)
        assert [type(effect) for effect in effects] == [Resume]
        effects = client.send(b"")
    assert [type(effect) for effect in effects if isinstance(effect, SetTimer)] == [SetTimer]
    assert client.rest == frames.send("cut off", b"x")[:-1]
    assert single.session.topic_names() == names
    most = QUEUES_MADE_PER_TURN_MAX + EVENTS_PER_STEP_MAX
    assert all(0 < after - before <= most for before, after in pairwise(made)), made
    consumer = Client(single)
    consumer.send(frames.consume("q000", 9))
    assert contents(consumer.turn(client))[-1] == b"last"


def test_many_events_for_queues_that_are_there_are_one_turn(single: World) -> None:
    client = Client(single)
    client.send(frames.send("a", b"") + frames.send("b", b""))
    effects = client.send(b"".join(frames.send("ab"[index % 2], b"%d" % index) for index in range(500)) + frames.consume("b", 1000))
    assert (client.rest, client.rung, [effect for effect in effects if isinstance(effect, Pause)]) == (b"", False, [])
    assert contents(client.turn()) == [b"", *(b"%d" % index for index in range(1, 500, 2))]


@pytest.mark.parametrize("word", [frames.requeue, frames.dead_letter])
@pytest.mark.parametrize("raw_id", ["own", b"0" * 32], ids=["own", "foreign"])
def test_who_says_what_the_older_dialect_has_not_speaks_the_newer_one(
    single: World, word: Callable[[str, bytes], bytes], raw_id: bytes | str
) -> None:
    client = Client(single, house_of(single, legacy=True))
    Client(single).send(frames.send("q", b"1") + frames.send("q", b"2"))
    client.send(frames.consume("q", 1))
    (first,) = client.turn()
    assert first.ttl_s is None
    client.send(word("q", first.id if isinstance(raw_id, str) else raw_id) + frames.acknowledge("q", [first.id]))
    (second,) = client.turn()
    assert (second.content, second.ttl_s) == (b"2", 0)


def test_the_log_does_not_grow_with_what_strangers_send(single: World, caplog: pytest.LogCaptureFixture) -> None:
    house = house_of(single)
    with caplog.at_level(logging.WARNING):
        for _ in range(COMPLAINTS_PER_MINUTE_MAX + 5):
            Client(single, house).send(b"GET / HTTP/1.1\r\n")
        single.clock.now_ns += 61 * SECOND_NS
        Client(single, house).send(b"GET / HTTP/1.1\r\n")
    assert house.closed["header"] == COMPLAINTS_PER_MINUTE_MAX + 6
    assert len(caplog.records) == COMPLAINTS_PER_MINUTE_MAX + 2
    assert "5 more" in caplog.text
    assert "10.0.0.7:4711" in caplog.text


def test_tls_is_put_in_place_first(single: World) -> None:
    layer = object()
    gateway = PhpmqGateway(single.session, PEER, house_of(single), lambda: layer)  # type: ignore[arg-type,return-value]
    effects: list[Effect] = []
    gateway.opened(effects)
    (upgrade,) = effects
    assert isinstance(upgrade, Upgrade)
    assert upgrade.layer is layer


def test_what_is_announced_is_given_room_as_it_comes(single: World) -> None:
    client = Client(single)
    data = frames.send("q", b"x" * 1_000_000)
    client.send(data[:100])
    assert client.gateway.need == 16 * 1024
    client.send(data[100:100_000])
    assert client.gateway.need == 200_000
    client.send(data[100_000:600_000])
    assert 900_000 < client.gateway.need <= len(data)
    client.send(data[600_000:] + frames.consume("q", 1))
    (message,) = client.turn()
    assert len(message.content) == 1_000_000
