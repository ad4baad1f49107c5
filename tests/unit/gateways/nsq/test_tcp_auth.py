"""Playbooks with AUTH: what a client sends, who is asked, and what the gateway wants to happen."""

from __future__ import annotations

import hashlib
import struct
from typing import TYPE_CHECKING

import pytest

from polymq.core.access import STRANGER, Action, Permission, Principal
from polymq.core.patterns import EVERYTHING
from polymq.gateways.contract import Peer
from polymq.gateways.effects import Ask, Close, Pause, Send, SendAfter, TimerName, Upgrade
from polymq.gateways.login import Keys, Login
from polymq.gateways.nsq.auth import AuthServers
from polymq.gateways.nsq.tcp import NsqGateway
from polymq.protocols.http.client import Answer, Failure
from polymq.protocols.nsq.encode import OK_FRAME, error_frame, response_frame
from polymq.protocols.nsq.settings import NsqSettings
from polymq.wire.snappy import SnappyLayer
from tests.unit.core.conftest import SECOND_NS, World
from tests.unit.gateways.nsq.test_auth import authorization, reply
from tests.unit.gateways.nsq.test_tcp import Client, identify, publish, texts

if TYPE_CHECKING:
    from polymq.gateways.effects import Effect
    from polymq.gateways.login import Logins

ANSWER = b'{"identity":"me","identity_url":"http://me.invalid/\\u003c\\u0026\\u003e","permission_count":1}'
EVERYTHING_ALLOWED = authorization()


def auth(secret: bytes = b"planted") -> bytes:
    return b"AUTH\n" + struct.pack(">I", len(secret)) + secret


def mpub(topic: bytes, *bodies: bytes) -> bytes:
    inner = struct.pack(">I", len(bodies)) + b"".join(struct.pack(">I", len(body)) + body for body in bodies)
    return b"MPUB %b\n%b%b" % (topic, struct.pack(">I", len(inner)), inner)


class GuardedClient(Client):
    """A connection that has to say who it is; the test plays the authentication server."""

    def __init__(self, world: World, logins: Logins | None = None) -> None:
        self.logins = logins or AuthServers(["auth.invalid:81"], lambda _: 0)
        self.questions: list[Ask] = []
        super().__init__(world)
        self.gateway = NsqGateway(
            world.broker.session(STRANGER),
            Peer("10.0.0.7", 4711),
            NsqSettings(auth_required=True),
            world.clock.monotonic_ns,
            logins=self.logins,
        )
        self.rest = b""
        self.send(b"  V2")

    def send(self, data: bytes) -> list[Effect]:
        """Send, unless input waits for an answer, as the pump does."""
        if self.asking:
            self.rest += data
            return []
        effects: list[Effect] = []
        buffer = bytearray(self.rest + data)
        if len(buffer) < self.gateway.need:
            self.rest = bytes(buffer)
            return effects
        consumed = self.gateway.feed(memoryview(buffer), effects)
        self.rest = bytes(buffer[consumed:])
        buffer[:] = b"?" * len(buffer)  # the view is only valid during the call
        self._note(effects)
        return effects

    @property
    def asking(self) -> bool:
        return bool(self.questions) and self.questions[-1] is not None and not self._answered

    _answered = True

    def _note(self, effects: list[Effect]) -> None:
        asked = [effect for effect in effects if isinstance(effect, Ask)]
        if asked:
            assert not texts(effects[effects.index(asked[0]) :]), "nothing is said behind a question"
            self.questions += asked
            self._answered = False

    def answer(self, answer: object) -> list[Effect]:
        """Give the answer; then the pump feeds what has come meanwhile."""
        self._answered = True
        effects: list[Effect] = []
        self.gateway.answered(self.questions[-1].token, answer, effects)
        self._note(effects)
        if self.rest and not self.asking and not any(isinstance(effect, Close) for effect in effects):
            rest, self.rest = self.rest, b""
            effects += self.send(rest)
        return effects

    def login(self, *authorizations: object, **changes: object) -> None:
        (question,) = self.send(auth())
        assert isinstance(question, Ask)
        assert texts(self.answer(reply(*(authorizations or (EVERYTHING_ALLOWED,)), **changes)))[0].startswith(b"\0\0\0")


