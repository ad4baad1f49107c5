"""Servers of a cluster without sockets: routes wired end to end, a clock that stands, and other servers made of bytes."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from itertools import count
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from polymq.core.interest.targets import Target
from polymq.core.live import Live, Taker
from polymq.gateways.contract import Peer
from polymq.gateways.effects import Ask, Close, Pause, Resume, Send, SendAfterEach, SetTimer, TimerName, Upgrade
from polymq.gateways.live_sheet import LiveSheet
from polymq.gateways.nats.cluster import Cluster, RouteFacts
from polymq.gateways.nats.house import House
from polymq.gateways.nats.pings import PingPolicy
from polymq.gateways.nats.route import RouteGateway
from polymq.gateways.outbox import Outbox
from polymq.protocols.nats.info import RouteConnect, ServerInfo, write_connect, write_info
from polymq.protocols.nats.settings import NatsSettings
from polymq.wire.live import COLUMNS, KEPT, SPARE, LiveBatch, LiveMessage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from polymq.core.interest.targets import Entry
    from polymq.gateways.effects import Effect

SECOND_NS = 1_000_000_000
PINGS = PingPolicy(SECOND_NS, 2 * SECOND_NS, 2, always=True)


class Clock:
    def __init__(self) -> None:
        self.now_ns = SECOND_NS

    def monotonic_ns(self) -> int:
        return self.now_ns

    def wall_ns(self) -> int:
        return self.now_ns


class Listener:
    """Somebody at one server who listens. `got` has copies."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.target = Target(self)
        self.got: list[LiveMessage] = []
        self.kept: list[bool] = []  # whether each was marked as stored

    def listen(self, pattern: bytes, queue: bytes = b"", *, limit: int = 0, account: str = "") -> Entry:
        return self._server.live.space(account).listen(pattern, self.target, tag=0, queue=queue, limit=limit)

    def bodies(self) -> list[bytes]:
        return [message.payload for message in self.got]


class Wanted:
    """A solicitor that only keeps what it was told."""

    def __init__(self, *, explicit: bool = True, user: str = "", password: str = "", gossip_mode: int = 0) -> None:
        self.explicit = explicit
        self.user = user
        self.password = password
        self.gossip_mode = gossip_mode
        self.told: list[tuple[str, ...]] = []

    def settled(self, server_id: str) -> None:
        self.told.append(("settled", server_id))

    def lost(self, reason: str, *, refused: bool) -> None:
        self.told.append(("lost", reason, "refused" if refused else ""))

    def abandon(self) -> None:
        self.told.append(("abandoned",))


class End:
    """One gateway's connection: the pump's part of it."""

    def __init__(self, server: Server, gateway: RouteGateway) -> None:
        self.server = server
        self.gateway = gateway
        self.outbox = Outbox()
        self.other: End | None = None  # None: the test is at the other end
        self.input = bytearray()
        self.timers: dict[TimerName, int] = {}
        self.effects: list[Effect] = []
        self.closed: str | None = None
        self.at_once = False
        self.rung = False
        self.asking = self.paused = False
        gateway.ring = self._ring

    def _ring(self) -> None:
        self.rung = True

    def apply(self, effects: list[Effect]) -> None:
        self.effects += effects
        resumed = False
        for effect in effects:
            match effect:
                case Send():
                    self.outbox.write(effect.data)
                case SetTimer():
                    self.timers.pop(effect.name, None)
                    if effect.due_ns is not None:
                        self.timers[effect.name] = effect.due_ns
                case Close():
                    self.at_once = effect.at_once
                    self.end(effect.reason)
                    return
                case Ask():
                    self.asking = True
                case Pause():
                    self.paused = True
                case Resume():
                    self.paused = False
                    resumed = True
                case SendAfterEach():
                    self.outbox.write(effect.data)
                case Upgrade():
                    pass
                case _:
                    raise AssertionError(effect)
        if resumed:
            self.feed(b"")

    def end(self, reason: str = "closed by the peer") -> None:
        """The connection is over."""
        if self.closed is None:
            self.closed = reason
            self.timers.clear()
            self.gateway.ended()

    def call(self, name: str, *arguments: Any) -> None:
        effects: list[Effect] = []
        getattr(self.gateway, name)(*arguments, effects)
        self.apply(effects)

    def feed(self, data: bytes) -> None:
        """Hand over input as the pump does: what is not consumed comes again."""
        self.input += data
        if self.closed is not None or self.asking or self.paused or len(self.input) < self.gateway.need:
            return
        effects: list[Effect] = []
        self.server.fed = self, effects
        consumed = self.gateway.feed(memoryview(bytes(self.input)), effects)
        self.server.fed = None
        del self.input[:consumed]
        self.apply(effects)

    def answer(self, answer: object) -> None:
        """Answer its question."""
        self.asking = False
        self.call("answered", 0, answer)
        self.feed(b"")

    def take(self) -> bytes:
        """What it has written."""
        data = b"".join(self.outbox.views())
        self.outbox.sent(len(data))
        return data


