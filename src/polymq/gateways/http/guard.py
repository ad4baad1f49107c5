"""A door over HTTP that asks who is there: every request brings a secret, and is answered by that principal's session.

The secret is in `Authorization: Bearer <secret>`, or is the password of `Authorization: Basic`; it is never taken from
the URL, because URLs end up in logs. Who was found is remembered for the login's time, so that only the first request
of many waits for an authentication server. Endpoints notice nothing: they get a context with another session.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import logging
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from polymq import limits
from polymq.gateways.login import Credentials, Denied, Login
from polymq.wire.exchange import Request, Response, Retry

if TYPE_CHECKING:
    from collections.abc import Callable

    from polymq.core.access import Action
    from polymq.core.broker import Broker
    from polymq.core.ports import Clock
    from polymq.core.session import Session
    from polymq.gateways.contract import Asked, Peer
    from polymq.gateways.login import Attempt, Logins
    from polymq.protocols.http.client import Question
    from polymq.protocols.http.decode import BodyRule
    from polymq.protocols.http.router import Router

__all__ = ["Certified", "GuardedDoor", "GuardedRouter", "Guests", "secret_of"]

Context = TypeVar("Context")

_BEARER: Final = b"bearer "
_BASIC: Final = b"basic "
_CHALLENGE: Final = ("WWW-Authenticate", 'Bearer realm="polymq"')

log = logging.getLogger(__name__)


def secret_of(request: Request) -> bytes:
    """Give the secret that a request brings; nothing if there is none, or it cannot be read."""
    value = next((value for name, value in request.headers if name == b"authorization"), b"")
    kind = value[: len(_BEARER)].lower()
    if kind == _BEARER:
        return value[len(_BEARER) :].strip()
    if not kind.startswith(_BASIC):
        return b""
    try:
        return base64.b64decode(value[len(_BASIC) :].strip(), validate=True).partition(b":")[2]
    except binascii.Error:
        return b""


class _Guest:
    """Somebody who was found, and until when that holds (None: for ever)."""

    __slots__ = ("ends_ns", "session")

    def __init__(self, session: Session, ends_ns: int | None) -> None:
        self.session = session
        self.ends_ns = ends_ns


class _Waiting:
    """A login that is being asked for, with the verdict once it is there, and the connections that wait for it."""

    __slots__ = ("asked", "askers", "attempt", "key", "verdict")

    def __init__(self, key: bytes, attempt: Attempt) -> None:
        self.key = key
        self.attempt = attempt
        self.asked: Asked | None = None
        self.verdict: Login | Denied | None = None
        self.askers: dict[Any, None] = {}


class Guests:
    """Who has been found by which secret, for all doors together: at most `limits.HTTP_GUESTS_MAX`, the latest ones.

    Whoever shows what is being asked about already waits for that answer.
    """

    def __init__(self, broker: Broker, clock: Clock, logins: Logins, ask: Callable[[Question, Callable[[object], None]], Asked]) -> None:
        self._broker = broker
        self._clock = clock
        self._logins = logins
        self._ask = ask
        self._guests: dict[bytes, _Guest] = {}
        self._asking: dict[bytes, _Waiting] = {}

    def find(self, credentials: Credentials) -> Session | Denied | _Waiting:
        """Give the session of whoever shows these; it may have to be asked for (`verdict`): see `wait`."""
        key = _key(credentials)
        guest = self._current(key)
        if guest is not None:
            return guest.session
        if key in self._asking:
            return self._asking[key]
        verdict = self._logins.begin(credentials)
        if isinstance(verdict, Login):
            return self.admit(credentials, verdict)
        if isinstance(verdict, Denied):
            return verdict
        waiting = _Waiting(key, verdict)
        self._put(waiting)
        self._asking[key] = waiting
        return waiting

    def wait(self, waiting: _Waiting, connection: Any) -> None:
        """Ring for a connection when the verdict is there."""
        waiting.askers[connection] = None

    def leave(self, waiting: _Waiting, connection: Any) -> None:
        """Forget a connection that has ended; a question that nobody waits for is cancelled."""
        waiting.askers.pop(connection, None)
        if not waiting.askers and waiting.verdict is None and self._asking.pop(waiting.key, None) is not None:
            assert waiting.asked is not None
            waiting.asked.cancel()

    def admit(self, credentials: Credentials, login: Login) -> Session:
        """Remember who that is; of several that waited for the same answer, the first one does."""
        key = _key(credentials)
        guest = self._current(key)
        if guest is not None:
            return guest.session
        while len(self._guests) >= limits.HTTP_GUESTS_MAX:
            self._forget(next(iter(self._guests)))
        ends_ns = None if login.lifetime_ns is None else self._clock.monotonic_ns() + login.lifetime_ns
        session = self._broker.session(login.principal)
        self._guests[key] = _Guest(session, ends_ns)
        return session

    def _current(self, key: bytes) -> _Guest | None:
        """Give who is known, and forget whose time is over."""
        guest = self._guests.get(key)
        if guest is not None and guest.ends_ns is not None and self._clock.monotonic_ns() >= guest.ends_ns:
            self._forget(key)
            return None
        return guest

    def _put(self, waiting: _Waiting) -> None:
        waiting.asked = self._ask(waiting.attempt.question, partial(self._answered, waiting))

    def _answered(self, waiting: _Waiting, answer: object) -> None:
        waiting.verdict = waiting.attempt.take(answer)
        if waiting.verdict is None:
            self._put(waiting)
            return
        del self._asking[waiting.key]
        for connection in waiting.askers:
            connection.ring()

    def _forget(self, key: bytes) -> None:
        self._guests.pop(key).session.close()


def _key(shown: Credentials) -> bytes:
    """Name a secret without keeping it. An authentication server may judge by the rest as well."""
    parts = (shown.secret, shown.remote_host.encode(), shown.common_name.encode("utf-8", "surrogatepass"), b"tls" if shown.tls else b"")
    return hashlib.sha256(b"".join(len(part).to_bytes(8, "big") + part for part in parts)).digest()


class GuardedDoor(Generic[Context]):
    """What a guarded door is like: its endpoints, how a context is given a session, and how it refuses.

    `open_paths` are answered to anybody (health checks know no secrets), and so are requests with one of `open_methods`.
    `concerns_all` says of a request that is not about single topics what one must be allowed to do to all of them.
    """

    __slots__ = ("concerns_all", "guests", "open_methods", "open_paths", "refuse", "router", "with_session")

    def __init__(
        self,
        router: Router[Context],
        guests: Guests,
        *,
        with_session: Callable[[Context, Session], Context],
        refuse: Callable[[int], Response],
        open_paths: frozenset[str],
        concerns_all: Callable[[Request], Action | None],
        open_methods: frozenset[str] = frozenset(),
    ) -> None:
        self.router = router
        self.guests = guests
        self.with_session = with_session
        self.refuse = refuse
        self.open_paths = open_paths
        self.concerns_all = concerns_all
        self.open_methods = open_methods


class Certified(Protocol):
    """What is asked of a connection's TLS."""

    @property
    def peer_common_name(self) -> str:
        """The common name in the client's certificate; "" without one."""


