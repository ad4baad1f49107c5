"""docs/CONVERSIONS.md says what is so: it is written by sending samples. And what its tables cannot show: the largest bodies, many messages."""

from __future__ import annotations

from pathlib import Path

import pytest

from polymq.limits import MESSAGE_SIZE_BYTES_MAX
from polymq.protocols.phpmq import frames as phpmq
from polymq.wire.slices import MessageBatch
from tests.conversions.page import page
from tests.conversions.publishers import FIELDS, PUBLISHERS, Sample
from tests.conversions.world import NAMES, World

PAGE = Path(__file__).parents[2] / "docs" / "CONVERSIONS.md"


def test_the_page_is_what_would_be_written() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "make conversions writes it again"


def test_nothing_in_the_page_is_wrong() -> None:
    """What the cells say where something is not as it should be."""
    text = PAGE.read_text(encoding="utf-8")
    assert [word for word in ("changed", "never", "another time") if f"| {word} |" in text] == []


def test_the_largest_body_reaches_every_reader() -> None:
    """So nothing that the log takes is too large for anybody: settings of one protocol are for what it publishes."""
    world = World()
    body = bytes(range(256)) * (MESSAGE_SIZE_BYTES_MAX // 256)
    world.core.session.publish(world.topic, MessageBatch.of([body]), origin=9)
    for name in NAMES:
        (seen,) = world.read(name)
        assert seen.body == body, name


@pytest.mark.parametrize("publisher", sorted(PUBLISHERS))
def test_what_a_queue_puts_back_goes_out_by_others_once(publisher: str) -> None:
    """005 appends it anew: with others before, between and behind, readers get all of them once and in order."""
    world = World()
    for number in range(6):
        PUBLISHERS[publisher](world, Sample(b"%d" % number))
        for seen in world.read("PHPMQ"):
            world.say("PHPMQ", phpmq.requeue(world.topic, seen.id, ttl_s=100))
    assert sorted(seen.body for seen in world.read("PHPMQ")) == [b"%d" % number for number in range(6)]
    for name in NAMES:
        if name != "PHPMQ":
            assert [seen.body for seen in world.read(name)] == [b"%d" % number for number in range(6)], name


@pytest.mark.parametrize(("ttl_s", "expected"), [(0, [b"x"]), (50, [b"x"]), (1, [])])
def test_what_is_put_back_for_longer_is_there_for_who_reads_later(ttl_s: int, expected: list[bytes]) -> None:
    world = World()
    world.clock.now_ns = 1_234_567_891
    PUBLISHERS["PHPMQ"](world, Sample(b"x", ttl_s=4))
    (seen,) = world.read("PHPMQ")
    world.say("PHPMQ", phpmq.requeue(world.topic, seen.id, ttl_s=ttl_s))
    world.wait(5)
    assert [seen.body for seen in world.read("RocketMQ")] == expected


@pytest.mark.parametrize("publisher", sorted(PUBLISHERS))
def test_every_reader_gets_every_message_once_and_in_order(publisher: str) -> None:
    world = World()
    bodies = [b"%d" % number for number in range(200)]
    for body in bodies:
        headers = (("number", body.decode()),) if "headers" in FIELDS[publisher] else ()
        PUBLISHERS[publisher](world, Sample(body, headers=headers))
    for name in NAMES:
        found = world.read(name)
        while name == "NSQ" and len(found) < len(bodies):  # it has a hundred at a time
            for seen in found[-100:]:
                world.say("NSQ", b"FIN %b\n" % seen.id)
            found += world.read(name)
        if name == "PHPMQ":  # so has it
            assert [seen.body for seen in found] == bodies[:100]
            continue
        assert [seen.body for seen in found] == bodies
        for seen in found:
            if seen.headers:
                assert seen.headers == ((b"number", seen.body),)
    assert sum(world.broker.left_out.of("nats")) + sum(world.broker.left_out.of("rocketmq")) == 0