class Server:
    """One of ours, as a courier as well."""

    def __init__(
        self, world: World, name: str, facts: RouteFacts, settings: NatsSettings, accounts: Sequence[str], jetstream: Sequence[str]
    ) -> None:
        self.name = name
        self.world = world
        self.live = Live(random.Random(7))
        self.live.courier = self
        self.fed: tuple[End, list[Effect]] | None = None
        self.ends: dict[Any, End] = {}
        info = ServerInfo(server_id=f"N{name}", server_name=name, version="2.12.0", proto=1, max_payload=1 << 20, cluster=facts.name)
        broker: Any = SimpleNamespace(live=self.live)
        logins: Any = None
        numbers = count()
        self.house = House(broker, world.clock, settings, info, logins, lambda size: next(numbers).to_bytes(size, "big"))
        self.cluster = Cluster(self.house, facts, PINGS, accounts, jetstream=jetstream)
        self.heard: list[ServerInfo] = []
        self.cluster.heard_of = self.heard.append

    def waiting_size_bytes(self, owner: object) -> int:
        """Nothing waits for long here."""
        return 0

    def deliver(self, batch: LiveBatch, targets: list[Target], *, more: bool) -> None:
        """Do as `server/courier.py`."""
        afterwards: list[Callable[[], None]] = []
        sheet = LiveSheet() if len(targets) > 1 else None
        for target in targets:
            if isinstance(target.owner, Taker):
                if (then := target.owner.take(batch, target)) is not None:
                    afterwards.append(then)
            elif isinstance(target.owner, Listener):
                messages = batch.messages()
                indexes = target.pairs[: 2 * target.pair_count : 2].tolist()
                target.owner.got += [messages[index] for index in indexes]
                target.owner.kept += [bool(batch.rows[COLUMNS * index + SPARE] & KEPT) for index in indexes]
                for entry in list(target.spent):
                    self.live.leave(entry)
                target.spent.clear()
            else:
                end = self.ends[target.owner]
                if self.fed is not None and self.fed[0] is end and self.fed[1]:
                    end.apply(self.fed[1])
                    self.fed[1].clear()
                end.gateway.deliver_live(batch, target, end.outbox, sheet)
            target.clear()
        if sheet is not None:
            sheet.close()
        for then in afterwards:
            then()

    def listener(self) -> Listener:
        return Listener(self)

    def publish(
        self, subject: bytes, payload: bytes = b"", *, reply: bytes = b"", header_size: int = 0, account: str = "", kept: bool = False
    ) -> int:
        """Publish as a client would; returns how many messages nobody took. `kept`: it is stored."""
        batch = LiveBatch.of([LiveMessage(subject, payload, reply, header_size)])
        batch.rows[SPARE] = KEPT if kept else 0
        return self.live.space(account).publish(batch)

    def route(self, other: Server) -> RouteGateway:
        return self.cluster.routes[f"N{other.name}"]

    def routed(self) -> set[str]:
        return {server_id[1:] for server_id in self.cluster.routes}


class Stranger:
    """Another server that is made of bytes."""

    def __init__(self, world: World, end: End) -> None:
        self._world = world
        self.end = end

    def send(self, *lines: bytes) -> None:
        for line in lines:
            self.end.feed(line)
        self._world.run()

    def heard(self) -> bytes:
        """What it has been told since it was last asked, without INFO."""
        self._world.run()
        return b"".join(line for line in self.end.take().splitlines(keepends=True) if not line.startswith((b"INFO", b"CONNECT")))

    def infos(self) -> list[bytes]:
        self._world.run()
        return [line for line in self.end.take().splitlines(keepends=True) if line.startswith(b"INFO")]

    @property
    def closed(self) -> str | None:
        return self.end.closed


