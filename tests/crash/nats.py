"""NATS clients that publish to subjects that are stored, and know from `+OK` or a PONG what is safe."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from polymq.testing.clients import Client, make_body

if TYPE_CHECKING:
    from polymq.testing.clients import ClientStream
    from polymq.testing.promises import Publication
    from polymq.testing.witness import WitnessedSurroundings

__all__ = ["NatsPublisher"]

_HEADERS: Final = b"NATS/1.0\r\nserial: %d\r\n\r\n"


class NatsPublisher(Client):
    """Publishes, with headers or without. `verbose`: each message is answered with +OK; else a PING now and then is, with PONG."""

    def __init__(self, world: WitnessedSurroundings, name: str, *, verbose: bool) -> None:
        super().__init__(world, name)
        self._told = world
        self._verbose = verbose
        self._data = bytearray()
        # What answers are waited for, in their order: a message, or a PING (None).
        self._open: deque[Publication | None] = deque()

    def _reach(self) -> ClientStream | None:
        return self._told.dial("nats")

    def _opened(self) -> None:
        self._data.clear()
        self._open.clear()
        self._output += b'CONNECT {"verbose":%s,"pedantic":false,"headers":true}\r\n' % (b"true" if self._verbose else b"false")
        self._output += b"PING\r\n"
        self._open.append(None)

    def _act(self) -> None:
        options, random = self.world.options, self.world.random
        if self.stopped:
            if not self._open:
                self.disconnect()
            return
        if self._chance(options.disconnect_percent) and not self._open:
            self._hang_up()
            return
        for _ in range(1 + random.randrange(options.pipeline)):
            if len(self._open) < 4 * options.pipeline and self.world.wants_messages:
                self._publish_one()
        if self._open and self._open[-1] is not None and (self._chance(50) or len(self._open) >= 4 * options.pipeline):
            self._output += b"PING\r\n"
            self._open.append(None)

    def _publish_one(self) -> None:
        world, random = self.world, self.world.random
        topic = random.choice(self._told.topics_of("nats"))
        serial = world.next_serial(1)
        body = make_body(serial, random.randrange(*world.options.body_size_bytes))
        self._open += world.ledger.announces(self.connection.name, topic.name, [(serial, body)], sync=topic.sync)
        world.trace("%s publishes %d to %s", self.connection.name, serial, topic.name)
        self._told.sent["NATS +OK" if self._verbose else "NATS"] += 1
        if self._chance(30):
            headers = _HEADERS % serial
            self._output += b"HPUB %s %d %d\r\n" % (topic.name.encode(), len(headers), len(headers) + len(body)) + headers + body + b"\r\n"
        else:
            self._output += b"PUB %s %d\r\n" % (topic.name.encode(), len(body)) + body + b"\r\n"

    def _took(self, data: bytes) -> None:
        self._data += data
        *lines, rest = bytes(self._data).split(b"\r\n")
        self._data[:] = rest
        for line in lines:
            if line == b"+OK":
                self._confirm_next()
            elif line == b"PONG":
                self._confirm_to_ping()
            elif line == b"PING":
                self._output += b"PONG\r\n"
            elif line.startswith(b"-ERR"):
                self.world.trace("%s is told %s", self.connection.name, line.decode())
                self._told.sent["refused"] += 1

    def _confirm_next(self) -> None:
        """One message is there; the +OK of CONNECT comes before all of them."""
        publication = self._open[0] if self._open else None
        if publication is not None:
            self._open.popleft()
            self.world.ledger.acknowledged(publication)

    def _confirm_to_ping(self) -> None:
        """Everything before the oldest PING is there."""
        while self._open:
            publication = self._open.popleft()
            if publication is None:
                return
            self.world.ledger.acknowledged(publication)
