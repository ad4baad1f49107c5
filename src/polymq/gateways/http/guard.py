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
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from polymq import limits
from polymq.gateways.login import Credentials, Denied, Login
from polymq.wire.exchange import Request, Response, Retry

if TYPE_CHECKING:
    from collections.abc import Callable

    from polymq.core.access import Action
    from polymq.core.broker import Broker
    from polymq.core.ports import Clock
    from polymq.core.session import Session
    from polymq.gateways.contract import Peer
    from polymq.gateways.login import Attempt, Logins
    from polymq.protocols.http.client import Question
    from polymq.protocols.http.decode import BodyRule
    from polymq.protocols.http.router import Router

__all__ = ["GuardedDoor", "GuardedRouter", "Guests", "secret_of"]

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
    """A login that is being asked for, with the verdict once it is there."""

    __slots__ = ("attempt", "verdict")

    def __init__(self, attempt: Attempt) -> None:
        self.attempt = attempt
        self.verdict: Login | Denied | None = None


class Guests:
    """Who has been found by which secret, for all doors together: at most `limits.HTTP_GUESTS_MAX`, the latest ones."""

    def __init__(self, broker: Broker, clock: Clock, logins: Logins, ask: Callable[[Question, Callable[[object], None]], object]) -> None:
        self._broker = broker
        self._clock = clock
        self._logins = logins
        self._ask = ask
        self._guests: dict[bytes, _Guest] = {}

    def find(self, secret: bytes, remote_host: str) -> Session | Denied | _Waiting:
        """Give the session of whoever brings this secret; it may have to be asked for (`verdict`)."""
        key = _key(secret, remote_host)
        guest = self._guests.get(key)
        if guest is not None:
            if guest.ends_ns is None or self._clock.monotonic_ns() < guest.ends_ns:
                return guest.session
            self._forget(key)
        verdict = self._logins.begin(Credentials(secret, remote_host))
        if isinstance(verdict, Login):
            return self.admit(secret, remote_host, verdict)
        if isinstance(verdict, Denied):
            return verdict
        waiting = _Waiting(verdict)
        self._ask(verdict.question, partial(self._answered, waiting))
        return waiting

    def admit(self, secret: bytes, remote_host: str, login: Login) -> Session:
        """Remember who that is."""
        key = _key(secret, remote_host)
        if key in self._guests:  # two requests had to wait for the same answer
            self._forget(key)
        while len(self._guests) >= limits.HTTP_GUESTS_MAX:
            self._forget(next(iter(self._guests)))
        ends_ns = None if login.lifetime_ns is None else self._clock.monotonic_ns() + login.lifetime_ns
        session = self._broker.session(login.principal)
        self._guests[key] = _Guest(session, ends_ns)
        return session

    def _answered(self, waiting: _Waiting, answer: object) -> None:
        waiting.verdict = waiting.attempt.take(answer)
        if waiting.verdict is None:
            self._ask(waiting.attempt.question, partial(self._answered, waiting))

    def _forget(self, key: bytes) -> None:
        self._guests.pop(key).session.close()


def _key(secret: bytes, remote_host: str) -> bytes:
    """Name a secret without keeping it. An authentication server may judge by the address as well."""
    return hashlib.sha256(len(secret).to_bytes(8, "big") + secret + remote_host.encode()).digest()


class GuardedDoor(Generic[Context]):
    """What a guarded door is like: its endpoints, how a context is given a session, and how it refuses.

    `open_paths` are answered to anybody (health checks know no secrets). `concerns_all` says of a request that is not
    about single topics what one must be allowed to do to all of them.
    """

    __slots__ = ("concerns_all", "guests", "open_paths", "refuse", "router", "with_session")

    def __init__(
        self,
        router: Router[Context],
        guests: Guests,
        *,
        with_session: Callable[[Context, Session], Context],
        refuse: Callable[[int], Response],
        open_paths: frozenset[str],
        concerns_all: Callable[[Request], Action | None],
    ) -> None:
        self.router = router
        self.guests = guests
        self.with_session = with_session
        self.refuse = refuse
        self.open_paths = open_paths
        self.concerns_all = concerns_all


class GuardedRouter(Generic[Context]):
    """A door's router for one connection, in the place of the `Router` that answers everybody."""

    def __init__(self, door: GuardedDoor[Context], peer: Peer, clock: Clock) -> None:
        self._door = door
        self._peer = peer
        self._clock = clock

    def body_rule(self, method: str, path: str) -> BodyRule:
        """As without a guard."""
        return self._door.router.body_rule(method, path)

    def answer(self, request: Request, context: Context) -> Response | Retry:
        """Find out who asks, then have the endpoint answer."""
        door = self._door
        if request.path in door.open_paths:
            return door.router.answer(request, context)
        secret = secret_of(request)
        if not secret:
            return self._refused(401)
        found = door.guests.find(secret, self._peer.remote_host)
        if isinstance(found, _Waiting):
            # The body lies in a buffer of the connection's, which is used again while somebody else is asked.
            kept = replace(request, body_view=memoryview(bytes(request.body_view)))
            return self._later(found, kept, secret, context)
        return self._admitted(found, request, context)

    def _later(self, waiting: _Waiting, request: Request, secret: bytes, context: Context) -> Response | Retry:
        verdict = waiting.verdict
        if verdict is None:
            due_ns = self._clock.monotonic_ns() + limits.HTTP_POLL_INTERVAL_NS
            return Retry(due_ns, partial(self._later, waiting, request, secret, context))
        found = self._door.guests.admit(secret, self._peer.remote_host, verdict) if isinstance(verdict, Login) else verdict
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
