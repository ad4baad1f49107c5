"""What is sent and what is delivered, without a connection."""

from __future__ import annotations

from typing import Any

import pytest

from polymq.clients.rocketmq_messages import OutgoingMessage, RocketMQMessage, SendResult
from polymq.clients.rocketmq_routes import MessageQueue
from polymq.errors import LocalProtocolError

QUEUE = MessageQueue("t", "broker-a", 1)


def test_properties_of_a_message() -> None:
    message = OutgoingMessage(
        "t", b"", tags="T", keys=["a", "b"], properties={"mine": "1"}, sharding_key=7, delay_level=3, wait_store=False
    )
    assert message.all_properties("KEY") == {
        "mine": "1",
        "KEYS": "a b",
        "DELAY": "3",
        "__SHARDINGKEY": "7",
        "UNIQ_KEY": "KEY",
        "WAIT": "false",
        "TAGS": "T",
    }
    assert OutgoingMessage("t", b"", delay_ms=5).all_properties("K")["TIMER_DELAY_MS"] == "5"
    assert OutgoingMessage("t", b"", deliver_at_ms=5).all_properties("K")["TIMER_DELIVER_MS"] == "5"
    assert OutgoingMessage("t", b"", keys="one").keys == ("one",)
    assert not OutgoingMessage("t", b"").is_delayed


@pytest.mark.parametrize(
    "values",
    [
        {"delay_level": -1},
        {"delay_ms": 1, "delay_level": 1},
        {"deliver_at_ms": 1, "delay_ms": 1},
        {"properties": {"DELAY": "1"}},
        {"properties": {"a": "b\x02c"}},
        {"properties": {"a\x01": "b"}},
        {"tags": "a\x01"},
        {"keys": ["a\x02"]},
    ],
)
def test_messages_that_no_broker_would_understand(values: dict[str, Any]) -> None:
    with pytest.raises(LocalProtocolError):
        OutgoingMessage("t", b"", **values)


def test_results() -> None:
    assert SendResult("id", "offset", QUEUE, 3).is_safe
    assert not SendResult("id", "offset", QUEUE, 3, 10).is_safe


class Clerk:
    def __init__(self) -> None:
        self.steps: list[tuple[str, int]] = []

    def settle(self, message: RocketMQMessage) -> None:
        self.steps.append(("settle", 0))

    def requeue(self, message: RocketMQMessage, delay_level: int) -> None:
        self.steps.append(("requeue", delay_level))

    def let_be(self, message: RocketMQMessage) -> None:
        self.steps.append(("let_be", 0))

    def holds(self, message: RocketMQMessage) -> bool:
        return True


def test_a_delivered_message_is_ended_once() -> None:
    clerk = Clerk()
    for end in ("settle", "requeue", "drop"):
        message = RocketMQMessage("t", QUEUE, 5, b"body", {"UNIQ_KEY": "K", "KEYS": "a b", "TAGS": "x"}, clerk)
        assert message.is_current
        getattr(message, end)()
        assert not message.is_current
        with pytest.raises(LocalProtocolError, match="message K has been"):
            message.settle()
    assert clerk.steps == [("settle", 0), ("requeue", 0), ("let_be", 0)]
    assert (message.id, message.keys, message.tags, message.reconsume_times) == ("K", ("a", "b"), "x", 0)
    assert "body" not in repr(message)


def test_a_message_of_nobody_cannot_be_settled() -> None:
    message = RocketMQMessage("t", QUEUE, 5, b"body", {})
    message.offset_id = "O"
    assert message.id == "O"
    assert not message.is_current
    with pytest.raises(LocalProtocolError, match="committed, not settled"):
        message.settle()