class GuardedRouter(Generic[Context]):
    """A door's router for one connection, in the place of the `Router` that answers everybody."""

    def __init__(self, door: GuardedDoor[Context], peer: Peer, clock: Clock, tls: Certified | None = None) -> None:
        """`tls` is what the connection is within, if it is."""
        self._door = door
        self._peer = peer
        self._clock = clock
        self._tls = tls
        self._common_name: str | None = None

    def body_rule(self, method: str, path: str) -> BodyRule:
        """As without a guard."""
        return self._door.router.body_rule(method, path)

    def answer(self, request: Request, context: Context) -> Response | Retry:
        """Find out who asks, then have the endpoint answer."""
        door = self._door
        if request.path in door.open_paths or request.method in door.open_methods:
            return door.router.answer(request, context)
        secret = secret_of(request)
        if not secret:
            return self._refused(401)
        credentials = self._credentials(secret)
        found = door.guests.find(credentials)
        if isinstance(found, _Waiting):
            # The body lies in a buffer of the connection's, which is used again while somebody else is asked.
            kept = replace(request, body_view=memoryview(bytes(request.body_view)))
            return self._later(found, kept, credentials, context)
        return self._admitted(found, request, context)

    def _credentials(self, secret: bytes) -> Credentials:
        """Put together what the client shows: no request is read before the end of a handshake."""
        if self._common_name is None:
            self._common_name = self._tls.peer_common_name if self._tls is not None else ""
        return Credentials(secret, self._peer.remote_host, self._tls is not None, self._common_name)

    def _later(self, waiting: _Waiting, request: Request, credentials: Credentials, context: Context) -> Response | Retry:
        guests = self._door.guests
        verdict = waiting.verdict
        if verdict is None:
            guests.wait(waiting, request.connection)
            again = partial(self._later, waiting, request, credentials, context)
            dropped = partial(guests.leave, waiting, request.connection)
            return Retry(self._clock.monotonic_ns() + limits.HTTP_NET_INTERVAL_NS, again, dropped)
        found = guests.admit(credentials, verdict) if isinstance(verdict, Login) else verdict
        return self._admitted(found, request, context)

    def _admitted(self, found: Session | Denied, request: Request, context: Context) -> Response | Retry:
        if isinstance(found, Denied):
            log.warning("HTTP client %s: login failed: %s", self._peer, found.reason)
            return self._refused(401)
        action = self._door.concerns_all(request)
        if action is not None:
            # Answered as an open door would, by the one context that there is, or not at all.
            allowed = found.principal.may_everywhere(action)
            return self._door.router.answer(request, context) if allowed else self._refused(403)
        return self._door.router.answer(request, self._door.with_session(context, found))

    def _refused(self, status: int) -> Response:
        response = self._door.refuse(status)
        return replace(response, headers=(*response.headers, _CHALLENGE)) if status == 401 else response
