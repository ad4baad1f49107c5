from __future__ import annotations

import secrets
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polymq.core.broker import Broker
from polymq.core.interest.targets import KEEPS_LOCAL, KEEPS_ROUTED, Target
from polymq.core.live import LiveSpace
from polymq.core.live_store import Archives
from polymq.core.policies import Full, TopicPolicy
from polymq.errors import Refusal, RefusalCode
from polymq.store.files import RealFiles
from polymq.store.store import Store
from polymq.store.workers import InlineWorker
from polymq.wire.batch import parse_header, read_messages
from polymq.wire.live import KEPT, UNTAKEN, LiveBatch, LiveMessage
from polymq.wire.tickets import TicketState

from .fakes import FakeClock, FakeRandom, Inbox
from .live_world import ORIGIN, Codec, Ears, HandCourier, LiveWorld, capturing

if TYPE_CHECKING:
    from pathlib import Path

    from polymq.core.live_store import Archive


def test_what_is_published_to_a_topics_name_is_stored_and_delivered() -> None:
    world = LiveWorld()
    world.session.ensure_topic("a.b")
    ears = Ears(world.space, b"a.>")
    assert world.say((b"a.b", b"1"), (b"a.c", b"2"), (b"a.b", b"3")) == 0
    stored = world.broker.live.stored
    assert stored is not None
    assert [ticket.state for ticket in stored.tickets] == [TicketState.PENDING]
    world.turn()
    assert [ticket.state for ticket in stored.tickets] == [TicketState.DONE]
    assert world.kept("a.b") == [b"1", b"3"]
    assert ears.got == [(b"a.b", b"1"), (b"a.c", b"2"), (b"a.b", b"3")]
    assert list(world.broker.catalogue.topics) == [("", "a.b")]
    log = world.store.logs[0]
    assert parse_header(log.data, 0).origin == ORIGIN
    assert world.view("a.b").message_count == 2


def test_what_is_stored_counts_for_the_topics_groups() -> None:
    world = LiveWorld()
    consumer = world.consume("t", "g", 10)
    world.turn()
    world.say((b"t", b"x"))
    world.turn()
    listener = consumer.listener
    assert isinstance(listener, Inbox)
    assert listener.bodies == [b"x"]


def test_a_keeper_is_nobody_who_listens() -> None:
    world = LiveWorld()
    world.session.ensure_topic("t")
    batch = LiveBatch.of([LiveMessage(b"t", b"x")])
    assert world.space.publish(batch) == 1
    assert batch.rows[11] == UNTAKEN | KEPT
    assert not world.space.interest.has(b"t")
    assert world.session.keeps_live(b"t")
    assert not world.session.keeps_live(b"u")


def test_what_is_marked_as_stored_is_not_stored_again() -> None:
    world = LiveWorld()
    world.session.ensure_topic("t")
    ears = Ears(world.space, b"t")
    batch = LiveBatch.of([LiveMessage(b"t", b"elsewhere"), LiveMessage(b"t", b"here")])
    batch.rows[11] = KEPT
    assert world.space.publish(batch) == 0
    world.turn()
    assert world.kept("t") == [b"here"]
    assert ears.marks == [KEPT, KEPT]


def test_patterns_make_topics_on_demand() -> None:
    world = LiveWorld(capturing(b"orders.>", b"*.new"))
    world.say((b"orders.new", b"1"), (b"orders.eu.new", b"2"), (b"orders", b"no"), (b"x.new", b"3"), (b"orders.new", b"4"))
    world.say((b"orders.new", b"5"), (b"x.new", b"6"))
    world.turn()
    assert {name: world.kept(name) for _, name in world.broker.catalogue.topics} == {
        "orders.new": [b"1", b"4", b"5"],
        "orders.eu.new": [b"2"],
        "x.new": [b"3", b"6"],
    }
    assert [len(topic.partitions) for topic in world.broker.catalogue.topics.values()] == [1, 1, 1]


def test_patterns_leave_alone_what_is_private() -> None:
    world = LiveWorld(capturing(b">", b"$MINE.*"))
    world.say((b"_IN.x", b"1"), (b"$SYS.x", b"2"), (b"$MINE.x", b"3"), (b"a", b"4"))
    assert sorted(name for _, name in world.broker.catalogue.topics) == ["$MINE.x", "a"]
    batch = LiveBatch.of([LiveMessage(b"_IN.x", b"1")])
    world.space.publish(batch)
    assert batch.rows[11] == UNTAKEN
    assert world.refusals() == []


