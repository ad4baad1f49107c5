"""One connection of an NSQ client: `protocols/nsq/frames` on an asyncio transport.

Answers come in the order of the commands, so waiting is a queue. Writes are gathered and made once per turn of the
loop: a thousand settles are one `write`. Heartbeats are answered here; a server that falls silent is given up.
Producers and consumers are in `nsq.py`.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from polymq.errors import (
    ConnectFailed,
    ConnectionLost,
    DeadlineExceeded,
    LocalProtocolError,
    PolyMQError,
    Refusal,
    RefusalCode,
    RemoteProtocolError,
)
from polymq.protocols.nsq import frames
from polymq.protocols.nsq.frames import Error, FrameReader, MessageRun, Response, Violation

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

__all__ = ["NsqConnection", "NsqOptions", "connect", "open_socket", "refused"]

_CODES: Final[Mapping[str, RefusalCode]] = {
    "E_BAD_TOPIC": RefusalCode.TOPIC_NAME_INVALID,
    "E_BAD_CHANNEL": RefusalCode.GROUP_NAME_INVALID,
    "E_BAD_MESSAGE": RefusalCode.BATCH_TOO_LARGE,
    "E_BAD_BODY": RefusalCode.BATCH_TOO_LARGE,
    "E_SUB_FAILED": RefusalCode.GROUP_FULL,
    "E_PUB_FAILED": RefusalCode.STORE_FAILED,
    "E_MPUB_FAILED": RefusalCode.STORE_FAILED,
    "E_DPUB_FAILED": RefusalCode.STORE_FAILED,
    "E_AUTH_FIRST": RefusalCode.UNAUTHENTICATED,
    "E_AUTH_FAILED": RefusalCode.UNAUTHENTICATED,
    "E_AUTH_DISABLED": RefusalCode.UNAUTHENTICATED,
    "E_UNAUTHORIZED": RefusalCode.FORBIDDEN,
}
# A server sends a heartbeat every interval, so this many of silence mean that it is gone.
_SILENT_INTERVALS_MAX: Final = 2.5
_MS_PER_SECOND: Final = 1000
# Written and not yet taken by the socket; `drained` waits above it.
_WRITE_BUFFER_SIZE_BYTES_HIGH: Final = 1024 * 1024
# Never in flight: the answer to touching it shows that the server has read everything before.
_MARK_ID: Final = b"f" * 16
# Requests without an answer, those that were given up included: far more than a producer ever has under way.
_WAITING_MAX: Final = 10_000


@dataclass(frozen=True, slots=True)
class NsqOptions:
    """How a client introduces itself and how patient it is."""

    client_id: str = ""
    user_agent: str = "polymq"
    heartbeat_interval_ms: int = 30_000
    message_timeout_ms: int = 0  # 0: the server's own
    deadline_seconds: float = 30.0  # for an answer, and for finding a server
    reconnect_seconds_first: float = 0.1
    reconnect_seconds_max: float = 10.0

    def wishes(self) -> dict[str, object]:
        """What IDENTIFY says."""
        hostname = socket.gethostname()
        return {
            "client_id": self.client_id or hostname.split(".")[0],
            "hostname": hostname,
            "user_agent": self.user_agent,
            "feature_negotiation": True,
            "heartbeat_interval": self.heartbeat_interval_ms,
            "msg_timeout": self.message_timeout_ms,
            "tls_v1": False,
            "snappy": False,
            "deflate": False,
        }


def refused(text: str) -> PolyMQError:
    """Make an exception of an error frame: a Refusal where the server says no, else a mistake of ours."""
    code, _, words = text.partition(" ")
    if words.endswith("exiting"):
        return Refusal(RefusalCode.SHUTTING_DOWN, text)
    if code in _CODES:
        return Refusal(_CODES[code], text)
    return LocalProtocolError(text)


class NsqConnection(asyncio.Protocol):
    """The protocol object under a producer or a consumer. Made by `connect`."""

    def __init__(self, heartbeat_interval_ms: int = 30_000) -> None:
        self.agreed: Mapping[str, Any] = {}
        self.on_messages: Callable[[MessageRun], None] = _ignore
        self.on_failure: Callable[[str], None] = _ignore
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.reason: PolyMQError | None = None
        self._silence_seconds_max = _SILENT_INTERVALS_MAX * heartbeat_interval_ms / _MS_PER_SECOND
        self._loop = asyncio.get_running_loop()
        self._reader = FrameReader()
        self._transport: asyncio.Transport | None = None
        self._waiting: deque[asyncio.Future[bytes]] = deque()
        self._marks: deque[asyncio.Future[None]] = deque()
        self._output: list[bytes] = []
        self._flush_planned = False
        self._writable = asyncio.Event()
        self._writable.set()
        self._heard_at = self._loop.time()
        self._watch: asyncio.TimerHandle | None = None

    # --- Called by asyncio --------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport and begin to watch for silence."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.set_write_buffer_limits(high=_WRITE_BUFFER_SIZE_BYTES_HIGH)
        if self._silence_seconds_max > 0:
            self._watch = self._loop.call_later(self._silence_seconds_max, self._check_silence)

    def data_received(self, data: bytes) -> None:
        """Hand each frame to whoever it is for."""
        self._heard_at = self._loop.time()
        for frame in self._reader.feed(data):
            if self.reason is not None:
                return
            if isinstance(frame, MessageRun):
                self.on_messages(frame)
            elif isinstance(frame, Response):
                self._answered(frame.data)
            elif isinstance(frame, Error):
                self._failed(frame)
            else:
                assert isinstance(frame, Violation)
                self._break(RemoteProtocolError(frame.reason))

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell everybody who waits."""
        if self._watch is not None:
            self._watch.cancel()
        self._writable.set()
        reason = self.reason or ConnectionLost(f"the server closed the connection: {exc}" if exc else "the server closed the connection")
        self.reason = reason
        waiters: list[asyncio.Future[Any]] = [*self._waiting, *self._marks]
        for waiter in waiters:
            if not waiter.done():
                waiter.set_exception(reason)
        self._waiting.clear()
        self._marks.clear()
        if not self.lost.done():
            self.lost.set_result(None)

    def pause_writing(self) -> None:
        """The socket takes no more for now."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """The socket takes more again."""
        self._writable.set()

    # --- Called by producers and consumers ----------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """Whether commands still reach the server."""
        return self._transport is not None and self.reason is None and not self._transport.is_closing()

    def send(self, data: bytes) -> None:
        """Write a command that has no answer, with whatever else this turn of the loop writes."""
        if not self.is_open:
            return
        self._output.append(data)
        if not self._flush_planned:
            self._flush_planned = True
            self._loop.call_soon(self._flush)

    def request(self, data: bytes) -> asyncio.Future[bytes]:
        """Write a command and return the future of its answer.

        Raises:  Refusal, LocalProtocolError or ConnectionLost, from the future.
        """
        waiter: asyncio.Future[bytes] = self._loop.create_future()
        if len(self._waiting) >= _WAITING_MAX:
            self._break(ConnectionLost(f"the server owes {len(self._waiting)} answers"))
        if self.is_open:
            self._waiting.append(waiter)
            self.send(data)
        else:
            waiter.set_exception(self.reason or ConnectionLost("the connection is closed"))
        return waiter

    def mark(self) -> asyncio.Future[None]:
        """Return a future that is done when the server has acted on everything sent so far.

        NSQ answers neither FIN nor REQ; but it answers in order, and touching a message that is not there harms
        nothing and is answered. Only for consumers.
        """
        waiter: asyncio.Future[None] = self._loop.create_future()
        if self.is_open:
            self._marks.append(waiter)
            self.send(frames.touch(_MARK_ID))
        else:
            waiter.set_exception(self.reason or ConnectionLost("the connection is closed"))
        return waiter

    async def drained(self) -> None:
        """Wait until the socket has taken most of what was written."""
        await self._writable.wait()

    async def close(self) -> None:
        """Write what is left and close; returns when the connection has ended."""
        if self._transport is None:
            return
        self._flush()
        self.reason = self.reason or ConnectionLost("the connection was closed by this client")
        self._transport.close()
        await self.lost

    def abort(self, reason: PolyMQError) -> None:
        """Close at once; everybody who waits gets the reason."""
        self._break(reason)

    # --- Inside -------------------------------------------------------------------------------------------------------

    def _flush(self) -> None:
        self._flush_planned = False
        if self._output and self._transport is not None and not self._transport.is_closing():
            self._transport.write(b"".join(self._output))
        self._output.clear()

    def _answered(self, data: bytes) -> None:
        if data == frames.HEARTBEAT:
            self.send(frames.NOP)
        elif self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():  # given up by whoever asked
                waiter.set_result(data)
        else:
            self._break(RemoteProtocolError(f"an answer that nobody asked for: {data[:40]!r}"))

    def _failed(self, error: Error) -> None:
        text = error.text.decode("utf-8", "replace")
        if not error.is_fatal:
            if self._marks and error.text.startswith(b"E_TOUCH_FAILED TOUCH " + _MARK_ID):
                waiter = self._marks.popleft()
                if not waiter.done():
                    waiter.set_result(None)
            else:
                self.on_failure(text)
            return
        reason = refused(text)
        if self._waiting:
            waiter_of_answer = self._waiting.popleft()
            if not waiter_of_answer.done():
                waiter_of_answer.set_exception(reason)
            reason = ConnectionLost(f"the server closed the connection after refusing another command: {text}")
        self._break(reason)

    def _break(self, reason: PolyMQError) -> None:
        if self.reason is None:
            self.reason = reason
        if self._transport is not None:
            self._transport.abort()

    def _check_silence(self) -> None:
        left = self._heard_at + self._silence_seconds_max - self._loop.time()
        if left <= 0:
            self._break(ConnectionLost(f"the server has been silent for {self._silence_seconds_max:g} s"))
        else:
            self._watch = self._loop.call_later(left, self._check_silence)


def _ignore(_what: object) -> None:
    """Stand where nobody listens."""


async def open_socket(address: str, factory: Callable[[], asyncio.Protocol]) -> None:
    """Connect `host:port` or `unix:path`."""
    loop = asyncio.get_running_loop()
    if address.startswith("unix:"):
        await loop.create_unix_connection(factory, address.removeprefix("unix:"))
        return
    host, _, port = address.rpartition(":")
    await loop.create_connection(factory, host.strip("[]"), int(port))


async def connect(
    address: str,
    options: NsqOptions,
    opener: Callable[[str, Callable[[], asyncio.Protocol]], Awaitable[None]] = open_socket,
) -> NsqConnection:
    """Open a connection and introduce the client.

    Raises:  ConnectFailed, DeadlineExceeded, or what IDENTIFY was refused with.
    """
    connection = NsqConnection(options.heartbeat_interval_ms)
    try:
        async with asyncio.timeout(options.deadline_seconds):
            await opener(address, lambda: connection)
            connection.send(frames.MAGIC)
            reply = await connection.request(frames.identify(options.wishes()))
    except TimeoutError as error:
        connection.abort(ConnectionLost("the server took too long to answer"))
        raise DeadlineExceeded(f"{address} did not answer within {options.deadline_seconds:g} s") from error
    except (OSError, ValueError) as error:
        raise ConnectFailed(f"{address}: {error}") from error
    except BaseException:
        connection.abort(ConnectionLost("the connection was given up"))
        raise
    connection.agreed = _agreed(reply)
    return connection


def _agreed(reply: bytes) -> Mapping[str, Any]:
    """Read the reply to IDENTIFY; a server that does not negotiate answers with a plain OK, which agrees to nothing."""
    try:
        agreed = json.loads(reply) if reply.startswith(b"{") else {}
    except ValueError:
        agreed = {}
    assert isinstance(agreed, dict)
    return agreed
