"""AUTH: who is at the other end of an NSQ connection, found out as nsqd does it.

`AuthServers` turns a secret into questions, server after server, and their answers into a login. `Doorkeeper` is one
connection's part: the login that holds, and what has to wait while somebody is asked. The login is asked for again,
with the same secret, at the first command that needs it after its time is over; never by itself, and what is
subscribed stays so.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from polymq.core.access import Action, Permission, Principal
from polymq.core.patterns import EVERYTHING, PatternError, Patterns
from polymq.gateways.effects import Ask
from polymq.gateways.login import Denied, Login
from polymq.gateways.nsq import http_format
from polymq.limits import SECRET_SIZE_BYTES_MAX
from polymq.protocols.http.client import Answer, Failure, Question
from polymq.protocols.nsq.auth import AuthReply, form, https_url, read_auth_reply, server_url
from polymq.protocols.nsq.events import Publish
from polymq.wire.slices import MessageBatch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from polymq.core.session import Session
    from polymq.gateways.effects import Effect
    from polymq.gateways.login import Attempt, Credentials, Logins
    from polymq.protocols.nsq.auth import Authorization
    from polymq.protocols.nsq.events import Event

__all__ = ["NEVER_NS", "AuthServers", "Doorkeeper", "auth_answer"]

NEVER_NS: Final = 1 << 63
_NS_PER_SECOND: Final = 1_000_000_000
_OK: Final = 200
_FORBIDDEN: Final = 403
_ACCEPT: Final = ("Accept", "application/vnd.nsq; version=1.0")
_JSON: Final = ("Content-Type", "application/json")
# A question may wait for its turn as long as its answer may take, and ends by itself; this is the pump's net behind it.
_SLACK_NS: Final = _NS_PER_SECOND
# What a subscriber receives it may read: from the log as well, and in statistics.
_CONSUMING: Final = frozenset({Action.SUBSCRIBE, Action.READ})
_PUBLISHING: Final = frozenset({Action.PUBLISH})

log = logging.getLogger(__name__)


def auth_answer(login: Login) -> bytes:
    """Write what a successful AUTH is answered with."""
    answer = {"identity": login.principal.name, "identity_url": login.identity_url, "permission_count": login.permission_count}
    return http_format.json(answer)


class AuthServers:
    """Servers that know the secrets: HOST:PORT or a URL each. All are tried, beginning anywhere."""

    def __init__(
        self,
        addresses: Sequence[str],
        pick: Callable[[int], int],
        *,
        method: str = "get",
        connect_timeout_ns: int = 2 * _NS_PER_SECOND,
        request_timeout_ns: int = 5 * _NS_PER_SECOND,
    ) -> None:
        """Know the servers; `pick(n)` gives a number below n."""
        assert addresses
        self._urls = [server_url(address) for address in addresses]
        self._pick = pick
        self._post = method == "post"
        self._connect_timeout_ns = connect_timeout_ns
        self._request_timeout_ns = request_timeout_ns

    def begin(self, credentials: Credentials) -> Attempt | Denied:
        """Ask one server after the other."""
        if len(credentials.secret) > SECRET_SIZE_BYTES_MAX:
            return Denied(f"a secret of {len(credentials.secret)} bytes")
        first = self._pick(len(self._urls))
        urls = self._urls[first:] + self._urls[:first]
        return _Attempt([self._question(url, credentials) for url in urls])

    def _question(self, url: str, credentials: Credentials) -> Question:
        arguments = {
            "common_name": credentials.common_name.encode(),
            "remote_ip": credentials.remote_host.encode(),
            "secret": credentials.secret,
            "tls": b"true" if credentials.tls else b"false",
        }
        question = Question(url, timeout_ns=self._request_timeout_ns, connect_timeout_ns=self._connect_timeout_ns, headers=(_ACCEPT,))
        if not self._post:
            return replace(question, url=f"{url}{'&' if '?' in url else '?'}{form(arguments)}")
        body = http_format.json({name: [value.decode("utf-8", "replace")] for name, value in arguments.items()})
        return replace(question, method="POST", headers=(_ACCEPT, _JSON), body=body)


class _Attempt:
    """One login, asked for at one server after the other until an answer can be used."""

    def __init__(self, questions: list[Question]) -> None:
        self._left = questions[1:]
        self.question = questions[0]

    def take(self, answer: object) -> Login | Denied | None:
        """Use an answer, or go on: to the same server over HTTPS if it asks for that, else to the next one."""
        if isinstance(answer, Answer) and answer.status == _FORBIDDEN:
            secure = https_url(self.question.url, answer.body)
            if secure is not None:
                self.question = replace(self.question, url=secure)
                return None
        found = _login(answer)
        if isinstance(found, Login):
            return found
        reason = f"{self.question.shown}: {found}"
        if not self._left:
            return Denied(reason)
        log.warning("an authentication server cannot be used: %s; trying the next", reason)
        self.question = self._left.pop(0)
        return None


def _login(answer: object) -> Login | str:
    """Make a login of a server's answer, or say what is wrong with it."""
    if not isinstance(answer, Answer):
        return answer.reason if isinstance(answer, Failure) else "no answer in time"
    if answer.status != _OK:
        return f"answered {answer.status}"
    reply = read_auth_reply(answer.body)
    if not isinstance(reply, AuthReply):
        return reply
    permissions: list[Permission] = []
    patterns = Patterns()
    for authorization in reply.authorizations:
        try:
            permissions += _permissions(authorization, patterns)
        except PatternError as error:
            return f"a pattern cannot be used: {error}"
    return Login(
        Principal(reply.identity, permissions=tuple(permissions)),
        permission_count=len(reply.authorizations),
        lifetime_ns=reply.ttl_s * _NS_PER_SECOND,
        identity_url=reply.identity_url,
    )


