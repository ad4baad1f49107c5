"""One life of the broker's process on the fakes: the real store, core, gateways and pump, and nothing between.

It does what `server/shell.py` does with an operating system: takes connections, asks who can be read or written, runs
turns. In which order, and how many at once, is the seed's choice.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from polymq.admin.door import Door, refuse
from polymq.admin.endpoints import ENDPOINTS
from polymq.core.access import ANONYMOUS
from polymq.core.broker import Broker
from polymq.core.settings import CoreSettings
from polymq.errors import Refusal
from polymq.gateways.contract import Peer
from polymq.gateways.http.gateway import HttpGateway
from polymq.gateways.nsq.http import nsq_router
from polymq.gateways.nsq.http_context import NsqHttp, NsqNode
from polymq.gateways.nsq.tcp import NsqGateway
from polymq.protocols.http.router import Route, Router
from polymq.protocols.nsq.settings import NsqSettings
from polymq.server.pump import Pump
from polymq.store.store import Store
from polymq.testing.durability import Place
from polymq.testing.network import FakeStream
from polymq.testing.other_ports import OtherPorts
from polymq.testing.promises import is_ephemeral
from polymq.testing.worker import FakeWorker
from polymq.wire.batch import ATTRIBUTES_PASSED_OVER, HEADER_SIZE_BYTES, parse_header, read_messages

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

    from polymq.core.ports import Log
    from polymq.core.session import Session
    from polymq.gateways.contract import Gateway
    from polymq.server.connection import Connection
    from polymq.testing.clock import FakeClock
    from polymq.testing.disk import FakeFiles
    from polymq.testing.options import Options, TopicPlan

__all__ = ["BrokerProcess", "read_partitions"]

_TURN_NS_MAX: Final = 400_000
_STOPPING_TURNS_MAX: Final = 50
_READ_SIZE_BYTES: Final = 1 << 20
_READS_MAX: Final = 10_000
_PEER: Final = Peer("127.0.0.1", 1)


class Routers:
    """The HTTP ports of one process, as `server/mounts.py` makes them."""

    def __init__(self, broker: Broker, clock: FakeClock, settings: NsqSettings) -> None:
        node = NsqNode(broadcast_address="simulated", host_name="simulated", tcp_port=1, http_port=2, started_at_ns=clock.wall_ns())
        self._nsq = NsqHttp(session=broker.session(ANONYMOUS), clock=clock, node=node, settings=settings, make_token=lambda: "token")
        self._nsq_router = nsq_router(settings)
        self._door = Door(broker.session(ANONYMOUS), clock, broker.statistics)
        self._door_router = Router([Route(method, path, function) for method, path, function in ENDPOINTS], refuse=refuse)
        self._clock = clock

    def gateway(self, port: str) -> Gateway:
        """Make the server's side of a connection."""
        if port == "nsq":
            return HttpGateway(self._nsq_router, self._nsq, self._clock)
        return HttpGateway(self._door_router, self._door, self._clock)


