"""Simulated NSQ clients: what they do next is drawn from the seed, what they saw is told to the ledger.

A client is stepped when its time has come or when bytes have arrived. It never knows what the broker is; it has a
stream and speaks the protocol.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Final, Protocol

from polymq.testing.nsq_wire import ERROR, MAGIC, MESSAGE, FrameReader, WireMessage, identify, multi_publish, publish
from polymq.testing.promises import Connection, Verb

if TYPE_CHECKING:
    from random import Random

    from polymq.core.ports import Clock
    from polymq.testing.ledger import Ledger
    from polymq.testing.options import Options, TopicPlan
    from polymq.testing.trace import Trace

__all__ = ["NEVER_NS", "Client", "ClientStream", "Consumer", "LastPublisher", "NsqClient", "Publisher", "Surroundings", "make_body"]

NEVER_NS: Final = 1 << 62
_MS: Final = 1_000_000
_BUFFER: Final = bytearray(64 * 1024)
_FATES: Final = 8
_EAGER_READY: Final = 2500
_FORGED_ID: Final = b"f" * 16


class ClientStream(Protocol):
    """A client's end of a connection: a `FakeStream`, or a socket that behaves like one."""

    @property
    def readable(self) -> bool: ...
    @property
    def writable(self) -> bool: ...
    @property
    def wakes_at_ns(self) -> int | None: ...
    def recv_into(self, buffer: bytearray) -> int: ...
    def send(self, data: bytearray) -> int: ...
    def end_output(self) -> None: ...
    def close(self) -> None: ...
    def reset(self) -> None: ...


class Surroundings(Protocol):
    """What a client can reach."""

    @property
    def clock(self) -> Clock: ...

    ledger: Ledger
    options: Options
    random: Random
    trace: Trace

    @property
    def wants_messages(self) -> bool:
        """Whether more is to be published."""

    def connect(self, connection: Connection) -> ClientStream | None:
        """Reach the broker, if it is up."""

    def next_serial(self, count: int) -> int:
        """Take numbers for messages."""


class Client:
    """A connection that comes back when it is lost, and an agenda. `slow`: reads only when it thinks, not when bytes come."""

    def __init__(self, world: Surroundings, name: str) -> None:
        self.world = world
        self.name = name
        self.stream: ClientStream | None = None
        self.connection = Connection(name)
        self.stopped = False
        self.slow = False
        self.next_ns = world.clock.monotonic_ns() + self._think_ns()
        self._connections = 0
        self._output = bytearray()

    @property
    def wakes_at_ns(self) -> int:
        """When it wants to be stepped next."""
        if self.stream is None:
            return NEVER_NS if self.stopped else self.next_ns
        arrives_ns = None if self.slow else self.stream.wakes_at_ns
        at_ns = self.next_ns if arrives_ns is None else min(self.next_ns, arrives_ns)
        if self._output and self.stream.writable:
            return 0
        return at_ns

    def step(self) -> None:
        """Read what has come, do what is due, write what waits."""
        now_ns = self.world.clock.monotonic_ns()
        try:
            if self.stream is not None and self.stream.readable and (now_ns >= self.next_ns or not self.slow):
                self._read()
            if now_ns >= self.next_ns:
                self.next_ns = now_ns + self._think_ns()
                if self.stream is not None:
                    self._act()
                elif not self.stopped:
                    self._connect()
            self._write()
        except OSError as error:
            self._lose(type(error).__name__)

    def disconnect(self) -> None:
        """Hang up."""
        if self.stream is not None:
            self.stream.close()
            self.stream = None

    def _think_ns(self) -> int:
        return 1 + self.world.random.randrange(self.world.options.think_ns_max)

    def _chance(self, percent: int) -> bool:
        return percent > 0 and self.world.random.randrange(100) < percent

    def _connect(self) -> None:
        self._connections += 1
        self.connection = Connection(f"{self.name}.{self._connections}")
        self.stream = self._reach()
        if self.stream is None:
            return
        self._output.clear()
        self.world.trace("%s connects", self.connection.name)
        self._opened()

    def _read(self) -> None:
        assert self.stream is not None
        size = self.stream.recv_into(_BUFFER)
        if not size:
            self._lose("end of stream")
            return
        self._took(bytes(_BUFFER[:size]))

    def _write(self) -> None:
        if self.stream is not None and self._output:
            try:
                sent = self.stream.send(self._output)
            except BlockingIOError:
                return
            del self._output[:sent]

    def _lose(self, why: str) -> None:
        self.world.trace("%s loses its connection: %s", self.connection.name, why)
        self.disconnect()
        self.next_ns = self.world.clock.monotonic_ns() + self._think_ns()

    def _hang_up(self) -> None:
        """End the connection in one of the ways in which connections end."""
        assert self.stream is not None
        self.world.trace("%s hangs up", self.connection.name)
        manner = self.world.random.randrange(3)
        if manner == 0:
            self.stream.reset()
        elif manner == 1:
            self.stream.end_output()
        self.disconnect()

    def _reach(self) -> ClientStream | None:
        """Open a connection, if the broker is up."""
        raise NotImplementedError

    def _opened(self) -> None:
        """Say what a client says first."""

    def _took(self, data: bytes) -> None:
        """Understand what has come."""

    def _act(self) -> None:
        """Do something."""


