from __future__ import annotations

from typing import Any

import pytest

from polymq.config_sections import NatsSettings
from polymq.core.access import Principal
from polymq.core.interest.targets import KEEPS_LOCAL, KEEPS_ROUTED
from polymq.errors import ConfigError
from polymq.protocols.nats.events import Subscribe
from polymq.server.nats_bridge import bridge, capture_of, work_groups_of
from tests.unit.core.conftest import World


def test_what_is_captured_is_configured() -> None:
    capture = capture_of(NatsSettings(capture=("orders.>", "a.*", "orders.>"), capture_from="routes", capture_topics_max=7))
    assert (capture.patterns, capture.keeps, capture.topics_max) == ((b"orders.>", b"a.*"), KEEPS_ROUTED, 7)
    assert capture_of(NatsSettings()).keeps == KEEPS_LOCAL
    assert capture_of(NatsSettings(capture_from="both")).keeps == KEEPS_LOCAL | KEEPS_ROUTED


def test_how_long_stays_what_is_captured_is_configured() -> None:
    world = World(1)
    bridge(world.broker, NatsSettings(capture=("orders.>",)))
    assert world.broker.unclaimed_age_ns is None
    world = World(1)
    bridge(world.broker, NatsSettings(capture=("orders.>",), capture_never=("orders.kept",), capture_age_ns=7))
    age_ns = world.broker.unclaimed_age_ns
    assert age_ns is not None
    other = world.broker.session(Principal("other", "$SYS"))
    for name in ("orders.new", "orders.kept", "else", "orders..x", "orders.a b", "orders.*"):
        world.session.create_topic(name)
        other.create_topic(name)
    found = {key for key, topic in world.broker.catalogue.topics.items() if age_ns(topic) == 7}
    assert found == {("", "orders.new")}


def test_inboxes_and_what_is_between_servers_is_captured_by_name_only() -> None:
    everything = capture_of(NatsSettings(capture=(">",)))
    assert everything.wants(b"orders")
    assert not everything.wants(b"_INBOX.abc.1")
    assert not everything.wants(b"$SYS.REQ")
    assert not everything.wants(b"_R_.abc.1"), "answers of services that are imported"
    assert not everything.wants(b"_GR_.abc.1")
    assert capture_of(NatsSettings(capture=("_INBOX.*",))).wants(b"_INBOX.abc")


def test_every_pattern_that_is_none_is_named() -> None:
    with pytest.raises(ConfigError) as caught:
        capture_of(NatsSettings(capture=("a..b", "good", ">.x", "a b")))
    assert [problem.split('"')[1] for problem in caught.value.problems] == ["a..b", ">.x", "a b"]
    assert all(problem.startswith("nats.capture: ") for problem in caught.value.problems)


def test_a_bridge_stores_and_shows() -> None:
    world = World(1)
    bridge(world.broker, NatsSettings(capture=("orders.>",)))
    assert world.broker.live.space("ACCOUNT").archive is not None
    assert len(world.broker.feeders) == 2


@pytest.mark.parametrize(("wanted", "doors", "told"), [("off", 0, 0), ("clients", 2, 0), ("both", 2, 1)])
def test_the_log_is_read_by_requests_of_whom_it_is_open_to(wanted: str, doors: int, told: int) -> None:
    world = World(1)
    before = world.broker.live.space()
    bridge(world.broker, NatsSettings(log_requests=wanted, log_requests_routed=(">",)))
    spaces = [before, world.broker.live.space("ACCOUNT"), world.broker.live.space("$SYS")]
    assert len(world.broker.feeders) == 1 + doors
    assert [space.interest.has(b"$POLYMQ.LOG.TOPICS") for space in spaces] == [bool(doors), bool(doors), False]
    assert before.interest.local_count(b"$POLYMQ.LOG.>") == told


@pytest.mark.parametrize("text", ['["orders.>"]', "orders.>]", "'orders.>'", '"orders.>"'])
def test_a_list_where_a_text_belongs_is_refused_with_the_right_form(text: str) -> None:
    for name in ("capture", "capture_never"):
        said: dict[str, Any] = {name: (text,)}
        with pytest.raises(ConfigError) as caught:
            capture_of(NatsSettings(**said))
        (problem,) = caught.value.problems
        assert f'in a file {name} = ["orders.>", "audit.*"], on a command line nats.{name}=orders.>,audit.*' in problem


def test_what_is_never_captured_is_configured() -> None:
    capture = capture_of(NatsSettings(capture=(">", "mine.x"), capture_never=("mine.>",)))
    assert capture.wants(b"yours.x")
    assert not capture.wants(b"mine.x")


def test_what_is_open_to_other_servers_clients_is_said() -> None:
    for topics, expected in (((), "such as nats.log_requests_routed"), (("a..b",), "is no subject")):
        with pytest.raises(ConfigError) as caught:
            bridge(World(1).broker, NatsSettings(log_requests="both", log_requests_routed=topics))
        (problem,) = caught.value.problems
        assert expected in problem


def test_queue_groups_of_work_are_configured() -> None:
    broker = World(1).broker
    assert work_groups_of(broker, NatsSettings()) is None
    groups = work_groups_of(broker, NatsSettings(work_groups=("workers", "größe")))
    assert groups is not None
    assert groups.codec.left_out is broker.left_out.of("nats")
    assert [groups.mean(Subscribe(b"orders", b"1", queue.encode())) for queue in ("workers", "größe", "others", "")] == [
        True,
        True,
        False,
        False,
    ]


def test_every_queue_group_that_is_none_is_named() -> None:
    with pytest.raises(ConfigError) as caught:
        work_groups_of(World(1).broker, NatsSettings(work_groups=("good", "a b", "*", "_sys_", '["x"]')))
    assert [problem.split(": ")[1].split(" is no")[0] for problem in caught.value.problems] == ['"a b"', '"*"', '"_sys_"', '"["x"]"']
    assert all(problem.startswith("nats.work_groups: ") for problem in caught.value.problems)
