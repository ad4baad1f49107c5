"""Clients and a ledger around a real broker that is killed again and again.

The clients are the simulator's, over sockets; the ledger is the simulator's, too. It sees what clients receive instead
of what the broker sends, so it knows less about when something was made, and about kills it knows all it needs: what
was acknowledged, what was settled, what is deferred until when.
"""

from __future__ import annotations

import dataclasses
import time
from random import Random
from typing import TYPE_CHECKING, Final

from polymq.server.node import SystemClock
from polymq.testing.clients import Client, Consumer, Publisher
from polymq.testing.ledger import Ledger
from polymq.testing.options import Options, TopicPlan
from polymq.testing.promises import PromiseBrokenError
from polymq.testing.tap import Tap
from polymq.testing.trace import Trace
from tests.crash.streams import Poller, SocketStream

if TYPE_CHECKING:
    from collections.abc import Callable

    from polymq.core.ports import Clock
    from polymq.testing.promises import Connection
    from tests.crash.broker import RealBroker

__all__ = ["CrashWorld"]

_MS: Final = 1_000_000
_SECOND_NS: Final = 1_000_000_000
_TOPICS: Final = (
    TopicPlan("cached", partitions=1, sync=False, channels=2),
    TopicPlan("synced", partitions=1, sync=True, channels=1),
    TopicPlan("spread", partitions=4, sync=False, channels=2),
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
            topics=_TOPICS,
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
        self._clients: list[Client] = []
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

    # Lives.

    def live(self) -> None:
        """Start the broker, let everybody work for a moment, and kill it."""
        self._start()
        self._serials_end = self._serial + _MESSAGES_PER_LIFE
        if not self._clients:
            self._clients = self._workers()
        self._run(self.random.uniform(0.0, self.random.choice(_LIFE_S)))
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
        self._clients = self._eager("drain")
        if not self._run(_DRAIN_S_MAX, until=self._is_drained, check_s=0.3):
            owed = [f"message {publication.serial} for {channel}" for channel, publication in self.ledger.owed()]
            raise PromiseBrokenError(f"lost, or stuck: {len(owed)} messages, {', '.join(owed[:10])}")
        self.ledger.retire()
        self._dismiss()
        self.kill()
        self._start()
        self._clients = self._eager("ghosts")
        self._run(_GHOSTS_S)
        self._dismiss()
        self.kill()

    def judge(self) -> None:
        """Stop the broker as one should, and compare what its logs hold with what was promised."""
        self._start()
        self._run(_GHOSTS_S)
        self._broker.stop()
        self.ledger.stopped(clean=True)
        self.ledger.check_log(self._broker.read_partitions(_TOPICS))

    @property
    def topics(self) -> tuple[TopicPlan, ...]:
        """What is published to."""
        return _TOPICS

    def _workers(self) -> list[Client]:
        publishers: list[Client] = [Publisher(self, f"publisher{number}") for number in range(self.options.publishers)]
        return publishers + [
            Consumer(self, f"{topic.name}.channel{channel}.{number}", topic.name, f"channel{channel}")
            for topic in _TOPICS
            for channel in range(topic.channels)
            for number in range(self.options.consumers_per_channel)
        ]

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
        self.ledger.stopped()

    def _dismiss(self) -> None:
        for client in self._clients:
            client.stopped = True
            client.disconnect()
        self._clients = []

    def _is_drained(self) -> bool:
        if any(client.stream is None or client.connection.commands for client in self._clients):
            return False
        return not self.ledger.falls_due_later(200 * _MS) and not self.ledger.owed()

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
