from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest

from polymq import limits
from polymq.core.access import Action, Permission, Principal
from polymq.core.patterns import EVERYTHING, compile_pattern
from polymq.gateways.contract import Peer
from polymq.gateways.http.guard import GuardedDoor, GuardedRouter, Guests, secret_of
from polymq.gateways.login import Credentials, FirstKeys, Keys, Login
from polymq.gateways.nsq.auth import AuthServers
from polymq.protocols.http.client import Failure, Question
from polymq.protocols.http.decode import BodyRule
from polymq.protocols.http.router import Route, Router
from polymq.wire.exchange import Request, Response
from tests.unit.core.conftest import SECOND_NS, World
from tests.unit.gateways.http.harness import Wire
from tests.unit.gateways.nsq.test_auth import authorization, reply

if TYPE_CHECKING:
    from collections.abc import Callable

    from polymq.core.session import Session

OPEN = b"HTTP/1.1 200 OK"


@dataclass(frozen=True)
class Context:
    who: Session | None


def show(request: Request, context: Context) -> Response:
    name = context.who.principal.name if context.who is not None else "anybody"
    return Response(body=f"{name}:{bytes(request.body_view).decode()}".encode())


def key(name: str, *actions: Action, topic: str = "") -> tuple[bytes, Login]:
    permission = Permission(frozenset(actions), compile_pattern(topic), (EVERYTHING,))
    return hashlib.sha256(name.encode()).digest(), Login(Principal(name, permissions=(permission,)), 1)


@dataclass(frozen=True)
class Certificate:
    peer_common_name: str


class Story:
    """A guarded door; the test plays the authentication server."""

    def __init__(self) -> None:
        self.world = World(1)
        self.asked: list[tuple[Question, Callable[[object], None]]] = []
        keys = Keys(dict([key("owner", *Action), key("reader", Action.READ, topic="^a$")]))
        logins = FirstKeys(keys, AuthServers(["auth.invalid:81"], lambda _: 0))
        self.cancelled = 0
        self.guests = Guests(self.world.broker, self.world.clock, logins, self.put)
        routes = [Route("POST", "/pub", show, BodyRule(100, reads=True)), Route("GET", "/ping", show), Route("PUT", "/config", show)]
        self.door = GuardedDoor(
            Router(routes, refuse=self.refuse),
            self.guests,
            with_session=lambda context, session: replace(context, who=session),
            refuse=self.refuse,
            open_paths=frozenset({"/ping"}),
            concerns_all=lambda request: Action.MANAGE if request.path == "/config" else None,
        )
        self.wire = self.connection()

    def put(self, question: Question, answered: Callable[[object], None]) -> Story:
        self.asked.append((question, answered))
        return self

    def cancel(self) -> None:
        """A question, as its `Asked`."""
        self.cancelled += 1

    def connection(self, host: str = "10.0.0.1", tls: Certificate | None = None) -> Wire[Context]:
        router = GuardedRouter(self.door, Peer(host, 4711), self.world.clock, tls)
        return Wire(router, Context(None), self.world.clock)

    @staticmethod
    def refuse(status: int) -> Response:
        return Response(status, body=str(status).encode())

    def ask(self, path: str = "/pub", secret: str = "", *, method: str = "POST", wire: Wire[Context] | None = None) -> str:
        """Send a request; the answer's last line, or nothing yet."""
        wire = wire or self.wire
        header = f"Authorization: Bearer {secret}\r\n" if secret else ""
        wire.output = b""
        wire.send(f"{method} {path} HTTP/1.1\r\nHost: h\r\n{header}Content-Length: 4\r\n\r\nbody".encode())
        return wire.output.decode().rpartition("\n")[2]


def test_a_question_that_cannot_be_asked_leaves_nothing_behind() -> None:
    story = Story()

    def cannot(_question: Question, _answered: Callable[[object], None]) -> Story:
        raise OSError("no certificates")

    guests = Guests(story.world.broker, story.world.clock, AuthServers(["auth.invalid:81"], lambda _: 0), cannot)
    for _ in range(2):
        with pytest.raises(OSError, match="no certificates"):
            guests.find(Credentials(b"planted"))