def only(effects: list[Effect]) -> bytes:
    """The one thing that is said."""
    (text,) = texts(effects)
    return text


def ended(effects: list[Effect]) -> bool:
    return any(isinstance(effect, Close) for effect in effects)


def test_a_client_logs_in_and_publishes(single: World) -> None:
    client = GuardedClient(single)
    assert b'"auth_required":true' in only([effect for effect in client.send(identify()) if isinstance(effect, Send)])
    (question,) = client.send(auth() + publish(b"t", b"a"))
    assert isinstance(question, Ask)
    assert question.deadline_ns == single.clock.monotonic_ns() + 11 * SECOND_NS
    effects = client.answer(reply(EVERYTHING_ALLOWED))
    assert texts(effects) == [response_frame(ANSWER), OK_FRAME]


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (publish(b"t", b"a"), b"PUB"),
        (mpub(b"t", b"a"), b"MPUB"),
        (b"MPUB t\n\0\0\0\x20", b"MPUB"),
        (b"MPUB t\n\0\0\0\0", b"MPUB"),
        (b"DPUB t 100\n\0\0\0\1a", b"DPUB"),
        (b"SUB t c\n", b"SUB"),
        (publish(b"t#ephemeral", b"a"), b"PUB"),
    ],
)
def test_nobody_does_anything_before_auth(single: World, command: bytes, name: bytes) -> None:
    client = GuardedClient(single)
    effects = client.send(command)
    assert only(effects) == error_frame(b"E_AUTH_FIRST AUTH required before " + name)
    assert ended(effects)
    assert single.broker.catalogue.topics == {}


def test_the_body_of_a_publish_comes_before_the_question_who_it_is(single: World) -> None:
    client = GuardedClient(single)
    assert client.send(b"PUB t\n\0\0\0\2a") == [] or not texts(client.send(b""))
    assert only(client.send(b"b")) == error_frame(b"E_AUTH_FIRST AUTH required before PUB")


def test_without_logins_auth_is_disabled(single: World) -> None:
    client = Client(single)
    assert only(client.send(auth())) == error_frame(b"E_AUTH_DISABLED AUTH disabled")


@pytest.mark.parametrize("answer", [None, Failure("hung up"), Answer(500), reply(ttl=0)])
def test_a_server_that_cannot_be_used(single: World, answer: object, caplog: pytest.LogCaptureFixture) -> None:
    client = GuardedClient(single)
    client.send(auth())
    effects = client.answer(answer)
    assert only(effects) == error_frame(b"E_AUTH_FAILED AUTH failed")
    assert ended(effects)
    assert "AUTH failed: http://auth.invalid:81/auth: " in caplog.text
    assert "planted" not in caplog.text


def test_a_secret_without_authorizations(single: World) -> None:
    client = GuardedClient(single)
    client.send(auth())
    effects = client.answer(reply())
    assert only(effects) == error_frame(b"E_UNAUTHORIZED AUTH no authorizations found")
    assert ended(effects)


def test_auth_comes_once(single: World) -> None:
    client = GuardedClient(single)
    client.login()
    assert only(client.send(auth())) == error_frame(b"E_INVALID AUTH already set")


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (publish(b"nok", b"a"), b'E_UNAUTHORIZED AUTH failed for PUB on "nok" ""'),
        (mpub(b"nok", b"a"), b'E_UNAUTHORIZED AUTH failed for MPUB on "nok" ""'),
        (b"MPUB nok\n\0\0\0\x20", b'E_UNAUTHORIZED AUTH failed for MPUB on "nok" ""'),
        (b"DPUB nok 0\n\0\0\0\1a", b'E_UNAUTHORIZED AUTH failed for DPUB on "nok" ""'),
        (b"SUB nok b\n", b'E_UNAUTHORIZED AUTH failed for SUB on "nok" "b"'),
    ],
)
def test_what_is_not_allowed_is_refused(single: World, command: bytes, text: bytes) -> None:
    client = GuardedClient(single)
    client.login(authorization("^ok$"))
    effects = client.send(command)
    assert only(effects) == error_frame(text)
    assert ended(effects)
    assert single.broker.catalogue.topics == {}


