from __future__ import annotations

import sys

import pytest

from polymq import limits
from polymq.core.access import Action, Principal
from polymq.core.broker import Broker
from polymq.core.group import GroupKind
from polymq.core.settings import CoreSettings
from polymq.errors import Refusal, RefusalCode, StoreFailed, StoreFull
from polymq.wire.batch import Message
from polymq.wire.slices import MessageBatch

from .conftest import World, inbox
from .fakes import FakeRandom, Inbox


class Bouncer:
    """Lets nobody do anything but what is listed."""

    def __init__(self, *allowed: tuple[Action, str]) -> None:
        self.allowed = set(allowed)
        self.asked: list[tuple[Action, str, str]] = []

    def allows(self, principal: Principal, action: Action, topic: str, group: str) -> bool:
        self.asked.append((action, topic, group))
        return (action, topic) in self.allowed


def guarded(world: World, *allowed: tuple[Action, str]) -> tuple[World, Bouncer]:
    bouncer = Bouncer(*allowed)
    world.broker = Broker(world.store, world.clock, FakeRandom(), authorizer=bouncer)
    world.session = world.broker.session(Principal("somebody"))
    return world, bouncer


EVERY_DOOR = {
    "publish": lambda s: s.publish("t", MessageBatch.of([b"x"]), origin=1),
    "deferred publish": lambda s: s.publish("t", MessageBatch.of([b"x"]), origin=1, delay_ns=1),
    "publish messages": lambda s: s.publish_messages("t", [Message(b"x", key=b"k")], origin=1),
    "another session": lambda s: s.another().publish("t", MessageBatch.of([b"x"]), origin=1),
    "ensure topic": lambda s: s.ensure_topic("t"),
    "create topic": lambda s: s.create_topic("t"),
    "delete topic": lambda s: s.delete_topic("t"),
    "empty topic": lambda s: s.empty_topic("t"),
    "pause topic": lambda s: s.pause_topic("t", paused=True),
    "create group": lambda s: s.create_group("t", "g"),
    "delete group": lambda s: s.delete_group("t", "g"),
    "empty group": lambda s: s.empty_group("t", "g"),
    "pause group": lambda s: s.pause_group("t", "g", paused=True),
    "subscribe": lambda s: s.subscribe("t", "g", listener=Inbox(), lease_ns=1),
    "log": lambda s: s.log("t", 0),
    "commit": lambda s: s.commit_offset("t", "g", 0, 0),
    "committed": lambda s: s.committed("t", "g"),
}


@pytest.mark.parametrize("door", EVERY_DOOR)
def test_every_door_is_guarded(single: World, door: str) -> None:
    guarded(single)
    with pytest.raises(Refusal) as refused:
        EVERY_DOOR[door](single.session)
    assert refused.value.code is RefusalCode.FORBIDDEN
    assert single.broker.catalogue.topics == {}


def test_what_may_not_be_read_is_not_listed(single: World) -> None:
    single.publish("open", b"x")
    single.publish("secret", b"x")
    single.turn()
    topics = single.broker.catalogue.topics
    guarded(single, (Action.READ, "open"))
    for topic in topics.values():
        single.broker.catalogue.enter(topic)
    assert single.session.topic_names() == ["open"]
    assert single.session.topic_page("", 1) == (["open"], "open")
    assert single.session.topic_page("open", 1) == ([], "secret")
    assert single.session.topic_page("open", 2) == ([], None)
    assert single.session.topic("secret") is None
    assert single.session.topic("open") is not None


def test_permission_is_asked_for_once_until_somebody_else_logs_in(single: World) -> None:
    _world, bouncer = guarded(single, (Action.PUBLISH, "t"))
    for _ in range(3):
        single.publish("t", b"x")
    assert bouncer.asked == [(Action.PUBLISH, "t", "")]
    bouncer.allowed.clear()
    single.session.login(Principal("else"))
    with pytest.raises(Refusal):
        single.publish("t", b"x")


def test_namespaces_do_not_see_each_other(single: World) -> None:
    other = single.broker.session(Principal("other", namespace="elsewhere"))
    single.publish("t", b"mine")
    other.publish("t", MessageBatch.of([b"theirs"]), origin=1)
    consumer = single.consume("t", "g", 5)
    single.turn()
    assert inbox(consumer).bodies == [b"mine"]
    assert other.topic_names() == single.session.topic_names() == ["t"]
    single.publish("u", b"mine")
    assert (other.topic_page("", 2), single.session.topic_page("", 2)) == ((["t"], None), (["t", "u"], "u"))


@pytest.mark.parametrize("name", ["", "x" * 256])
def test_names_have_limits(single: World, name: str) -> None:
    with pytest.raises(Refusal) as refused:
        single.session.create_topic(name)
    assert refused.value.code is RefusalCode.TOPIC_NAME_INVALID
    single.session.create_topic("t")
    with pytest.raises(Refusal) as refused:
        single.session.create_group("t", name)
    assert refused.value.code is RefusalCode.GROUP_NAME_INVALID


def test_the_number_of_topics_has_a_limit(single: World) -> None:
    single.settings = CoreSettings(topics_max=2)
    single.restart()
    for name in ("a", "b"):
        single.session.create_topic(name)
    single.session.create_topic("a")
    with pytest.raises(Refusal) as refused:
        single.publish("c", b"x")
    assert refused.value.code is RefusalCode.LIMIT_REACHED


