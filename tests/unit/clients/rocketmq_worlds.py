"""A RocketMQ name server and brokers without sockets, which do what a client needs and remember what they were asked."""

from __future__ import annotations

import asyncio
import json
import struct
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from polymq.protocols.rocketmq.batches import split_batch
from polymq.protocols.rocketmq.codes import RequestCode, ResponseCode
from polymq.protocols.rocketmq.decode import Decoder
from polymq.protocols.rocketmq.encode import encode_request, encode_response
from polymq.protocols.rocketmq.events import Event, Request
from polymq.protocols.rocketmq.ids import offset_message_id
from polymq.protocols.rocketmq.names import tag_hash
from polymq.protocols.rocketmq.properties import parse
from polymq.protocols.rocketmq.settings import RocketmqSettings

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Mapping

NAME_SERVER = "ns:9876"
BROKER = "broker:10911"
HOST = bytes((127, 0, 0, 1))
Reply = tuple[int, str, dict[str, str], bytes]


def ok(ext: Mapping[str, object] | None = None, body: bytes = b"") -> Reply:
    return 0, "", {name: str(value) for name, value in (ext or {}).items()}, body


def say_no(code: int, remark: str = "no") -> Callable[[Request], Reply]:
    return lambda _: (code, remark, {}, b"")


@dataclass
class Stored:
    """A message as a broker keeps it."""

    topic: str
    queue_id: int
    offset: int
    physical: int
    body: bytes
    properties: str = ""
    flag: int = 0
    sys_flag: int = 0
    reconsume_times: int = 0

    def encode(self) -> bytes:
        topic, properties = self.topic.encode(), self.properties.encode()
        tail = struct.pack(">iqi", self.reconsume_times, 0, len(self.body)) + self.body + bytes((len(topic),)) + topic
        tail += struct.pack(">h", len(properties)) + properties
        head = struct.pack(">IIiiqqiq", 0xDAA320A7, 0, self.queue_id, self.flag, self.offset, self.physical, self.sys_flag, 1_000)
        hosts = HOST + struct.pack(">i", 5) + struct.pack(">q", 2_000) + HOST + struct.pack(">i", 10911)
        return struct.pack(">i", 4 + len(head) + len(hosts) + len(tail)) + head + hosts + tail


class Wire(asyncio.Transport):
    """The client's end of a connection to a server."""

    def __init__(self, server: Server, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self.server = server
        self.protocol = protocol
        self.decoder = Decoder(RocketmqSettings())
        self.decoder.every_request = True
        self.rest = b""
        self.ended = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        asyncio.get_running_loop().call_soon(self.arrive, bytes(data))

    def arrive(self, data: bytes) -> None:
        self.rest += data
        while not self.ended and len(self.rest) >= max(1, self.decoder.need):
            found: list[Event] = []
            consumed = self.decoder.feed(memoryview(self.rest), found)
            self.rest = self.rest[consumed:]
            for event in found:
                assert isinstance(event, Request), event
                self.server.react(self, event)
            if not consumed and not found:
                return

    def reply(self, data: bytes) -> None:
        asyncio.get_running_loop().call_soon(self.receive, data)

    def receive(self, data: bytes) -> None:
        if not self.ended:
            self.protocol.data_received(data)

    def end(self, error: Exception | None = None) -> None:
        if not self.ended:
            self.ended = True
            self.server.left(self)
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, error)

    def close(self) -> None:
        asyncio.get_running_loop().call_soon(self.end)

    def abort(self) -> None:
        self.end()

    def is_closing(self) -> bool:
        return self.ended

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """There is no buffer."""


@dataclass
class Held:
    """A pull that waits for messages."""

    wire: Wire
    request: Request
    timer: asyncio.TimerHandle


@dataclass(eq=False)
class Server:
    """A server; `scripts` has who answers a code instead, `None` being silence."""

    world: World
    name: str = "broker-a"
    wires: list[Wire] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    scripts: dict[int, Callable[[Request], Reply | None]] = field(default_factory=dict)
    is_down: bool = False
    answers: list[Request] = field(default_factory=list)
    held: list[Held] = field(default_factory=list)
    times: list[float] = field(default_factory=list)

    def asked(self, code: int) -> list[Request]:
        return [each for each in self.requests if each.code == code]

    def left(self, wire: Wire) -> None:
        self.held = [each for each in self.held if each.wire is not wire]

    def react(self, wire: Wire, request: Request) -> None:
        if request.response:
            self.answers.append(request)
            return
        self.requests.append(request)
        self.times.append(asyncio.get_running_loop().time())
        script = self.scripts.get(request.code)
        reply = script(request) if script is not None else self.world.answer(self, wire, request)
        if reply is not None and not request.oneway:
            self.send(wire, request, reply)

    @staticmethod
    def send(wire: Wire, request: Request, reply: Reply) -> None:
        code, remark, ext, body = reply
        wire.reply(encode_response(code, request.opaque, remark=remark or None, ext=ext, body=body, binary=request.binary))

    def push(self, code: int, ext: Mapping[str, str], body: bytes = b"", *, oneway: bool = True) -> None:
        """Ask the client something."""
        self.wires[-1].reply(encode_request(code, 77, ext=ext, body=body, oneway=oneway))


