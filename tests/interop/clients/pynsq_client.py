"""One job over pynsq (tornado)."""

from __future__ import annotations

import asyncio
import functools
from typing import Any

import nsq

from tests.interop.clients.job import Deliveries, Job, answer, read_job


class PublishFailedError(Exception):
    """The server answered a publish with an error."""


async def publish(job: Job) -> dict[str, Any]:
    """Publish the steps one after the other, each after the answer to the one before."""
    writer = nsq.Writer([job.address])
    while not writer.conns or not all(connection.state == "CONNECTED" for connection in writer.conns.values()):  # noqa: ASYNC110 - pynsq's writer has no event for it
        await asyncio.sleep(0.01)
    for step in job.steps:
        answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def done(_connection: object, data: object, answered: asyncio.Future[Any] = answered) -> None:
            answered.set_result(data)

        if step.delay_ms:
            writer.dpub(job.topic, step.delay_ms, step.bodies[0], callback=done)
        elif len(step.bodies) == 1:
            writer.pub(job.topic, step.bodies[0], callback=done)
        else:
            writer.mpub(job.topic, step.bodies, callback=done)
        result = await answered
        if isinstance(result, Exception) or result != b"OK":
            raise PublishFailedError(repr(result))
    return {"published": sum(len(step.bodies) for step in job.steps)}


async def hold(job: Job, message: Any, finish: functools.partial[None]) -> None:
    """Keep a message for a while, and touch it now and then."""
    for _ in range(job.hold_ms // job.touch_every_ms):
        await asyncio.sleep(job.touch_every_ms / 1000)
        message.touch()
    finish()


async def consume(job: Job) -> dict[str, Any]:
    """Consume until enough messages are finished; pynsq then simply closes the connection."""
    deliveries = Deliveries(job)
    enough = asyncio.Event()
    tasks = set()

    def finish(message: Any) -> None:
        message.finish()
        if deliveries.finish_one():
            enough.set()

    def handle(message: Any) -> None:
        message.enable_async()
        if not deliveries.add(body=message.body, message_id=message.id, attempts=message.attempts, timestamp_ns=message.timestamp):
            message.requeue(backoff=False, time_ms=job.requeue_delay_ms)
        elif job.hold_ms:
            tasks.add(asyncio.get_running_loop().create_task(hold(job, message, functools.partial(finish, message))))
        else:
            finish(message)

    options = {"msg_timeout": job.message_timeout_ms // 1000} if job.message_timeout_ms else {}
    found = {"lookupd_http_addresses": [job.directory]} if job.directory else {"nsqd_tcp_addresses": [job.address]}
    reader = nsq.Reader(
        topic=job.topic,
        channel=job.channel,
        message_handler=handle,
        max_in_flight=job.max_in_flight,
        **found,
        **options,
    )
    await enough.wait()
    reader.close()
    # What was written is sent in the loop's next turns.
    await asyncio.sleep(0.1)
    return {"deliveries": deliveries.seen}


async def main() -> None:
    """Do the job."""
    job = read_job()
    answer(await {"publish": publish, "consume": consume}[job.action](job))


if __name__ == "__main__":
    asyncio.run(main())