# Secrets


@pytest.mark.parametrize(
    ("header", "secret"),
    [
        (b"Bearer planted", b"planted"),
        (b"bearer  planted ", b"planted"),
        (b"Basic " + base64.b64encode(b"user:plan:ted"), b"plan:ted"),
        (b"Basic " + base64.b64encode(b":planted"), b"planted"),
        (b"Basic " + base64.b64encode(b"planted"), b""),
        (b"Basic !!!", b""),
        (b"Digest planted", b""),
        (b"Bearer", b""),
        (b"", b""),
    ],
)
def test_where_a_secret_is(header: bytes, secret: bytes) -> None:
    assert secret_of(Request("GET", "/", headers=((b"host", b"h"), (b"authorization", header)))) == secret


def test_it_is_not_taken_from_the_url() -> None:
    assert secret_of(Request("GET", "/", "secret=planted", arguments={"secret": "planted"})) == b""


# Keys


def test_without_a_secret_there_is_no_answer() -> None:
    story = Story()
    assert story.ask() == "401"
    assert b'\r\nWww-Authenticate: Bearer realm="polymq"\r\n' in story.wire.output
    assert story.ask(secret="owner") == "owner:body", "the connection goes on"


def test_a_health_check_knows_no_secret() -> None:
    assert Story().ask("/ping", method="GET") == "anybody:"


def test_what_concerns_all_is_for_who_may_do_it_everywhere() -> None:
    story = Story()
    assert story.ask("/config", "owner", method="PUT") == "anybody:", "the one context that there is"
    assert story.ask("/config", "reader", method="PUT") == "403"
    assert story.ask("/pub", "reader") == "reader:body"


def test_a_session_is_made_once() -> None:
    story = Story()
    for _ in range(3):
        story.ask(secret="owner")
    assert len(story.world.broker.sessions) == 2


# An authentication server


def test_somebody_who_has_to_be_asked_for_waits() -> None:
    story = Story()
    assert story.ask(secret="planted") == ""
    ((question, answered),) = story.asked
    assert "remote_ip=10.0.0.1&secret=planted" in question.url
    story.wire.send(b"GET /ping HTTP/1.1\r\nHost: h\r\n\r\n")
    story.wire.wait(SECOND_NS)
    assert story.wire.output == b"", "answers keep their order"
    answered(reply(authorization()))
    story.wire.wait(limits.HTTP_POLL_INTERVAL_NS)
    assert b"me:body" in story.wire.output, "the body was kept"
    assert story.wire.output.count(OPEN) == 2
    assert story.ask(secret="planted") == "me:body"
    assert len(story.asked) == 1, "who that is was remembered"


def test_it_is_asked_again_after_its_time() -> None:
    story = Story()
    story.ask(secret="planted")
    story.asked[0][1](reply(authorization(), ttl=60))
    story.wire.wait(59 * SECOND_NS)
    assert story.ask(secret="planted") == "me:body"
    story.wire.wait(60 * SECOND_NS)
    assert story.ask(secret="planted") == ""
    assert len(story.asked) == 2


def test_another_address_is_asked_for_itself() -> None:
    story = Story()
    story.ask(secret="planted")
    story.asked[0][1](reply(authorization()))
    story.wire.wait(limits.HTTP_POLL_INTERVAL_NS)
    assert story.ask(secret="planted", wire=story.connection()) == "me:body"
    story.ask(secret="planted", wire=story.connection("10.0.0.2"))
    assert len(story.asked) == 2