class BrokerProcess:
    """Starts in the constructor: what it raises, an ordinary process would say before it exits."""

    def __init__(self, files: FakeFiles, clock: FakeClock, random: Random, options: Options, *, boot_id: str) -> None:
        self.files = files
        self.worker = FakeWorker(clock, random, delay_ns_max=options.disk_delay_ns_max)
        self._clock = clock
        self._random = random
        self._watched: dict[Connection, tuple[FakeStream, bool, bool]] = {}
        self._waiting: list[tuple[FakeStream, str]] = []  # connections that have not been accepted, and at which port
        self._streams: list[FakeStream] = []
        self._free_at_ns = 0  # when the turn under way ends
        self.store = Store.open(
            files,
            self.worker,
            clock=clock,
            boot_id=boot_id,
            random_u64=lambda: random.getrandbits(64),
            settings=options.store,
        )
        # A broker that is set to sync makes every topic so; then all else that is answered waits for a sync, too.
        settings = CoreSettings(sync=all(topic.sync for topic in options.all_topics))
        if options.retention_ns is not None:
            settings = replace(settings, retention_age_ns=options.retention_ns)
        self.broker = Broker(self.store, clock, random, settings=settings)
        self.broker.start()
        self.pump = Pump(self.broker, self.store, clock, self)
        self._operator = self.broker.session(ANONYMOUS)
        self._nsq = NsqSettings()
        self._routers = Routers(self.broker, clock, self._nsq)
        self.others = OtherPorts(self.broker, clock, random) if options.sends or options.queues else None
        for topic in options.all_topics:
            if not is_ephemeral(topic.name):
                self._create(topic)

    def _create(self, topic: TopicPlan) -> None:
        """Be the operator who makes the topics; a full or failed disk refuses, and a publisher makes them later."""
        try:
            self._operator.create_topic(topic.name, partitions=topic.partitions, sync=topic.sync)
        except Refusal:
            return

    # What the pump asks for.

    def watch(self, connection: Connection, *, readable: bool, writable: bool) -> None:
        """See `server.ports.Watcher`."""
        if readable or writable:
            assert isinstance(connection.stream, FakeStream)
            self._watched[connection] = (connection.stream, readable, writable)
        else:
            self._watched.pop(connection, None)

    # What the operating system does.

    def connect(self, stream: FakeStream, port: str = "tcp") -> None:
        """Let a client in at NSQ's TCP port ("tcp"), its HTTP port ("nsq"), the log's ("log") or another protocol's; it is accepted in the next turn."""
        self._waiting.append((stream, port))
        self._streams.append(stream)

    @property
    def wakes_at_ns(self) -> int:
        """When a turn is worth running, or background work goes on."""
        dues = [self.pump.due_ns(), self.worker.wakes_at_ns]
        for stream, readable, writable in self._watched.values():
            if readable:
                dues.append(stream.wakes_at_ns)
            if writable and stream.writable:
                dues.append(0)
        if self._waiting:
            dues.append(0)
        due_ns = min((due for due in dues if due is not None), default=1 << 62)
        return max(due_ns, self._free_at_ns)

    def turn(self) -> None:
        """Run one turn; it takes some time, in which nothing else is noticed."""
        self.worker.run()
        waiting, self._waiting = self._waiting, []
        for stream, port in waiting:
            gateway: Gateway
            if port == "tcp":
                gateway = NsqGateway(self.broker.session(ANONYMOUS), _PEER, self._nsq, self._clock.monotonic_ns)
            elif port in ("nsq", "log"):
                gateway = self._routers.gateway(port)
            else:
                assert self.others is not None
                gateway = self.others.gateway(port, _PEER)
            self.pump.open(stream, gateway, _PEER)
        ready = [
            (connection, stream, readable, writable)
            for connection, (stream, readable, writable) in self._watched.items()
            if (readable and stream.readable) or (writable and stream.writable)
        ]
        self._random.shuffle(ready)
        if len(ready) > 1 and self._random.random() < 0.2:
            del ready[1 + self._random.randrange(len(ready) - 1) :]
        for connection, stream, readable, writable in ready:
            if readable and not stream.closed and stream.readable:
                self.pump.readable(connection)
            if writable and not stream.closed:
                self.pump.writable(connection)
        self.pump.end_turn()
        self._free_at_ns = self._clock.monotonic_ns() + 1 + self._random.randrange(_TURN_NS_MAX)

    # How it ends.

    def stop(self) -> None:
        """Stop in an orderly way, as on SIGTERM: what the shell and `Node.close` do."""
        self.pump.stop()
        for _ in range(_STOPPING_TURNS_MAX):
            if not self.pump.connections:
                break
            self.turn()
            self._clock.advance_to(self._free_at_ns)
        self.pump.abandon()
        self.broker.stop()
        self.pump.end_turn()
        self.broker.snapshot()
        self.store.commit()
        self.store.close(clean=True)
        self.worker.close()

    def vanish(self, *, power_loss: bool) -> None:
        """Leave the connections as they are left when nobody is there any more."""
        for stream in self._streams:
            stream.on_send = stream.on_close = None
            if power_loss:
                stream.reset()
            else:
                stream.close()

    # What an inspector sees.

    def places(self) -> dict[int, Place]:
        """Say what each partition's folder belongs to."""
        found: dict[int, Place] = {}
        for topic in self.broker.catalogue.topics.values():
            for partition in topic.partitions:
                found[partition.number] = Place(partition.number, topic.name)
                if partition.schedule is not None:
                    number = partition.schedule.log.number
                    found[number] = Place(number, topic.name, schedule=True)
        return found


def read_partitions(
    session: Session, topics: Sequence[str], turn: Callable[[], None], *, shown: bool = False
) -> list[tuple[int, list[tuple[int, bytes]]]]:
    """Read every partition of some topics, as (number, (offset, body) pairs); `turn` lets the store get on.

    `shown`: without what readers of the log pass over.
    """
    views = [session.topic(topic) for topic in topics]
    return [
        (partition.number, _read_log(session.log(view.name, partition.partition), turn, shown=shown))
        for view in views
        if view is not None
        for partition in view.partitions
    ]


def _read_log(log: Log, turn: Callable[[], None], *, shown: bool) -> list[tuple[int, bytes]]:
    records: list[tuple[int, bytes]] = []
    offset = log.start
    for _ in range(_READS_MAX):
        if offset >= log.readable:
            return records
        view = log.batches(offset, _READ_SIZE_BYTES)
        if not view and log.failed:
            return records  # what is damaged is fenced when it is read; health() says so
        if not view:
            turn()
            continue
        at = 0
        while at < len(view):
            header = parse_header(view, at)
            end = at + header.size
            if not shown or not header.attributes & ATTRIBUTES_PASSED_OVER:
                found = read_messages(view, at + HEADER_SIZE_BYTES, header.count, header.base_time_ns, header.count, end)
                records += enumerate((message.body for message in found), header.base_offset)
            offset, at = header.base_offset + header.count, end
    raise AssertionError(f"partition {log.number} cannot be read beyond offset {offset} of {log.readable}")
