"""A nameserver and broker of RocketMQ that keeps everything in lists, for tests of the load generator: small, and wrong on demand."""

from __future__ import annotations

import itertools
import json
import socket
import struct
import threading
import zlib
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Answer", "Asked", "Fake"]

TIMEOUT_S = 10
NO_TOPIC = 17
PULL, CREATE, MAX_OFFSET, ROUTE, SEND, BATCH = 11, 17, 30, 105, 310, 320
SEND_NAMES = set("abcdefghijkmn")
# Since 3.2.6.
OPTIONAL = set("mn")


@dataclass(frozen=True, slots=True)
class Asked:
    """A request, and the connection that it came on."""

    code: int
    opaque: int
    ext: dict[str, str]
    body: bytes
    binary: bool
    connection: int


@dataclass(frozen=True, slots=True)
class Answer:
    """What is answered; `copies` of it, 0 for none, and a `tail` behind them."""

    opaque: int
    binary: bool
    code: int = 0
    flag: int = 1
    ext: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    remark: str = ""
    copies: int = 1
    tail: bytes = b""

    def frame(self) -> bytes:
        """The bytes of it."""
        if self.binary:
            pairs = b"".join(
                struct.pack(">h", len(name)) + name.encode() + struct.pack(">i", len(text)) + text.encode()
                for name, text in self.ext.items()
            )
            remark = self.remark.encode()
            head = struct.pack(">hBhiii", self.code, 0, 409, self.opaque, self.flag, len(remark)) + remark
            header, kind = head + struct.pack(">i", len(pairs)) + pairs, 1
        else:
            fields = {"code": self.code, "extFields": self.ext, "flag": self.flag, "language": "JAVA", "opaque": self.opaque}
            told = {**fields, **({"remark": self.remark} if self.remark else {}), "version": 409}
            header, kind = json.dumps(told, separators=(",", ":")).encode(), 0
        return struct.pack(">II", 4 + len(header) + len(self.body), kind << 24 | len(header)) + header + self.body


def read_binary(header: bytes) -> tuple[int, int, dict[str, str]]:
    code, language, version, opaque, flag, remark_size, ext_size = struct.unpack_from(">hBhiiii", header)
    assert (language, version, flag, remark_size, ext_size) == (0, 409, 0, 0, len(header) - 21)
    ext, at = {}, 21
    while at < len(header):
        texts = []
        for width in (">h", ">i"):
            (size,) = struct.unpack_from(width, header, at)
            at += struct.calcsize(width)
            texts.append(header[at : at + size].decode())
            at += size
        ext[texts[0]] = texts[1]
    return code, opaque, ext


def read_json(header: bytes) -> tuple[int, int, dict[str, str]]:
    told = json.loads(header)
    assert (told["flag"], told["language"], told["version"], told["serializeTypeCurrentRPC"]) == (0, "JAVA", 409, "JSON")
    return told["code"], told["opaque"], told["extFields"]


def properties_of(raw: bytes) -> dict[str, str]:
    return dict(pair.split("\1") for pair in raw.decode().split("\2"))


