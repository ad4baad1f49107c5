"""What brokers ask their consumers by themselves."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from polymq.clients.rocketmq_consumer import ConsumeOptions, RocketMQConsumer
from polymq.protocols.rocketmq.relaxed_json import loads
from tests.unit.clients.rocketmq_worlds import NAME_SERVER, World
from tests.unit.clients.worlds import in_virtual_time


async def pushed(code: int, ext: dict[str, str], body: bytes = b"") -> tuple[int, bytes]:
    """Consume a little, have the broker ask something, and give back the answer."""
    world = World(queues=2)
    for index in range(4):
        world.put("t", b"", index % 2)
    async with RocketMQConsumer(NAME_SERVER, "g", {"t": "*"}, consuming=ConsumeOptions(begin_from="first"), opener=world.open) as consumer:
        await consumer.take()
        await asyncio.sleep(1)
        world.broker.push(code, ext, body, oneway=False)
        await asyncio.sleep(1)
        (answer,) = world.broker.answers
        return answer.code, answer.body


def asked(code: int, ext: dict[str, str], body: bytes = b"") -> tuple[int, Any]:
    found: list[tuple[int, bytes]] = []

    async def go() -> None:
        found.append(await pushed(code, ext, body))

    in_virtual_time(go())
    return found[0][0], loads(found[0][1]) if found[0][1] else None


def test_how_a_consumer_is() -> None:
    code, document = asked(307, {"consumerGroup": "g"})
    assert code == 0
    queues = {(dict(key)["topic"], dict(key)["queueId"]): row for key, row in document["mqTable"].items()}
    assert sorted(queues) == [("%RETRY%g", 0), ("t", 0), ("t", 1)]
    assert queues["t", 0]["cachedMsgCount"] == 2
    assert document["properties"]["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
    assert {each["topic"] for each in document["subscriptionSet"]} == {"t", "%RETRY%g"}


def test_where_a_consumer_is() -> None:
    code, document = asked(221, {"topic": "t", "group": "g"})
    assert code == 0
    assert sorted(dict(key)["queueId"] for key in document["messageQueueTable"]) == [0, 1]


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{}", b'{"offsetTable":{"a":1}}', b'{"offsetTable":{{"topic":"t"}:1}}', b'{"offsetTable":{{"queueId":1}:"x"}}']
)
def test_resets_that_make_no_sense(body: bytes) -> None:
    assert asked(220, {"topic": "t", "group": "g"}, body)[0] == 1


def test_a_reset_is_answered() -> None:
    assert asked(220, {"topic": "t", "group": "g"}, b'{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"t"}:1}}')[0] == 0


@pytest.mark.parametrize("code", [39, 309, 326])
def test_what_is_not_supported(code: int) -> None:
    assert asked(code, {})[0] == 3
