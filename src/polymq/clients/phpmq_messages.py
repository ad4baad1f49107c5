"""What a PHPMQ consumer is given: messages and batches of them, to be settled or sent back. Nothing waits here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polymq.errors import LocalProtocolError
from polymq.protocols.phpmq import frames

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from polymq.clients.phpmq_connection import PhpmqConnection
    from polymq.protocols.phpmq.frames import WireMessage

__all__ = ["PhpmqBatch", "PhpmqMessage"]


class PhpmqMessage:
    """A dispatched message: settle it, put it at the end of its queue, or have it removed.

    `ttl_seconds` is what is left of its TTL; 0: it never ends, or the server's dialect has none. On a connection that has been lost
    these go over the next one, if there is one: the message may have come again by then.
    """

    __slots__ = ("_connection", "_legacy", "_send", "content", "id", "is_settled", "queue", "ttl_seconds")

    def __init__(self, message: WireMessage, connection: PhpmqConnection, send: Callable[[bytes], bool], *, legacy: bool) -> None:
        self.queue = message.queue
        self.content = message.content
        self.id = message.id
        self.ttl_seconds = message.ttl_s or 0
        self.is_settled = False
        self._connection = connection
        self._send = send
        self._legacy = legacy

    @property
    def is_current(self) -> bool:
        """Whether the connection that the message came over is still there: else it comes again."""
        return self._connection.is_open

    def settle(self) -> None:
        """Say that the message is done with; raises LocalProtocolError when that was said before."""
        self._end(frames.acknowledge(self.queue, (self.id,)))

    def requeue(self, *, ttl_seconds: int = 0) -> None:
        """Put the message at the end of its queue, with a TTL that begins then; raises as `settle` does.

        The older dialect has no such message: there a copy is sent and this one is settled, in this order, and there is no TTL.
        """
        if not self._legacy:
            self._end(frames.requeue(self.queue, self.id, ttl_s=ttl_seconds))
            return
        if ttl_seconds:
            raise LocalProtocolError("the older dialect has no TTL")
        copy = frames.send(self.queue, self.content, ttl_s=None)
        self._end(copy + frames.acknowledge(self.queue, (self.id,)))

    def dead_letter(self) -> None:
        """Have the message removed, whatever its TTL; raises as `settle` does. In the older dialect it is settled."""
        if self._legacy:
            self.settle()
        else:
            self._end(frames.dead_letter(self.queue, self.id))

    def _end(self, data: bytes) -> None:
        if self.is_settled:
            raise LocalProtocolError(f"message {self.id.decode('ascii', 'replace')} has been settled or sent back before")
        self.is_settled = True
        self._send(data)


class PhpmqBatch:
    """Messages that came together. Iterate over it, or `settle()` all that are not settled yet."""

    __slots__ = ("_messages", "queue")

    def __init__(self, queue: bytes, messages: Sequence[PhpmqMessage]) -> None:
        self.queue = queue
        self._messages = messages

    def __len__(self) -> int:
        return len(self._messages)

    def __iter__(self) -> Iterator[PhpmqMessage]:
        """Give the messages, in their order."""
        return iter(self._messages)

    def contents(self) -> list[bytes]:
        """Give the contents alone."""
        return [message.content for message in self._messages]

    def settle(self) -> None:
        """Be done with everything that is not settled yet."""
        for message in self._messages:
            if not message.is_settled:
                message.settle()
