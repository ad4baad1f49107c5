"""Positions of queues: as text, numbered, and after a loss."""

from __future__ import annotations

import json

from polymq.clients.rocketmq_queues import Extent, MessageQueue
from polymq.spark.rocketmq.offsets import Position, Range, decode, encode, limit, numbered, resume, split

A0, A1, A2 = (MessageQueue("orders", "broker-a", number) for number in range(3))
B0, B1 = (MessageQueue("orders", "broker-b", number) for number in range(2))
EVENT = MessageQueue("events", "broker-b", 0)


def test_positions_are_the_same_text_in_whichever_order_they_were_found() -> None:
    positions = {B0: Position(7, 2), A1: Position(0, 1), A0: Position(5, 0), EVENT: Position(1, 0)}
    text = json.dumps(encode(positions))
    assert text == json.dumps(encode(dict(reversed(positions.items()))))
    assert decode(json.loads(text)) == positions
    assert encode({A1: Position(3, 1)}) == {"orders": {"broker-a": {"1": {"offset": 3, "partition": 1}}}}


def test_queues_of_one_broker_keep_their_own_numbers() -> None:
    assert numbered({}, [A1, A0, EVENT]) == {A0: 0, A1: 1, EVENT: 0}


def test_queues_of_several_brokers_are_numbered_as_they_were_first_seen() -> None:
    first = numbered({}, [B0, A0, A1])
    assert first == {A0: 0, A1: 1, B0: 2}
    assert numbered(first, [A2, B1, A0]) == first | {A2: 3, B1: 4}
    assert numbered({B0: 9}, [A0]) == {B0: 9, A0: 10}


def test_reading_goes_on_where_there_is_something() -> None:
    assert resume(A0, 5, Extent(5, 5)) == (5, None)
    begin, text = resume(A0, 4, Extent(5, 9))
    assert (begin, text) == (5, "orders/broker-a/0 starts at offset 5: what was there from 4 on has been removed")
    begin, text = resume(A0, 10, Extent(5, 9))
    assert (begin, text) == (9, "orders/broker-a/0 ends at offset 9, but offset 10 had been reached")


def test_ranges_are_shortened_and_cut() -> None:
    ranges = [Range(A0, 0, 10, 110), Range(A1, 1, 0, 50), Range(A2, 2, 3, 3)]
    assert [(each.start, each.end) for each in limit(ranges, 30)] == [(10, 30), (0, 10), (3, 3)]
    parts = split(ranges, parts_min=3, records_max=60)
    assert [(each.partition, each.start, each.end) for each in parts] == [(0, 10, 60), (0, 60, 110), (1, 0, 50)]