@pytest.mark.parametrize("name", [b"a b", b"\xff", b"a.*", b"x" * 256])
def test_names_that_no_topic_can_have_are_refused(name: bytes) -> None:
    world = LiveWorld(capturing(b">"))
    ears = Ears(world.space, b">")
    assert world.say((name, b"1"), (name, b"2"), (b"good", b"3")) == 0
    ((refused, reason),) = world.refusals()
    assert refused == name
    assert reason
    assert len(ears.messages) == 3
    assert ears.marks == [0, 0, KEPT]
    assert world.kept("good") == [b"3"]
    assert _archive(world).refused_count == 2


def test_topics_with_names_that_nobody_can_publish_live_are_left_out() -> None:
    world = LiveWorld()
    for name in ("a b", "a..b", "*", "a.>", "x" * 255):
        world.session.ensure_topic(name)
    assert [entry.pattern for entry in _archive(world).target.entries] == [b"x" * 255]


def test_there_are_no_more_topics_than_allowed() -> None:
    world = LiveWorld(capturing(b"t.*", topics_max=2))
    world.say((b"t.1", b"a"), (b"t.2", b"b"), (b"t.3", b"c"), (b"t.3", b"d"), (b"t.1", b"e"))
    assert [name for name, _why in world.refusals()] == [b"t.3"]
    assert world.kept("t.1") == [b"a", b"e"]
    # Topics that are there are not a pattern's doing.
    world.session.ensure_topic("t.3")
    world.say((b"t.3", b"f"))
    assert world.kept("t.3") == [b"f"]
    assert (_archive(world).stored_count, _archive(world).refused_count) == (4, 2)


def test_captured_topics_are_counted_by_themselves_in_each_namespace() -> None:
    world = LiveWorld(capturing(b"t.*", topics_max=2))
    for name in ("own.1", "own.2", "t.1"):
        world.session.ensure_topic(name)
    other = world.broker.live.space("other")
    other.publish(LiveBatch.of([LiveMessage(b"t.%d" % number, b"x") for number in range(3)]))
    assert [name for name, _why in world.refusals()] == [b"t.2"]
    world.say((b"t.2", b"a"), (b"t.3", b"b"))
    assert [name for name, _why in world.refusals()] == [b"t.3"]
    world.session.delete_topic("t.1")
    world.say((b"t.4", b"c"))
    assert world.kept("t.4") == [b"c"], "one that is deleted makes room"
    world.broker.settings = replace(world.broker.settings, topics_max=len(world.broker.catalogue.topics))
    world.session.delete_topic("t.2")
    world.session.ensure_topic("own.3")
    world.say((b"t.5", b"d"))
    assert [name for name, _why in world.refusals()] == [b"t.5"], "there is a bound for all namespaces as well"


def test_a_name_that_is_refused_is_told_once_for_each_batch() -> None:
    world = LiveWorld(capturing(b">", topics_max=0))
    for _ in range(2):
        world.say(*((b"t.%d" % (number % 50), b"x") for number in range(100)))
        assert [name for name, _why in world.refusals()] == [b"t.%d" % number for number in range(50)]
    assert _archive(world).refused_count == 200


def test_a_full_disk_and_a_full_topic_refuse_and_the_rest_is_stored() -> None:
    world = LiveWorld()
    for name in ("bounded", "free"):
        world.session.ensure_topic(name)
    world.session.set_topic_policy("bounded", TopicPolicy(messages_max=1, full=Full.REJECT))
    batch = LiveBatch.of([LiveMessage(b"bounded", b"1"), LiveMessage(b"free", b"2"), LiveMessage(b"bounded", b"3")])
    world.space.publish(batch)
    assert [name for name, _why in world.refusals()] == [b"bounded"]
    assert [batch.rows[12 * index + 11] & KEPT for index in range(3)] == [0, KEPT, 0]
    world.store.journal.full = True
    world.say((b"free", b"4"))
    assert [name for name, _why in world.refusals()] == [b"free"]
    world.store.journal.full = False
    assert world.kept("free") == [b"2"]
    assert world.kept("bounded") == []
    families = {family.name: list(family.collect()) for family in world.broker.statistics}
    assert [sample.value for sample in families["polymq_live_stored_messages_total"]] == [1]
    assert [sample.value for sample in families["polymq_live_refused_messages_total"]] == [3]