class NsqClient(Client):
    """A client that speaks NSQ over TCP, and whose every word is told to the ledger."""

    def __init__(self, world: Surroundings, name: str) -> None:
        super().__init__(world, name)
        self._reader = FrameReader()

    def disconnect(self) -> None:
        """Hang up."""
        self.world.ledger.ended(self.connection)
        super().disconnect()

    def vanish(self) -> None:
        """Be gone without a word: the broker does not see that there is nobody any more."""
        self.world.trace("%s vanishes", self.connection.name)
        self.stream = None

    def _reach(self) -> ClientStream | None:
        return self.world.connect(self.connection)

    def _opened(self) -> None:
        self._reader = FrameReader()
        self.world.ledger.connected(self.connection)
        self._output += MAGIC

    def _took(self, data: bytes) -> None:
        for kind, frame in self._reader.feed(data):
            if kind == MESSAGE:
                self._received(WireMessage.parse(frame))
            elif frame == b"_heartbeat_":
                self._output += b"NOP\n"
            elif kind == ERROR and _FORGED_ID not in frame:
                self.world.trace("%s is told %s", self.connection.name, frame.decode())

    def _received(self, message: WireMessage) -> None:
        """Take a message."""

    def _publish_some(self, topic: TopicPlan) -> None:
        """Send a PUB, MPUB or DPUB with a new message or several."""
        options, random = self.world.options, self.world.random
        count = 1 + random.randrange(options.multi_publish_count_max) if self._chance(options.multi_publish_percent) else 0
        delay_ms = 0
        if not count and self._chance(options.deferred_percent):
            delay_ms = 1 + random.randrange(options.deferred_ns_max // _MS)
        self._publish(topic, count=count, delay_ms=delay_ms)

    def _publish(self, topic: TopicPlan, *, count: int, delay_ms: int) -> None:
        """Send an MPUB of `count`, or one message if that is 0, later if there is a delay."""
        world, options, random = self.world, self.world.options, self.world.random
        serial = world.next_serial(count or 1)
        bodies = [make_body(number, random.randrange(*options.body_size_bytes)) for number in range(serial, serial + (count or 1))]
        numbered = list(enumerate(bodies, serial))
        world.ledger.publishes(self.connection, topic.name, numbered, delay_ns=delay_ms * _MS, sync=topic.sync)
        world.trace("%s publishes %d+%d to %s, delay %d ms", self.connection.name, serial, count, topic.name, delay_ms)
        if count:
            self._output += multi_publish(topic.name, bodies)
        else:
            self._output += publish(topic.name, bodies[0], delay_ms=delay_ms or None)


class Publisher(NsqClient):
    """Publishes to every topic, with some commands in flight."""

    def _act(self) -> None:
        options = self.world.options
        if self.stopped:
            if not self.connection.commands:
                self.disconnect()
            return
        if self._chance(options.disconnect_percent):
            self._hang_up()
            return
        for _ in range(1 + self.world.random.randrange(options.pipeline)):
            if len(self.connection.commands) < options.pipeline and self.world.wants_messages:
                self._publish_some(self.world.random.choice(options.topics))


class LastPublisher(NsqClient):
    """Publishes one of each kind to every topic, as soon as it is connected, and waits for the answers."""

    def __init__(self, world: Surroundings, name: str) -> None:
        super().__init__(world, name)
        self.agenda = [(topic, count, delay) for topic in world.options.topics for count, delay in ((0, 0), (3, 0), (0, 50))]

    def _act(self) -> None:
        for topic, count, delay_ms in self.agenda:
            self._publish(topic, count=count, delay_ms=delay_ms)
        self.agenda = []


class Consumer(NsqClient):
    """Consumes one channel; `eager` ones settle everything as soon as they can and do nothing else."""

    def __init__(self, world: Surroundings, name: str, topic: str, channel: str, *, eager: bool = False) -> None:
        super().__init__(world, name)
        self.topic = topic
        self.channel = channel
        self.eager = eager
        self.slow = not eager and self._chance(world.options.slow_percent)
        self._left = False
        self._agenda: list[tuple[int, int, Verb, int, int]] = []  # (when, tie breaker, what, serial, message id)

    @property
    def wakes_at_ns(self) -> int:
        """When it wants to be stepped next."""
        at_ns = super().wakes_at_ns
        return min(at_ns, self._agenda[0][0]) if self._agenda and self.stream is not None else at_ns

    def step(self) -> None:
        """Settle what is due, then as every client."""
        now_ns = self.world.clock.monotonic_ns()
        while self.stream is not None and self._agenda and self._agenda[0][0] <= now_ns:
            _, _, verb, serial, message_id = heapq.heappop(self._agenda)
            self._settle(verb, serial, message_id)
        super().step()

    def _opened(self) -> None:
        super()._opened()
        world, options = self.world, self.world.options
        self._agenda.clear()
        self._left = False
        self.connection.timeout_ns = options.message_timeout_ms * _MS
        self._output += identify(
            client_id=self.name,
            hostname="simulated",
            feature_negotiation=True,
            msg_timeout=options.message_timeout_ms,
            heartbeat_interval=options.heartbeat_ms,
        )
        world.ledger.asks(self.connection)
        self._output += f"SUB {self.topic} {self.channel}\n".encode()
        world.ledger.subscribes(self.connection, self.topic, self.channel)
        self._ready(_EAGER_READY if self.eager else 1 + world.random.randrange(options.ready_max))
        if self.eager:
            self._confirm()

    def _ready(self, count: int) -> None:
        self._output += b"RDY %d\n" % count
        self.world.ledger.readies(self.connection, count)

    def _act(self) -> None:
        options, random = self.world.options, self.world.random
        if self.eager or self.stopped:
            return
        if self._chance(options.disconnect_percent) or (self._left and self._chance(20)):
            self._hang_up()
        elif self._chance(options.vanish_percent):
            self.vanish()
        elif self._left:
            return
        elif self._chance(options.leave_percent):
            self._leave()
        elif self._chance(options.foreign_percent):
            self._meddle()
        elif self._chance(5):
            self._ready(random.randrange(options.ready_max + 1))

    def _leave(self) -> None:
        """Say that no more messages are wanted; what is here is still settled."""
        self.world.trace("%s sends CLS", self.connection.name)
        self._left = True
        self._output += b"CLS\n"
        self.world.ledger.leaves(self.connection)

    def _received(self, message: WireMessage) -> None:
        options, random = self.world.options, self.world.random
        serial, message_id = int(message.body[:8]), int(message.id, 16)
        now_ns = self.world.clock.monotonic_ns()
        if self.eager:
            self._settle_at_once(message, serial, message_id)
            return
        if self._chance(options.forget_percent):
            return
        at_ns = now_ns + random.choice((0, 0, random.randrange(10 * _MS), random.randrange(options.message_timeout_ms * _MS)))
        if self._chance(options.touch_percent):
            heapq.heappush(self._agenda, (at_ns, random.getrandbits(30), Verb.TOUCH, serial, message_id))
            at_ns += random.randrange(options.message_timeout_ms * _MS)
        verb = Verb.REQUEUE if self._chance(options.requeue_percent) else Verb.FINISH
        heapq.heappush(self._agenda, (at_ns, random.getrandbits(30), verb, serial, message_id))

    def _settle_at_once(self, message: WireMessage, serial: int, message_id: int) -> None:
        """Settle, but let some messages time out first, and give some back: both have to come again."""
        fate = serial % _FATES if message.attempts == 1 else 0
        if fate != 1:
            self._settle(Verb.REQUEUE if fate == 2 else Verb.FINISH, serial, message_id)

    def _settle(self, verb: Verb, serial: int, message_id: int) -> None:
        world, random = self.world, self.world.random
        delay_ms = 0
        if verb is Verb.REQUEUE and world.options.requeue_ns_max:
            delay_ms = random.randrange(world.options.requeue_ns_max // _MS)
        world.trace("%s sends %s for %d, delay %d ms", self.connection.name, verb.value, serial, delay_ms)
        world.ledger.settles(self.connection, verb, serial, message_id, delay_ns=delay_ms * _MS)
        if verb is Verb.REQUEUE:
            self._output += b"REQ %016x %d\n" % (message_id, delay_ms)
        else:
            self._output += b"%s %016x\n" % (verb.value.encode(), message_id)
        if self.eager or self._chance(world.options.confirm_percent):
            self._confirm()

    def _confirm(self) -> None:
        """Send something that is answered: then it is known that the settles before it were done."""
        if self.eager or not self.world.wants_messages or self._chance(70):
            self._output += b"FIN " + _FORGED_ID + b"\n"
            self.world.ledger.provokes(self.connection)
        else:
            self._publish_some(self.world.random.choice(self.world.options.topics))

    def _meddle(self) -> None:
        """Settle a message that somebody else holds, which has to be refused."""
        channel = self.connection.channel
        assert channel is not None
        others = [share for share in channel.shares.values() if share.holder is not None and share.id not in self.connection.seen]
        if others:
            share = self.world.random.choice(others)
            self._settle(self.world.random.choice((Verb.FINISH, Verb.REQUEUE, Verb.TOUCH)), share.serial, share.id)


def make_body(serial: int, size: int) -> bytes:
    """Make bytes that say which message they are, at every place."""
    digits = b"%08d" % serial
    return digits + (digits * (size // 8 + 1))[:size]
