"""Logins by authentication servers: what is asked, and what the answers mean."""

from __future__ import annotations

import hashlib
import json
import logging
from typing import TYPE_CHECKING

import pytest

from polymq import limits
from polymq.core.access import Action, ByPermissions
from polymq.gateways.login import Attempt, Credentials, Denied, Login
from polymq.gateways.nsq.auth import AuthServers, auth_answer
from polymq.protocols.http.client import Answer, Failure, Question

if TYPE_CHECKING:
    from collections.abc import Sequence

SECOND_NS = 1_000_000_000
ME = Credentials(b"se cret&x", "127.0.0.1")


def authorization(topic: str = ".*", channels: Sequence[str] = (".*",), permissions: Sequence[str] = ("subscribe", "publish")) -> object:
    return {"topic": topic, "channels": list(channels), "permissions": list(permissions)}


def reply(*authorizations: object, **changes: object) -> Answer:
    body = {"ttl": 60, "identity": "me", "identity_url": "http://me.invalid/<&>", "authorizations": list(authorizations), **changes}
    return Answer(200, (), json.dumps(body).encode())


def begin(servers: AuthServers, credentials: Credentials = ME) -> Attempt:
    attempt = servers.begin(credentials)
    assert not isinstance(attempt, Denied)
    return attempt


def one(method: str = "get", address: str = "auth.invalid:81") -> AuthServers:
    return AuthServers([address], lambda _: 0, method=method, connect_timeout_ns=1, request_timeout_ns=2)


def logged_in(*authorizations: object) -> Login:
    login = begin(one()).take(reply(*authorizations))
    assert isinstance(login, Login)
    return login


def test_the_question_is_nsqds() -> None:
    question = begin(one()).question
    assert question == Question(
        "http://auth.invalid:81/auth?common_name=&remote_ip=127.0.0.1&secret=se+cret%26x&tls=false",
        timeout_ns=2,
        connect_timeout_ns=1,
        headers=(("Accept", "application/vnd.nsq; version=1.0"),),
    )


def test_the_question_as_a_body() -> None:
    question = begin(one("post"), Credentials(b"\xff<", "::1", tls=True, common_name="test.local")).question
    assert (question.method, question.url) == ("POST", "http://auth.invalid:81/auth")
    assert question.headers[1] == ("Content-Type", "application/json")
    assert question.body == ('{"common_name":["test.local"],"remote_ip":["::1"],"secret":["\ufffd\\u003c"],"tls":["true"]}'.encode())


def test_a_url_is_used_as_it_is() -> None:
    assert begin(one(address="https://auth.invalid/who?tenant=7")).question.url.startswith("https://auth.invalid/who?tenant=7&common_name=")


def test_an_answer_is_a_login() -> None:
    login = logged_in(authorization(), authorization())
    assert login.permission_count == 2
    assert login.lifetime_ns == 60 * SECOND_NS
    assert auth_answer(login) == b'{"identity":"me","identity_url":"http://me.invalid/\\u003c\\u0026\\u003e","permission_count":2}'


@pytest.mark.parametrize(
    ("entry", "topic", "channel", "allowed"),
    [
        (authorization("ok"), "xxokxx", "", True),
        (authorization("ok"), "nok2", "c", True),
        (authorization("^ok$"), "xxokxx", "", False),
        (authorization("t", ["ch"]), "t", "", False),
        (authorization("t", ["ch"]), "t", "xchx", True),
        (authorization("t", ["ch"]), "t", "other", False),
        (authorization("t", []), "t", "", False),
        (authorization("t", []), "t", "ch", False),
        (authorization("t", ["^$"]), "t", "", True),
        (authorization("t", ["^$"]), "t", "ch", False),
        (authorization("t", [".*"], ["subscribe"]), "t", "", False),
        (authorization("t", [".*"], ["publish"]), "t", "ch", False),
        (authorization("t", [".*"], ["publish", "publish"]), "t", "", True),
        (authorization("t", [".*"], []), "t", "", False),
    ],
)
def test_what_an_entry_allows(entry: object, topic: str, channel: str, allowed: bool) -> None:
    action = Action.SUBSCRIBE if channel else Action.PUBLISH
    assert ByPermissions().allows(logged_in(entry).principal, action, topic, channel) is allowed


def test_a_list_of_a_hundred_names_is_a_pattern_and_not_all_may_be() -> None:
    names = [[hashlib.sha256(b"%d %d" % (number, index)).hexdigest() for index in range(100)] for number in range(17)]
    entries = [authorization(f"^({'|'.join(each)})$") for each in names]
    login = logged_in(*entries[:16])
    assert ByPermissions().allows(login.principal, Action.PUBLISH, names[15][99], "")
    assert not ByPermissions().allows(login.principal, Action.PUBLISH, names[15][99] + "x", "")
    verdict = begin(one()).take(reply(*entries))
    assert isinstance(verdict, Denied)
    assert verdict.reason.endswith("a pattern cannot be used: more than 16 are larger than 64 KiB")


def test_nothing_is_managed_by_such_a_login() -> None:
    principal = logged_in(authorization()).principal
    assert ByPermissions().allows(principal, Action.READ, "t", "")
    assert not ByPermissions().allows(principal, Action.MANAGE, "t", "")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (None, "no answer in time"),
        (Failure("cannot connect: Connection refused"), "cannot connect: Connection refused"),
        (Answer(500, (), b"oops"), "answered 500"),
        (Answer(403, (), b"forbidden"), "answered 403"),
        (Answer(200, (), b"<html>"), "the answer is not JSON of the right types"),
        (reply(authorization("(")), "a pattern cannot be used: missing ): ("),
        (reply(authorization("a", ["["])), "a pattern cannot be used: missing ]: ["),
        (reply(ttl=0), "invalid TTL 0 (must be >0)"),
    ],
)
def test_what_goes_wrong_has_a_reason_without_the_secret(answer: object, reason: str) -> None:
    verdict = begin(one(), Credentials(b"planted")).take(answer)
    assert verdict == Denied(f"http://auth.invalid:81/auth: {reason}")


def test_the_next_server_is_asked_until_one_answers(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    servers = AuthServers(["a:1", "b:2", "c:3"], lambda count: count - 1)
    attempt = begin(servers, Credentials(b"planted"))
    asked = []
    for _ in range(2):
        asked.append(attempt.question.shown)
        assert attempt.take(Failure("hung up")) is None
    asked.append(attempt.question.shown)
    assert isinstance(attempt.take(reply(authorization())), Login)
    assert asked == ["http://c:3/auth", "http://a:1/auth", "http://b:2/auth"]
    assert "http://c:3/auth: hung up; trying the next" in caplog.text
    assert "planted" not in caplog.text


def test_a_refusal_may_point_to_https_once() -> None:
    attempt = begin(one())
    plain = attempt.question.url
    assert attempt.take(Answer(403, (), b'{"https_port":444}')) is None
    assert attempt.question.url == plain.replace("http://auth.invalid:81/", "https://auth.invalid:444/")
    assert attempt.take(Answer(403, (), b'{"https_port":444}')) == Denied("https://auth.invalid:444/auth: answered 403")


def test_a_secret_may_only_be_so_long() -> None:
    most = limits.SECRET_SIZE_BYTES_MAX
    begin(one(), Credentials(b"x" * most))
    assert one().begin(Credentials(b"x" * (most + 1))) == Denied(f"a secret of {most + 1} bytes")
