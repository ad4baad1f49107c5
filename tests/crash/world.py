"""Clients and a ledger around a real broker that is killed again and again.

The clients are the simulator's, over sockets; the ledger is the simulator's, too. It sees what clients receive instead
of what the broker sends, so it knows less about when something was made, and about kills it knows all it needs: what
was acknowledged, what was settled, what is deferred until when.
"""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Final

from polymq.server.node import SystemClock
from polymq.testing.clients import Client, Consumer, Publisher
from polymq.testing.ledger import Ledger
from polymq.testing.options import Options, TopicPlan
from polymq.testing.phpmq_clients import PhpmqConsumer, PhpmqProducer
from polymq.testing.promises import PromiseBrokenError
from polymq.testing.rocketmq_clients import RocketmqConsumer, RocketmqProducer, TopicMaker, dead_letter_topic, retry_topic
from polymq.testing.tap import Tap
from polymq.testing.trace import Trace
from polymq.testing.witness import Witness
from tests.crash.nats import NatsPublisher
from tests.crash.streams import Poller, SocketStream

if TYPE_CHECKING:
    from collections.abc import Callable

    from polymq.core.ports import Clock
    from polymq.testing.promises import Connection, Publication
    from tests.crash.broker import RealBroker

__all__ = ["SENDS", "CrashWorld"]

_MS: Final = 1_000_000
_SECOND_NS: Final = 1_000_000_000
_TOPICS: Final = (
    TopicPlan("cached", partitions=1, sync=False, channels=2),
    TopicPlan("synced", partitions=1, sync=True, channels=1),
    TopicPlan("spread", partitions=4, sync=False, channels=2),
)
# Everybody publishes to `mixed` and `tasks`. `mixed` is read by NSQ's channel, RocketMQ's groups and PHPMQ's consumers; `tasks` by PHPMQ's
# consumers alone, who put messages back and give them up.
_MIXED: Final = TopicPlan("mixed", partitions=1, sync=False, channels=1)
_TASKS: Final = TopicPlan("tasks", partitions=1, sync=False, channels=0)
_ORDERS: Final = TopicPlan("orders", partitions=4, sync=False, channels=0)
_SAFE: Final = TopicPlan("safe", partitions=2, sync=True, channels=0)
_CAPTURED: Final = (
    TopicPlan("captured.a", partitions=1, sync=False, channels=0),
    TopicPlan("captured.b", partitions=1, sync=False, channels=0),
)
_GROUPS: Final = ("group1", "group2")
# Who is there in one life after the other.
_CASTS: Final = (("nsq",), ("rocketmq",), ("phpmq",), ("nats", "rocketmq"), ("nsq", "rocketmq", "phpmq", "nats"))
# What the clients of the other protocols count as sends.
SENDS: Final = (
    "NATS",
    "NATS +OK",
    "PHPMQ",
    "PHPMQ with a TTL",
    "RocketMQ",
    "RocketMQ batch",
    "RocketMQ later",
    "RocketMQ one way",
)
_MESSAGES_PER_LIFE: Final = 1000
_LIFE_S: Final = (0.1, 0.3, 1.0, 1.5)
_POLL_S: Final = 0.005
_DRAIN_S_MAX: Final = 60.0
_GHOSTS_S: Final = 1.5