def connect_line(name: str = "NX", cluster: str = "c1", **more: Any) -> bytes:
    return write_connect(RouteConnect(headers=True, name=name, cluster=cluster, **more))


def info_line(name: str = "X", cluster: str = "c1", **more: Any) -> bytes:
    said = {"server_id": f"N{name}", "server_name": name, "version": "2.9.10", "proto": 2, "host": "0.0.0.0", "port": 6222, "headers": True}
    return write_info(ServerInfo(cluster=cluster, **{**said, **more}))


@dataclass
class World:
    """All servers, and what passes between them."""

    clock: Clock = field(default_factory=Clock)
    servers: list[Server] = field(default_factory=list)
    ends: list[End] = field(default_factory=list)

    def server(
        self,
        name: str = "A",
        *,
        settings: NatsSettings | None = None,
        accounts: Sequence[str] = (),
        jetstream: Sequence[str] = (),
        cluster: str = "c1",
        port: int = 6222,
        **facts: Any,
    ) -> Server:
        made = Server(self, name, RouteFacts("0.0.0.0", port, name=cluster, **facts), settings or NatsSettings(), accounts, jetstream)
        self.servers.append(made)
        return made

    def _end(self, server: Server, host: str, wanted: Wanted | None = None) -> End:
        peer = Peer(host, 40000 + len(self.ends))
        end = End(server, RouteGateway(server.cluster, peer, wanted))
        server.ends[end.gateway] = end
        self.ends.append(end)
        return end

    def dial(self, dialler: Server, dialled: Server, wanted: Wanted | None = None) -> tuple[End, End]:
        """Connect two servers, and say nothing yet."""
        one, other = self._end(dialler, f"10.0.0.{dialled.name}", wanted or Wanted()), self._end(dialled, f"10.0.0.{dialler.name}")
        one.other, other.other = other, one
        other.call("opened")
        one.call("opened")
        return one, other

    def join(self, dialler: Server, dialled: Server, wanted: Wanted | None = None) -> tuple[End, End]:
        """Connect two servers, and let them talk."""
        ends = self.dial(dialler, dialled, wanted)
        self.run()
        return ends

    def stranger(self, server: Server, *, wanted: Wanted | None = None, host: str = "10.0.0.9") -> Stranger:
        """Connect somebody else: who dials, or (`wanted`) is dialled."""
        end = self._end(server, host, wanted)
        end.call("opened")
        return Stranger(self, end)

    def joined(self, server: Server, name: str = "X", *, host: str = "10.0.0.9", **more: Any) -> Stranger:
        """Connect somebody else who does everything right."""
        stranger = self.stranger(server, host=host)
        stranger.send(connect_line(f"N{name}"), info_line(name, **more))
        assert stranger.closed is None
        return stranger

    def run(self) -> None:
        """Let everything happen that can happen now."""
        for _ in range(200):
            moved = [self._step(end) for end in self.ends]
            if not any(moved):
                return
        raise AssertionError("the servers do not come to rest")

    def _step(self, end: End) -> bool:
        moved = False
        if end.rung and end.closed is None:
            end.rung = False
            end.call("woken")
            moved = True
        if end.other is not None and (data := end.take()):
            end.other.feed(data)
            moved = True
        if end.other is not None and end.closed is not None and end.other.closed is None and not end.outbox.size_bytes:
            end.other.end()
            moved = True
        for server in self.servers:
            server.live.tick()
        return moved

    def pass_time(self, by_ns: int) -> None:
        """Let time pass, and timers come up."""
        until_ns = self.clock.now_ns + by_ns
        while True:
            due = [
                (due_ns, index, name) for index, end in enumerate(self.ends) for name, due_ns in end.timers.items() if due_ns <= until_ns
            ]
            if not due:
                break
            due_ns, index, name = min(due, key=lambda each: each[:2])
            self.clock.now_ns = max(self.clock.now_ns, due_ns)
            end = self.ends[index]
            del end.timers[name]
            end.call("timer", name)
            self.run()
        self.clock.now_ns = until_ns
