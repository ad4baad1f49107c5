"""A world for the pump: a stream in memory, a broker and a store that do nothing by themselves, a clock that stands."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from polymq.gateways.contract import BaseGateway, Peer
from polymq.gateways.effects import Send, SendAfter
from polymq.server.pump import Pump
from polymq.wire.tickets import TicketState

if TYPE_CHECKING:
    from collections.abc import Callable

    from polymq.gateways.effects import Effect, TimerName
    from polymq.gateways.outbox import Outbox
    from polymq.server.connection import Connection
    from polymq.server.crew import Crew
    from polymq.server.settings import PumpSettings

PEER = Peer(host="192.0.2.1", port=40000, listener="here:1")


class Clock:
    def __init__(self) -> None:
        self.now_ns = 1_000_000_000

    def monotonic_ns(self) -> int:
        return self.now_ns

    def wall_ns(self) -> int:
        return self.now_ns


class Ticket:
    def __init__(self) -> None:
        self.state = TicketState.PENDING
        self.failure = ""

    def resolve(self) -> None:
        self.state = TicketState.DONE

    def fail(self, reason: str) -> None:
        self.state = TicketState.FAILED
        self.failure = reason


def echo(line: bytes, effects: list[Effect]) -> None:
    """Answer a line with itself: for a fake gateway's `on_line`."""
    effects.append(Send(line + b"\n"))


def failure(reason: str) -> bytes:
    return f"FAILED {reason}\n".encode()


class Publisher:
    """Answers every line once its ticket is done."""

    def __init__(self) -> None:
        self.tickets: list[Ticket] = []

    def resolve_all(self) -> None:
        for ticket in self.tickets:
            ticket.resolve()

    def __call__(self, line: bytes, effects: list[Effect]) -> None:
        if line == b"ping":
            effects.append(Send(b"pong\n"))
            return
        ticket = Ticket()
        self.tickets.append(ticket)
        effects.append(SendAfter(ticket, b"OK " + line + b"\n", failure))


class Stream:
    """The server's end. What the peer sends is put into `incoming`; what it got is in `outgoing`."""

    def __init__(self) -> None:
        self.incoming: list[bytes | OSError] = []
        self.outgoing = bytearray()
        self.room = 1 << 40  # what the peer still takes
        self.input_ended = False
        self.output_ended = False
        self._closed = False
        self.sends = 0
        self.reads: list[int] = []  # the room that each read had

    def recv_into(self, buffer: memoryview) -> int:
        assert not self._closed
        self.reads.append(len(buffer))
        if not self.incoming:
            if self.input_ended:
                return 0
            raise BlockingIOError
        data = self.incoming.pop(0)
        if isinstance(data, OSError):
            raise data
        taken, rest = data[: len(buffer)], data[len(buffer) :]
        buffer[: len(taken)] = taken
        if rest:
            self.incoming.insert(0, rest)
        return len(taken)

    def send(self, view: memoryview) -> int:
        assert not self._closed
        assert not self.output_ended
        self.sends += 1
        size = min(len(view), self.room)
        if not size:
            raise BlockingIOError
        self.room -= size
        self.outgoing += view[:size]
        return size

    def end_output(self) -> None:
        self.output_ended = True

    def close(self) -> None:
        self._closed = True

    def closed(self) -> bool:
        return self._closed


@dataclass
class Subscription:
    listener: Any


@dataclass
class Delivery:
    subscription: Subscription
    data: bytes = b""


class Broker:
    def __init__(self) -> None:
        self.calls: list[str] = []
        self.deliveries: list[Delivery] = []
        self.due: int | None = None
        self.on_tick: Callable[[], None] = lambda: None

    def tick(self) -> None:
        self.calls.append("tick")
        self.on_tick()

    def dispatch(self) -> list[Delivery]:
        self.calls.append("dispatch")
        deliveries, self.deliveries = self.deliveries, []
        return deliveries

    def due_ns(self) -> int | None:
        return self.due

    def stop(self) -> None:
        self.calls.append("stop")


class Store:
    def __init__(self, calls: list[str]) -> None:
        self.calls = calls
        self.congested = False
        self.due_ns: int | None = None
        self.unwritten = ""
        self.on_commit: Callable[[], None] = lambda: None
        self.on_poll: Callable[[], None] = lambda: None

    def commit(self) -> None:
        self.calls.append("commit")
        self.on_commit()

    def poll(self) -> bool:
        self.calls.append("poll")
        self.on_poll()
        return False

    def close(self, *, clean: bool) -> bool:
        self.calls.append(f"close clean={clean}")
        return clean


