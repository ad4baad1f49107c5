from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from polymq import limits
from polymq.errors import CorruptRecord
from polymq.wire.batch import Message
from polymq.wire.left_out import UNHEARD
from polymq.wire.live import KEPT, LiveMessage

from .fakes import FakeReader
from .live_world import LEFT_OUT, ORIGIN, Ears, LiveWorld, capturing

if TYPE_CHECKING:
    from polymq.core.live import LiveSpace
    from polymq.core.topic import Topic
    from polymq.wire.slices import Slice


def test_what_others_publish_reaches_who_listens_once_it_is_readable() -> None:
    world = LiveWorld(capturing(b"a.*"))
    ears = Ears(world.space, b"a.>")
    deaf = Ears(world.space, b"b")
    remote = Ears(world.space, b"a.x", remote=True)
    world.publish("a.x", b"1", b"2")
    world.broker.tick()
    world.broker.dispatch()
    assert ears.got == []
    world.turn()
    world.publish("a.x", b"3")
    world.publish("a.y", b"")
    world.turn()
    assert ears.got == [(b"a.x", b"1"), (b"a.x", b"2"), (b"a.x", b"3"), (b"a.y", b"")]
    assert ears.marks == [KEPT] * 4
    assert deaf.got == []
    assert [payload for _, payload in remote.got] == [b"1", b"2", b"3"]
    # And it is not stored once more.
    assert world.kept("a.x") == [b"1", b"2", b"3"]
    assert world.outlet.shown_count == 4


def test_what_came_in_live_is_not_heard_twice() -> None:
    world = LiveWorld()
    world.session.ensure_topic("t")
    ears = Ears(world.space, b"t")
    world.say((b"t", b"live 1"))
    world.publish("t", b"other 1")
    world.say((b"t", b"live 2"), (b"t", b"live 3"))
    world.publish("t", b"other 2")
    world.turn()
    assert world.kept("t") == [b"live 1", b"other 1", b"live 2", b"live 3", b"other 2"]
    assert [payload for _, payload in ears.got] == [b"live 1", b"live 2", b"live 3", b"other 1", b"other 2"]


def test_what_came_in_live_is_not_even_read(monkeypatch: pytest.MonkeyPatch) -> None:
    world = LiveWorld()
    world.session.ensure_topic("t")
    ears = Ears(world.space, b"t")
    world.say((b"t", b"live 1"))
    world.turn()
    pieces = []
    take = FakeReader.take

    def noting(reader: FakeReader, count_max: int, size_bytes_max: int) -> Slice | None:
        if (piece := take(reader, count_max, size_bytes_max)) is not None:
            pieces.append(piece)
        return piece

    monkeypatch.setattr(FakeReader, "take", noting)
    world.say((b"t", b"live 2"), (b"t", b"live 3"))
    world.turn()
    assert pieces == []
    world.publish("t", b"other")
    world.turn()
    assert [piece.count for piece in pieces] == [1]
    assert [payload for _, payload in ears.got] == [b"live 1", b"live 2", b"live 3", b"other"]


def test_who_begins_to_listen_gets_what_comes_from_then_on() -> None:
    world = LiveWorld(partitions=2)
    world.publish("t", b"before")
    world.turn()
    ears = Ears(world.space, b"t")
    world.publish("t", b"1")
    world.publish("t", b"2")
    world.turn()
    ears.leave()
    world.publish("t", b"between")
    world.turn()
    again = Ears(world.space, b"*")
    world.turn()
    world.publish("t", b"3")
    world.turn()
    assert sorted(payload for _, payload in ears.got) == [b"1", b"2"]
    assert again.got == [(b"t", b"3")]


def test_who_leaves_before_the_commit_gets_nothing() -> None:
    world = LiveWorld()
    ears = Ears(world.space, b"t")
    world.publish("t", b"1")
    world.broker.tick()
    ears.leave()
    world.turn()
    assert ears.got == []
    assert not world.outlet.is_busy


def test_a_topic_that_is_deleted_meanwhile_is_forgotten() -> None:
    world = LiveWorld()
    ears = Ears(world.space, b"t")
    world.publish("t", b"1")
    world.broker.tick()
    world.session.delete_topic("t")
    world.turn()
    world.publish("t", b"2")
    world.turn()
    assert ears.got == [(b"t", b"2")]


def test_headers_and_keys_do_not_keep_a_message_from_being_heard() -> None:
    world = LiveWorld()
    ears = Ears(world.space, b"t")
    messages = [
        Message(b"1"),
        Message(b"2", key=b"k", headers=((b"a", b"hh"),), extras=((ORIGIN, b"reply"), (1, b"other"))),
        Message(b"3", time_ns=5, expiry_ns=9),
    ]
    world.session.publish_messages("t", messages, origin=2)
    world.turn()
    assert ears.messages == [
        LiveMessage(b"t", b"1"),
        LiveMessage(b"t", b"hh2", b"reply", header_size=2),
        LiveMessage(b"t", b"3"),
    ]