class Fake:
    """The server. `wrong` gets each question and its right answer, and returns what is answered."""

    def __init__(
        self, *, wrong: Callable[[Asked, Answer], Answer] | None = None, topics: dict[str, int] | None = None, backwards: bool = False
    ) -> None:
        self.wrong = wrong
        self.topics = topics if topics is not None else {"bench": 4}
        # Answers to what came in one read go out last one first, as those of a pool of threads may.
        self.backwards = backwards
        self.queues: dict[tuple[str, int], list[tuple[bytes, bytes]]] = {}
        self.asked: list[Asked] = []
        self.problems: list[Exception] = []
        self.lock = threading.Lock()
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=100)
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.threads = [threading.Thread(target=self._accept)]

    def __enter__(self) -> Self:
        self.threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for thread in self.threads:
            thread.join()
        assert self.problems == [], self.problems

    def _accept(self) -> None:
        for number in itertools.count():
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(connection, number))
            self.threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket, number: int) -> None:
        waiting = bytearray()
        try:
            with connection:
                connection.settimeout(TIMEOUT_S)
                while data := connection.recv(1 << 20):
                    waiting += data
                    answers = [answer for asked in self._read(waiting, number) for answer in self._answer(asked)]
                    connection.sendall(b"".join(reversed(answers) if self.backwards else answers))
        except ConnectionError:
            pass
        except (AssertionError, OSError, struct.error, LookupError, ValueError) as problem:
            self.problems.append(problem)

    def _read(self, waiting: bytearray, number: int) -> list[Asked]:
        """Take the whole requests out of what has come."""
        found: list[Asked] = []
        while len(waiting) >= 8:
            size, kind = struct.unpack_from(">II", waiting)
            if len(waiting) < 4 + size:
                break
            body_at = 8 + (kind & 0xFFFFFF)
            code, opaque, ext = (read_binary if kind >> 24 else read_json)(bytes(waiting[8:body_at]))
            found.append(Asked(code, opaque, ext, bytes(waiting[body_at : 4 + size]), bool(kind >> 24), number))
            del waiting[: 4 + size]
        return found

    def _answer(self, asked: Asked) -> list[bytes]:
        handlers = {
            ROUTE: self._route,
            CREATE: self._create,
            MAX_OFFSET: self._max_offset,
            SEND: self._store,
            BATCH: self._store,
            PULL: self._pull,
        }
        with self.lock:
            self.asked.append(asked)
            right = handlers[asked.code](asked, Answer(asked.opaque, asked.binary))
            answer = self.wrong(asked, right) if self.wrong else right
        return [answer.frame()] * answer.copies + [answer.tail]

    def _route(self, asked: Asked, answer: Answer) -> Answer:
        assert asked.ext["acceptStandardJsonOnly"] == "true"
        count = self.topics.get(asked.ext["topic"])
        if count is None:
            return replace(answer, code=NO_TOPIC, remark="No topic route info in name server")
        brokers = [{"brokerAddrs": {"0": self.address}, "brokerName": "broker-f", "cluster": "C"}]
        queues = [{"brokerName": "broker-f", "perm": 6, "readQueueNums": count, "topicSysFlag": 0, "writeQueueNums": count}]
        route = {"brokerDatas": brokers, "filterServerTable": {}, "queueDatas": queues}
        return replace(answer, body=json.dumps(route, separators=(",", ":")).encode())

    def _create(self, asked: Asked, answer: Answer) -> Answer:
        assert (asked.ext["defaultTopic"], asked.ext["perm"]) == ("TBW102", "6")
        assert asked.ext["readQueueNums"] == asked.ext["writeQueueNums"]
        self.topics[asked.ext["topic"]] = int(asked.ext["writeQueueNums"])
        return answer

    def _max_offset(self, asked: Asked, answer: Answer) -> Answer:
        return replace(answer, ext={"offset": str(len(self.queue(asked.ext["topic"], int(asked.ext["queueId"]))))})

    def queue(self, topic: str, number: int) -> list[tuple[bytes, bytes]]:
        """The bodies and properties of a queue."""
        assert number < self.topics[topic]
        return self.queues.setdefault((topic, number), [])

    def _store(self, asked: Asked, answer: Answer) -> Answer:
        assert set(asked.ext) in (SEND_NAMES, SEND_NAMES - OPTIONAL)
        assert (asked.ext["c"], asked.ext["d"], asked.ext["k"], asked.ext.get("n", "broker-f")) == ("TBW102", "4", "false", "broker-f")
        assert asked.ext.get("m", "false") == ("true" if asked.code == BATCH else "false")
        assert len(asked.ext["g"]) == 13
        queue = self.queue(asked.ext["b"], int(asked.ext["e"]))
        first = len(queue)
        queue += self._messages(asked)
        identities = ",".join(f"7F000001000051AF{int(asked.ext['e']):04X}{offset:012X}" for offset in range(first, len(queue)))
        ext = {"queueId": asked.ext["e"], "TRACE_ON": "true", "MSG_REGION": "R", "msgId": identities, "queueOffset": str(first)}
        return replace(answer, ext=ext)

    def _messages(self, asked: Asked) -> list[tuple[bytes, bytes]]:
        if asked.code == SEND:
            return [(asked.body, asked.ext["i"].encode())]
        found, at = [], 0
        while at < len(asked.body):
            size, magic, crc, flag, body_size = struct.unpack_from(">5i", asked.body, at)
            body = asked.body[at + 20 : at + 20 + body_size]
            (properties_size,) = struct.unpack_from(">h", asked.body, at + 20 + body_size)
            properties = asked.body[at + 22 + body_size : at + size]
            assert (magic, crc, flag, len(body), len(properties)) == (0, 0, 0, body_size, properties_size)
            found.append((body, properties))
            at += size
        return found

    def _pull(self, asked: Asked, answer: Answer) -> Answer:
        assert (asked.ext["sysFlag"], asked.ext["subscription"]) == ("6", "*")
        topic, number, offset = asked.ext["topic"], int(asked.ext["queueId"]), int(asked.ext["queueOffset"])
        queue = self.queue(topic, number)
        found = queue[offset : offset + int(asked.ext["maxMsgNums"])]
        body = b"".join(stored(topic, number, offset + index, *message) for index, message in enumerate(found))
        ext = {"suggestWhichBrokerId": "0", "nextBeginOffset": str(offset + len(found)), "minOffset": "0", "maxOffset": str(len(queue))}
        return replace(answer, ext=ext, body=body, remark="FOUND")

    def fill(self, count: int, *, topic: str = "bench", size: int = 128) -> None:
        """Messages as the generator would have sent them one at a time."""
        for number in range(count):
            word = (number + 1) * 0x9E3779B97F4A7C15 % (1 << 64) >> 32
            body = struct.pack("=QI", number, word).ljust(size, b"x")
            self.queue(topic, number % self.topics[topic]).append((body, b"UNIQ_KEY\1%032X" % number))


def stored(topic: str, queue: int, offset: int, body: bytes, properties: bytes) -> bytes:
    """A message as it is pulled."""
    host = b"\x7f\0\0\1" + struct.pack(">i", 10911)
    rest = struct.pack(">iiqqiq", queue, 0, offset, offset * 400, 0, 1_700_000_000_000) + host + struct.pack(">q", 1_700_000_000_001) + host
    rest += (
        struct.pack(">iqi", 0, 0, len(body)) + body + bytes([len(topic)]) + topic.encode() + struct.pack(">h", len(properties)) + properties
    )
    return struct.pack(">iIi", len(rest) + 12, 0xDAA320A7, zlib.crc32(body) & 0x7FFFFFFF) + rest