class CrashWorld:
    """Implements `testing.clients.Surroundings` with sockets and the real clock."""

    def __init__(self, broker: RealBroker, seed: int) -> None:
        self.random = Random(seed)
        self.options = dataclasses.replace(
            Options.draw(Random(seed)),
            topics=(*_TOPICS, _MIXED),
            publishers=3,
            consumers_per_channel=2,
            think_ns_max=4 * _MS,
            pipeline=6,
            body_size_bytes=(0, 400),
            multi_publish_percent=20,
            multi_publish_count_max=20,
            deferred_percent=15,
            deferred_ns_max=1500 * _MS,
            ready_max=50,
            message_timeout_ms=1000,
            requeue_percent=10,
            requeue_ns_max=1000 * _MS,
            touch_percent=5,
            forget_percent=3,
            foreign_percent=2,
            confirm_percent=30,
            disconnect_percent=1,
        )
        self._clock = SystemClock()
        self.ledger = Ledger(self._clock)
        self.trace = Trace(self._clock)
        self.kills = 0
        self.starts_s: list[float] = []
        self._broker = broker
        self._poller = Poller()
        self.witness = Witness(self.ledger)
        self.witness.copies.add_topic(_TASKS.name)
        for group in _GROUPS:
            self.witness.copies.add_topic(retry_topic(group))
            self.witness.copies.add_topic(dead_letter_topic(group))
        self.sent: Counter[str] = Counter()
        self.kills_of: Counter[str] = Counter()
        self._made: dict[str, int] = {}  # topics that were made on the way, and their queues
        self._clients: list[Client] = []
        self._casts: dict[str, list[Client]] = {}
        self._serial = 0
        self._serials_end = 0

    # What clients reach.

    @property
    def clock(self) -> Clock:
        """The real one."""
        return self._clock

    @property
    def wants_messages(self) -> bool:
        """Whether this life has not had its messages."""
        return self._serial < self._serials_end

    @property
    def published(self) -> int:
        """How many messages were sent."""
        return self._serial

    def next_serial(self, count: int) -> int:
        """Take numbers for messages."""
        self._serial += count
        return self._serial - count

    def connect(self, connection: Connection) -> SocketStream | None:
        """Reach the broker, if it is up."""
        if not self._broker.running:
            return None
        tap = Tap(self.ledger, connection, self.trace)
        try:
            return SocketStream(self._broker.address, self._poller, tap.received)
        except OSError:
            return None

    def dial(self, port: str, on_end: Callable[[], None] | None = None) -> SocketStream | None:
        """Reach one of the broker's other ports, if it is up. When it hangs up cannot be seen from outside."""
        if not self._broker.running:
            return None
        try:
            return SocketStream(self._broker.ports[port], self._poller, _nobody)
        except OSError:
            return None

    def topics_of(self, protocol: str) -> list[TopicPlan]:
        """Say what a protocol's clients publish to now."""
        if protocol == "phpmq":
            return [_TASKS, _TASKS, _MIXED]
        if protocol == "nats":
            return [*_CAPTURED, _MIXED, _TASKS]
        made = [TopicPlan(name, partitions=queues, sync=False, channels=0) for name, queues in self._made.items()]
        return [_ORDERS, _ORDERS, _SAFE, _MIXED, _TASKS, *made]

    def _queues(self) -> dict[str, int]:
        """Say what RocketMQ's groups read: everything but what PHPMQ's consumers put back."""
        fixed = (_ORDERS, _SAFE, _MIXED, *_CAPTURED, *_TOPICS)
        return {plan.name: plan.partitions for plan in fixed} | self._made

    # Lives.

    def live(self) -> None:
        """Start the broker, let everybody work for a moment, and kill it."""
        self._start()
        self._serials_end = self._serial + _MESSAGES_PER_LIFE
        cast = _CASTS[self.kills % len(_CASTS)]
        self._clients = [client for protocol in cast for client in self._workers(protocol)]
        self._run(self.random.uniform(0.0, self.random.choice(_LIFE_S)))
        self.kills_of.update(cast)
        self.kill()

    def kill(self) -> None:
        """SIGKILL; what the broker had sent by then is still read."""
        self._broker.kill()
        self.kills += 1
        self._end()

    def drain(self) -> None:
        """Have every channel give all that it owes, then see after another kill that nothing comes back."""
        self._dismiss()
        self._start()
        self._clients = [*self._eager("drain"), *self._eager_others("drain")]
        if not self._run(_DRAIN_S_MAX, until=self._is_drained, check_s=0.3):
            raise PromiseBrokenError(f"lost, or stuck: {self._describe_owed()}")
        self.ledger.retire()
        self._dismiss()
        self.kill()
        self._start()
        self._clients = [*self._eager("ghosts"), *self._eager_others("ghosts")]
        self._run(_GHOSTS_S)
        self._dismiss()
        self.kill()

    def judge(self) -> None:
        """Stop the broker as one should, and compare what its logs hold with what was promised."""
        self._start()
        self._run(_GHOSTS_S)
        self._broker.stop()
        self.witness.stopped()
        self.ledger.stopped(clean=True)
        partitions = self._broker.read_partitions()
        copied = self.witness.copies.topics
        self.ledger.check_log([(number, records) for topic, number, records in partitions if topic not in copied])
        self.witness.copies.check_all([each for each in partitions if each[0] in copied])
        for (topic, number, records), (*_, shown) in zip(partitions, self._broker.read_partitions(shown=True), strict=True):
            if topic == _TASKS.name:
                self.witness.copies.check_shown(topic, number, records, shown, self.witness.windows.shown_max)

    @property
    def topics(self) -> tuple[TopicPlan, ...]:
        """What is there from the beginning."""
        return (*_TOPICS, _MIXED, _TASKS, _ORDERS, _SAFE)

    @property
    def groups(self) -> list[tuple[str, str]]:
        """Which groups are there from the beginning, as (topic, group)."""
        return [(_MIXED.name, "channel0"), (_MIXED.name, "phpmq"), (_TASKS.name, "phpmq")]

    def _workers(self, protocol: str) -> list[Client]:
        """Give the clients of a protocol, the same ones in all lives."""
        if protocol not in self._casts:
            self._casts[protocol] = self._make_workers(protocol)
        return self._casts[protocol]

    def _make_workers(self, protocol: str) -> list[Client]:
        if protocol == "nsq":
            publishers: list[Client] = [Publisher(self, f"publisher{number}") for number in range(self.options.publishers)]
            return publishers + [
                Consumer(self, f"{topic.name}.channel{channel}.{number}", topic.name, f"channel{channel}")
                for topic in self.options.topics
                for channel in range(topic.channels)
                for number in range(self.options.consumers_per_channel)
            ]
        if protocol == "rocketmq":
            producers = [RocketmqProducer(self, f"producer{number}") for number in range(self.options.publishers)]
            return [*producers, TopicMaker(self, "maker", self._made), *(RocketmqConsumer(self, group, self._queues) for group in _GROUPS)]
        if protocol == "phpmq":
            senders = [PhpmqProducer(self, f"sender{number}") for number in range(2)]
            takers = [PhpmqConsumer(self, f"taker{number}", _TASKS.name, renews=number > 0) for number in range(3)]
            return [*senders, *takers, *(PhpmqConsumer(self, f"mixed.taker{number}", _MIXED.name) for number in range(2))]
        return [NatsPublisher(self, f"nats{number}", verbose=number > 0) for number in range(2)]

    def _eager_others(self, what: str) -> list[Client]:
        """Give those who read everything that other protocols have, once more for each of RocketMQ's groups and PHPMQ's queues."""

        def everything(group: str) -> dict[str, int]:
            return self._queues() | {dead_letter_topic(group): 1}

        groups = [RocketmqConsumer(self, group, partial(everything, group), eager=True) for group in _GROUPS]
        return [*groups, *(PhpmqConsumer(self, f"{what}.{plan.name}", plan.name, eager=True) for plan in (_TASKS, _MIXED))]

    def _eager(self, what: str) -> list[Client]:
        return [
            Consumer(self, f"{what}.{channel.topic}.{channel.name}", channel.topic, channel.name, eager=True)
            for channel in self.ledger.channels.values()
        ]

    def _start(self) -> None:
        self.ledger.started()
        self.starts_s.append(self._broker.start())
        self._serials_end = self._serial

    def _end(self) -> None:
        """Read what the process left behind in its sockets; whatever is connected afterwards is not."""
        deadline = time.monotonic() + 5
        while any(client.stream is not None for client in self._clients) and time.monotonic() < deadline:
            self._step(_POLL_S)
        self.witness.stopped()
        self.ledger.stopped()

    def _dismiss(self) -> None:
        for client in self._clients:
            client.stopped = True
            client.disconnect()
        self._clients = []
        self._casts.clear()

    def _is_drained(self) -> bool:
        if any(client.stream is None or client.connection.commands for client in self._clients):
            return False
        return not self.ledger.falls_due_later(200 * _MS) and not any(self._owed().values())

    def _owed(self) -> dict[str, list[Publication]]:
        """List what is owed, by whom it is owed to."""
        owed: dict[str, list[Publication]] = {}
        for channel, publication in self.ledger.owed():
            owed.setdefault(str(channel), []).append(publication)
        for group in _GROUPS:
            for topic in self._queues():
                owed[f"{group} of {topic}"] = self.witness.positions.owed(group, topic)
        for plan in (_TASKS, _MIXED):
            owed[f"queue {plan.name}"] = self.witness.windows.owed(plan.name)
        owed["copies"] = self.witness.copies.owed()
        return owed

    def _describe_owed(self) -> str:
        owed = {who: [publication.serial for publication in what] for who, what in self._owed().items() if what}
        without = [client.name for client in self._clients if client.stream is None or client.connection.commands]
        return "; ".join(f"{len(what)} messages for {who}: {what[:10]}" for who, what in owed.items()) + f"; not connected: {without}"

    def _run(self, for_s: float, *, until: Callable[[], bool] | None = None, check_s: float = 0.0) -> bool:
        """Let clients work for some time, or until `until`, which is asked every `check_s`."""
        now = time.monotonic()
        end, check = now + for_s, now + check_s
        while (now := time.monotonic()) < end:
            self._step(min(_POLL_S, end - now))
            if until is not None and now >= check:
                if until():
                    return True
                check = time.monotonic() + check_s
        return False

    def _step(self, wait_s: float) -> None:
        self._poller.wait(wait_s)
        now_ns = self._clock.monotonic_ns()
        for client in self._clients:
            if client.wakes_at_ns <= now_ns:
                client.step()


def _nobody(_data: bytes) -> None:
    """Listen in on connections whose clients tell everything themselves."""