def test_who_is_there_is_shown(single: World) -> None:
    client = GuardedClient(single)
    assert not client.gateway._session.peer.authenticated
    client.login()
    peer = client.gateway._session.peer
    assert (peer.authenticated, peer.identity, peer.identity_url) == (True, "me", "http://me.invalid/<&>")
    client.send(identify(client_id="x"))
    assert client.gateway._session.peer.authenticated


# The login's time


def outlived(world: World, ttl: int = 2) -> GuardedClient:
    """A client whose login is over."""
    client = GuardedClient(world)
    client.login(ttl=ttl)
    client.send(publish(b"t", b"a"))
    world.clock.now_ns += ttl * SECOND_NS
    return client


def test_within_its_time_nobody_is_asked_again(single: World) -> None:
    client = GuardedClient(single)
    client.login(ttl=2)
    for _ in range(5):
        assert only(client.send(publish(b"t", b"a"))) == OK_FRAME
    assert len(client.questions) == 1


def test_it_is_renewed_by_the_command_that_needs_it(single: World) -> None:
    client = outlived(single)
    assert client.send(b"NOP\n") == []
    (question,) = client.send(publish(b"t", b"b") * 3 + publish(b"u", b"c") + b"NOP\n")
    assert isinstance(question, Ask)
    assert question.request == client.questions[0].request, "with the same secret"
    client.rest += publish(b"t", b"later")
    effects = client.answer(reply(EVERYTHING_ALLOWED, ttl=2))
    assert texts(effects) == [OK_FRAME * 4, OK_FRAME]
    client.turn()
    assert {topic.name: topic.message_count for topic in single.broker.catalogue.topics.values()} == {"t": 5, "u": 1}
    client.send(b"SUB t c\nRDY 9\n")
    client.turn()
    assert [body for _, _, body in client.messages()] == [b"a", b"b", b"b", b"b", b"later"]
    assert only(client.send(publish(b"u", b"d"))) == OK_FRAME
    assert len(client.questions) == 2


@pytest.mark.parametrize(
    "command", [publish(b"t", b"b"), mpub(b"t", b"b", b"c"), b"DPUB t 0\n\0\0\0\1b", b"SUB t c\n", publish(b"e#ephemeral", b"x")]
)
def test_every_command_that_needs_it_renews_it(single: World, command: bytes) -> None:
    client = outlived(single)
    assert isinstance(client.send(command)[-1], Ask)
    assert only(client.answer(reply(EVERYTHING_ALLOWED))) == OK_FRAME


def test_it_is_renewed_before_the_body_of_an_mpub(single: World) -> None:
    client = outlived(single)
    whole = mpub(b"u", b"first", b"second")
    assert isinstance(client.send(whole[:12])[-1], Ask)
    client.send(whole[12:-3])
    assert texts(client.answer(reply(EVERYTHING_ALLOWED))) == []
    assert only(client.send(whole[-3:])) == OK_FRAME
    client.turn()
    assert single.view("u").held == 2


def test_what_waits_may_end_in_an_upgrade(single: World) -> None:
    client = outlived(single)
    client.send(publish(b"t", b"b") + identify(snappy=True))
    effects = client.answer(reply(EVERYTHING_ALLOWED))
    assert texts(effects)[0] == OK_FRAME
    assert any(isinstance(effect, Pause) for effect in effects)
    assert not client.gateway._upgrading, "the next input is read as a whole"
    (upgrade,) = (effect for effect in client.timer(TimerName.HANDSHAKE) if isinstance(effect, Upgrade))
    assert isinstance(upgrade.layer, SnappyLayer)
    effects = client.send(publish(b"t", b"c") + identify() + publish(b"t", b"d"))
    assert [texts(effects)[index] for index in (0, -1)] == [OK_FRAME, OK_FRAME]


def test_a_right_that_was_taken_away(single: World) -> None:
    client = outlived(single)
    client.send(publish(b"t", b"b"))
    effects = client.answer(reply(authorization("^u$")))
    assert only(effects) == error_frame(b'E_UNAUTHORIZED AUTH failed for PUB on "t" ""')
    assert ended(effects)