def test_partition_numbers_run_out_instead_of_being_reused(single: World) -> None:
    single.broker.catalogue.next_number = limits.PARTITION_NUMBER_MAX + 1
    with pytest.raises(Refusal) as refused:
        single.session.create_topic("t")
    assert refused.value.code is RefusalCode.LIMIT_REACHED


def test_a_failed_partition_is_passed_over_and_the_last_one_refuses(world: World) -> None:
    world.session.create_topic("t")
    numbers = sorted(world.store.logs)
    for number in numbers[:-1]:
        world.store.logs[number].failed = "broken"
    for _ in range(3):
        world.publish("t", b"x")
    assert world.store.logs[numbers[-1]].end == 3
    world.store.logs[numbers[-1]].failed = "broken"
    if len(numbers) > 1:
        with pytest.raises(Refusal) as refused:
            world.publish("t", b"x")
        assert refused.value.code is RefusalCode.STORE_FAILED


def test_stopping_refuses_new_work(single: World) -> None:
    single.broker.stop()
    for door in ("publish", "subscribe"):
        with pytest.raises(Refusal) as refused:
            EVERY_DOOR[door](single.session)
        assert refused.value.code is RefusalCode.SHUTTING_DOWN


def test_what_is_not_there_is_named(single: World) -> None:
    with pytest.raises(Refusal) as refused:
        single.session.delete_topic("t")
    assert refused.value.code is RefusalCode.TOPIC_NOT_FOUND
    single.session.create_topic("t")
    with pytest.raises(Refusal) as refused:
        single.session.delete_group("t", "g")
    assert refused.value.code is RefusalCode.GROUP_NOT_FOUND
    with pytest.raises(Refusal, match="partitions 0"):
        single.session.log("t", 7)


def test_names_that_anybody_makes_up_are_not_remembered_for_ever(single: World) -> None:
    for index in range(3000):
        with pytest.raises(Refusal):
            single.session.delete_topic(f"unknown{index}")
    for index in range(50):
        single.publish(f"t{index}", b"x")
        single.session.delete_topic(f"t{index}")
    assert sys.getsizeof(single.session._allowed) < 200_000
    assert single.session.published == {}
    assert single.session._targets == {}


def test_an_mpub_of_the_most_messages_that_nsqd_takes_fits(single: World) -> None:
    count = 1_048_575
    positions = memoryview(bytearray(8 * count)).cast("q")
    sizes = memoryview(bytearray((1).to_bytes(8, "little") * count)).cast("q")
    batch = MessageBatch(memoryview(b"x"), positions, sizes, first=0, count=count, size_bytes=count)
    single.session.publish("t", batch, origin=1)
    assert single.store.logs[0].end == count


SECOND_NS = 1_000_000_000


@pytest.mark.parametrize("delay_s", [0, 5])
def test_messages_keep_their_keys_and_headers(single: World, delay_s: int) -> None:
    sent = [Message(b"one", key=b"k", headers=((b"a", b"1"), (b"a", b"2"))), Message(b"two")]
    consumer = single.consume("t", "g", 9)
    single.session.publish_messages("t", sent, origin=1, delay_ns=delay_s * SECOND_NS)
    single.turn()
    assert len(inbox(consumer).bodies) == (0 if delay_s else 2)
    single.wait(delay_s + 1)
    assert inbox(consumer).bodies == [b"one", b"two"]
    view = single.view()
    assert (view.message_count, view.message_bytes) == (2, 6)
    assert single.session.published == {"t": 2}
    log = single.store.logs[view.partitions[0].number]
    assert [(message.body, message.key, message.headers) for message in log.messages()] == [
        (message.body, message.key, message.headers) for message in sent
    ]


@pytest.mark.parametrize("delay_s", [0, 5])
def test_messages_that_cannot_be_stored_are_refused(single: World, delay_s: int, monkeypatch: pytest.MonkeyPatch) -> None:
    single.publish("t", b"x", delay_ns=SECOND_NS)
    for error, code in ((StoreFull("full"), RefusalCode.STORE_FULL), (StoreFailed("failed"), RefusalCode.STORE_FAILED)):

        def fail(*_: object, error: Exception = error, **__: object) -> None:
            raise error

        for log in single.store.logs.values():
            monkeypatch.setattr(log, "append_messages", fail)
        with pytest.raises(Refusal) as refused:
            single.session.publish_messages("t", [Message(b"x")], origin=1, delay_ns=delay_s * SECOND_NS)
        assert refused.value.code is code


@pytest.mark.parametrize(
    ("there", "wanted"), [(GroupKind.CURSOR, GroupKind.WORK), (GroupKind.WORK, GroupKind.CURSOR), (GroupKind.WORK, GroupKind.LIVE)]
)
def test_a_group_of_another_kind_is_not_joined(single: World, there: GroupKind, wanted: GroupKind) -> None:
    single.session.ensure_topic("t")
    single.session.create_group("t", "g", kind=there)
    for join in (
        lambda: single.consume("t", "g", 1, kind=wanted),
        lambda: single.session.create_group("t", "g", kind=wanted),
    ):
        with pytest.raises(Refusal) as refused:
            join()
        assert (refused.value.code, refused.value.text) == (RefusalCode.GROUP_NAME_INVALID, f"g is not a {wanted.value} group")
