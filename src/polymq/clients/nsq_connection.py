"""One connection of an NSQ client: `protocols/nsq/frames` on an asyncio transport.

Answers come in the order of the commands, so waiting is a queue. Writes are gathered and made once per turn of the
loop: a thousand settles are one `write`. Heartbeats are answered here; a server that falls silent is given up. What
unfolds to very much is unfolded a little in each turn of the loop, and nothing is read meanwhile.
How a connection begins is in `nsq_opening.py`; producers and consumers are in `nsq.py`.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final

from polymq.clients.connection import ClientConnection
from polymq.errors import (
    ConnectFailed,
    ConnectionLost,
    LocalProtocolError,
    PolyMQError,
    Refusal,
    RefusalCode,
    RemoteProtocolError,
)
from polymq.limits import LAYER_PIECES_PER_TURN_MAX
from polymq.protocols.nsq import frames
from polymq.protocols.nsq.frames import Error, FrameReader, MessageRun, Response, Violation
from polymq.wire.layers import LayerFailed, LayerStack

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Mapping

    from polymq.wire.layers import Layer

__all__ = ["NsqConnection", "refused"]

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
# Never in flight: the answer to touching it shows that the server has read everything before.
_MARK_ID: Final = b"f" * 16
# Requests without an answer, those that were given up included: far more than a producer ever has under way.
_WAITING_MAX: Final = 10_000
# What comes before all is agreed on is a few answers of some hundred bytes, and a handshake.
_EARLY_SIZE_BYTES_MAX: Final = 1024 * 1024


def refused(text: str) -> PolyMQError:
    """Make an exception of an error frame: a Refusal where the server says no, else a mistake of ours."""
    code, _, words = text.partition(" ")
    if words.endswith("exiting"):
        return Refusal(RefusalCode.SHUTTING_DOWN, text)
    if code in _CODES:
        return Refusal(_CODES[code], text)
    return LocalProtocolError(text)


class NsqConnection(ClientConnection):
    """The protocol object under a producer or a consumer. Made by `nsq_opening.connect`.

    Until `begin` each answer is handed out alone and what came behind it stays as it is, because the answer may say
    that it is to be read through another layer.
    """

    def __init__(self, heartbeat_interval_ms: int = 30_000) -> None:
        super().__init__()
        self.agreed: Mapping[str, Any] = {}
        self.identity: Mapping[str, Any] = {}  # the answer to AUTH
        self.on_messages: Callable[[MessageRun], None] = _ignore
        self.on_failure: Callable[[str], None] = _ignore
        self._silence_seconds_max = _SILENT_INTERVALS_MAX * heartbeat_interval_ms / _MS_PER_SECOND
        self._reader = FrameReader()
        self._layers: LayerStack | None = None
        self._unfold_planned = False
        self._held = False
        self._paused = False  # nothing is read: what has come is not all unfolded, or is more than somebody can take
        self._early: bytearray | None = bytearray()  # what has come and is not read yet; None once all is agreed on
        self._waiting: deque[asyncio.Future[bytes]] = deque()
        self._marks: deque[asyncio.Future[None]] = deque()
        self._heard_at = self._loop.time()
        self._watch: asyncio.TimerHandle | None = None

    # --- Called by asyncio --------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport and begin to watch for silence."""
        super().connection_made(transport)
        if self._silence_seconds_max > 0:
            self._watch = self._loop.call_later(self._silence_seconds_max, self._check_silence)

    def data_received(self, data: bytes) -> None:
        """Hand each frame to whoever it is for."""
        self._heard_at = self._loop.time()
        if self._layers is None:
            self._take(data)
        else:
            self._unfold(data)

    def _unfold(self, data: bytes = b"") -> None:
        """Take what data means inside the layers, as much as one turn has room for."""
        layers = self._layers
        assert layers is not None
        try:
            self._take(layers.receive(data))
            for _ in range(LAYER_PIECES_PER_TURN_MAX - 1):
                if not layers.holding or self._held or self.reason is not None:
                    break
                self._take(layers.receive(b""))
        except LayerFailed as error:
            self._fail_layer(error)
            return
        if layers.wants_write():
            self.send(b"")
        self._read_on()

    def _read_on(self) -> None:
        """Read more if there is room for it; unfold what a layer holds in the next turn, before anything is read."""
        if not self.is_open:
            return
        assert self._transport is not None
        holding = self._layers is not None and self._layers.holding
        if holding and not self._held and not self._unfold_planned:
            self._unfold_planned = True
            self._loop.call_soon(self._unfold_on)
        paused = holding or self._held
        if paused != self._paused:
            self._paused = paused
            if paused:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    def _unfold_on(self) -> None:
        self._unfold_planned = False
        if self.is_open and not self._held:
            self._unfold()

    def _take(self, data: bytes) -> None:
        """Take bytes that have come through all layers."""
        if self._early is None:
            self._read(data)
            return
        self._early += data
        while self._waiting and (size := frames.first_frame_size(self._early)):
            frame = bytes(self._early[:size])
            del self._early[:size]
            self._read(frame)
        if len(self._early) > _EARLY_SIZE_BYTES_MAX:
            self._early.clear()
            self.abort(RemoteProtocolError(f"more than {_EARLY_SIZE_BYTES_MAX} bytes have come before all was agreed on"))

    def _read(self, data: bytes) -> None:
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
                self.abort(RemoteProtocolError(frame.reason))

    def _give_up(self, reason: PolyMQError) -> None:
        if self._watch is not None:
            self._watch.cancel()
        waiters: list[asyncio.Future[Any]] = [*self._waiting, *self._marks]
        for waiter in waiters:
            if not waiter.done():
                waiter.set_exception(reason)
        self._waiting.clear()
        self._marks.clear()

    # --- Called by producers and consumers ----------------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        """Write a command that has no answer, with whatever else this turn of the loop writes."""
        if self.is_open:
            self._gather(data)

    def request(self, data: bytes) -> asyncio.Future[bytes]:
        """Write a command and return the future of its answer.

        Raises:  Refusal, LocalProtocolError or ConnectionLost, from the future.
        """
        waiter: asyncio.Future[bytes] = self._loop.create_future()
        if len(self._waiting) >= _WAITING_MAX:
            self.abort(ConnectionLost(f"the server owes {len(self._waiting)} answers"))
        if self.is_open:
            self._waiting.append(waiter)
            self.send(data)
        else:
            waiter.set_exception(self.reason or ConnectionLost("the connection is closed"))
        return waiter

    def add_layer(self, layer: Layer) -> asyncio.Future[bytes]:
        """Put a layer around all that has not been read or written, and return the future of the OK inside it."""
        waiter: asyncio.Future[bytes] = self._loop.create_future()
        early = self._early
        assert early is not None
        if not self.is_open:
            waiter.set_exception(self.reason or ConnectionLost("the connection is closed"))
            return waiter
        self._flush()
        self._layers = self._layers or LayerStack()
        self._layers.push_input(layer)
        self._layers.push_output(layer)
        self._waiting.append(waiter)
        raw = bytes(early)
        early.clear()
        try:
            self._take(layer.receive(raw))
        except LayerFailed as error:
            self._fail_layer(error)
        self.send(b"")  # a handshake may have to be begun
        self._read_on()
        return waiter

    def begin(self) -> None:
        """Read on without waiting for each answer: everything is in place."""
        early, self._early = self._early, None
        if early:
            self._read(bytes(early))

    def hold(self, *, held: bool) -> None:
        """Take nothing more of what the server sends, answers and heartbeats included, or go on."""
        if held != self._held:
            self._held = held
            self._read_on()

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

    # --- Inside -------------------------------------------------------------------------------------------------------

    def _take_leave(self, transport: asyncio.Transport) -> None:
        if self._layers is not None:
            transport.write(self._layers.close())

    def _folded(self, data: bytes) -> bytes:
        return data if self._layers is None else self._layers.send(data)

    def _answered(self, data: bytes) -> None:
        if data == frames.HEARTBEAT:
            self.send(frames.NOP)
        elif self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():  # given up by whoever asked
                waiter.set_result(data)
        else:
            self.abort(RemoteProtocolError(f"an answer that nobody asked for: {data[:40]!r}"))

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
        self.abort(reason)

    def _fail_layer(self, error: LayerFailed) -> None:
        if self._layers is not None and self._transport is not None and self._layers.wants_write():
            self._transport.write(self._layers.send(b""))  # the alert says why
        self.abort(ConnectFailed(str(error)) if self._early is not None else ConnectionLost(str(error)))

    def _check_silence(self) -> None:
        if self._held:
            self._heard_at = self._loop.time()  # it is we who do not listen
        left = self._heard_at + self._silence_seconds_max - self._loop.time()
        if left <= 0:
            self.abort(ConnectionLost(f"the server has been silent for {self._silence_seconds_max:g} s"))
        else:
            self._watch = self._loop.call_later(left, self._check_silence)


def _ignore(_what: object) -> None:
    """Stand where nobody listens."""
