"""One HTTP connection: requests in, effects out, in order, whatever the endpoints do.

An endpoint answers at once, or with a body that is produced while it is being sent, or not yet (`Retry`). In the
latter two cases the connection is not read until the answer is complete: that is what keeps pipelined answers in order
and is the back-pressure too. An answer that waits for a commit does not stop input: the outbox keeps its order. Many
requests in one read are answered in several turns, each when the peer has taken most of the answers before.
This file knows no endpoint and no protocol but HTTP. Read next: `protocols/http/decode.py`, `protocols/http/router.py`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

from polymq import limits
from polymq.errors import PolyMQError
from polymq.gateways.contract import BaseGateway, Peer
from polymq.gateways.effects import Close, Pause, Resume, Send, SendAfter, SetTimer, TimerName, Upgrade, WantWritable
from polymq.protocols.http import encode
from polymq.protocols.http.decode import Continue, RequestDecoder, Violation
from polymq.wire.exchange import BodyState, Request, Response, Retry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from polymq.core.group import Delivery
    from polymq.core.ports import Clock
    from polymq.gateways.contract import Layer
    from polymq.gateways.effects import Effect
    from polymq.gateways.outbox import Outbox
    from polymq.protocols.http.decode import BodyRule, Event
    from polymq.wire.exchange import Consumer

__all__ = ["Answering", "HttpGateway"]

Context = TypeVar("Context")
ContextIn = TypeVar("ContextIn", contravariant=True)

NOBODY: Final = Peer("", 0)
_NOTHING: Final = memoryview(b"")
# What OpenSSL calls it when the first bytes of a connection are no handshake but a request.
_PLAIN_REQUEST: Final = "HTTP_REQUEST"
_NOT_TLS: Final = b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n"


class Answering(Protocol[ContextIn]):
    """Who answers requests: a `Router`, or a guard in front of one."""

    def body_rule(self, method: str, path: str) -> BodyRule:
        """Say what is done with the body of such a request."""

    def answer(self, request: Request, context: ContextIn) -> Response | Retry:
        """Answer a request, now or later."""


class _Stream:
    """An answer on its way whose body is produced while it is being sent."""

    __slots__ = ("chunks", "framing")

    def __init__(self, chunks: Iterator[bytes], framing: encode.Framing) -> None:
        self.chunks = chunks
        self.framing = framing


class _Consuming:
    """An answer whose body is what is delivered to the connection."""

    __slots__ = ("chunked", "consumer", "sent_ns")

    def __init__(self, consumer: Consumer, *, chunked: bool, now_ns: int) -> None:
        self.consumer = consumer
        self.chunked = chunked
        self.sent_ns = now_ns


class HttpGateway(BaseGateway, Generic[Context]):
    """One connection. Each request goes to the endpoint that `router` has for it, with `context`.

    `make_tls`: it is HTTPS. `answers` counts them by status, for statistics.
    """

    def __init__(
        self,
        router: Answering[Context],
        context: Context,
        clock: Clock,
        peer: Peer = NOBODY,
        make_tls: Callable[[], Layer] | None = None,
        answers: dict[int, int] | None = None,
    ) -> None:
        self.need = 1
        self.peer = peer
        self._make_tls = make_tls
        self._answers = {} if answers is None else answers
        self._router = router
        self._context = context
        self._clock = clock
        self._decoder = RequestDecoder(router.body_rule, self)
        self._request: Request | None = None  # the one that is being answered bit by bit
        self._retry: Retry | None = None
        self._stream: _Stream | None = None
        self._consuming: _Consuming | None = None
        self._resting = False  # there are more requests than one turn answers
        self._partial_since_ns: int | None = None
        self._active_ns = clock.monotonic_ns()

    def opened(self, effects: list[Effect]) -> None:
        """Start watching for connections that do nothing."""
        self._active_ns = self._clock.monotonic_ns()
        if self._make_tls is not None:
            effects.append(Upgrade(self._make_tls()))
        self._watch(effects)

    def upgrade_failed(self, reason: str, effects: list[Effect]) -> None:
        """Tell whoever speaks plain HTTP here what is wrong, as Go's server does."""
        if _PLAIN_REQUEST in reason.upper().replace(" ", "_"):
            effects.append(Send(_NOT_TLS))

    def feed(self, view: memoryview, effects: list[Effect]) -> int:
        """Answer whole requests, until one takes longer, or the answers are enough for one turn."""
        if self._consuming is not None:
            # Another request may wait for the end of this answer; more than that has no business here.
            if len(view) > limits.HTTP_HEAD_SIZE_BYTES_MAX:
                self._end_consuming("too much input behind a request whose answer does not end", effects)
            return 0
        decoder = self._decoder
        decoder.begin_turn()
        until_ns = self._clock.monotonic_ns() + limits.HTTP_NS_PER_TURN_MAX
        at = handled = answered_bytes = 0
        while self._request is None and not decoder.ended:
            event, at = decoder.next(view, at)
            if event is None:
                if len(view) - at >= decoder.need:
                    self._rest(effects)
                break
            before = len(effects)
            self._handle(event, effects)
            handled += 1
            answered_bytes += sum(len(effect.data) for effect in effects[before:] if isinstance(effect, Send | SendAfter))
            enough = handled >= limits.HTTP_REQUESTS_PER_TURN_MAX or answered_bytes > limits.OUTBOX_SIZE_BYTES_HIGH
            if (enough or self._clock.monotonic_ns() >= until_ns) and at < len(view):
                if self._request is None and not decoder.ended:
                    self._rest(effects)
                break
        self.need = decoder.need
        self._active_ns = self._clock.monotonic_ns()
        if not (decoder.in_request or at < len(view)):
            self._partial_since_ns = None
        elif self._partial_since_ns is None or handled:
            self._partial_since_ns = self._active_ns
        return at

    def timer(self, name: TimerName, effects: list[Effect]) -> None:
        """Look again for an answer, or for a peer that has been silent too long."""
        if name is TimerName.RETRY:
            self._go_on(effects)
        elif name is TimerName.HEARTBEAT and self._consuming is not None:
            self._beat(self._consuming, effects)
        elif name is TimerName.READ_DEADLINE and not self._decoder.ended:
            self._check_silence(effects)

    def deliver(self, delivery: Delivery, outbox: Outbox) -> None:
        """Write messages as the next piece of the body that they are the answer of."""
        consuming = self._consuming
        assert consuming is not None
        data = consuming.consumer.take(delivery)
        outbox.write(encode.chunk(data) if consuming.chunked else data)
        consuming.sent_ns = self._clock.monotonic_ns()

    def full(self, effects: list[Effect]) -> None:
        """Take no more deliveries until what waits has been written."""
        if self._consuming is not None:
            self._consuming.consumer.hold(held=True)

    def writable(self, effects: list[Effect]) -> None:
        """Send the next chunk, or take deliveries again."""
        if self._consuming is not None:
            self._consuming.consumer.hold(held=False)
        if self._resting:
            self._resting = False
            effects.append(Resume())
        else:
            self._go_on(effects)

    def woken(self, effects: list[Effect]) -> None:
        """Ask again for an answer, or let the consumer do its part, or end its answer: what it subscribed to is gone."""
        if self._consuming is not None:
            self._consuming.consumer.woken()
        if self._closed_reason is not None:
            self._end_consuming(self._closed_reason, effects)
        elif self._retry is not None:
            effects.append(SetTimer(TimerName.RETRY, None))
            self._go_on(effects)

    def stopping(self, effects: list[Effect]) -> None:
        """End in order."""
        self._end_consuming("shutting down", effects)

    def eof(self, effects: list[Effect]) -> None:
        """Answer what was cut off, as Go's server does."""
        if self._request is None and not self._decoder.ended:
            event = self._decoder.cut()
            if event is not None:
                self._handle(event, effects)

    def ended(self) -> None:
        """Drop an answer that nobody will get."""
        self._finish_stream()
        if self._consuming is not None:
            self._consuming.consumer.ended()
            self._consuming = None
        if self._retry is not None:
            self._retry.dropped()
            self._retry = None
        self._request = None
        self._decoder.end()

    def _handle(self, event: Event, effects: list[Effect]) -> None:
        if isinstance(event, Continue):
            effects.append(Send(encode.CONTINUE))
        elif isinstance(event, Violation):
            self._count(int(event.line[:3]))
            effects += (Send(encode.encode_violation(event)), Close(event.line))
        elif event.body_state is BodyState.EXPECTATION:
            self._respond(event, Response(status=417, headers=(("Connection", "close"),), close=True), effects)
        else:
            self._proceed(event, self._router.answer(event, self._context), effects)

    def _proceed(self, request: Request, answer: Response | Retry, effects: list[Effect]) -> None:
        if isinstance(answer, Response):
            self._respond(request, answer, effects)
            return
        self._hold(request, effects)
        self._retry = answer
        effects.append(SetTimer(TimerName.RETRY, answer.due_ns))

    def _respond(self, request: Request, response: Response, effects: list[Effect]) -> None:
        self._count(response.status)
        self._answer(request, response, effects)

    def _count(self, status: int) -> None:
        self._answers[status] = self._answers.get(status, 0) + 1

    def _answer(self, request: Request, response: Response, effects: list[Effect]) -> None:
        if response.consumer is not None:
            self._start_consuming(request, response, response.consumer, effects)
            return
        if not isinstance(response.body, bytes):
            self._start_stream(request, response, response.body, effects)
            return
        data, keep_alive = encode.encode(request, response, response.body, wall_ns=self._clock.wall_ns())
        if response.ticket is None:
            effects.append(Send(data))
        else:
            effects.append(SendAfter(response.ticket, data, self._failure(request, response), publishes=response.publishes))
        self._conclude(effects, keep_alive=keep_alive)

    def _failure(self, request: Request, response: Response) -> Callable[[str], bytes]:
        """Make what is sent instead if the commit fails; it may not hold on to the request's body."""
        assert response.failure is not None
        make, method, version_minor = response.failure, request.method, request.version_minor

        def failed(reason: str) -> bytes:
            answer = replace(make(reason), close=True)
            assert isinstance(answer.body, bytes)
            bare = Request(method, "", version_minor=version_minor)
            return encode.encode(bare, answer, answer.body, wall_ns=self._clock.wall_ns())[0]

        return failed

    def _start_stream(self, request: Request, response: Response, chunks: Iterator[bytes], effects: list[Effect]) -> None:
        """Send a body that turns out to be small like any other; of a larger one the head and what there is of it."""
        try:
            begun, ended = _gathered(chunks)
        except PolyMQError as error:
            self._decoder.end()
            effects.append(Close(f"an answer could not be begun: {error}"))
            return
        if ended:
            self._answer(request, replace(response, body=begun), effects)
            return
        how = encode.framing(request, response, None)
        effects.append(Send(encode.head(request, response, how, wall_ns=self._clock.wall_ns())))
        self._hold(request, effects)
        self._stream = _Stream(chunks, how)
        self._send_chunk(begun, self._stream, effects)

    def _start_consuming(self, request: Request, response: Response, consumer: Consumer, effects: list[Effect]) -> None:
        """Send the head and the beginning; deliveries follow. Input is left alone, but its end is noticed."""
        assert response.close
        assert isinstance(response.body, bytes)
        how = encode.framing(request, response, None)
        data = encode.head(request, response, how, wall_ns=self._clock.wall_ns())
        if response.body:
            data += encode.chunk(response.body) if how.chunked else response.body
        now_ns = self._clock.monotonic_ns()
        self._request = replace(request, body_view=_NOTHING)
        self._consuming = _Consuming(consumer, chunked=how.chunked, now_ns=now_ns)
        if response.ticket is None:
            effects.append(Send(data))
        else:
            effects.append(SendAfter(response.ticket, data, self._failure(request, response), publishes=False))
        effects.append(SetTimer(TimerName.HEARTBEAT, now_ns + limits.HTTP_STREAM_BEAT_NS))

    def _beat(self, consuming: _Consuming, effects: list[Effect]) -> None:
        """Send something if nothing was sent for a while."""
        now_ns = self._clock.monotonic_ns()
        if now_ns - consuming.sent_ns >= limits.HTTP_STREAM_BEAT_NS:
            beat = consuming.consumer.beat
            effects.append(Send(encode.chunk(beat) if consuming.chunked else beat))
            consuming.sent_ns = now_ns
        effects.append(SetTimer(TimerName.HEARTBEAT, consuming.sent_ns + limits.HTTP_STREAM_BEAT_NS))

    def _end_consuming(self, reason: str, effects: list[Effect]) -> None:
        if self._consuming is not None and self._consuming.chunked:
            effects.append(Send(encode.LAST_CHUNK))
        effects.append(Close(reason))

    def _rest(self, effects: list[Effect]) -> None:
        """Answer no more in this turn; go on in a later one, when the peer has taken what there is."""
        self._resting = True
        effects += (Pause(), WantWritable())

    def _hold(self, request: Request, effects: list[Effect]) -> None:
        """Stop reading until this request has been answered."""
        if self._request is None:
            self._request = replace(request, body_view=_NOTHING)
            effects.append(Pause())

    def _go_on(self, effects: list[Effect]) -> None:
        request = self._request
        if request is None:
            return
        if self._stream is not None:
            self._go_on_streaming(self._stream, effects)
        elif self._retry is not None:
            retry, self._retry = self._retry, None
            self._proceed(request, retry.again(), effects)

    def _go_on_streaming(self, stream: _Stream, effects: list[Effect]) -> None:
        if not stream.framing.has_body:
            self._complete(stream, effects)
            return
        try:
            data = next(stream.chunks, None)
        except PolyMQError as error:
            # The peer sees a body without its end.
            self._finish_stream()
            self._decoder.end()
            effects.append(Close(f"an answer had to be cut off: {error}"))
            return
        if data is None:
            self._complete(stream, effects)
        else:
            self._send_chunk(data, stream, effects)

    def _send_chunk(self, data: bytes, stream: _Stream, effects: list[Effect]) -> None:
        if not stream.framing.has_body:
            effects.append(WantWritable())
        elif data:
            effects += (Send(encode.chunk(data) if stream.framing.chunked else data), WantWritable())
        else:
            due_ns = self._clock.monotonic_ns() + limits.HTTP_POLL_INTERVAL_NS
            effects.append(SetTimer(TimerName.RETRY, due_ns))

    def _complete(self, stream: _Stream, effects: list[Effect]) -> None:
        if stream.framing.chunked and stream.framing.has_body:
            effects.append(Send(encode.LAST_CHUNK))
        self._finish_stream()
        self._conclude(effects, keep_alive=stream.framing.keep_alive)

    def _finish_stream(self) -> None:
        if self._stream is not None:
            close = getattr(self._stream.chunks, "close", None)
            if close is not None:
                close()
            self._stream = None

    def _conclude(self, effects: list[Effect], *, keep_alive: bool) -> None:
        """Go on with the next request, or end: an answer is complete."""
        held, self._request = self._request, None
        if not keep_alive:
            self._decoder.end()
            effects.append(Close("answered"))
        elif held is not None:
            self._active_ns = self._clock.monotonic_ns()
            self._partial_since_ns = None  # what has come meanwhile had to wait for us
            effects.append(Resume())

    def _watch(self, effects: list[Effect]) -> None:
        effects.append(SetTimer(TimerName.READ_DEADLINE, self._clock.monotonic_ns() + limits.HTTP_REQUEST_NS_MAX))

    def _check_silence(self, effects: list[Effect]) -> None:
        now_ns = self._clock.monotonic_ns()
        since_ns = self._partial_since_ns
        if self._request is not None or self._resting:
            self._active_ns = now_ns  # the peer waits for us; a peer that does not take its answer is not our concern
        elif since_ns is not None and now_ns - since_ns >= limits.HTTP_REQUEST_NS_MAX:
            effects.append(Close("the request did not become complete in time"))
            return
        elif now_ns - self._active_ns >= limits.HTTP_IDLE_NS_MAX:
            effects.append(Close("no request for a long time"))
            return
        self._watch(effects)


def _gathered(chunks: Iterator[bytes]) -> tuple[bytes, bool]:
    """Take as much as is sent with a length; give it and whether that was all."""
    gathered = b""
    while len(gathered) <= encode.SIZED_BODY_BYTES_MAX:
        data = next(chunks, None)
        if data is None:
            return gathered, True
        gathered += data
        if not data:
            break
    return gathered, False