class World:
    """A name server and one broker, or several, with topics that are made on demand."""

    def __init__(self, *, queues: int = 4, brokers: int = 1) -> None:
        self.name_server = Server(self, "ns")
        names = [f"broker-{'abcdef'[index]}" for index in range(brokers)]
        self.brokers = {BROKER if index == 0 else f"{BROKER}{index}": Server(self, name) for index, name in enumerate(names)}
        self.broker = self.brokers[BROKER]
        self.servers = {NAME_SERVER: self.name_server, **self.brokers}
        self.queues = queues
        self.topics: set[str] = set()
        self.stored: defaultdict[tuple[str, str, int], list[Stored]] = defaultdict(list)
        self.positions: dict[tuple[str, str, str, int], int] = {}
        self.members: defaultdict[str, list[str]] = defaultdict(list)
        self.strangers: list[str] = []  # members of every group that are not clients of this test
        self.locks: dict[tuple[str, str, int], str] = {}
        self.heartbeats: list[dict[str, Any]] = []
        self.is_hasty = False  # pulls are not held
        self.contexts: list[ssl.SSLContext | None] = []

    async def open(self, address: str, factory: Callable[[], asyncio.Protocol], context: ssl.SSLContext | None) -> None:
        server = self.servers.get(address)
        self.contexts.append(context)
        await asyncio.sleep(0)
        if server is None or server.is_down:
            raise ConnectionRefusedError(f"nobody at {address}")
        protocol = factory()
        server.wires.append(Wire(server, protocol))
        protocol.connection_made(server.wires[-1])

    # --- What there is ------------------------------------------------------------------------------------------------

    def put(self, topic: str, body: bytes, queue_id: int = 0, *, broker: str = "broker-a", **fields: Any) -> Stored:
        """Store a message, and answer who waits for it."""
        self.topics.add(topic)
        rows = self.stored[topic, broker, queue_id]
        number = sum(map(len, self.stored.values()))
        stored = Stored(topic, queue_id, len(rows), number, body, **fields)
        rows.append(stored)
        for server in self.brokers.values():
            for held in list(server.held):
                if (reply := self.pull(server, held.request)) is not None:
                    held.timer.cancel()
                    server.held.remove(held)
                    server.send(held.wire, held.request, reply)
        return stored

    def position(self, group: str, topic: str, queue_id: int, broker: str = "broker-a") -> int | None:
        return self.positions.get((group, topic, broker, queue_id))

    def total(self, group: str, topic: str) -> int:
        return sum(offset for (name, of, _, _), offset in self.positions.items() if (name, of) == (group, topic))

    # --- What is answered ---------------------------------------------------------------------------------------------

    def answer(self, server: Server, wire: Wire, request: Request) -> Reply | None:
        handlers: dict[int, Callable[[Server, Wire, Request], Reply | None]] = {
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self._route,
            RequestCode.HEART_BEAT: self._heartbeat,
            RequestCode.UNREGISTER_CLIENT: self._unregister,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self._members,
            RequestCode.SEND_MESSAGE_V2: self._send,
            RequestCode.SEND_BATCH_MESSAGE: self._send,
            RequestCode.PULL_MESSAGE: self._pull,
            RequestCode.CONSUMER_SEND_MSG_BACK: lambda *_: ok(),
            RequestCode.LOCK_BATCH_MQ: self._lock,
            RequestCode.UNLOCK_BATCH_MQ: self._unlock,
        }
        found = handlers.get(request.code)
        return found(server, wire, request) if found is not None else self._offsets(server, request)

    def _route(self, server: Server, wire: Wire, request: Request) -> Reply:
        topic = request.ext["topic"]
        if topic not in self.topics and topic != "TBW102":
            return ResponseCode.TOPIC_NOT_EXIST, "No topic route info", {}, b""
        count = 8 if topic == "TBW102" else 1 if topic.startswith("%RETRY%") else self.queues
        found = self.brokers.items()
        document = {
            "brokerDatas": [{"brokerAddrs": {"0": address}, "brokerName": each.name, "cluster": "c"} for address, each in found],
            "queueDatas": [
                {"brokerName": each.name, "perm": 6, "readQueueNums": count, "topicSysFlag": 0, "writeQueueNums": count}
                for _, each in found
            ],
        }
        return ok(body=json.dumps(document).encode())

    def _heartbeat(self, server: Server, wire: Wire, request: Request) -> Reply:
        document = json.loads(request.body)
        self.heartbeats.append(document)
        for consumer in document["consumerDataSet"]:
            group = consumer["groupName"]
            self.topics.add(f"%RETRY%{group}")
            if document["clientID"] not in self.members[group]:
                self.members[group].append(document["clientID"])
                for each in server.wires:
                    if not each.ended:
                        each.reply(encode_request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, 5, ext={"consumerGroup": group}, oneway=True))
        return ok()

    def _unregister(self, server: Server, wire: Wire, request: Request) -> Reply:
        members = self.members[request.ext.get("consumerGroup", "")]
        if request.ext["clientID"] in members:
            members.remove(request.ext["clientID"])
        return ok()

    def _members(self, server: Server, wire: Wire, request: Request) -> Reply:
        members = [*self.members[request.ext["consumerGroup"]], *self.strangers]
        return ok(body=json.dumps({"consumerIdList": members}).encode())

    def _send(self, server: Server, wire: Wire, request: Request) -> Reply:
        ext = request.ext
        is_dead = ext["b"].startswith("%RETRY%") and int(ext["j"]) >= int(ext["l"])
        topic = ext["b"].replace("%RETRY%", "%DLQ%") if is_dead else ext["b"]
        parts = (
            [(part.body, part.properties.decode()) for part in split_batch(request.body)]
            if ext["m"] == "true"
            else [(request.body, ext["i"])]
        )
        rows = [
            self.put(
                topic,
                body,
                int(ext["e"]),
                broker=server.name,
                properties=properties,
                sys_flag=int(ext["f"]),
                reconsume_times=int(ext["j"]),
            )
            for body, properties in parts
        ]
        stored = rows[0]
        return ok({"msgId": offset_message_id(HOST, 10911, stored.physical), "queueId": ext["e"], "queueOffset": stored.offset})

    def _pull(self, server: Server, wire: Wire, request: Request) -> Reply | None:
        reply = self.pull(server, request)
        if reply is None:
            seconds = 0.0 if self.is_hasty else int(request.ext["suspendTimeoutMillis"]) / 1000
            timer = asyncio.get_running_loop().call_later(seconds, self._nothing, server, request)
            server.held.append(Held(wire, request, timer))
        return reply

    def _nothing(self, server: Server, request: Request) -> None:
        for held in [each for each in server.held if each.request is request]:
            server.held.remove(held)
            offset = request.ext["queueOffset"]
            server.send(held.wire, request, (ResponseCode.PULL_NOT_FOUND, "", self._pulled(int(offset), int(offset)), b""))

    @staticmethod
    def _pulled(next_offset: int, end: int) -> dict[str, str]:
        return {"suggestWhichBrokerId": "0", "nextBeginOffset": str(next_offset), "minOffset": "0", "maxOffset": str(end)}

    def pull(self, server: Server, request: Request) -> Reply | None:
        ext = request.ext
        rows = self.stored[ext["topic"], server.name, int(ext["queueId"])]
        first = int(ext["queueOffset"])
        if first > len(rows):
            return ResponseCode.PULL_OFFSET_MOVED, "", self._pulled(len(rows), len(rows)), b""
        some = rows[first : first + int(ext["maxMsgNums"])]
        if not some:
            return None
        wanted = {tag_hash(each.strip()) for each in ext["subscription"].split("||")} if ext["subscription"] != "*" else None
        found = [each for each in some if wanted is None or tag_hash(parse(each.properties.encode()).get("TAGS", "")) in wanted]
        pulled = self._pulled(some[-1].offset + 1, len(rows))
        if not found:
            return ResponseCode.PULL_RETRY_IMMEDIATELY, "", pulled, b""
        return 0, "", pulled, b"".join(each.encode() for each in found)

    def _offsets(self, server: Server, request: Request) -> Reply:
        ext = request.ext
        place = ext.get("topic", ""), server.name, int(ext.get("queueId", 0))
        key = (ext.get("consumerGroup", ""), *place)
        match request.code:
            case RequestCode.QUERY_CONSUMER_OFFSET:
                found = self.positions.get(key)
                return ok({"offset": found}) if found is not None else (ResponseCode.QUERY_NOT_FOUND, "", {}, b"")
            case RequestCode.UPDATE_CONSUMER_OFFSET:
                self.positions[key] = int(ext["commitOffset"])
                return ok()
            case RequestCode.GET_MAX_OFFSET:
                return ok({"offset": len(self.stored[place])})
            case RequestCode.GET_MIN_OFFSET:
                return ok({"offset": 0})
            case RequestCode.SEARCH_OFFSET_BY_TIMESTAMP:
                return ok({"offset": min(2, len(self.stored[place]))})
        raise AssertionError(f"nobody answers {request.code}")

    def _lock(self, server: Server, wire: Wire, request: Request) -> Reply:
        document = json.loads(request.body)
        found = []
        for queue in document["mqSet"]:
            key = document["consumerGroup"], queue["topic"], queue["queueId"]
            if self.locks.setdefault(key, document["clientId"]) == document["clientId"]:
                found.append(queue)
        return ok(body=json.dumps({"lockOKMQSet": found}).encode())

    def _unlock(self, server: Server, wire: Wire, request: Request) -> Reply:
        document = json.loads(request.body)
        for queue in document["mqSet"]:
            key = document["consumerGroup"], queue["topic"], queue["queueId"]
            if self.locks.get(key) == document["clientId"]:
                del self.locks[key]
        return ok()
