"""An asyncio client of RocketMQ's remoting protocol, without Java: works with RocketMQ 4.9 and 5 and with polymq.

    async with RocketMQProducer("127.0.0.1:9876") as producer:
        await producer.send(OutgoingMessage("flights", b"...", tags="delays", keys=["DL1149"]))
        await producer.send(OutgoingMessage("flights", b"...", sharding_key="DL1149"))   # in order with others of this key
        await producer.send(OutgoingMessage("flights", b"...", delay_level=3))           # in 10 s

    async with RocketMQConsumer("127.0.0.1:9876", "board", {"flights": "delays || gates"}) as consumer:
        await consumer.run(handle, concurrency=20)     # or: async for message in consumer: ...; message.settle()

    async with RocketMQPullConsumer("127.0.0.1:9876", "archive", "flights") as consumer:
        while messages := await consumer.poll(5):
            ...

Groups may be mixed with Java's clients: queues are divided as they do it. Read next: `rocketmq_producer.py`,
`rocketmq_consumer.py`, `rocketmq_pull.py`; `rocketmq_sync.py` has the same for scripts.
"""

from __future__ import annotations

from polymq.clients.rocketmq_allocation import allocate_averagely, allocate_in_circle
from polymq.clients.rocketmq_consumer import ConsumeOptions, RocketMQConsumer
from polymq.clients.rocketmq_messages import OutgoingMessage, RocketMQMessage, SendResult
from polymq.clients.rocketmq_options import RocketMQOptions, RocketMQTls
from polymq.clients.rocketmq_producer import RocketMQProducer
from polymq.clients.rocketmq_pull import PollOptions, RocketMQPullConsumer
from polymq.clients.rocketmq_reader import PullOptions
from polymq.clients.rocketmq_routes import MessageQueue

__all__ = [
    "ConsumeOptions",
    "MessageQueue",
    "OutgoingMessage",
    "PollOptions",
    "PullOptions",
    "RocketMQConsumer",
    "RocketMQMessage",
    "RocketMQOptions",
    "RocketMQProducer",
    "RocketMQPullConsumer",
    "RocketMQTls",
    "SendResult",
    "allocate_averagely",
    "allocate_in_circle",
]
