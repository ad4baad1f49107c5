"""One broker in memory that speaks all four protocols, with a reader of each that waits for what comes to one topic.

Bytes go in at a protocol's real decoder and come out of another one's real encoder; clock, store and network are the unit tests' fakes.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from polymq.config_sections import NatsSettings as NatsSection
from polymq.gateways.contract import Peer
from polymq.gateways.nats.house import House as NatsHouse
from polymq.gateways.nats.logins import OpenDoor
from polymq.gateways.nsq.tcp import NsqGateway
from polymq.gateways.phpmq.house import House as PhpmqHouse
from polymq.gateways.phpmq.tcp import PhpmqGateway
from polymq.gateways.rocketmq.house import Facts
from polymq.gateways.rocketmq.house import House as RocketmqHouse
from polymq.protocols.nats.info import ServerInfo
from polymq.protocols.nats.settings import NatsSettings
from polymq.protocols.nsq.settings import NsqSettings
from polymq.protocols.phpmq import frames as phpmq
from polymq.protocols.phpmq.frames import FrameReader, WireMessage
from polymq.protocols.phpmq.settings import PhpmqSettings
from polymq.protocols.rocketmq.codes import RequestCode
from polymq.protocols.rocketmq.generic import generic_of
from polymq.protocols.rocketmq.messages import StoredMessage, decode_stored
from polymq.protocols.rocketmq.settings import RocketmqSettings
from polymq.server.nats_bridge import bridge
from polymq.server.pump import Pump
from polymq.wire.records import columns
from tests.unit.core.conftest import World as CoreWorld
from tests.unit.core.fakes import FakeRandom
from tests.unit.gateways.nats.harness import QUIET
from tests.unit.gateways.nats.harness import Talk as NatsTalk
from tests.unit.gateways.rocketmq.harness import Members
from tests.unit.gateways.rocketmq.harness import Talk as RocketmqTalk
from tests.unit.server.fakes import Store, Stream, Watcher
from tests.unit.server.turns import Turns

if TYPE_CHECKING:
    from polymq.gateways.contract import Gateway

__all__ = ["NAMES", "SECOND_NS", "Seen", "World"]

SECOND_NS: Final = 1_000_000_000
NAMES: Final = ("NSQ", "NATS", "RocketMQ", "PHPMQ", "Spark")
_MESSAGE: Final = re.compile(rb"(H?)MSG (\S+) \S+ (?:(\S+) )??(?:(\d+) )?(\d+)\r\n")
Headers = tuple[tuple[bytes, bytes], ...]


@dataclass(frozen=True, slots=True)
class Seen:
    """What a reader gets of one message; None: its protocol has no such field. `id` is what it is given back by."""

    body: bytes
    time_ns: int | None = None
    key: bytes | None = None
    headers: Headers | None = None
    reply: bytes | None = None
    attempts: int | None = None
    ttl_s: int | None = None
    id: bytes = b""


class _Part:
    """One protocol's share of the world, as its harness wants it."""

    def __init__(self, world: World, house: Any) -> None:
        self.house = house
        self.pump = world.pump
        self.clock = world.clock
        self.turn = world.turn