class Watcher:
    """Records nothing: `connection.watched` is the record. Checks that calls are changes."""

    def __init__(self) -> None:
        self.watched: dict[Connection, tuple[bool, bool]] = {}

    def watch(self, connection: Connection, *, readable: bool, writable: bool) -> None:
        assert self.watched.get(connection, (False, False)) != (readable, writable)
        self.watched[connection] = (readable, writable)


class Gateway(BaseGateway):
    """Lines in: `handlers` says what each does. Keeps a record of every call."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.on_line: Callable[[bytes, list[Effect]], None] = lambda _line, _effects: None
        self.on: dict[str, Callable[[list[Effect]], None]] = {}
        self.stop_after: set[bytes] = set()
        self.views: list[int] = []  # the size of every view
        self.hold_below = 0

    def feed(self, view: memoryview, effects: list[Effect]) -> int:
        data = bytes(view)
        self.views.append(len(data))
        at = 0
        while (end := data.find(b"\n", at)) >= 0:
            line = data[at:end]
            self.calls.append(line)
            self.on_line(line, effects)
            at = end + 1
            if line in self.stop_after:
                break
        return at

    def _record(self, name: str, effects: list[Effect]) -> None:
        self.calls.append(name)
        if name in self.on:
            self.on[name](effects)

    def opened(self, effects: list[Effect]) -> None:
        self._record("opened", effects)

    def deliver(self, delivery: Any, outbox: Outbox) -> None:
        self.calls.append("deliver")
        at = outbox.reserve(len(delivery.data))
        outbox.data[at : at + len(delivery.data)] = delivery.data
        outbox.advance(at + len(delivery.data))
        outbox.hold_below = self.hold_below

    def timer(self, name: TimerName, effects: list[Effect]) -> None:
        self._record(f"timer {name.value}", effects)

    def full(self, effects: list[Effect]) -> None:
        self._record("full", effects)

    def writable(self, effects: list[Effect]) -> None:
        self._record("writable", effects)

    def answered(self, token: int, answer: object, effects: list[Effect]) -> None:
        self._record(f"answered {token} {answer}", effects)

    def woken(self, effects: list[Effect]) -> None:
        self._record("woken", effects)
        super().woken(effects)

    def eof(self, effects: list[Effect]) -> None:
        self._record("eof", effects)

    def upgrade_failed(self, reason: str, effects: list[Effect]) -> None:
        self._record("upgrade_failed", effects)

    def stopping(self, effects: list[Effect]) -> None:
        self._record("stopping", effects)
        super().stopping(effects)

    def ended(self) -> None:
        self.calls.append("ended")


@dataclass
class World:
    """A pump with everything around it."""

    settings: PumpSettings | None = None
    crew: Crew | None = None
    clock: Clock = field(default_factory=Clock)
    broker: Broker = field(default_factory=Broker)
    watcher: Watcher = field(default_factory=Watcher)

    def __post_init__(self) -> None:
        self.store = Store(self.broker.calls)
        self.pump = Pump(self.broker, self.store, self.clock, self.watcher, settings=self.settings, crew=self.crew)  # type: ignore[arg-type]  # deliveries are simpler here

    def connect(self, gateway: Gateway | None = None) -> tuple[Stream, Gateway, Connection]:
        stream, gateway = Stream(), gateway or Gateway()
        return stream, gateway, self.pump.open(stream, gateway, PEER)

    def send(self, connection: Connection, *pieces: bytes) -> None:
        """Have the peer send, and the pump read and finish the turn after each piece."""
        for piece in pieces:
            assert isinstance(connection.stream, Stream)
            connection.stream.incoming.append(piece)
            assert connection.watched[0], "not read at the moment"
            self.pump.readable(connection)
            self.turn()

    def turn(self) -> None:
        """Take turns until none is wanted at once."""
        for _ in range(20):
            self.pump.end_turn()
            due_ns = self.pump.due_ns()
            if due_ns is None or due_ns > self.clock.now_ns:
                return
        raise AssertionError("the pump does not come to rest")

    def deliver(self, gateway: Gateway, data: bytes) -> None:
        """Have the broker hand out `data` to one gateway in the next turn."""
        self.broker.deliveries.append(Delivery(Subscription(gateway), data))

    def pass_time(self, by_ns: int) -> None:
        self.clock.now_ns += by_ns
        self.turn()
