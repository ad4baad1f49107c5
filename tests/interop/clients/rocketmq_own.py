"""The jobs of `rocketmq_jobs.py`, done by our own client, `polymq.clients.rocketmq`."""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from polymq.clients.rocketmq import (
    ConsumeOptions,
    OutgoingMessage,
    PollOptions,
    RocketMQConsumer,
    RocketMQMessage,
    RocketMQOptions,
    RocketMQProducer,
    RocketMQPullConsumer,
    SendResult,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

MEMBERS: dict[str, Any] = {}
TASKS: dict[str, asyncio.Task[None]] = {}
NUMBERS = itertools.count()
# From another thread into the loop.
STARTED: set[asyncio.Task[None]] = set()


def say(what: dict[str, Any]) -> None:
    print(json.dumps(what), flush=True)


def options(job: dict[str, Any], **more: Any) -> RocketMQOptions:
    return RocketMQOptions(instance=job.get("instance") or f"own{next(NUMBERS)}at{time.time_ns()}", binary=next(NUMBERS) % 3 == 0, **more)


async def start_producer(job: dict[str, Any]) -> str:
    producer = RocketMQProducer(job["server"], options(job, send_seconds=10, request_seconds=10), group=job["group"])
    MEMBERS[job["name"]] = await producer.__aenter__()
    return "started"


def message(topic: str, given: dict[str, Any]) -> OutgoingMessage:
    return OutgoingMessage(
        topic,
        given["body"].encode().ljust(given.get("size", 0), b"."),
        tags=given.get("tags", ""),
        keys=given.get("keys", "").split(),
        properties=given.get("properties", {}),
        flag=given.get("flag", 0),
        delay_level=given.get("delay", 0),
        sharding_key=given.get("shard"),
    )


def shown_result(result: SendResult) -> dict[str, Any]:
    status = "SEND_OK" if result.is_safe else str(result.code)
    return {"status": status, "id": result.id, "offset_id": result.offset_id, "queue": result.queue.queue_id, "offset": result.queue_offset}


async def send(job: dict[str, Any]) -> list[dict[str, Any]]:
    producer: RocketMQProducer = MEMBERS[job["name"]]
    messages = [message(job["topic"], given) for given in job["messages"]]
    if job["mode"] == "oneway":
        for each in messages:
            await producer.send_one_way(each)
        return []
    if job["mode"] == "batch":
        return [shown_result(await producer.send_batch(messages))]
    if job["mode"] == "async":
        return [shown_result(each) for each in await asyncio.gather(*map(producer.send, messages))]
    return [shown_result(await producer.send(each)) for each in messages]


def tell(name: str, got: RocketMQMessage) -> None:
    event = {"event": "message", "name": name, "body": got.body[:200].decode(), "size": len(got.body), "topic": got.topic}
    event |= {"tags": got.tags or None, "keys": " ".join(got.keys) or None, "flag": got.flag, "message_id": got.id}
    event |= {"queue": got.queue.queue_id, "offset": got.queue_offset, "reconsumed": got.reconsume_times, "born": got.born_ms}
    say(event | {"stored": got.stored_ms, "properties": got.properties, "at": int(time.time() * 1000)})


async def start_push(job: dict[str, Any]) -> str:
    consuming = ConsumeOptions(
        begin_from=job["from"],
        is_ordered=job["orderly"],
        is_broadcast=job["model"] == "broadcasting",
        reconsume_times_max=job["reconsume_max"],
        suspend_seconds=0.1,
    )
    consumer = RocketMQConsumer(job["server"], job["group"], {job["topic"]: job["expression"]}, options(job), consuming=consuming)

    async def handle(got: RocketMQMessage) -> None:
        tell(job["name"], got)
        if got.reconsume_times < job["failures"]:
            got.requeue(job["level"])

    MEMBERS[job["name"]] = await consumer.__aenter__()
    TASKS[job["name"]] = asyncio.create_task(consumer.run(handle, concurrency=4))
    return "started"


async def start_lite(job: dict[str, Any]) -> str:
    topics = {} if job["assign"] else {job["topic"]: job["expression"]}
    polling = PollOptions(begin_from="first")
    consumer = RocketMQPullConsumer(job["server"], job["group"], topics, options(job), polling=polling)
    MEMBERS[job["name"]] = await consumer.__aenter__()
    if job["assign"]:
        queues = await consumer.queues_of(job["topic"])
        await consumer.assign(queues)
        for queue in queues:
            await consumer.seek_to_begin(queue)

    async def poll() -> None:
        while job["name"] in MEMBERS:
            for got in await consumer.poll(0.2):
                tell(job["name"], got)

    TASKS[job["name"]] = asyncio.create_task(poll())
    return "started"


async def queues(job: dict[str, Any]) -> list[int]:
    consumer: RocketMQConsumer = MEMBERS[job["name"]]
    return sorted(number for topic, _, number in consumer.queues if not topic.startswith("%RETRY%"))


async def close(job: dict[str, Any]) -> str:
    member = MEMBERS.pop(job["name"], None)
    if member is None:
        return "nobody"
    task = TASKS.pop(job["name"], None)
    if isinstance(member, RocketMQPullConsumer) and task is not None:
        await task
    await (member.close(5) if isinstance(member, RocketMQConsumer) else member.close())
    if task is not None:
        await task
    return "closed"


JOBS: dict[str, Callable[[dict[str, Any]], Coroutine[Any, Any, Any]]] = {
    "producer": start_producer,
    "send": send,
    "push": start_push,
    "lite": start_lite,
    "queues": queues,
    "close": close,
}


async def answer(job: dict[str, Any]) -> None:
    try:
        say({"id": job["id"], "result": await JOBS[job["do"]](job)})
    except Exception as error:
        say({"id": job["id"], "error": f"{type(error).__name__}: {error}"})


def begin(line: str) -> None:
    task = asyncio.get_running_loop().create_task(answer(json.loads(line)))
    STARTED.add(task)
    task.add_done_callback(STARTED.discard)


async def main() -> None:
    loop = asyncio.get_running_loop()
    over = asyncio.Event()

    def listen() -> None:
        for line in sys.stdin:
            loop.call_soon_threadsafe(begin, line)
        loop.call_soon_threadsafe(over.set)

    threading.Thread(target=listen, daemon=True).start()
    await over.wait()


if __name__ == "__main__":
    asyncio.run(main())