def test_what_the_protocol_cannot_say_is_left_out() -> None:
    world = LiveWorld()
    ears = Ears(world.space, b"t")
    unspeakable = Message(b"2", headers=((b"a", LEFT_OUT),))
    world.session.publish_messages("t", [Message(b"1"), unspeakable, Message(b"3", headers=((b"a", b"h"),))], origin=2)
    world.session.publish_messages("t", [unspeakable], origin=2)
    world.turn()
    assert ears.messages == [LiveMessage(b"t", b"1"), LiveMessage(b"t", b"h3", header_size=1)]
    assert world.outlet.shown_count == 2


def test_other_namespaces_are_others() -> None:
    world = LiveWorld()
    ears = Ears(world.broker.live.space("other"), b"t")
    mine = Ears(world.space, b"u")
    world.publish("t", b"1")
    world.turn()
    assert ears.got == mine.got == []


def test_many_topics_and_much_of_one_take_several_turns() -> None:
    world = LiveWorld()
    ears = Ears(world.space, b">")
    count = limits.LIVE_SHOWN_PER_TURN_MAX + 3
    for number in range(count):
        world.publish(f"t{number}", b"x")
    world.broker.tick()
    world.store.commit()
    world.broker.dispatch()
    assert len(ears.got) == limits.LIVE_SHOWN_PER_TURN_MAX
    assert world.outlet.is_busy
    assert world.broker.due_ns() == world.clock.now_ns
    world.broker.dispatch()
    assert len(ears.got) == count
    assert not world.outlet.is_busy
    size_bytes = limits.LIVE_SHOWN_SIZE_BYTES_PER_TURN
    world.publish("t0", bytes(size_bytes), b"and", b"more")
    world.publish("t1", b"too")
    world.broker.tick()
    world.store.commit()
    world.broker.dispatch()
    assert len(ears.got) == count + 1
    world.turn()
    assert [payload for _, payload in ears.got[count + 1 :]] == [b"too", b"and", b"more"]


def test_what_has_to_be_read_from_the_disk_comes_later() -> None:
    world = LiveWorld()
    ears = Ears(world.space, b"t")
    world.publish("t", b"1")
    world.store.logs[0].cold = True
    world.turn()
    assert ears.got == []
    world.store.logs[0].cold = False
    world.turn()
    assert ears.got == [(b"t", b"1")]


def test_places_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LIVE_SHOWN_TOPICS_MAX", 2)
    world = LiveWorld()
    ears = Ears(world.space, b">")
    for turn in range(3):
        for number in range(2):
            world.publish(f"t{number + turn}", b"%d" % turn)
        world.turn()
    assert len(ears.got) == 6
    assert len(world.outlet._places) <= 2
    assert world.outlet.left_out[UNHEARD] == 0


def test_what_a_forgotten_topic_had_to_show_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LIVE_SHOWN_TOPICS_MAX", 2)
    world = LiveWorld()
    ears = Ears(world.space, b">")
    world.publish("a", b"a1")
    world.turn()
    # Of a all has been shown, so it makes room; then there is none but those that are behind.
    for name in ("b", "c", "d"):
        world.publish(name, b"%b1" % name.encode(), b"%b2" % name.encode())
    world.turn()
    assert ears.got == [(b"a", b"a1"), (b"c", b"c1"), (b"c", b"c2"), (b"d", b"d1"), (b"d", b"d2")]
    assert world.outlet.left_out[UNHEARD] == 2


def test_without_an_outlet_nothing_is_shown() -> None:
    world = LiveWorld()
    ears = Ears(world.space, b"t")
    world.broker.feeders.clear()
    world.publish("t", b"1")
    world.turn()
    assert ears.got == []


@pytest.mark.parametrize("name", ["a b", "a\r\nb", "a\tb", "a..b", "*", "x.>"])
def test_topics_that_no_live_message_can_name_are_not_heard(name: str) -> None:
    world = LiveWorld()
    ears = Ears(world.space, b">")
    world.publish(name, b"1")
    world.turn()
    assert ears.got == []


def test_a_topic_that_cannot_be_read_is_not_shown_and_the_others_are(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world = LiveWorld()
    bad, good = Ears(world.space, b"bad"), Ears(world.space, b"good")
    show = world.outlet._show_some

    def fail(space: LiveSpace, topic: Topic, *rest: Any) -> int:
        if topic.name == "bad":
            raise CorruptRecord("segment", position=7, expected="a record", found="rubbish")
        return show(space, topic, *rest)

    with monkeypatch.context() as broken:
        broken.setattr(world.outlet, "_show_some", fail)
        world.publish("bad", b"1")
        world.publish("good", b"1")
        world.turn()
    assert (bad.got, good.got) == ([], [(b"good", b"1")])
    assert "bad" in caplog.text
    assert not world.outlet.is_busy
    world.publish("bad", b"2")
    world.turn()
    assert bad.got == [(b"bad", b"2")]
