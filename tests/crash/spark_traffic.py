"""Publishers of all four protocols, who number their messages, never send a number twice, and note what is acknowledged.

What was sent when the broker was killed is in doubt: it may be there or not, and is not sent again, so that nothing can be in a
log twice. They run in a thread, for as long as they are wanted, and find a broker that comes back.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
from typing import TYPE_CHECKING, Final, Protocol, Self

from polymq.clients.nats import NatsOptions, NatsPublisher
from polymq.clients.nsq import NsqOptions, NsqProducer
from polymq.clients.phpmq import PhpmqOptions, PhpmqProducer
from polymq.clients.rocketmq import OutgoingMessage, RocketMQOptions, RocketMQProducer
from polymq.errors import PolyMQError
from polymq.protocols.rocketmq.names import to_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random
    from types import TracebackType

    from polymq.testing.server import PolymqServer

__all__ = ["PROTOCOLS", "Traffic"]

_BATCH_MAX: Final = 60
# Between the batches of a publisher: some thousand messages a second of all four, which leaves the machine to Spark.
_PAUSE_S: Final = 0.05
_SIZE_MAX: Final = 300
# A publisher that waits for a broker that is gone notes it soon: what it has sent is in doubt.
_DEADLINE_S: Final = 2.0


class _Publisher(Protocol):
    async def open(self) -> None:
        """Connect."""

    async def publish(self, topic: str, bodies: Sequence[bytes]) -> None:
        """Send once; returns when all is acknowledged, raises PolyMQError when that is in doubt."""

    async def close(self) -> None: ...


class _Nsq:
    def __init__(self, server: PolymqServer) -> None:
        self._producer = NsqProducer(server.nsq, NsqOptions(deadline_seconds=_DEADLINE_S))

    async def open(self) -> None:
        await self._producer.__aenter__()

    async def publish(self, topic: str, bodies: Sequence[bytes]) -> None:
        await self._producer.publish_many(topic, bodies)

    async def close(self) -> None:
        await self._producer.close()


class _Nats:
    """Messages without an answer, and the PONG behind them."""

    def __init__(self, server: PolymqServer) -> None:
        self._publisher = NatsPublisher(server.nats, NatsOptions(deadline_seconds=_DEADLINE_S))

    async def open(self) -> None:
        await self._publisher.__aenter__()

    async def publish(self, topic: str, bodies: Sequence[bytes]) -> None:
        for outcome in await self._publisher.publish_each([(topic, body, {}) for body in bodies]):
            if outcome is not None:
                raise outcome

    async def close(self) -> None:
        await self._publisher.close()


class _Rocketmq:
    def __init__(self, server: PolymqServer) -> None:
        options = RocketMQOptions(send_retries=0, send_seconds=_DEADLINE_S, route_seconds=1)
        self._producer = RocketMQProducer(server.rocketmq, options)

    async def open(self) -> None:
        await self._producer.__aenter__()

    async def publish(self, topic: str, bodies: Sequence[bytes]) -> None:
        name = to_topic(topic)
        assert name is not None
        await self._producer.send_batch([OutgoingMessage(name, body) for body in bodies])

    async def close(self) -> None:
        await self._producer.close()


class _Phpmq:
    """Messages without an answer, and one behind them that comes back."""

    def __init__(self, server: PolymqServer) -> None:
        self._producer = PhpmqProducer(server.phpmq, PhpmqOptions(deadline_seconds=_DEADLINE_S))

    async def open(self) -> None:
        await self._producer.__aenter__()

    async def publish(self, topic: str, bodies: Sequence[bytes]) -> None:
        await self._producer.publish_many(topic, bodies)
        await self._producer.confirm()

    async def close(self) -> None:
        await self._producer.close()


PROTOCOLS: Final[dict[str, Callable[[PolymqServer], _Publisher]]] = {"nsq": _Nsq, "nats": _Nats, "rocketmq": _Rocketmq, "phpmq": _Phpmq}


class Traffic:
    """One publisher of each of some protocols at one server, in a thread, each to topics by turns.

    Numbers come from `numbers`, which several may share. `close` waits until all have said what they know.
    """

    def __init__(
        self,
        server: PolymqServer,
        topics: Sequence[str],
        random: Random,
        *,
        protocols: Sequence[str] = tuple(PROTOCOLS),
        numbers: itertools.count[int] | None = None,
    ) -> None:
        self.sent: set[int] = set()
        self.acknowledged: set[int] = set()
        self.by_protocol = dict.fromkeys(protocols, 0)
        self.doubts = 0
        self._server = server
        self._topics = topics
        self._random = random
        self._numbers = itertools.count() if numbers is None else numbers
        self._paused = threading.Event()
        self._ending = threading.Event()
        self._idle = dict.fromkeys(protocols, False)
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="traffic", daemon=True)

    def __enter__(self) -> Self:
        """Begin."""
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """End; an error of a publisher that is none of the connection is raised here."""
        self._ending.set()
        self._thread.join(60)
        assert not self._thread.is_alive()
        if self._error is not None and kind is None:
            raise self._error

    def pause(self) -> None:
        """Wait until nothing is on the way; what is in doubt now stays so."""
        self._paused.set()
        while not all(self._idle.values()) and self._thread.is_alive():
            self._ending.wait(_PAUSE_S)

    def resume(self) -> None:
        """Go on."""
        self._paused.clear()

    def _run(self) -> None:
        try:
            asyncio.run(self._everybody())
        except BaseException as error:
            self._error = error

    async def _everybody(self) -> None:
        async with asyncio.TaskGroup() as group:
            for protocol in self.by_protocol:
                group.create_task(self._publish(protocol), name=protocol)

    async def _publish(self, protocol: str) -> None:
        publisher: _Publisher | None = None
        while not self._ending.is_set():
            self._idle[protocol] = self._paused.is_set()
            if self._idle[protocol]:
                await asyncio.sleep(_PAUSE_S)
                continue
            bodies = {next(self._numbers): b"" for _ in range(self._random.randint(1, _BATCH_MAX))}
            for number in bodies:
                bodies[number] = b"%d %s " % (number, protocol.encode()) + self._random.randbytes(_SIZE_MAX // 2).hex().encode()
            self.sent.update(bodies)
            try:
                if publisher is None:
                    publisher = PROTOCOLS[protocol](self._server)
                    await publisher.open()
                await publisher.publish(self._random.choice(self._topics), list(bodies.values()))
            except PolyMQError:
                self.doubts += len(bodies)
                if publisher is not None:
                    with contextlib.suppress(PolyMQError):
                        await publisher.close()
                publisher = None
            else:
                self.acknowledged.update(bodies)
                self.by_protocol[protocol] += len(bodies)
            await asyncio.sleep(_PAUSE_S)
        if publisher is not None:
            with contextlib.suppress(PolyMQError):
                await publisher.close()
