"""What an NSQ consumer is given: messages and batches of them, to be settled or given back. Nothing waits here."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING

from polymq.errors import LocalProtocolError
from polymq.protocols.nsq import frames
from polymq.protocols.nsq.frames import MessageRun, WireMessage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from polymq.clients.nsq_connection import NsqConnection

__all__ = ["NsqBatch", "NsqMessage"]


class NsqMessage(WireMessage):
    """A delivered message: settle it, give it back, or ask for more time. The server gives it to somebody else otherwise.

    On a connection that has been lost these have no effect: the server delivers the message again anyway.

    `id` is 16 bytes, `attempts` is 1 at the first delivery.
    Units:   time_ns is when it was published, nanoseconds since 1970 by the server's clock.
    """

    __slots__ = ("_batch", "is_settled")

    def __init__(self, id: bytes, body: bytes, attempts: int, time_ns: int, batch: NsqBatch) -> None:  # noqa: A002 the field's name
        self.id = id
        self.body = body
        self.attempts = attempts
        self.time_ns = time_ns
        self.is_settled = False
        self._batch = batch

    @property
    def is_current(self) -> bool:
        """Whether the connection that the message came over is still there, so that settling has an effect."""
        return self._batch.connection.is_open

    @property
    def has_expired(self) -> bool:
        """Whether the message timeout has passed since it came, not counting touches."""
        return asyncio.get_running_loop().time() >= self._batch.expires_at

    @property
    def expires_at(self) -> float:
        """When that is, on the loop's clock."""
        return self._batch.expires_at

    def drop(self) -> None:
        """Forget the message without a word to the server, which delivers it again; raises as `settle` does."""
        self._end()

    def settle(self) -> None:
        """Say that the message is done with; written with all others of this turn of the loop.

        Raises:  LocalProtocolError when it was settled or given back before.
        """
        self._end()
        self._batch.connection.send(frames.finish((self.id,)))

    def requeue(self, delay_ms: int = 0) -> None:
        """Give the message back, to be delivered again after a delay; raises as `settle` does."""
        command = frames.requeue(self.id, delay_ms)
        self._end()
        self._batch.connection.send(command)

    def touch(self) -> None:
        """Ask for another full message timeout; raises as `settle` does."""
        self._check()
        self._batch.connection.send(frames.touch(self.id))

    def _check(self) -> None:
        if self.is_settled:
            raise LocalProtocolError(f"message {self.id.decode('ascii', 'replace')} has been settled or given back before")

    def _end(self) -> None:
        self._check()
        self.is_settled = True
        self._batch.left -= 1
        self._batch.ended(1)


class NsqBatch:
    """Messages that came together. Iterate over it, or take `bodies()` and `settle()` all: no objects are made then."""

    __slots__ = ("_messages", "_run", "connection", "ended", "expires_at", "left")

    def __init__(self, connection: NsqConnection, run: MessageRun, ended: Callable[[int], None], expires_at: float = math.inf) -> None:
        self.connection = connection
        # On the loop's clock: when the server gives these messages to somebody else, unless they are touched.
        self.expires_at = expires_at
        self.left = run.count
        self.ended = ended
        self._run = run
        self._messages: list[NsqMessage] | None = None

    def __len__(self) -> int:
        """Count the messages, settled or not."""
        return self._run.count

    def __iter__(self) -> Iterator[NsqMessage]:
        """Give the messages one by one."""
        if self._messages is None:
            self._messages = [NsqMessage(*fields, self) for fields in self._run.fields()]
            if not self.left:
                for message in self._messages:
                    message.is_settled = True
        return iter(self._messages)

    def bodies(self) -> list[bytes]:
        """Give only the bodies."""
        return [fields[1] for fields in self._run.fields()]

    @property
    def frames(self) -> bytes:
        """Give the message frames as they came, one behind the other: for who takes them apart without an object for each."""
        return self._run.data

    def settle_by(self, commands: bytes) -> None:
        """Settle every message, with FINs that whoever took `frames` apart has made; nothing if that was done before."""
        assert self._messages is None
        if self.left:
            count, self.left = self.left, 0
            self.connection.send(commands)
            self.ended(count)

    def touch(self) -> None:
        """Ask for another full message timeout for all of them."""
        if self.left:
            self.connection.send(b"".join([frames.touch(message_id) for message_id in self._run.ids()]))

    def settle(self) -> None:
        """Settle every message that has not been settled or given back by itself."""
        if self._messages is None:
            ids = list(self._run.ids()) if self.left else []
        else:
            ids = [message.id for message in self._messages if not message.is_settled]
            for message in self._messages:
                message.is_settled = True
        if ids:
            self.left = 0
            self.connection.send(frames.finish(ids))
            self.ended(len(ids))