def test_it_is_logged_when_a_topic_is_not_stored_any_more_and_when_it_is_again(caplog: pytest.LogCaptureFixture) -> None:
    world = LiveWorld()
    for name in ("a", "b"):
        world.session.ensure_topic(name)
    for _ in range(2):
        caplog.clear()
        world.say((b"a", b"1"), (b"b", b"1"))
        assert caplog.records == []
        world.store.journal.full = True
        for _ in range(100):
            world.say((b"a", b"2"), (b"b", b"2"))
            assert world.refusals() == [(name, "no room left in the data folder") for name in (b"a", b"b")], "of no file"
        assert [record.message for record in caplog.records] == [
            f"live messages of topic {name} are not stored any more: the journal waits for room" for name in ("a", "b")
        ]
        caplog.clear()
        world.store.journal.full = False
        for _ in range(3):
            world.say((b"b", b"3"), (b"a", b"3"))
        assert sorted((record.levelname, record.message.partition(";")[0]) for record in caplog.records) == [
            ("WARNING", f"live messages of topic {name} are stored again") for name in ("a", "b")
        ]


def test_headers_and_replies_are_stored_in_order_with_the_rest() -> None:
    world = LiveWorld()
    world.session.ensure_topic("t")
    world.say(
        LiveMessage(b"t", b"1"),
        LiveMessage(b"t", b"hh2", header_size=2),
        LiveMessage(b"t", b"3", b"answer"),
        LiveMessage(b"t", b"4"),
    )
    log = world.store.logs[0]
    messages = read_messages(bytes(log.data), 0, 0, 0, 4, len(log.data))
    assert [(message.body, message.headers, message.extras) for message in messages] == [
        (b"1", (), ()),
        (b"2", ((b"block", b"hh"),), ()),
        (b"3", (), ((ORIGIN, b"answer"),)),
        (b"4", (), ()),
    ]


@pytest.mark.parametrize(("keeps", "expected"), [(KEEPS_LOCAL, [b"here"]), (KEEPS_ROUTED, [b"there"]), (3, [b"here", b"there"])])
def test_whose_messages_are_stored_is_chosen(keeps: int, expected: list[bytes]) -> None:
    world = LiveWorld(capturing(b"c.*", keeps=keeps))
    world.session.ensure_topic("t")
    world.say((b"t", b"here"))
    world.say((b"t", b"there"), sender=Target(remote=True))
    assert world.kept("t") == expected
    # Other servers send on what they are told is wanted.
    wanted = keeps & KEEPS_ROUTED != 0
    assert world.space.interest.local_count(b"c.*") == wanted
    assert world.space.interest.local_count(b"t") == wanted


class Watcher:
    def __init__(self) -> None:
        self.told: list[tuple[bytes, int]] = []

    def interest_changed(self, space: LiveSpace, pattern: bytes, queue: bytes) -> None:
        self.told.append((pattern, space.interest.local_count(pattern, queue)))


@pytest.mark.parametrize("keeps", [KEEPS_LOCAL, KEEPS_ROUTED])
def test_other_servers_hear_of_what_is_kept_only_if_they_are_to_send_it(keeps: int) -> None:
    world = LiveWorld(capturing(keeps=keeps))
    watcher = Watcher()
    world.broker.live.watchers.append(watcher)
    world.session.ensure_topic("t")
    world.session.delete_topic("t")
    assert watcher.told == ([(b"t", 1), (b"t", 0)] if keeps == KEEPS_ROUTED else [])


def test_topics_that_are_deleted_are_kept_no_more_and_their_tags_are_used_again() -> None:
    world = LiveWorld()
    for name in ("a", "b", "c"):
        world.session.ensure_topic(name)
    world.session.delete_topic("b")
    world.say((b"b", b"lost"))
    world.session.ensure_topic("d")
    world.say((b"a", b"1"), (b"d", b"2"), (b"c", b"3"))
    assert [world.kept(name) for name in ("a", "c", "d")] == [[b"1"], [b"3"], [b"2"]]
    assert sorted(entry.tag for entry in _archive(world).target.entries) == [0, 1, 2]


def test_topics_of_an_earlier_life_and_of_other_namespaces_are_kept() -> None:
    world = LiveWorld(capturing(b"c.*"))
    world.session.ensure_topic("old")
    world.broker.catalogue.create_topic("other", "theirs", partitions=1, sync=False, ephemeral=False)
    world.restart()
    world.say((b"old", b"1"), (b"theirs", b"not here"))
    world.broker.live.space("other").publish(LiveBatch.of([LiveMessage(b"theirs", b"2"), LiveMessage(b"c.x", b"3")]))
    world.broker.live.space("$SYS").publish(LiveBatch.of([LiveMessage(b"c.x", b"no")]))
    assert world.kept("old") == [b"1"]
    assert (world.kept("theirs", "other"), world.kept("c.x", "other")) == ([b"2"], [b"3"])
    assert list(world.broker.catalogue.topics) == [("", "old"), ("other", "theirs"), ("other", "c.x")]


