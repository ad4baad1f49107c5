"""As much of RocketMQ's protocol as it takes to see that a server is up: a topic, a message sent, the message pulled."""

from __future__ import annotations

import json
import socket
import struct
import time
from dataclasses import dataclass
from typing import Self

__all__ = ["Asking", "make_topic", "message_passed"]

PULL, CREATE_TOPIC, ROUTE, SEND = 11, 17, 105, 310
SUCCESS, TOPIC_NOT_EXIST, PULL_NOT_FOUND = 0, 17, 19
TIMEOUT_S = 5.0
POLL_S = 0.005
LIKENESS = "TBW102"
BODY = b"is anybody there?"


@dataclass(frozen=True, slots=True)
class Said:
    """An answer."""

    code: int
    ext: dict[str, str]
    body: bytes
    remark: str


class Asking:
    """A connection that asks one question at a time."""

    def __init__(self, address: str) -> None:
        host, port = address.split(":")
        self.connection = socket.create_connection((host, int(port)), timeout=TIMEOUT_S)
        self.file = self.connection.makefile("rb")
        self.opaque = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()
        self.connection.close()

    def ask(self, code: int, ext: dict[str, str], body: bytes = b"") -> Said:
        """Send a request and wait for its answer; OSError when there is none."""
        self.opaque += 1
        fields = {"code": code, "extFields": ext, "flag": 0, "language": "JAVA", "opaque": self.opaque}
        header = json.dumps({**fields, "serializeTypeCurrentRPC": "JSON", "version": 409}, separators=(",", ":")).encode()
        self.connection.sendall(struct.pack(">II", 4 + len(header) + len(body), len(header)) + header + body)
        head = self.file.read(8)
        if len(head) < 8:
            raise ConnectionResetError("the server closed the connection")
        size, header_size = struct.unpack(">II", head)
        rest = self.file.read(size - 4)
        told = json.loads(rest[:header_size])
        return Said(told["code"], told.get("extFields") or {}, rest[header_size:], told.get("remark") or "")


def broker_of(nameserver: Asking, topic: str) -> str | None:
    """Where a topic is; None where the nameserver does not know it."""
    said = nameserver.ask(ROUTE, {"topic": topic, "acceptStandardJsonOnly": "true"})
    if said.code == TOPIC_NOT_EXIST:
        return None
    if said.code != SUCCESS:
        raise OSError(f"the question for {topic} is answered by {said.code} {said.remark}")
    return str(json.loads(said.body)["brokerDatas"][0]["brokerAddrs"]["0"])


def make_topic(address: str, topic: str, queues: int) -> str:
    """Have a topic, and say which broker has it; OSError while there is none that would take it."""
    with Asking(address) as nameserver:
        found = broker_of(nameserver, topic)
        if found:
            return found
        broker = broker_of(nameserver, LIKENESS)
        if broker is None:
            raise OSError("the nameserver knows no broker")
        number = str(queues)
        wanted = {"topic": topic, "defaultTopic": LIKENESS, "readQueueNums": number, "writeQueueNums": number}
        with Asking(broker) as asking:
            said = asking.ask(CREATE_TOPIC, {**wanted, "perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"})
        if said.code != SUCCESS:
            raise OSError(f"the wish for {topic} is answered by {said.code} {said.remark}")
        deadline = time.monotonic() + TIMEOUT_S
        while broker_of(nameserver, topic) is None:
            if time.monotonic() > deadline:
                raise OSError(f"the broker does not tell the nameserver of {topic}")
            time.sleep(POLL_S)
        return broker


def message_passed(address: str, topic: str) -> None:
    """Send a message to a topic and pull it; OSError when that does not succeed."""
    with Asking(make_topic(address, topic, 4)) as broker:
        now = str(time.time_ns() // 1_000_000)
        ext = {
            "a": "bench",
            "b": topic,
            "c": LIKENESS,
            "d": "4",
            "e": "0",
            "f": "0",
            "g": now,
            "h": "0",
            "i": "WAIT\1true",
            "j": "0",
            "k": "false",
        }
        sent = broker.ask(SEND, ext, BODY)
        if sent.code != SUCCESS:
            raise OSError(f"a message is answered by {sent.code} {sent.remark}")
        wanted = {"consumerGroup": "bench", "topic": topic, "queueId": "0", "queueOffset": sent.ext["queueOffset"], "maxMsgNums": "1"}
        held = {"sysFlag": "6", "commitOffset": "0", "suspendTimeoutMillis": "1000", "subscription": "*", "subVersion": "0"}
        pulled = broker.ask(PULL, {**wanted, **held, "expressionType": "TAG"})
        if pulled.code != SUCCESS or BODY not in pulled.body:
            raise OSError(f"a pull is answered by {pulled.code} {pulled.remark}")
