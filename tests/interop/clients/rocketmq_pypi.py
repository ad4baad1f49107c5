"""The jobs of `rocketmq_jobs.py`, done by the package `rocketmq` of PyPI, which is the C++ client behind ctypes.

All members of a process are one client to it, and it looks at the nameserver it was told of first: one process per server.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from typing import Any

from rocketmq.client import Message, MessageModel, Producer, PushConsumer, RecvMessage

SUCCESS, AGAIN = 0, 1
LOCK = threading.Lock()
MEMBERS: dict[str, Any] = {}


def say(what: dict[str, Any]) -> None:
    with LOCK:
        print(json.dumps(what), flush=True)


def text(data: bytes | None) -> str | None:
    return data.decode() if data else None


def start_producer(job: dict[str, Any]) -> str:
    # Two of one group are refused within a process.
    producer = Producer(f"{job['group']}-{job['name']}")
    producer.set_namesrv_addr(job["server"])
    producer.set_timeout(10_000)
    producer.start()
    MEMBERS[job["name"]] = producer
    return "started"


def message(topic: str, given: dict[str, Any]) -> Message:
    made = Message(topic)
    made.set_body(given["body"].ljust(given.get("size", 0), "."))
    if "tags" in given:
        made.set_tags(given["tags"])
    if "keys" in given:
        made.set_keys(given["keys"])
    if "delay" in given:
        made.set_delay_time_level(given["delay"])
    for name, value in given.get("properties", {}).items():
        made.set_property(name, value)
    return made


def send(job: dict[str, Any]) -> list[dict[str, Any]]:
    producer, topic, results = MEMBERS[job["name"]], job["topic"], []
    for given in job["messages"]:
        made = message(topic, given)
        if job["mode"] == "oneway":
            producer.send_oneway(made)
            continue
        result = producer.send_orderly(made, ord(given["shard"])) if job["mode"] == "ordered" else producer.send_sync(made)
        # It does not say which queue.
        results.append({"status": f"SEND_{result.status.name}", "id": result.msg_id, "offset": result.offset})
    return results


def start_push(job: dict[str, Any]) -> str:
    model = MessageModel.BROADCASTING if job["model"] == "broadcasting" else MessageModel.CLUSTERING
    consumer = PushConsumer(job["group"], orderly=job["orderly"], message_model=model)
    consumer.set_namesrv_addr(job["server"])
    consumer.set_instance_name(job.get("instance") or f"interop-{job['name']}-{time.time_ns()}")
    failed: dict[str, int] = {}

    def handle(_: int, handle: int) -> int:
        got = RecvMessage(handle)
        body = got.body.decode()
        event = {"event": "message", "name": job["name"], "body": body[:200], "size": len(body), "topic": got.topic, "tags": text(got.tags)}
        event |= {"keys": text(got.keys), "message_id": got.id, "queue": got.queue_id, "offset": got.queue_offset}
        say(event | {"reconsumed": got.reconsume_times, "properties": {}, "at": int(time.time() * 1000)})
        failed[got.id] = failed.get(got.id, 0) + 1
        times = failed[got.id] - 1 if job["orderly"] else got.reconsume_times
        return AGAIN if times < job["failures"] else SUCCESS

    # Its own callbacks cannot say that a message failed: an exception on the way to C++ becomes success.
    consumer.subscribe(job["topic"], lambda _: None, job["expression"])
    consumer._register_callback(handle)
    consumer.start()
    MEMBERS[job["name"]] = consumer
    return "started"


def close(job: dict[str, Any]) -> str:
    member = MEMBERS.pop(job["name"], None)
    if member is None:
        return "nobody"
    member.shutdown()
    # It is shut down once more when it is collected, which is an error to it.
    FORGOTTEN.append(member)
    return "closed"


FORGOTTEN: list[Any] = []
JOBS = {"producer": start_producer, "send": send, "push": start_push, "close": close}


def answer(job: dict[str, Any]) -> None:
    try:
        say({"id": job["id"], "result": JOBS[job["do"]](job)})
    except Exception as error:
        say({"id": job["id"], "error": f"{type(error).__name__}: {error}"})


def main() -> None:
    for line in sys.stdin:
        threading.Thread(target=answer, args=[json.loads(line)], daemon=True).start()


if __name__ == "__main__":
    main()