class World(Turns):
    """`topic` is a name that all protocols spell alike. `waiting`: readers of groups take nothing before `go`."""

    def __init__(self, topic: str = "orders", *, waiting: bool = False) -> None:
        self.core = CoreWorld(1)
        self.clock = self.core.clock
        self.broker = self.core.broker
        self.topic = topic
        self.files = Store([])
        self.files.on_commit = self.core.store.commit
        self.pump = Pump(self.broker, self.files, self.clock, Watcher())
        self.broker.live.courier = self.pump.courier
        settings = NatsSettings()
        info = ServerInfo("ID", "name", settings.version, 1, host="127.0.0.1", port=4222, headers=True, max_payload=8 << 20)
        nats_house = NatsHouse(self.broker, self.clock, settings, info, OpenDoor(), bytes, None)
        bridge(self.broker, NatsSection())
        rocketmq: Any = RocketmqHouse(self.broker, self.clock, FakeRandom(), RocketmqSettings(), Facts(host="192.0.2.1"))
        rocketmq.members = Members(everything=True)
        self.core.session.create_topic(topic, partitions=1)
        self.nats: NatsTalk = NatsTalk(_Part(self, nats_house), "192.0.2.9")  # type: ignore[arg-type]
        self.nats_publisher = NatsTalk(_Part(self, nats_house), "192.0.2.9")  # type: ignore[arg-type]
        self.rocketmq: RocketmqTalk = RocketmqTalk(_Part(self, rocketmq), "192.0.2.9")  # type: ignore[arg-type]
        session = self.core.session.principal
        self._nsq = self._open(
            NsqGateway(self.broker.session(session), Peer("192.0.2.9", 1, ""), NsqSettings(), self.clock.monotonic_ns, None)
        )
        house = PhpmqHouse(PhpmqSettings(salt=7), self.clock)
        self._phpmq = self._open(PhpmqGateway(self.broker.session(session), Peer("192.0.2.9", 2, ""), house))
        self.say("NSQ", b"  V2SUB %b readers\n" % topic.encode())
        self.say("PHPMQ", phpmq.consume(topic, 0))
        if not waiting:
            self.go()
        self.nats.say(QUIET + b"SUB %b 1\r\n" % topic.encode())
        self.nats_publisher.say(QUIET)
        self._nsq[0].outgoing.clear()

    def go(self) -> None:
        """Let readers of groups take what is there, and comes."""
        self.say("NSQ", b"RDY 100\n")
        self.say("PHPMQ", phpmq.consume(self.topic, 100))

    def _open(self, gateway: Gateway) -> tuple[Stream, Any]:
        stream = Stream()
        return stream, self.pump.open(stream, gateway, gateway.peer if hasattr(gateway, "peer") else Peer("192.0.2.9", 3, ""))

    def say(self, name: str, data: bytes) -> None:
        """Say something as a client of NSQ or PHPMQ."""
        stream, connection = self._nsq if name == "NSQ" else self._phpmq
        stream.incoming.append(data)
        while stream.incoming:
            self.pump.readable(connection)
            self.turn()

    # What readers get.

    def read(self, name: str, *, tag: str = "*") -> list[Seen]:
        """Take what has come for a reader; `tag`: what RocketMQ's filters for."""
        if name == "NSQ":
            return self._read_nsq()
        if name == "NATS":
            return self._read_nats()
        if name == "RocketMQ":
            return [_of_rocketmq(message) for message in self.pull(tag)]
        if name == "PHPMQ":
            found = FrameReader().feed(self._take(self._phpmq[0]))
            assert all(isinstance(each, WireMessage) for each in found)
            return [Seen(each.content, ttl_s=each.ttl_s, id=each.id) for each in found if isinstance(each, WireMessage)]
        return self._read_spark()

    def pull(self, tag: str = "*", *, topic: str = "", group: str = "G") -> list[StoredMessage]:
        """Ask as a client of RocketMQ for all that there is."""
        found: list[StoredMessage] = []
        offset = 0
        while True:
            answer = self.rocketmq.pull(topic or self.topic, offset, flags=4, subscription=tag, suspendTimeoutMillis=0, group=group)
            if answer is None or answer.code not in (0, 20):  # 20: nothing of this piece was wanted
                return found
            found += decode_stored(answer.body)
            if int(answer.ext["nextBeginOffset"]) == offset:
                return found
            offset = int(answer.ext["nextBeginOffset"])

    def send_back(self, message: StoredMessage) -> None:
        """Have a message of RocketMQ's come again."""
        ext: dict[str, object] = {"group": "G", "offset": message.physical_offset, "delayLevel": 1, "originTopic": self.topic}
        assert self.rocketmq.ask(RequestCode.CONSUMER_SEND_MSG_BACK, ext).code == 0

    def _take(self, stream: Stream) -> bytes:
        self.turn()
        data = bytes(stream.outgoing)
        stream.outgoing.clear()
        return data

    def _read_nsq(self) -> list[Seen]:
        data, found = self._take(self._nsq[0]), []
        while data:
            size, kind = struct.unpack_from(">II", data)
            if kind == 2:
                time_ns, attempts = struct.unpack_from(">qH", data, 8)
                found.append(Seen(data[34 : 4 + size], time_ns=time_ns, attempts=attempts, id=data[18:34]))
            data = data[4 + size :]
        return found

    def _read_nats(self) -> list[Seen]:
        self.turn()
        data, at, found = self.nats.hear(), 0, []
        while (match := _MESSAGE.search(data, at)) is not None:
            header_size, size = int(match[4] or 0) if match[1] else 0, int(match[5])
            payload = data[match.end() : match.end() + size]
            lines = payload[:header_size].split(b"\r\n")[1:-2]
            headers = tuple((line.partition(b":")[0], line.partition(b":")[2].removeprefix(b" ")) for line in lines)
            key = next((value for name, value in headers if name == b"KEYS"), None)
            rest = tuple(each for each in headers if each[0] != b"KEYS")
            found.append(Seen(payload[header_size:], key=key, headers=rest, reply=match[3]))
            at = match.end() + size
        return found

    def _read_spark(self) -> list[Seen]:
        self.turn()
        (log,) = [self.core.store.logs[each.number] for each in self.broker.catalogue.topics["", self.topic].partitions]
        found: list[Seen] = []
        if not log.readable:
            return found
        rows = columns(bytes(log.data), 0, len(log.data), 0, log.readable)
        for row in range(rows.count):
            first, last = rows.header_ends[row], rows.header_ends[row + 1]
            headers = tuple(
                (
                    bytes(rows.names[rows.name_ends[j] : rows.name_ends[j + 1]]),
                    bytes(rows.values[rows.value_ends[j] : rows.value_ends[j + 1]]),
                )
                for j in range(first, last)
            )
            has_key = rows.key_valid[row // 8] >> row % 8 & 1
            found.append(
                Seen(
                    bytes(rows.bodies[rows.body_ends[row] : rows.body_ends[row + 1]]),
                    time_ns=rows.times_us[row] * 1000,
                    key=bytes(rows.keys[rows.key_ends[row] : rows.key_ends[row + 1]]) if has_key else None,
                    headers=headers,
                )
            )
        return found


def _of_rocketmq(message: StoredMessage) -> Seen:
    key, headers = generic_of(message.properties)
    return Seen(message.body, message.store_ms * 1_000_000, key, headers, attempts=message.reconsume_times)