def test_an_authentication_server_is_told_of_tls_and_whose_certificate_it_is() -> None:
    story = Story()
    connections = [story.connection(tls=tls) for tls in (None, Certificate(""), Certificate("one"), Certificate("two"))]
    for wire in connections:
        story.ask(secret="planted", wire=wire)
        story.asked[-1][1](reply(authorization()))
    told = [question.url.partition("?")[2] for question, _ in story.asked]
    assert told == [
        "common_name=&remote_ip=10.0.0.1&secret=planted&tls=false",
        "common_name=&remote_ip=10.0.0.1&secret=planted&tls=true",
        "common_name=one&remote_ip=10.0.0.1&secret=planted&tls=true",
        "common_name=two&remote_ip=10.0.0.1&secret=planted&tls=true",
    ]
    for wire in connections:
        wire.wait(limits.HTTP_POLL_INTERVAL_NS)
        assert story.ask(secret="planted", wire=wire) == "me:body"
    assert len(story.asked) == 4, "who that is was remembered for each"


def test_two_that_wait_for_the_same() -> None:
    story = Story()
    other = story.connection()
    story.ask(secret="planted")
    story.ask(secret="planted", wire=other)
    for _, answered in story.asked:
        answered(reply(authorization()))
    for wire in (story.wire, other):
        wire.wait(limits.HTTP_POLL_INTERVAL_NS)
        assert b"me:body" in wire.output
    assert len(story.guests._guests) == 1
    assert len(story.world.broker.sessions) == 2


def test_one_question_is_enough_for_all_who_show_the_same() -> None:
    story = Story()
    wires = [story.connection() for _ in range(5)]
    for wire in wires:
        story.ask(secret="planted", wire=wire)
    assert len(story.asked) == 1
    story.asked[0][1](reply(authorization()))
    assert [wire.rings for wire in wires] == [1] * 5
    for wire in wires:
        wire.wake()
        assert b"me:body" in wire.output


def test_waiting_is_not_looking_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    story = Story()
    story.ask(secret="planted")
    looks = []
    later = GuardedRouter._later
    monkeypatch.setattr(GuardedRouter, "_later", lambda *arguments: looks.append(1) or later(*arguments))  # type: ignore[func-returns-value]
    story.wire.wait(5 * limits.HTTP_NET_INTERVAL_NS)
    story.asked[0][1](reply(authorization()))
    story.wire.wake()
    assert b"me:body" in story.wire.output
    assert len(looks) <= 5 + 1


def test_a_question_is_cancelled_when_nobody_waits_for_it() -> None:
    story = Story()
    other = story.connection()
    story.ask(secret="planted")
    story.ask(secret="planted", wire=other)
    story.wire.gateway.ended()
    assert story.cancelled == 0
    other.gateway.ended()
    assert story.cancelled == 1
    assert not story.guests._asking
    story.ask(secret="planted", wire=story.connection())
    assert len(story.asked) == 2, "asked again"


def test_who_leaves_after_the_answer_cancels_nothing() -> None:
    story = Story()
    story.ask(secret="planted")
    story.asked[0][1](reply(authorization()))
    story.wire.gateway.ended()
    assert story.cancelled == 0


@pytest.mark.parametrize("answer", [None, Failure("hung up"), reply(ttl=0)])
def test_who_cannot_be_asked_for_is_refused(answer: object, caplog: pytest.LogCaptureFixture) -> None:
    story = Story()
    story.ask(secret="planted")
    story.asked[0][1](answer)
    story.wire.wait(limits.HTTP_POLL_INTERVAL_NS)
    assert story.wire.output.startswith(b"HTTP/1.1 401 ")
    assert "login failed: http://auth.invalid:81/auth: " in caplog.text
    assert "planted" not in caplog.text


def test_only_so_many_are_remembered() -> None:
    story = Story()
    for index in range(limits.HTTP_GUESTS_MAX + 5):
        story.guests.admit(Credentials(b"%d" % index), Login(Principal("x"), 1))
    assert len(story.guests._guests) == limits.HTTP_GUESTS_MAX
    assert len(story.world.broker.sessions) == limits.HTTP_GUESTS_MAX + 1
