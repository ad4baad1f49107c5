"""A RocketMQ name server and brokers on loopback, which hold queues in memory and do what tests want of them."""

from __future__ import annotations

import json
import socket
import struct
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from polymq.protocols.rocketmq.encode import encode_response
from polymq.protocols.rocketmq.header import decode_binary, decode_json
from polymq.protocols.rocketmq.messages import StoredMessage, body_crc
from polymq.protocols.rocketmq.names import tag_hash
from polymq.protocols.rocketmq.properties import get
from polymq.protocols.rocketmq.runs import encode_one

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["BASE_TIME_MS", "FakeQueue", "FakeQueues", "Reply"]

BASE_TIME_MS: Final = 1_795_212_447_000
Reply = tuple[int, str, dict[str, str], bytes]


@dataclass
class FakeQueue:
    """The messages of a queue from `first` on; None is one that is left out. Message n is stored at BASE_TIME_MS + 10 n."""

    first: int = 0
    messages: list[bytes | None] = field(default_factory=list)

    @property
    def end(self) -> int:
        return self.first + len(self.messages)


class FakeQueues:
    """One name server and its brokers, all behind one port: `queues[topic][broker]` are a broker's queues of a topic.

    `scripts` has who answers a code instead; raising OSError closes the connection. `away` are brokers that are not there.
    """

    def __init__(self) -> None:
        self.queues: dict[str, dict[str, list[FakeQueue]]] = {}
        self.away: set[str] = set()
        self.asked: list[tuple[int, dict[str, str]]] = []
        self.committed: dict[tuple[str, str, str], int] = {}
        self.scripts: dict[int, Callable[[dict[str, str]], Reply | None]] = {}
        self.pull_count_max = 32
        self.binary = False
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def create(self, topic: str, queues: int = 1, broker: str = "broker-a") -> list[FakeQueue]:
        made = [FakeQueue() for _ in range(queues)]
        self.queues.setdefault(topic, {})[broker] = made
        return made

    def put(self, topic: str, count: int, queue: int = 0, broker: str = "broker-a", properties: str = "", body: bytes = b"") -> None:
        """Store messages whose bodies are their offsets."""
        target = self.queues[topic][broker][queue]
        for offset in range(target.end, target.end + count):
            text = body or b"%d" % offset
            message = StoredMessage(topic, queue, offset, 1000 * queue + offset, text, properties.encode())
            target.messages.append(encode_one(replace_times(message, BASE_TIME_MS + 10 * offset)))

    def close(self) -> None:
        self._listening.close()
        for each in self._open:
            each.close()

    def codes(self) -> list[int]:
        return [code for code, _ in self.asked]

    # --- Inside -------------------------------------------------------------------------------------------------------

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            self._open.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        reader = connection.makefile("rb")
        try:
            while size := reader.read(4):
                frame = reader.read(int.from_bytes(size, "big"))
                end = 4 + int.from_bytes(frame[1:4], "big")
                head = (decode_binary if frame[0] else decode_json)(frame[4:end])
                self.asked.append((head.code, head.ext))
                code, remark, ext, body = self._answer(head.code, head.ext)
                connection.sendall(encode_response(code, head.opaque, remark=remark, ext=ext, body=body, binary=self.binary))
        except OSError:
            pass
        finally:
            reader.close()
            connection.close()

    def _answer(self, code: int, ext: dict[str, str]) -> Reply:
        if code in self.scripts and (scripted := self.scripts[code](ext)) is not None:
            return scripted
        match code:
            case 105:
                return self._route(ext["topic"])
            case 106:
                names = {name for brokers in self.queues.values() for name in brokers} - self.away
                table = {name: {"brokerAddrs": {"0": self.address}, "brokerName": name, "cluster": "c"} for name in names}
                return 0, "", {}, json.dumps({"brokerAddrTable": table, "clusterAddrTable": {"c": sorted(names)}}).encode()
            case 206:
                return 0, "", {}, json.dumps({"topicList": ["TBW102", "c", "broker-a", "%RETRY%g", *self.queues]}).encode()
            case 15:
                self.committed[ext["topic"], ext["bname"], ext["queueId"]] = int(ext["commitOffset"])
                return 0, "", {}, b""
        return self._of_queue(code, ext)

    def _route(self, topic: str) -> Reply:
        brokers = {name: found for name, found in self.queues.get(topic, {}).items() if name not in self.away}
        if not brokers:
            return 17, "no route", {}, b""
        datas = [{"brokerAddrs": {"0": self.address}, "brokerName": name, "cluster": "c"} for name in brokers]
        counts = [
            {"brokerName": name, "perm": 6, "readQueueNums": len(found), "writeQueueNums": len(found), "topicSysFlag": 0}
            for name, found in brokers.items()
        ]
        return 0, "", {}, json.dumps({"brokerDatas": datas, "filterServerTable": {}, "queueDatas": counts}).encode()

    def _of_queue(self, code: int, ext: dict[str, str]) -> Reply:
        if ext["bname"] in self.away:
            raise OSError("away")
        try:
            queue = self.queues[ext["topic"]][ext["bname"]][int(ext["queueId"])]
        except (KeyError, IndexError):
            return 17, "no such topic", {}, b""
        match code:
            case 30:
                return 0, "", {"offset": str(queue.end)}, b""
            case 31:
                return 0, "", {"offset": str(queue.first)}, b""
            case 29:
                return 0, "", {"offset": str(max(queue.first, (int(ext["timestamp"]) - BASE_TIME_MS) // 10))}, b""
            case 32:
                return 0, "", {"timestamp": str(BASE_TIME_MS + 10 * queue.first)}, b""
            case 11:
                return self._pull(queue, ext)
        return 3, f" request type {code} not supported", {}, b""

    def _pull(self, queue: FakeQueue, ext: dict[str, str]) -> Reply:
        offset, tags = int(ext["queueOffset"]), ext["subscription"]
        fields = {"suggestWhichBrokerId": "0", "minOffset": str(queue.first), "maxOffset": str(queue.end)}
        if not queue.first <= offset <= queue.end:
            moved = queue.first if offset < queue.first else queue.end
            return 21, "OFFSET_MOVED", {**fields, "nextBeginOffset": str(moved)}, b""
        if offset == queue.end:
            return 19, "OFFSET_OVERFLOW_ONE", {**fields, "nextBeginOffset": str(offset)}, b""
        most = min(int(ext["maxMsgNums"]), self.pull_count_max)
        hashes = {tag_hash(each.strip()) for each in tags.split("||")}
        found: list[bytes] = []
        while offset < queue.end and len(found) < most:
            record = queue.messages[offset - queue.first]
            offset += 1
            if record is not None and (tags == "*" or tag_hash(get(properties_of(record), "TAGS") or "") in hashes):
                found.append(record)
        fields["nextBeginOffset"] = str(offset)
        return (0, "FOUND", fields, b"".join(found)) if found else (20, "NO_MATCHED_MESSAGE", fields, b"")


def replace_times(message: StoredMessage, time_ms: int) -> StoredMessage:
    return StoredMessage(
        message.topic,
        message.queue_id,
        message.queue_offset,
        message.physical_offset,
        message.body,
        message.properties,
        body_crc=body_crc(message.body),
        store_ms=time_ms,
        store_port=10911,
    )


def properties_of(record: bytes) -> bytes:
    """The properties of a record with small hosts."""
    (body_size,) = struct.unpack_from(">i", record, 84)
    at = 88 + body_size
    return record[at + 1 + record[at] + 2 :]
