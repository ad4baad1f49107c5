"""One job over ansq (asyncio)."""

from __future__ import annotations

import asyncio
from typing import Any

import ansq

from tests.interop.clients.job import Deliveries, Job, answer, read_job


class PublishFailedError(Exception):
    """The server answered a publish with an error."""


async def publish(job: Job) -> dict[str, Any]:
    """Publish the steps one after the other, each after the answer to the one before."""
    writer = await ansq.create_writer(nsqd_tcp_addresses=[job.address])
    for step in job.steps:
        if step.delay_ms:
            response = await writer.dpub(job.topic, step.bodies[0], step.delay_ms)
        elif len(step.bodies) == 1:
            response = await writer.pub(job.topic, step.bodies[0])
        else:
            response = await writer.mpub(job.topic, *step.bodies)
        if response is None or not response.is_ok:
            raise PublishFailedError(repr(response))
    await writer.close()
    return {"published": sum(len(step.bodies) for step in job.steps)}


async def handle(job: Job, message: Any, *, finish: bool) -> None:
    """Requeue a message, or keep it as long as the job says and finish it."""
    if not finish:
        await message.req(job.requeue_delay_ms)
        return
    if job.hold_ms:
        for _ in range(job.hold_ms // job.touch_every_ms):
            await asyncio.sleep(job.touch_every_ms / 1000)
            await message.touch()
    await message.fin()


async def consume(job: Job) -> dict[str, Any]:
    """Consume until enough messages are finished, then CLS; one message is in flight at a time, as is ansq's way."""
    deliveries = Deliveries(job)
    features = ansq.ConnectionFeatures(msg_timeout=job.message_timeout_ms or 60_000)
    options = ansq.ConnectionOptions(features=features, auto_reconnect=False)
    found: dict[str, Any] = {"lookupd_http_addresses": [job.directory]} if job.directory else {"nsqd_tcp_addresses": [job.address]}
    reader = await ansq.create_reader(topic=job.topic, channel=job.channel, connection_options=options, **found)
    for connection in reader.connections:
        await connection.rdy(job.max_in_flight)
    async for message in reader.messages():
        finish = deliveries.add(
            body=message.body, message_id=message.id.encode(), attempts=message.attempts, timestamp_ns=message.timestamp
        )
        await handle(job, message, finish=finish)
        if finish and deliveries.finish_one():
            break
    await reader.close()
    return {"deliveries": deliveries.seen}


async def main() -> None:
    """Do the job."""
    job = read_job()
    answer(await {"publish": publish, "consume": consume}[job.action](job))


if __name__ == "__main__":
    asyncio.run(main())
