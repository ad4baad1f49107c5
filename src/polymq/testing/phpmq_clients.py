"""Simulated PHPMQ clients: they send with and without a time to live, and consume in windows. Nothing is ever answered."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Final

from polymq.limits import OFFSET_BITS, OFFSET_MAX
from polymq.protocols.phpmq.frames import FrameReader, Violation, acknowledge, consume, dead_letter, requeue, send
from polymq.testing.clients import Client, make_body
from polymq.testing.promises import PromiseBrokenError
from polymq.testing.windows import Settle

if TYPE_CHECKING:
    from polymq.protocols.phpmq.frames import WireMessage
    from polymq.testing.clients import ClientStream
    from polymq.testing.windows import Window
    from polymq.testing.witness import WitnessedSurroundings

__all__ = ["PhpmqConsumer", "PhpmqProducer"]

_MS: Final = 1_000_000
_LIFETIMES_S: Final = (0, 0, 2, 60, 3600)
_EAGER_SIZE: Final = 50
_BACKLOG_SIZE_MAX: Final = 64 * 1024


class PhpmqProducer(Client):
    """Sends to every queue, in either dialect; a topic that others read as well gets messages that live for ever."""

    def __init__(self, world: WitnessedSurroundings, name: str) -> None:
        super().__init__(world, name)
        self._told = world

    def _reach(self) -> ClientStream | None:
        return self._told.dial("phpmq")

    def _act(self) -> None:
        options, random = self.world.options, self.world.random
        if self.stopped:
            self.disconnect()
            return
        if self._chance(options.disconnect_percent):
            self._hang_up()
            return
        for _ in range(1 + random.randrange(options.pipeline)):
            if len(self._output) < _BACKLOG_SIZE_MAX and self.world.wants_messages:
                self._send_one()

    def _send_one(self) -> None:
        world, random = self.world, self.world.random
        queue = random.choice(self._told.topics_of("phpmq"))
        serial = world.next_serial(1)
        body = make_body(serial, random.randrange(*world.options.body_size_bytes))
        world.ledger.announces(self.connection.name, queue.name, [(serial, body)], sync=queue.sync)
        lifetime_s: int | None = random.choice((None, *_LIFETIMES_S))
        if queue.name not in self._told.witness.copies.topics:
            lifetime_s = random.choice((None, 0))
        self._told.witness.windows.lives(serial, lifetime_s or 0)
        world.trace("%s sends %d to %s, TTL %s", self.connection.name, serial, queue.name, lifetime_s)
        self._told.sent["PHPMQ with a TTL" if lifetime_s else "PHPMQ"] += 1
        self._output += send(queue.name, body, ttl_s=lifetime_s)


class PhpmqConsumer(Client):
    """Consumes one queue; `renews`: puts messages back (005) as well, which only queues can that nobody else reads.

    `eager` ones acknowledge everything at once.
    """

    def __init__(self, world: WitnessedSurroundings, name: str, queue: str, *, renews: bool = False, eager: bool = False) -> None:
        super().__init__(world, name)
        self._told = world
        self.queue = queue
        self.eager = eager
        self._renews = renews
        self._window: Window | None = None
        self._reader = FrameReader()
        self._agenda: list[tuple[int, int, bytes, Settle]] = []

    @property
    def wakes_at_ns(self) -> int:
        """When it wants to be stepped next."""
        at_ns = super().wakes_at_ns
        return min(at_ns, self._agenda[0][0]) if self._agenda and self.stream is not None else at_ns

    def step(self) -> None:
        """Settle what is due, then as every client."""
        now_ns = self.world.clock.monotonic_ns()
        while self.stream is not None and self._agenda and self._agenda[0][0] <= now_ns:
            _, _, message_id, how = heapq.heappop(self._agenda)
            self._settle(message_id, how)
        super().step()

    def disconnect(self) -> None:
        """Hang up: what it has goes back."""
        self._agenda.clear()
        if self._window is not None:
            self._told.witness.windows.ended(self._window)
            self._window = None
        super().disconnect()

    def hear_out(self, said: bytes) -> None:
        """Take what the process has said before it ended; whatever follows from it is never sent."""
        self._took(said)

    def _reach(self) -> ClientStream | None:
        return self._told.dial("phpmq", self._broken)

    def _broken(self) -> None:
        """The broker has hung up, and gives what was here to others, before this end knows."""
        if self._window is not None:
            self._told.witness.windows.ended(self._window)

    def _opened(self) -> None:
        self._reader = FrameReader()
        size = _EAGER_SIZE if self.eager else self.world.random.choice((1, 2, 5, 20, 100))
        self._window = self._told.witness.windows.consumes(self.connection.name, self.queue, size)
        self._output += consume(self.queue, size)

    def _act(self) -> None:
        if self.eager or self.stopped:
            return
        if self._window is None:
            return
        if self._chance(self.world.options.disconnect_percent) or (not self._window.exact and self._chance(20)):
            self._hang_up()
        elif self._window.exact and self._chance(1):
            size = self.world.random.choice((1, 5, 20))
            self.world.trace("%s asks anew, for %d", self.connection.name, size)
            self._agenda.clear()
            self._told.witness.windows.consumes_anew(self._window, size)
            self._output += consume(self.queue, size)

    def _took(self, data: bytes) -> None:
        if self._window is None or self._window.life != self.world.ledger.life:
            return  # what a process has said that is gone
        for message in self._reader.feed(data):
            if isinstance(message, Violation):
                raise PromiseBrokenError(f"{self.connection.name}: {message.reason}")
            self._received(message)

    def _received(self, message: WireMessage) -> None:
        world, witness = self.world, self._told.witness
        assert self._window is not None
        place = int(message.id[:16], 16)
        number, offset = place >> OFFSET_BITS, place & OFFSET_MAX
        world.trace("%s gets %s at %d/%d", self.connection.name, message.content[:8].decode("ascii", "replace"), number, offset)
        if self.queue in witness.copies.topics:
            publication = witness.copies.saw(self.queue, number, offset, message.content)
            if publication.promised_ns is None:
                publication.promised_ns = world.clock.monotonic_ns()
        else:
            publication = witness.positions.read(self.queue, number, offset, message.content)
        witness.windows.dispatched(self._window, message.id, publication, message.ttl_s)
        if message.id in self._window.held:
            self._plan(message)

    def _plan(self, message: WireMessage) -> None:
        """Decide what becomes of a message, and when."""
        options, random = self.world.options, self.world.random
        if self.eager:
            self._settle(message.id, Settle.DONE)
            return
        if self._chance(options.forget_percent):
            return
        how = Settle.DEAD if self._chance(10) else Settle.DONE
        if self._renews and message.ttl_s is not None and self._chance(options.requeue_percent):
            how = Settle.AGAIN
        at_ns = self.world.clock.monotonic_ns() + random.choice((0, random.randrange(10 * _MS), random.randrange(200 * _MS)))
        heapq.heappush(self._agenda, (at_ns, random.getrandbits(30), message.id, how))

    def _settle(self, message_id: bytes, how: Settle) -> None:
        window, random = self._window, self.world.random
        if window is None or message_id not in window.held:
            return
        lifetime_s = random.choice((0, 60, 3600)) if how is Settle.AGAIN else 0
        self.world.trace("%s sends %s for %s", self.connection.name, how.value, message_id[:16].decode())
        self._told.sent[f"PHPMQ {how.value}"] += 1
        self._told.witness.windows.settles(window, message_id, how, lifetime_s=lifetime_s)
        if how is Settle.AGAIN:
            self._output += requeue(self.queue, message_id, ttl_s=lifetime_s)
        elif how is Settle.DEAD:
            self._output += dead_letter(self.queue, message_id)
        else:
            self._output += acknowledge(self.queue, [message_id])
