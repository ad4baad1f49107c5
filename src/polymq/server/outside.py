"""Questions to the outside over HTTP: who carries out `Ask`.

Each question is a connection of its own in the pump, with a gateway that writes the request and reads the answer.
Whatever the server does, a question ends within its time and its bytes, and the result is handed over in a turn of
its own: an answer, or a failure that says what was wrong. Nobody else notices, however many questions wait.
"""

from __future__ import annotations

import ssl
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Final

from polymq import limits
from polymq.config_values import TcpAddress
from polymq.gateways.contract import BaseGateway
from polymq.gateways.effects import Close, Send
from polymq.protocols.http.client import Answer, Exchange, Failure, Question, redirected, where
from polymq.server.ports import ClientTls

if TYPE_CHECKING:
    from collections.abc import Callable

    from polymq.core.ports import Clock
    from polymq.gateways.contract import Gateway, Peer
    from polymq.gateways.effects import Effect
    from polymq.server.ports import Alarms, Dial, Dialer
    from polymq.server.timers import Alarm

__all__ = ["HttpOutside"]

_AT_ONCE: Final = 0  # a due time that is always past


class _Asking:
    """One question on its way: waiting for its turn, being dialled, or on a connection."""

    __slots__ = ("alarm", "answered", "deadline_ns", "dial", "gateway", "question")

    def __init__(self, question: Question, answered: Callable[[object], None], deadline_ns: int) -> None:
        self.question = question
        self.answered = answered
        self.deadline_ns = deadline_ns
        self.alarm: Alarm | None = None
        self.dial: Dial | None = None
        self.gateway: _ExchangeGateway | None = None


class _ExchangeGateway(BaseGateway):
    """One exchange as a connection. `done` gets the result, once."""

    def __init__(self, exchange: Exchange, done: Callable[[Answer | Failure], None]) -> None:
        self._exchange = exchange
        self._done: Callable[[Answer | Failure], None] | None = done

    def opened(self, effects: list[Effect]) -> None:
        """Ask."""
        effects.append(Send(self._exchange.request()))

    def feed(self, view: memoryview, effects: list[Effect]) -> int:
        """Read the answer."""
        result = self._exchange.receive(bytes(view))
        if result is not None:
            self._finish(result)
            effects.append(Close("the answer has come"))
        return len(view)

    def eof(self, effects: list[Effect]) -> None:
        """Some answers end where the connection does."""
        self._finish(self._exchange.eof())

    def upgrade_failed(self, reason: str, effects: list[Effect]) -> None:
        """Without TLS nothing is asked."""
        self._finish(Failure(reason))

    def ended(self) -> None:
        """Say so, if there was no answer."""
        self._finish(Failure("the connection broke"))

    def give_up(self) -> None:
        """Nobody waits any more: close."""
        self._done = None
        self.closed("nobody waits for the answer")

    def _finish(self, result: Answer | Failure) -> None:
        done, self._done = self._done, None
        if done is not None:
            done(result)


class HttpOutside:
    """The `Outside` port for questions of HTTP. At most `limits.QUESTIONS_MAX` are asked at a time, the rest in order."""

    def __init__(
        self, dialer: Dialer, alarms: Alarms, clock: Clock, tls: Callable[[], ssl.SSLContext] = ssl.create_default_context
    ) -> None:
        self._dialer = dialer
        self._alarms = alarms
        self._clock = clock
        self._make_tls = tls
        self._tls: ssl.SSLContext | None = None
        self._waiting: deque[_Asking] = deque()
        self._under_way = 0

    def ask(self, request: object, answered: Callable[[object], None]) -> None:
        """Ask; `answered` gets an `Answer` or a `Failure` in a later turn."""
        assert isinstance(request, Question)
        asking = _Asking(request, answered, self._clock.monotonic_ns() + request.timeout_ns)
        asking.alarm = self._alarms.call_at(asking.deadline_ns, partial(self._expire, asking))
        if self._under_way >= limits.QUESTIONS_MAX:
            self._waiting.append(asking)
        else:
            self._start(asking)

    def _start(self, asking: _Asking) -> None:
        self._under_way += 1
        self._dial(asking)

    def _dial(self, asking: _Asking) -> None:
        place = where(asking.question.url)
        if place is None:
            self._finish(asking, Failure("not a URL of http or https"))
            return
        question = asking.question

        def connected(_peer: Peer) -> Gateway:
            asking.dial = None
            asking.gateway = _ExchangeGateway(Exchange(question, place), partial(self._result, asking))
            return asking.gateway

        timeout_ns = min(question.connect_timeout_ns, asking.deadline_ns - self._clock.monotonic_ns())
        asking.dial = self._dialer.dial(
            TcpAddress(place.host, place.port),
            connected,
            timeout_ns=timeout_ns,
            failed=lambda reason: self._finish(asking, Failure(f"cannot connect: {reason}")),
            tls=ClientTls(self._context(), place.host) if place.secure else None,
        )

    def _context(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = self._make_tls()
        return self._tls

    def _result(self, asking: _Asking, result: Answer | Failure) -> None:
        """Take an exchange's result: the end of the question, or the way to the next exchange."""
        asking.gateway = None
        if isinstance(result, Answer):
            following = redirected(asking.question, result)
            if isinstance(following, Question):
                asking.question = following
                self._dial(asking)
                return
            result = following or result
        self._finish(asking, result)

    def _expire(self, asking: _Asking) -> None:
        asking.alarm = None
        if asking in self._waiting:
            self._waiting.remove(asking)
            asking.answered(Failure("too many questions at a time: its turn did not come in time"))
            return
        if asking.dial is not None:
            asking.dial.cancel()
            asking.dial = None
        if asking.gateway is not None:
            asking.gateway.give_up()
            asking.gateway = None
        self._finish(asking, Failure("no answer in time"))

    def _finish(self, asking: _Asking, result: Answer | Failure) -> None:
        if asking.alarm is not None:
            asking.alarm.cancel()
            asking.alarm = None
        self._under_way -= 1
        # Not from within another connection's call, and not before ask() has returned.
        self._alarms.call_at(_AT_ONCE, partial(asking.answered, result))
        if self._waiting:
            self._start(self._waiting.popleft())