def _permissions(authorization: Authorization, patterns: Patterns) -> list[Permission]:
    """Say in the core's words what an entry allows; raises PatternError.

    nsqd asks for a publish whether any channel pattern matches "", so an entry for certain channels allows none.
    """
    topic = patterns.compile(authorization.topic)
    channels = tuple(patterns.compile(channel) for channel in authorization.channels)
    made = []
    if "subscribe" in authorization.permissions and channels:
        made.append(Permission(_CONSUMING, topic, channels))
    if "publish" in authorization.permissions and any(channel.matches("") for channel in channels):
        made.append(Permission(_PUBLISHING, topic, (EVERYTHING,)))
    return made


class Doorkeeper:
    """One connection's login. `ends_ns` is when it has to be asked for again, NEVER_NS if there is nothing to ask."""

    def __init__(self, logins: Logins, session: Session, monotonic_ns: Callable[[], int]) -> None:
        self._logins = logins
        self._session = session
        self._monotonic_ns = monotonic_ns
        self._credentials: Credentials | None = None
        self._attempt: Attempt | None = None
        self._held: list[Event] = []
        self._token = 0
        self.login: Login | None = None
        self.ends_ns = NEVER_NS

    @property
    def asking(self) -> bool:
        """Whether somebody is being asked; input waits for that."""
        return self._attempt is not None

    def begin(self, credentials: Credentials, effects: list[Effect]) -> Login | Denied | None:
        """Find out who shows these; None: that is being asked, `answered` will say."""
        self._credentials = credentials
        return self._renew(effects)

    def renew(self, event: Event, effects: list[Effect]) -> Login | Denied | None:
        """Find it out again. If that takes longer, the event is kept for `release`."""
        verdict = self._renew(effects)
        if verdict is None:
            self.hold([event])
        return verdict

    def expire(self) -> None:
        """The login's time is over: the session refuses what needs one until it has been renewed."""
        self.ends_ns = NEVER_NS
        self._session.expire()

    def answered(self, token: int, answer: object, effects: list[Effect]) -> Login | Denied | None:
        """Take the answer to what was asked; None: somebody else is being asked."""
        assert self._attempt is not None
        assert token == self._token
        verdict = self._attempt.take(answer)
        if verdict is None:
            self._ask(self._attempt, effects)
            return None
        self._attempt = None
        return self._concluded(verdict)

    def hold(self, events: Iterable[Event]) -> None:
        """Keep events until the answer is there."""
        self._held.extend(_kept(event) for event in events)

    def release(self) -> list[Event]:
        """Give back what was kept."""
        held, self._held = self._held, []
        return held

    def _renew(self, effects: list[Effect]) -> Login | Denied | None:
        assert self._credentials is not None
        verdict = self._logins.begin(self._credentials)
        if isinstance(verdict, Login | Denied):
            return self._concluded(verdict)
        self._attempt = verdict
        self._ask(verdict, effects)
        return None

    def _ask(self, attempt: Attempt, effects: list[Effect]) -> None:
        self._token += 1
        question = attempt.question
        effects.append(Ask(self._token, question, self._monotonic_ns() + 2 * question.timeout_ns + _SLACK_NS))

    def _concluded(self, verdict: Login | Denied) -> Login | Denied:
        if isinstance(verdict, Login):
            self.login = verdict
            self._session.login(verdict.principal)
            lifetime_ns = verdict.lifetime_ns
            self.ends_ns = NEVER_NS if lifetime_ns is None else min(NEVER_NS, self._monotonic_ns() + lifetime_ns)
        return verdict


def _kept(event: Event) -> Event:
    """Copy what lies in the view that was fed. The decoder's own arrays stay: it is not fed while somebody is asked."""
    return replace(event, batch=MessageBatch.of(event.batch.bodies())) if isinstance(event, Publish) else event
