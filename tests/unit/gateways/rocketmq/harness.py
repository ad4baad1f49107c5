"""RocketMQ clients at a broker, through the real pump: frames in, frames out, on fakes for network, store, clock and chance."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any

from polymq.gateways.contract import Peer
from polymq.gateways.rocketmq.client import RocketmqClient
from polymq.gateways.rocketmq.house import Facts, House
from polymq.protocols.rocketmq.codes import FLAG_ONEWAY, RequestCode
from polymq.protocols.rocketmq.decode import Decoder
from polymq.protocols.rocketmq.encode import encode_request
from polymq.protocols.rocketmq.events import Request
from polymq.protocols.rocketmq.settings import RocketmqSettings
from polymq.protocols.rocketmq.stored import StoredMessage, decode_stored
from polymq.server.connection import ConnectionState
from polymq.server.pump import Pump
from tests.unit.core.conftest import World as CoreWorld
from tests.unit.core.fakes import FakeRandom
from tests.unit.server.fakes import Store, Stream, Watcher
from tests.unit.server.turns import Turns

if TYPE_CHECKING:
    from polymq.core.ports import Random

__all__ = ["MS", "SECOND_NS", "Members", "Talk", "Told", "World"]

SECOND_NS = 1_000_000_000
MS = 1_000_000


@dataclass
class Told:
    """What a heartbeat said of one topic."""

    version: int = 0
    codes: frozenset[int] | None = None
    expression_type: str = "TAG"
    expression: str = "*"


class Members:
    """Stands in for the groups' module."""

    def __init__(self, *, everything: bool = False) -> None:
        self.everything = everything
        self.told: dict[tuple[str, str], Told] = {}
        self.gone: list[RocketmqClient] = []

    def subscription(self, group: str, topic: str, client: RocketmqClient | None = None) -> Told | None:
        assert client is not None
        return Told(version=1 << 62) if self.everything else self.told.get((group, topic))

    def knows(self, group: str) -> bool:
        return any(known == group for known, _topic in self.told)

    def departed(self, client: RocketmqClient) -> None:
        self.gone.append(client)


class World(Turns):
    """One server and its clients."""

    def __init__(self, settings: RocketmqSettings | None = None, *, members: Members | None = None) -> None:
        self.core = CoreWorld(1)
        self.clock = self.core.clock
        self.broker = self.core.broker
        self.files = Store([])
        self.files.on_commit = self.core.store.commit
        self.pump = Pump(self.broker, self.files, self.clock, Watcher())
        random: Random = FakeRandom()
        house: Any = House(self.broker, self.clock, random, settings or RocketmqSettings(), Facts(host="192.0.2.1"))
        self.house = house
        self.house.members = members or Members(everything=True)

    def connect(self, host: str = "192.0.2.9") -> Talk:
        return Talk(self, host)

    def log(self, topic: str, queue: int = 0):  # type: ignore[no-untyped-def]  # the fake, with all that it has
        partition = self.broker.catalogue.topics["", topic].partitions[queue]
        return self.core.store.logs[partition.number]


class Talk:
    """One client's connection."""

    def __init__(self, world: World, host: str) -> None:
        self.world = world
        self.stream = Stream()
        self.decoder = Decoder(RocketmqSettings(), server=False)
        self.opaques = count(1)
        self.rest = b""
        peer = Peer(host, 40000, "here:10911")
        self.client = RocketmqClient(world.house, peer)
        self.connection = world.pump.open(self.stream, self.client, peer)
        world.turn()

    def frame(
        self, code: int, ext: dict[str, object] | None = None, body: bytes = b"", *, oneway: bool = False, binary: bool = False
    ) -> bytes:
        text = {name: str(value) for name, value in (ext or {}).items()}
        return encode_request(code, next(self.opaques), ext=text, body=body, oneway=oneway, binary=binary)

    def send(self, *pieces: bytes) -> None:
        """Say something, each piece read by itself."""
        for piece in pieces:
            self.stream.incoming.append(piece)
            while self.stream.incoming and self.connection.state is ConnectionState.OPEN:
                self.world.pump.readable(self.connection)
                self.world.turn()

    def hear(self) -> list[Request]:
        """Take the frames that have come."""
        heard = self.rest + bytes(self.stream.outgoing)
        self.stream.outgoing.clear()
        events: list[object] = []
        consumed = 0
        while True:
            consumed += self.decoder.feed(memoryview(heard)[consumed:], events)  # type: ignore[arg-type]
            if self.decoder.need:
                break
        self.rest = heard[consumed:]
        frames = [event for event in events if isinstance(event, Request)]
        assert len(frames) == len(events)
        return frames

    def ask(
        self, code: int, ext: dict[str, object] | None = None, body: bytes = b"", *, oneway: bool = False, binary: bool = False
    ) -> Request:
        """Ask, and take the one answer."""
        self.send(self.frame(code, ext, body, oneway=oneway, binary=binary))
        (answer,) = self.hear()
        assert answer.response
        assert not answer.flag & FLAG_ONEWAY
        assert answer.binary is binary
        return answer

    def put(self, topic: str, body: bytes = b"x", *, queue: int = 0, properties: str = "", **more: object) -> Request:
        """Send one message."""
        ext = {"a": "P", "b": topic, "c": "TBW102", "d": 4, "e": queue, "f": 0, "g": 1000, "h": 0, "i": properties, "j": 0, "k": False}
        return self.ask(RequestCode.SEND_MESSAGE_V2, ext | more, body)

    def pull_frame(self, topic: str, offset: int = 0, *, queue: int = 0, group: str = "G", flags: int = 2, **more: object) -> bytes:
        ext: dict[str, object] = {
            "consumerGroup": group,
            "topic": topic,
            "queueId": queue,
            "queueOffset": offset,
            "maxMsgNums": 32,
            "sysFlag": flags,
            "commitOffset": 0,
            "suspendTimeoutMillis": 15000,
            "subVersion": 0,
        }
        return self.frame(RequestCode.PULL_MESSAGE, ext | more)

    def pull(self, topic: str, offset: int = 0, **more: object) -> Request | None:
        """Pull; the answer, if there is one at once."""
        self.send(self.pull_frame(topic, offset, **more))  # type: ignore[arg-type]
        heard = self.hear()
        assert len(heard) <= 1
        return heard[0] if heard else None

    @property
    def closed(self) -> bool:
        return self.connection.state is not ConnectionState.OPEN


def messages(answer: Request | None) -> list[StoredMessage]:
    """Read what a pull has brought."""
    assert answer is not None
    assert answer.code == 0, answer
    return decode_stored(answer.body)


def bodies(answer: Request | None) -> list[bytes]:
    return [message.body for message in messages(answer)]
