"""`/topic/…` and `/channel/…`: what they do. What they refuse, and in which order, is in the transcript."""

from __future__ import annotations

import pytest

from tests.unit.core.conftest import inbox
from tests.unit.gateways.nsq.http_world import NsqWorld, message, parse


@pytest.fixture
def world() -> NsqWorld:
    return NsqWorld()


def test_broken_body_of_an_endpoint_that_ignores_it(world: NsqWorld) -> None:
    head = b"POST /topic/%b?topic=t HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"
    assert message(parse(world.raw(head % b"delete").output)) == (400, "INVALID_REQUEST")
    assert parse(world.raw(head % b"create").output).status == 200


def test_topic_goes_with_its_messages(world: NsqWorld) -> None:
    world.post("/pub?topic=t", b"x")
    assert world.post("/topic/delete?topic=t").status == 200
    assert world.session.topic_names() == []


def test_emptying(world: NsqWorld) -> None:
    world.post("/pub?topic=t", b"x")
    world.post("/topic/empty?topic=t")
    world.post("/channel/create?topic=t&channel=c")
    world.post("/pub?topic=t", b"y")
    assert [group.depth for group in world.view().groups] == [1]
    world.post("/channel/empty?topic=t&channel=c")
    assert [group.depth for group in world.view().groups] == [0]


def test_pausing(world: NsqWorld) -> None:
    world.post("/topic/create?topic=t")
    world.post("/channel/create?topic=t&channel=c")
    world.post("/topic/pause?topic=t")
    world.post("/channel/pause?topic=t&channel=c")
    assert (world.view().paused, world.view().groups[0].paused) == (True, True)
    world.post("/topic/unpause?topic=t")
    world.post("/channel/unpause?topic=t&channel=c")
    assert (world.view().paused, world.view().groups[0].paused) == (False, False)


def test_making_twice_changes_nothing(world: NsqWorld) -> None:
    for _ in range(2):
        assert world.post("/topic/create?topic=t").body == b""
        assert world.post("/channel/create?topic=t&channel=c").body == b""
        world.post("/pub?topic=t", b"x")
    assert [group.depth for group in world.view().groups] == [2]


def test_first_channel_gets_the_backlog(world: NsqWorld) -> None:
    world.post("/pub?topic=t", b"x")
    world.post("/channel/create?topic=t&channel=first")
    world.post("/channel/create?topic=t&channel=second")
    assert {group.name: group.depth for group in world.view().groups} == {"first": 1, "second": 0}


def test_consumers_of_a_deleted_channel_are_told(world: NsqWorld) -> None:
    world.post("/topic/create?topic=t")
    subscription = world.consume("t", "c", 1)
    world.post("/channel/delete?topic=t&channel=c")
    assert inbox(subscription).reason != ""
    assert world.view().groups == ()


def test_ephemeral_topic_goes_with_its_last_channel(world: NsqWorld) -> None:
    world.post("/topic/create?topic=t%23ephemeral")
    world.post("/channel/create?topic=t%23ephemeral&channel=c")
    world.post("/channel/delete?topic=t%23ephemeral&channel=c")
    assert world.session.topic_names() == []


def test_larger_bodies_than_anybody_reads_do_not_matter(world: NsqWorld) -> None:
    wire = world.raw(b"POST /topic/create?topic=t HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999\r\n\r\n")
    assert parse(wire.output).headers["Connection"] == "close"
    assert world.session.topic_names() == ["t"]


def test_a_topic_may_have_several_partitions_and_its_own_durability(world: NsqWorld) -> None:
    assert world.post("/topic/create?topic=t&partitions=4&durability=fsync").status == 200
    assert len(world.view().partitions) == 4
    topic = world.broker.catalogue.topics["", "t"]
    assert topic.sync
    assert world.post("/topic/create?topic=t&partitions=2").status == 200
    assert len(world.view().partitions) == 4, "one that is there stays as it is"
    world.post("/topic/create?topic=u&durability=cache")
    assert not world.broker.catalogue.topics["", "u"].sync
    world.post("/topic/create?topic=v%23ephemeral&partitions=2")
    assert world.broker.catalogue.topics["", "v#ephemeral"].ephemeral


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("topic=t&partitions=0", "INVALID_PARTITIONS"),
        ("topic=t&partitions=257", "INVALID_PARTITIONS"),
        ("topic=t&partitions=x", "INVALID_PARTITIONS"),
        ("topic=t&durability=", "INVALID_DURABILITY"),
        ("topic=t&durability=ram", "INVALID_DURABILITY"),
        ("topic=%21&partitions=2", "INVALID_TOPIC"),
        ("partitions=2", "MISSING_ARG_TOPIC"),
    ],
)
def test_what_a_new_topic_cannot_have_is_refused(world: NsqWorld, query: str, problem: str) -> None:
    assert message(world.post(f"/topic/create?{query}")) == (400, problem)
    assert world.session.topic_names() == []
