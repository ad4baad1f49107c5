"""NATS clients at a broker, through the real pump: bytes in, bytes out, on fakes for network, store, clock and chance."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from polymq.gateways.contract import Peer
from polymq.gateways.nats.client import NatsClient
from polymq.gateways.nats.house import House
from polymq.gateways.nats.logins import OpenDoor
from polymq.protocols.nats.info import ServerInfo
from polymq.protocols.nats.settings import NatsSettings
from polymq.server.connection import ConnectionState
from polymq.server.pump import Pump
from tests.unit.core.conftest import World as CoreWorld
from tests.unit.server.fakes import Store, Stream, Watcher
from tests.unit.server.turns import Turns

if TYPE_CHECKING:
    import pytest

    from polymq.gateways.nats.house import ClientTls, NatsLogins

__all__ = ["PLAIN", "QUIET", "SECOND_NS", "Talk", "World", "hurry"]

SECOND_NS = 1_000_000_000
QUIET = b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true,"protocol":1}\r\n'
PLAIN = b'CONNECT {"verbose":false,"pedantic":false}\r\n'


def hurry(patch: pytest.MonkeyPatch) -> None:
    """Let every turn have lasted long enough: each message and each few commands take one of their own."""
    patch.setattr("polymq.gateways.nats.client.NATS_NS_PER_TURN_MAX", 0)
    patch.setattr("polymq.core.live.LIVE_STEPS_PER_PASS_MAX", 1)


class World(Turns):
    """One server and its clients."""

    def __init__(self, settings: NatsSettings | None = None, *, logins: NatsLogins | None = None, tls: ClientTls | None = None) -> None:
        self.core = CoreWorld(1)
        self.clock = self.core.clock
        self.broker = self.core.broker
        self.files = Store([])
        self.pump = Pump(self.broker, self.files, self.clock, Watcher())
        self.broker.live.courier = self.pump.courier
        settings = settings or NatsSettings()
        info = ServerInfo(
            "NID", "name", settings.version, 1, host="127.0.0.1", port=4222, headers=True, max_payload=settings.payload_size_bytes_max
        )
        self.house = House(self.broker, self.clock, settings, info, logins or OpenDoor(), bytes, tls)

    def connect(self, first: bytes = b"", *, host: str = "192.0.2.9") -> Talk:
        """A client that has had INFO, and has said `first`, which has no answer."""
        talk = Talk(self, host)
        assert talk.hear().startswith(b"INFO {")
        if first:
            assert talk.say(first) == b""
        return talk

    def tell(self, **changes: object) -> None:
        """Have the house say something else of itself."""
        self.house.tell(replace(self.house.info, **changes))  # type: ignore[arg-type]  # by the names of the fields
        self.turn()


class Talk:
    """One client's connection."""

    def __init__(self, world: World, host: str) -> None:
        self.world = world
        self.stream = Stream()
        peer = Peer(host, 40000, "here:4222")
        self.client = NatsClient(world.house, peer)
        self.connection = world.pump.open(self.stream, self.client, peer)
        world.turn()

    def send(self, *pieces: bytes) -> None:
        """Say something, each piece read by itself."""
        for piece in pieces:
            if self.connection.state is not ConnectionState.OPEN:
                return  # what is sent afterwards is thrown away
            self.stream.incoming.append(piece)
            while self.stream.incoming and self.connection.state is ConnectionState.OPEN:
                self.world.pump.readable(self.connection)
                self.world.turn()

    def hear(self) -> bytes:
        """Take what has come."""
        heard = bytes(self.stream.outgoing)
        self.stream.outgoing.clear()
        return heard

    def say(self, *pieces: bytes) -> bytes:
        """Say something; what comes."""
        self.send(*pieces)
        return self.hear()

    @property
    def closed(self) -> bool:
        return self.connection.state is not ConnectionState.OPEN

    def hang_up(self) -> None:
        self.stream.input_ended = True
        self.world.pump.readable(self.connection)
        self.world.turn()
