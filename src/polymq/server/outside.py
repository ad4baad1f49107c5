"""Questions to the outside over HTTP: who carries out `Ask`.

Each question is a connection of its own in the pump, with a gateway that writes the request and reads the answer.
Whatever the server does, a question ends within its time and its bytes, and the result is handed over in a turn of
its own: an answer, or a failure that says what was wrong. A server that hangs has a part of the questions that may be
asked at a time, so whoever asks another one does not notice, however many wait for it.
"""

from __future__ import annotations

import logging
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
    from polymq.gateways.contract import Asked, Gateway, Peer
    from polymq.gateways.effects import Effect
    from polymq.server.ports import Alarms, Dial, Dialer
    from polymq.server.timers import Alarm

__all__ = ["HttpOutside"]

_AT_ONCE: Final = 0  # a due time that is always past
_TOO_MANY: Final = Failure("too many questions at a time")
_TOO_LATE: Final = Failure("no answer in time")
_NO_URL: Final = Failure("not a URL of http or https")

log = logging.getLogger(__name__)


class _Asking:
    """One question on its way: waiting for its turn, being dialled, or on a connection. The `Asked` of who asked."""

    __slots__ = ("_outside", "alarm", "answered", "deadline_ns", "dial", "gateway", "question", "server", "under_way")

    def __init__(self, outside: HttpOutside, question: Question, answered: Callable[[object], None]) -> None:
        self._outside = outside
        self.question = question
        self.answered = answered
        self.deadline_ns = 0
        self.alarm: Alarm | None = None
        self.dial: Dial | None = None
        self.gateway: _ExchangeGateway | None = None
        self.server: _Server | None = None  # until the question is over
        self.under_way = False  # else it waits for its turn

    def cancel(self) -> None:
        """Want no answer any more."""
        self._outside.cancel(self)


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


class _Server:
    """One place that is asked: how many questions it has, and who waits for a turn."""

    __slots__ = ("key", "under_way", "waiting")

    def __init__(self, key: tuple[bool, str, int]) -> None:
        self.key = key
        self.under_way = 0
        self.waiting: deque[_Asking] = deque()


class HttpOutside:
    """The `Outside` port for questions of HTTP.

    Limits:  `questions_max` at a time, `limits.QUESTIONS_PER_SERVER_MAX` of them at one server, which the first URL
             names; the rest wait, in order for each server, the servers in turn. The question's time begins when it
             is asked; waiting for that may take as long again.
    """

    def __init__(
        self,
        dialer: Dialer,
        alarms: Alarms,
        clock: Clock,
        tls: Callable[[], ssl.SSLContext] = ssl.create_default_context,
        *,
        questions_max: int = limits.QUESTIONS_MAX,
    ) -> None:
        self._dialer = dialer
        self._alarms = alarms
        self._clock = clock
        self._make_tls = tls
        self._tls: ssl.SSLContext | None = None
        self._questions_max = questions_max
        self._servers: dict[tuple[bool, str, int], _Server] = {}  # who has questions; first whoever had no turn for longest
        self._waiting_count = 0
        self._under_way = 0

    def ask(self, request: object, answered: Callable[[object], None]) -> Asked:
        """Ask; `answered` gets an `Answer` or a `Failure` in a later turn, unless the question is cancelled."""
        assert isinstance(request, Question)
        asking = _Asking(self, request, answered)
        place = where(request.url)
        if place is None:
            self._answer(asking, _NO_URL)
        elif self._waiting_count >= limits.QUESTIONS_WAITING_MAX:
            self._answer(asking, _TOO_MANY)
        else:
            key = (place.secure, place.host, place.port)
            asking.server = server = self._servers.setdefault(key, _Server(key))
            server.waiting.append(asking)
            self._waiting_count += 1
            self._set_alarm(asking)
            self._start_next()
        return asking

    def cancel(self, asking: _Asking) -> None:
        """Nobody wants the answer any more."""
        if asking.alarm is not None:
            asking.alarm.cancel()
            asking.alarm = None
        self._give_up(asking)

    def _start_next(self) -> None:
        """Have questions asked, as long as there may be more: the servers in turn, so that none waits for another's."""
        while self._under_way < self._questions_max:
            free = (server for server in self._servers.values() if server.waiting and server.under_way < limits.QUESTIONS_PER_SERVER_MAX)
            server = next(free, None)
            if server is None:
                return
            self._servers[server.key] = self._servers.pop(server.key)
            asking = server.waiting.popleft()
            asking.under_way = True
            self._waiting_count -= 1
            self._under_way += 1
            server.under_way += 1
            self._set_alarm(asking)
            self._dial(asking)

    def _set_alarm(self, asking: _Asking) -> None:
        """Give a question its time: to wait for a turn, and again when it is asked."""
        if asking.alarm is not None:
            asking.alarm.cancel()
        asking.deadline_ns = self._clock.monotonic_ns() + asking.question.timeout_ns
        asking.alarm = self._alarms.call_at(asking.deadline_ns, partial(self._expire, asking))

    def _dial(self, asking: _Asking) -> None:
        """Have a connection made. Whatever is wrong with that concerns whoever asks, and none of those whose turn this is."""
        try:
            self._connect(asking)
        except Exception as error:  # certificates that cannot be read, or our own bug
            log.exception("%s: a question cannot be asked", asking.question.shown)
            failure = Failure(f"cannot be asked: {error}")
            # Not from here: of a thousand that wait for a turn each would fail within the one before.
            asking.dial = self._alarms.call_at(_AT_ONCE, partial(self._finish, asking, failure))

    def _connect(self, asking: _Asking) -> None:
        place = where(asking.question.url)
        if place is None:
            self._finish(asking, _NO_URL)
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
        failure = _TOO_LATE if asking.under_way else _TOO_MANY
        self._give_up(asking)
        asking.answered(failure)

    def _finish(self, asking: _Asking, result: Answer | Failure) -> None:
        asking.dial = asking.gateway = None
        self._give_up(asking)
        self._answer(asking, result)

    def _answer(self, asking: _Asking, result: Answer | Failure) -> None:
        """Hand the result over: not from within another connection's call, and not before ask() has returned."""
        if asking.alarm is not None:
            asking.alarm.cancel()
        asking.alarm = self._alarms.call_at(_AT_ONCE, partial(asking.answered, result))

    def _give_up(self, asking: _Asking) -> None:
        """End whatever is done for a question, and let another have its turn."""
        if asking.dial is not None:
            asking.dial.cancel()
        if asking.gateway is not None:
            asking.gateway.give_up()
        asking.dial = asking.gateway = None
        server, asking.server = asking.server, None
        if server is None:
            return
        if asking.under_way:
            self._under_way -= 1
            server.under_way -= 1
        else:
            server.waiting.remove(asking)  # at or near the front: it came before the others
            self._waiting_count -= 1
        if not server.waiting and not server.under_way:
            del self._servers[server.key]
        self._start_next()
