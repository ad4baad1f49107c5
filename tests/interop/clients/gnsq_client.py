"""One job over gnsq (gevent)."""

from __future__ import annotations

from typing import Any

import gevent
import gnsq

from tests.interop.clients.job import Deliveries, Job, answer, read_job


def publish(job: Job) -> dict[str, Any]:
    """Publish the steps one after the other; an error is raised by gnsq."""
    producer = gnsq.Producer(job.address)
    producer.start()
    for step in job.steps:
        if len(step.bodies) > 1:
            producer.multipublish(job.topic, step.bodies)
        else:
            producer.publish(job.topic, step.bodies[0], defer=step.delay_ms or None)
    producer.close()
    producer.join()
    return {"published": sum(len(step.bodies) for step in job.steps)}


def consume(job: Job) -> dict[str, Any]:
    """Consume until enough messages are finished, then close."""
    deliveries = Deliveries(job)
    enough = gevent.event.Event()
    assert not job.message_timeout_ms, "gnsq cannot ask for one"
    found = {"lookupd_http_addresses": [job.directory]} if job.directory else {"nsqd_tcp_addresses": [job.address]}
    consumer = gnsq.Consumer(job.topic, job.channel, max_in_flight=job.max_in_flight, max_backoff_duration=0, **found)

    def hold(message: Any) -> None:
        for _ in range(job.hold_ms // job.touch_every_ms):
            gevent.sleep(job.touch_every_ms / 1000)
            message.touch()
        finish(message)

    def finish(message: Any) -> None:
        message.finish()
        if deliveries.finish_one():
            enough.set()

    def handle(_consumer: object, message: Any) -> None:
        message.enable_async()
        if not deliveries.add(body=message.body, message_id=message.id, attempts=message.attempts, timestamp_ns=message.timestamp):
            message.requeue(job.requeue_delay_ms, backoff=False)
        elif job.hold_ms:
            gevent.spawn(hold, message)
        else:
            finish(message)

    consumer.on_message.connect(handle, weak=False)
    consumer.start(block=False)
    enough.wait()
    consumer.close()
    consumer.join(timeout=2)
    return {"deliveries": deliveries.seen}


def main() -> None:
    """Do the job."""
    job = read_job()
    answer({"publish": publish, "consume": consume}[job.action](job))


if __name__ == "__main__":
    main()
