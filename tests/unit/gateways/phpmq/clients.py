"""Connections over fakes: what a client or a person sends, and the pump's part for deliveries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from polymq.gateways.contract import Peer
from polymq.gateways.effects import Close, Effect, Send, SendAfter, TimerName
from polymq.gateways.outbox import Outbox
from polymq.gateways.phpmq.console import ConsoleGateway
from polymq.gateways.phpmq.house import House
from polymq.gateways.phpmq.tcp import PhpmqGateway
from polymq.protocols.phpmq.frames import FrameReader, WireMessage
from polymq.protocols.phpmq.settings import PhpmqSettings

if TYPE_CHECKING:
    from tests.unit.core.conftest import World

__all__ = ["Client", "Console", "closed", "house_of"]

PEER = Peer("10.0.0.7", 4711, "here:9100")


def house_of(world: World, **settings: Any) -> House:
    return House(PhpmqSettings(salt=7, **settings), world.clock)


def closed(effects: list[Effect]) -> bool:
    return any(isinstance(effect, Close) for effect in effects)


class _Connection:
    """What both kinds have in common."""

    gateway: PhpmqGateway | ConsoleGateway

    def __init__(self, world: World) -> None:
        self.world = world
        self.rest = b""
        self.rung = False

    def _ring(self) -> None:
        self.rung = True

    def send(self, data: bytes) -> list[Effect]:
        effects: list[Effect] = []
        view = memoryview(self.rest + data)
        if len(view) >= self.gateway.need:
            consumed = self.gateway.feed(view, effects)
            self.rest = bytes(view[consumed:])
        else:
            self.rest = bytes(view)
        return effects

    def timer(self, name: TimerName) -> list[Effect]:
        effects: list[Effect] = []
        self.gateway.timer(name, effects)
        return effects


class Client(_Connection):
    """A PHPMQ client."""

    def __init__(self, world: World, house: House | None = None) -> None:
        super().__init__(world)
        self.house = house or house_of(world)
        self.session = world.broker.session(world.session.principal)
        self.gateway: PhpmqGateway = PhpmqGateway(self.session, PEER, self.house)
        self.gateway.ring = self._ring
        self.outbox = Outbox()

    def turn(self, *others: Client) -> list[WireMessage]:
        """Let the broker come to rest, and give what was dispatched here."""
        clients = {client.gateway: client for client in (self, *others)}
        for _ in range(20):
            self.world.broker.tick()
            self.world.store.commit()
            for delivery in self.world.broker.dispatch():
                listener = delivery.subscription.listener
                if listener in clients:
                    clients[listener].gateway.deliver(delivery, clients[listener].outbox)
        return self.got()

    def got(self) -> list[WireMessage]:
        data = bytes(self.outbox.data[self.outbox.start : self.outbox.end])
        self.outbox.clear()
        found = FrameReader().feed(data)
        assert all(isinstance(each, WireMessage) for each in found)
        return [each for each in found if isinstance(each, WireMessage)]


class Console(_Connection):
    """A person at the maintenance port."""

    def __init__(self, world: World, house: House | None = None) -> None:
        super().__init__(world)
        session = world.broker.session(world.session.principal)
        self.gateway: ConsoleGateway = ConsoleGateway(session, PEER, house or house_of(world), lambda: (3725.0, 64 << 20))
        self.effects: list[Effect] = []
        self.gateway.opened(self.effects)

    def say(self, line: str) -> str:
        """Say a line; give what is answered at once."""
        return self.text(self.send(line.encode() + b"\r\n"))

    @staticmethod
    def text(effects: list[Effect]) -> str:
        return b"".join(effect.data for effect in effects if isinstance(effect, Send | SendAfter)).decode()