def test_groups_come_and_go() -> None:
    world = LiveWorld()
    world.session.ensure_topic("t")
    world.session.create_group("t", "g")
    world.session.delete_group("t", "g")
    assert len(_archive(world).target.entries) == 1


def test_an_interest_that_is_full_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    world = LiveWorld(capturing(b"c.*"))
    world.say((b"live", b"first"))

    def refuse(*_: object, **__: object) -> None:
        raise Refusal(RefusalCode.LIMIT_REACHED)

    monkeypatch.setattr(LiveSpace, "listen", refuse)
    world.say((b"c.x", b"1"))
    assert [name for name, _why in world.refusals()] == [b"c.x"]
    world.session.ensure_topic("t")
    world.say((b"t", b"not kept"))
    assert world.kept("t") == []
    monkeypatch.undo()
    world.session.ensure_topic("u")
    world.say((b"u", b"kept"))
    assert world.kept("u") == [b"kept"]


def test_after_a_bug_nobody_has_pairs_of_a_batch_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    world = LiveWorld(capturing(b"c.*"))
    ears = Ears(world.space, b">")
    monkeypatch.setattr(Codec, "encode", lambda *_: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        world.say(LiveMessage(b"c.x", b"1", b"reply"))
    assert (_archive(world).target.pair_count, ears.target.pair_count) == (0, 0)
    world.say((b"c.x", b"2"))
    assert ears.got == [(b"c.x", b"2")]
    assert world.kept("c.x") == [b"2"]


texts = st.sampled_from((b"a.x", b"a.y", b"b", b"c.c", b"live", b"a.z.z"))
bodies = st.binary(max_size=40)
batches = st.lists(st.lists(st.tuples(texts, bodies, st.integers(0, 2)), min_size=1, max_size=12), min_size=1, max_size=8)


@settings(max_examples=40)
@given(published=batches, kill=st.booleans())
def test_the_log_has_what_was_published_in_order(
    tmp_path_factory: pytest.TempPathFactory, published: list[list[tuple[bytes, bytes, int]]], kill: bool
) -> None:
    folder: Path = tmp_path_factory.mktemp("log")
    clock = FakeClock()
    broker, store = _on_disk(folder, clock)
    ears = Ears(broker.live.space(), b">")
    for batch in published:
        messages = [_message(*each) for each in batch]
        broker.live.space().publish(LiveBatch.of(messages))
        broker.tick()
        store.commit()
    # A kill loses nothing that was acknowledged: the page cache has it.
    store.close(clean=not kill)
    sent = [_message(*each) for batch in published for each in batch]
    assert ears.messages == sent
    again, reopened = _on_disk(folder, clock)
    for name in ("a.x", "a.y", "a.z.z", "b"):
        topic = again.catalogue.topics.get(("", name))
        found = [] if topic is None else _read(topic.partitions[0].log.batches(0, 1 << 24))
        assert [Codec().live(name.encode(), message) for message in found] == [each for each in sent if each.subject == name.encode()]
    assert set(again.catalogue.topics) <= {("", name) for name in ("a.x", "a.y", "a.z.z", "b")}
    reopened.close(clean=True)


def _message(subject: bytes, body: bytes, kind: int) -> LiveMessage:
    """Plain, with headers, with a reply."""
    return LiveMessage(subject, body, b"r" if kind == 2 else b"", header_size=len(body) // 2 if kind == 1 else 0)


def _read(view: memoryview | None) -> list:  # type: ignore[type-arg]
    assert view is not None
    found, at = [], 0
    while at < len(view):
        header = parse_header(view, at)
        found += read_messages(view, at, 0, 0, header.count, at + header.size)
        at += header.size
    return found


def _on_disk(folder: Path, clock: FakeClock) -> tuple[Broker, Store]:
    """A broker on a real folder, with a topic of its own and a pattern."""
    store = Store.open(RealFiles(str(folder)), InlineWorker(), clock=clock, boot_id="boot", random_u64=lambda: secrets.randbits(63))
    broker = Broker(store, clock, FakeRandom())
    broker.start()
    broker.live.courier = HandCourier()
    Archives(broker, Codec(), capturing(b"a.>"))
    if ("", "b") not in broker.catalogue.topics:
        broker.catalogue.create_topic("", "b", partitions=1, sync=False, ephemeral=False)
    return broker, store


def _archive(world: LiveWorld) -> Archive:
    return cast("Archive", world.space.archive)
