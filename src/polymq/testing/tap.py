"""Reads what leaves the broker on one connection, and tells the ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from polymq.testing.nsq_wire import ERROR, MESSAGE, FrameReader, WireMessage
from polymq.testing.promises import Verb

if TYPE_CHECKING:
    from polymq.testing.ledger import Ledger
    from polymq.testing.promises import Connection
    from polymq.testing.trace import Trace

__all__ = ["Tap"]

_SETTLE_VERBS: Final = {b"E_FIN_FAILED": Verb.FINISH, b"E_REQ_FAILED": Verb.REQUEUE, b"E_TOUCH_FAILED": Verb.TOUCH}


class Tap:
    """Put behind the broker's sends (`sent`), or, where these cannot be seen, before a client's reads (`received`)."""

    __slots__ = ("_connection", "_held_up_ns", "_ledger", "_opened_ns", "_reader", "_trace")

    def __init__(self, ledger: Ledger, connection: Connection, trace: Trace) -> None:
        self._ledger = ledger
        self._connection = connection
        self._trace = trace
        self._reader = FrameReader()
        self._opened_ns = ledger.clock.monotonic_ns()
        self._held_up_ns: int | None = None  # since when the network has not taken everything

    def sent(self, data: bytes, all_of_it: bool) -> None:
        """Bytes went onto the network. What was held up, by it or by an answer that waits, may be older."""
        now_ns = self._ledger.clock.monotonic_ns()
        made_ns = now_ns if self._held_up_ns is None else self._held_up_ns
        made_ns = min(made_ns, self._ledger.made_since_ns(self._connection))
        if all_of_it:
            self._held_up_ns = None
        elif self._held_up_ns is None:
            self._held_up_ns = made_ns
        self._connection.held_up = self._held_up_ns is not None
        self._tell(data, made_ns)

    def received(self, data: bytes) -> None:
        """Bytes came out of the network: all that is known is that they are no older than the connection."""
        self._tell(data, self._opened_ns)

    def closed(self) -> None:
        """The broker hung up."""
        self._ledger.ended(self._connection)

    def _tell(self, data: bytes, made_ns: int) -> None:
        ledger, connection = self._ledger, self._connection
        if not connection.open:
            return
        for kind, frame in self._reader.feed(data):
            if kind == MESSAGE:
                message = WireMessage.parse(frame)
                self._trace("%s gets %s, attempt %d", connection.name, message.body[:8].decode(), message.attempts)
                ledger.delivered(connection, int(message.id, 16), message.attempts, message.body, made_ns=made_ns)
            elif kind == ERROR:
                self._refused(frame)
            elif frame != b"_heartbeat_":
                ledger.responded(connection)

    def _refused(self, text: bytes) -> None:
        words = text.split(b" ")
        verb = _SETTLE_VERBS.get(words[0])
        message_id = -1
        if verb is not None and words[2] != b"f" * 16:
            message_id = int(words[2], 16)
            self._trace("%s is refused: %s", self._connection.name, text.decode())
        self._ledger.refused(self._connection, verb, message_id)
