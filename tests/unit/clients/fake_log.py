"""A log's HTTP door in a thread, over batches in memory: what Spark and the log client are tested against.

It can do what a broker cannot do on request: trim, lose its tail and count up its epoch, hang up in an answer.
"""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, unquote, urlsplit

from polymq.wire import records
from polymq.wire.records import BatchHeader, Message

if TYPE_CHECKING:
    from collections.abc import Sequence

BASE_TIME_NS = 1_700_000_000_000_001_000


@dataclass
class FakePartition:
    """One log: encoded batches with their base offsets."""

    number: int
    epoch: int = 1
    start: int = 0
    end: int = 0
    epochs: list[list[int]] = field(default_factory=lambda: [[1, 0]])
    batches: list[tuple[int, int, bytes]] = field(default_factory=list)
    # How many of the last records may not be read yet: what a durable log shows after a start on another boot.
    held_back: int = 0
    # Beside what the batches take up.
    other_bytes: int = 0

    @property
    def readable(self) -> int:
        return self.end - self.held_back

    def append(self, messages: Sequence[Message]) -> None:
        encoded = b"".join(records.encode_message(message, BASE_TIME_NS) for message in messages)
        target = bytearray(records.HEADER_SIZE_BYTES) + encoded
        header = BatchHeader(epoch=self.epoch, count=len(messages), base_offset=self.end, base_time_ns=BASE_TIME_NS + self.end * 1000)
        records.seal(target, 0, len(target), header)
        self.batches.append((self.end, self.end + len(messages), bytes(target)))
        self.end += len(messages)

    def trim(self, start: int) -> None:
        self.start = start
        self.batches = [batch for batch in self.batches if batch[1] > start]

    def power_loss(self, end: int) -> None:
        """Lose everything from `end` (the edge of a batch) on and start the next epoch there."""
        self.batches = [batch for batch in self.batches if batch[1] <= end]
        self.end = end
        self.epoch += 1
        self.epochs.append([self.epoch, end])

    def info(self, index: int) -> dict[str, object]:
        return {
            "partition": index,
            "number": self.number,
            "epoch": self.epoch,
            "epochs": self.epochs,
            "start": self.start,
            "end": self.end,
            "readable": self.readable,
            "size_bytes": self.other_bytes + sum(len(data) for _, _, data in self.batches),
        }


class FakeLog:
    """The server; `topics` may be changed at any time. `node` names it among others; `others` are answers to other paths."""

    def __init__(self, node: str = "", port: int = 0) -> None:
        self.node = node
        self.others: dict[str, object] = {}
        self.topics: dict[str, list[FakePartition]] = {}
        self.requests: list[str] = []
        self.secrets: list[str | None] = []
        self.hang_up = 0
        self.cut_answers = 0
        self.last_answers = 0
        self.damage = False
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                fake.requests.append(self.path)
                fake.secrets.append(self.headers["Authorization"])
                if fake.hang_up > 0:
                    fake.hang_up -= 1
                    self.close_connection = True
                    return
                status, headers, body = fake.answer(self.path)
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                if fake.last_answers > 0:
                    fake.last_answers -= 1
                    self.send_header("Connection", "close")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if fake.cut_answers > 0:
                    fake.cut_answers -= 1
                    body = body[:-1]
                    self.close_connection = True
                self.wfile.write(body)

            def log_message(self, *args: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        self.address = f"127.0.0.1:{self._server.server_address[1]}"

    def create(self, name: str, partitions: int = 1, number: int = 1) -> list[FakePartition]:
        self.topics[name] = [FakePartition(number + index) for index in range(partitions)]
        return self.topics[name]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def answer(self, path: str) -> tuple[int, dict[str, str], bytes]:
        parts = urlsplit(path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        match [unquote(piece) for piece in parts.path.strip("/").split("/")]:
            case ["v1", "node"]:
                return self._json(200, {"node": self.node})
            case ["v1", "topics"]:
                return self._json(200, {"topics": [self._topic(name) for name in self.topics]})
            case ["v1", "topics", name] if name in self.topics:
                return self._json(200, self._topic(name))
            case ["v1", "topics", name, index, "offset"] if name in self.topics:
                found = (int(query["time_ns"]) - BASE_TIME_NS + 999) // 1000
                return self._json(200, {"offset": min(max(found, 0), self.topics[name][int(index)].end)})
            case ["v1", "topics", name, index, "records"] if int(index) < len(self.topics.get(name, ())):
                return self._records(self.topics[name][int(index)], query)
        if parts.path in self.others:
            return self._json(200, self.others[parts.path])
        return self._json(404, {"error": "TOPIC_NOT_FOUND", "message": "no such topic"})

    def _topic(self, name: str) -> dict[str, object]:
        partitions = [partition.info(index) for index, partition in enumerate(self.topics[name])]
        return {"node": self.node, "namespace": "", "name": name, "partitions": partitions[::-1]}

    def _records(self, log: FakePartition, query: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
        offset, end, most = int(query["offset"]), int(query["end"]), int(query["max_bytes"])
        if not log.start <= offset <= log.readable:
            return self._json(416, {"error": "OFFSET_OUT_OF_RANGE", "message": "trimmed", "start": log.start, "readable": log.readable})
        parts: list[bytes] = []
        for first, after, data in log.batches:
            if after > offset and first < min(end, log.readable):
                if parts and sum(map(len, parts)) + len(data) > most:
                    break
                parts.append(data)
        body = b"".join(parts)
        if self.damage and body:
            body = body[:-1] + bytes([body[-1] ^ 1])
        headers = {
            "Content-Type": "application/vnd.polymq.batches",
            "Polymq-Epoch": str(log.epoch),
            "Polymq-Start": str(log.start),
            "Polymq-Readable": str(log.readable),
            "Polymq-Number": str(log.number),
            "Polymq-Node": self.node,
        }
        return 200, headers, body

    @staticmethod
    def _json(status: int, value: object) -> tuple[int, dict[str, str], bytes]:
        return status, {"Content-Type": "application/json"}, json.dumps(value).encode()
