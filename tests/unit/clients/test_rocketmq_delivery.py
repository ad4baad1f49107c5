"""From what a broker stores to what a program gets."""

from __future__ import annotations

import pytest

from polymq.clients.rocketmq_connection import Answer
from polymq.clients.rocketmq_delivery import delivered
from polymq.clients.rocketmq_routes import MessageQueue
from polymq.errors import RemoteProtocolError
from tests.unit.clients.rocketmq_worlds import Stored

QUEUE = MessageQueue("%RETRY%ns%g", "broker-a", 0)


def test_a_message_that_comes_again_has_its_own_topic() -> None:
    properties = "RETRY_TOPIC\x01ns%t\x02UNIQ_KEY\x01K\x02KEYS\x01a b\x02"
    stored = Stored("%RETRY%ns%g", 0, 7, 99, b"body", properties, flag=4, reconsume_times=2)
    answer = Answer(0, "", {"minOffset": "1", "maxOffset": "8"}, stored.encode())
    (message,) = delivered(answer, QUEUE, None, "ns")
    assert (message.topic, message.id, message.keys, message.attempts, message.flag) == ("t", "K", ("a", "b"), 3, 4)
    assert (message.queue_offset, message.physical_offset, message.born_ms, message.stored_ms) == (7, 99, 1000, 2000)
    assert message.offset_id == "7F00000100002A9F0000000000000063"
    assert (message.properties["MIN_OFFSET"], message.properties["MAX_OFFSET"]) == ("1", "8")


def test_a_body_that_does_not_unpack_is_delivered_as_it_is() -> None:
    stored = Stored("t", 0, 7, 99, b"body", sys_flag=1)
    (message,) = delivered(Answer(0, "", {}, stored.encode()), QUEUE, None)
    assert message.body == b"body"


def test_what_is_no_list_of_messages() -> None:
    with pytest.raises(RemoteProtocolError):
        delivered(Answer(0, "", {}, b"no such thing"), QUEUE, None)
