from __future__ import annotations

import pytest

from polymq.core.access import Principal
from polymq.core.cursor_group import NOT_COMMITTED
from polymq.core.group import GroupKind
from polymq.errors import Refusal, RefusalCode
from polymq.wire.records import Message, encode_message
from polymq.wire.slices import MessageBatch

from .conftest import World, inbox


def publish_run(world: World, topic: str, partition: int, *bodies: bytes, partitions: int | None = None) -> tuple[int, int]:
    """Give the partition, and the first offset."""
    records = b"".join(encode_message(Message(body)) for body in bodies)
    _ticket, chosen, first = world.session.publish_run(topic, partition, memoryview(records), len(bodies), origin=2, partitions=partitions)
    return chosen.index, first


def test_a_topic_gets_more_partitions_and_its_groups_have_them_from_the_start(world: World) -> None:
    worker = world.consume("t", "work", 100)
    watcher = world.consume("t", "live", 100, kind=GroupKind.LIVE)
    before = world.session.partition_count("t")
    world.session.commit_offset("t", "reader", 0, 0)
    world.session.add_partitions("t", 3)
    assert world.session.partition_count("t") == before + 3
    publish_run(world, "t", before + 2, b"a", b"b")
    world.turn()
    assert inbox(worker).bodies == [b"a", b"b"]
    assert inbox(watcher).bodies == [b"a", b"b"]
    assert world.session.committed("t", "reader") == [0] + [NOT_COMMITTED] * (before + 2)
    world.session.commit_offset("t", "reader", before + 2, 1)


@pytest.mark.parametrize("snapshot", [False, True])
def test_more_partitions_survive_a_restart(world: World, *, snapshot: bool) -> None:
    world.session.subscribe("t", "work", listener=inbox(world.consume("t", "other", 0)), lease_ns=1)
    before = world.session.partition_count("t")
    world.session.commit_offset("t", "reader", 0, 0)
    world.session.add_partitions("t", 2)
    publish_run(world, "t", before + 1, b"a")
    world.session.commit_offset("t", "reader", before + 1, 1)
    world.turn()
    if snapshot:
        world.broker.snapshot()
    world.restart()
    assert world.session.partition_count("t") == before + 2
    assert world.session.committed("t", "reader") == [0] + [NOT_COMMITTED] * before + [1]
    worker = world.consume("t", "work", 10)
    world.turn()
    assert inbox(worker).bodies == [b"a"]
    world.session.create_topic("u")
    numbers = [partition.number for name in ("t", "u") for partition in world.view(name).partitions]
    assert len(set(numbers)) == len(numbers)


def test_new_partitions_of_a_topic_that_keeps_its_messages_keep_them_too(single: World) -> None:
    single.session.create_topic("t")
    single.session.add_partitions("t", 1)
    publish_run(single, "t", 1, b"a")
    worker = single.consume("t", "work", 10)
    single.turn()
    assert inbox(worker).bodies == [b"a"]


def test_a_run_goes_to_the_partition_that_is_named_and_is_counted(world: World) -> None:
    assert publish_run(world, "t", 0, b"abc", b"de") == (0, 0)
    assert publish_run(world, "t", 0, b"f") == (0, 2)
    world.turn()
    view = world.view()
    assert (view.message_count, view.message_bytes, view.partitions[0].end) == (3, 6, 3)
    with pytest.raises(Refusal) as refused:
        publish_run(world, "t", view.partitions[-1].partition + 1, b"x")
    assert refused.value.code is RefusalCode.TOPIC_NOT_FOUND


def test_what_was_never_committed_is_told_apart_and_keeps_everything(world: World) -> None:
    publish_run(world, "t", 0, b"a")
    world.turn()
    assert world.session.cursor("t", "nobody", 0) == NOT_COMMITTED
    world.session.commit_offset("t", "reader", 0, 1)
    assert world.session.cursor("t", "reader", 0) == 1
    world.session.commit_offset("t", "reader", 0, NOT_COMMITTED)
    assert world.session.cursor("t", "reader", 0) == NOT_COMMITTED
    world.restart()
    assert world.session.cursor("t", "reader", 0) == NOT_COMMITTED
    (group,) = [topic.groups["reader"] for topic in world.broker.catalogue.topics.values()]
    assert group.first_needed(0) == 0
    world.session.create_group("t", "work")
    with pytest.raises(Refusal, match="work is not a cursor group"):
        world.session.cursor("t", "work", 0)


def test_a_commit_of_what_is_committed_writes_nothing(single: World) -> None:
    publish_run(single, "t", 0, b"a")
    single.turn()
    single.session.commit_offset("t", "reader", 0, 1)
    count = len(single.store.journal.entries)
    single.session.commit_offset("t", "reader", 0, 1)
    assert len(single.store.journal.entries) == count


def test_a_partition_is_found_by_its_number_within_the_namespace(world: World) -> None:
    world.session.create_topic("a")
    world.session.create_topic("b")
    view = world.view("b")
    for partition in view.partitions:
        assert world.session.place_of(partition.number) == ("b", partition.partition)
    with pytest.raises(Refusal):
        world.session.place_of(view.partitions[-1].number + 1)
    stranger = world.broker.session(Principal("x", namespace="elsewhere"))
    with pytest.raises(Refusal):
        stranger.place_of(view.partitions[0].number)
    world.session.delete_topic("b")
    with pytest.raises(Refusal):
        world.session.place_of(view.partitions[0].number)


def test_a_topic_is_made_with_as_many_partitions_as_are_asked_for(single: World) -> None:
    single.session.ensure_topic("t", partitions=5)
    single.session.ensure_topic("t", partitions=2)
    assert single.session.partition_count("t") == 5
    single.session.publish("t", MessageBatch.of([b"x"]), origin=1)
    with pytest.raises(Refusal) as refused:
        publish_run(single, "u", 0, b"x", partitions=0)
    assert refused.value.code is RefusalCode.TOPIC_NOT_FOUND
    publish_run(single, "u", 2, b"x", partitions=3)
    assert {publish_run(single, "u", -1, b"x", partitions=0)[0] for _ in range(6)} == {0, 1, 2}