def test_all_rights_taken_away(single: World) -> None:
    client = outlived(single)
    client.send(b"SUB t c\n")
    assert only(client.answer(reply())) == error_frame(b'E_UNAUTHORIZED AUTH failed for SUB on "t" "c"')


def test_a_server_that_is_gone_when_it_is_renewed(single: World) -> None:
    client = outlived(single)
    client.send(publish(b"t", b"b"))
    effects = client.answer(Failure("cannot connect"))
    assert only(effects) == error_frame(b"E_AUTH_FAILED AUTH failed")
    assert ended(effects)
    client.turn()
    assert single.view("t").held == 1


def test_answers_before_the_question_go_out(single: World) -> None:
    client = GuardedClient(single)
    client.login(authorization("^t$"), ttl=2)
    client.send(publish(b"t", b"a"))
    single.clock.now_ns += 2 * SECOND_NS
    client.send(publish(b"t", b"b"))
    effects = client.answer(reply(authorization("^t$"), ttl=2))
    assert texts(effects) == [OK_FRAME]


def test_a_subscription_outlives_its_login(single: World) -> None:
    client = GuardedClient(single)
    client.login(ttl=2)
    client.send(publish(b"t", b"one") + b"SUB t c\nRDY 5\n")
    client.turn()
    ((_, first, body),) = client.messages()
    assert body == b"one"
    single.clock.now_ns += 3 * SECOND_NS
    single.publish("t", b"two")
    client.turn()
    ((_, second, body),) = client.messages()
    assert body == b"two"
    assert client.send(b"FIN %b\n" % first) == []
    # What comes behind a command that has to wait is not forgotten, and keeps its order.
    (question,) = client.send(publish(b"t", b"x") + b"FIN %b\nREQ %b 0\nNOP\n" % (second, second))
    assert isinstance(question, Ask)
    effects = client.answer(reply(EVERYTHING_ALLOWED))
    assert texts(effects)[0] == OK_FRAME
    assert b"E_REQ_FAILED" in texts(effects)[1], "it was finished before"


def test_whoever_waits_for_us_is_not_called_silent(single: World) -> None:
    client = GuardedClient(single)
    client.send(identify(heartbeat_interval=1000))
    client.send(auth())
    single.clock.now_ns += 3 * SECOND_NS
    effects = client.timer(TimerName.READ_DEADLINE)
    assert not ended(effects)
    client.answer(reply(EVERYTHING_ALLOWED))
    single.clock.now_ns += 3 * SECOND_NS
    assert ended(client.timer(TimerName.READ_DEADLINE))


def test_the_first_command_may_be_auth(single: World) -> None:
    client = GuardedClient.__new__(GuardedClient)
    client.questions = []
    client.world, client.rest = single, b""
    client.gateway = NsqGateway(
        single.broker.session(STRANGER),
        Peer("10.0.0.7", 4711),
        NsqSettings(),
        single.clock.monotonic_ns,
        logins=AuthServers(["a:1"], lambda _: 0),
    )
    effects = client.send(b"  V2" + auth())
    assert [type(effect).__name__ for effect in effects] == ["Ask", "SetTimer", "SetTimer"], "heartbeats have begun"


# Keys


def test_a_key_needs_nobody_to_ask(single: World) -> None:
    permission = Permission(frozenset(Action), EVERYTHING, (EVERYTHING,))
    keys = Keys({hashlib.sha256(b"planted").digest(): Login(Principal("ops", permissions=(permission,)), 1)})
    client = GuardedClient(single, keys)
    effects = client.send(auth() + publish(b"t", b"a") + b"SUB t c\n")
    assert texts(effects) == [response_frame(b'{"identity":"ops","identity_url":"","permission_count":1}'), OK_FRAME, OK_FRAME]
    single.clock.now_ns += 10**6 * SECOND_NS
    assert only(client.send(publish(b"u", b"a"))) == OK_FRAME
    assert any(isinstance(effect, SendAfter) for effect in effects)


def test_a_wrong_key(single: World, caplog: pytest.LogCaptureFixture) -> None:
    client = GuardedClient(single, Keys({}))
    assert only(client.send(auth())) == error_frame(b"E_AUTH_FAILED AUTH failed")
    assert "AUTH failed: the secret is not known here" in caplog.text
