"""NATS clients over the real core on a fake store, with the courier of the server and without a pump."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from polymq.core.broker import Broker
from polymq.gateways.contract import Peer
from polymq.gateways.effects import Ask, Close, Send, SendAfterEach, SetTimer, TimerName, Upgrade
from polymq.gateways.nats.client import NatsClient
from polymq.gateways.nats.house import House
from polymq.gateways.nats.logins import OpenDoor
from polymq.gateways.outbox import Outbox
from polymq.protocols.nats.info import ServerInfo
from polymq.protocols.nats.settings import NatsSettings
from polymq.server.courier import CourierMeans, LiveCourier
from tests.unit.core.fakes import FakeClock, FakeRandom, FakeStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from polymq.core.ports import Store
    from polymq.gateways.contract import Layer
    from polymq.gateways.effects import Effect
    from polymq.gateways.nats.house import ClientTls, NatsLogins
    from polymq.server.connection import Connection

__all__ = ["CALM", "Guest", "NatsWorld"]

# What a client says that wants to hear nothing but what matters.
CALM = b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true}\r\n'


class Guest:
    """One client's connection, as far as the courier needs one."""

    def __init__(self, world: NatsWorld, peer: Peer) -> None:
        self.world = world
        self.gateway = NatsClient(world.house, peer)
        self.outbox = Outbox()
        self.consumes = False
        self.closed: str | None = None
        self.timers: dict[TimerName, int] = {}
        self.asked: list[Ask] = []
        self.layers: list[Layer] = []
        self._rest = b""
        world.guests[self.gateway] = self
        self.gateway.ring = lambda: world.rung.append(self)
        self.call(self.gateway.opened)

    def call(self, function: Callable[[list[Effect]], None]) -> None:
        effects: list[Effect] = []
        function(effects)
        self.apply(effects)

    def apply(self, effects: list[Effect]) -> None:
        for effect in effects:
            if self.closed is not None:
                return
            match effect:
                case Send(data):
                    self.outbox.write(data)
                case Close(reason):
                    self.closed = reason
                    del self.world.guests[self.gateway]
                    self.gateway.ended()
                case SetTimer(name, None):
                    self.timers.pop(name, None)
                case SetTimer(name, due_ns):
                    assert due_ns is not None
                    self.timers[name] = due_ns
                case Ask():
                    self.asked.append(effect)
                case Upgrade(layer):
                    self.layers.append(layer)
                case SendAfterEach():
                    pass  # nothing is committed here
                case _:
                    raise AssertionError(effect)

    def say(self, data: bytes) -> bytes:
        """Send, and give all that has come back meanwhile."""
        self._rest += data
        while self.closed is None and not self.asked and len(self._rest) >= self.gateway.need:
            effects: list[Effect] = []
            self.world.courier.begin(cast("Connection", self), effects)
            consumed = self.gateway.feed(memoryview(self._rest), effects)
            self.world.courier.end()
            self._rest = self._rest[consumed:]
            self.apply(effects)
            if not consumed:
                break
        self.world.wake()
        return self.heard()

    def heard(self) -> bytes:
        """What has come since the last look."""
        box = self.outbox
        data = b"".join(box.views())
        box.sent(len(data))
        return data

    def answer(self, answer: object) -> bytes:
        """Answer what was asked."""
        ask = self.asked.pop(0)
        self.call(lambda effects: self.gateway.answered(ask.token, answer, effects))
        return self.say(b"")


class NatsWorld:
    """A house, and whoever is in it."""

    def __init__(self, logins: NatsLogins | None = None, *, settings: NatsSettings | None = None, tls: ClientTls | None = None) -> None:
        self.clock = FakeClock()
        self.broker = Broker(cast("Store", FakeStore()), self.clock, FakeRandom())
        self.broker.start()
        self.guests: dict[NatsClient, Guest] = {}
        self.rung: list[Guest] = []
        means = CourierMeans(
            lambda connection, effects: cast("Guest", connection).apply(effects), lambda _: None, lambda _: None, self._crash
        )
        self.courier = self.broker.live.courier = LiveCourier(cast("dict[object, Connection]", self.guests), means)
        logins = logins or OpenDoor()
        info = ServerInfo(server_id="N", auth_required=logins.told)
        self.house = House(self.broker, self.clock, settings or NatsSettings(), info, logins, lambda size: b"\x07" * size, tls)

    def _crash(self, connection: Connection, error: Exception) -> None:
        raise error

    def guest(self, *said: bytes) -> Guest:
        """Let somebody in who says this first; what comes back for it is not kept."""
        guest = Guest(self, Peer("192.0.2.9", 999, "here"))
        for each in said:
            guest.heard()
            guest.say(each)
        if said:
            guest.heard()
        return guest

    def wake(self) -> None:
        """Call those who have rung."""
        while self.rung:
            guest = self.rung.pop(0)
            if guest.closed is None:
                guest.call(guest.gateway.woken)

    def pass_time(self, duration_ns: int) -> None:
        """Let time pass, and timers come up."""
        self.clock.now_ns += duration_ns
        for guest in list(self.guests.values()):
            for name, due_ns in sorted(guest.timers.items(), key=lambda each: each[1]):
                if due_ns <= self.clock.now_ns and guest.closed is None:
                    del guest.timers[name]
                    guest.call(lambda effects, guest=guest, name=name: guest.gateway.timer(name, effects))  # type: ignore[misc]
