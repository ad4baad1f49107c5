from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polymq import limits
from polymq.protocols.nsq.auth import Authorization, AuthReply, form, https_url, read_auth_reply, server_url

GOOD = {
    "ttl": 3600,
    "identity": "me",
    "identity_url": "http://me.invalid",
    "authorizations": [{"topic": "^a$", "channels": [".*", "b"], "permissions": ["subscribe", "publish"]}],
}


def reply(**changes: object) -> bytes:
    return json.dumps({**GOOD, **changes}).encode()


def test_a_reply_is_read() -> None:
    entry = Authorization("^a$", (".*", "b"), ("subscribe", "publish"))
    assert read_auth_reply(reply()) == AuthReply(3600, "me", "http://me.invalid", (entry,))


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"ttl":1}', AuthReply(1, "", "", ())),
        (b'{"TTL":1,"Identity":"x","unknown":{"a":[1.5]},"authorizations":null}', AuthReply(1, "x", "", ())),
        (b'{"ttl":1,"authorizations":[null,{}]}', AuthReply(1, "", "", (Authorization("", (), ()),) * 2)),
        (b'{"ttl":1,"authorizations":[{"channels":[null]}]}', AuthReply(1, "", "", (Authorization("", ("",), ()),))),
        (b'{"ttl":1,"identity":"\\ud800"}', AuthReply(1, "\ufffd", "", ())),
    ],
)
def test_what_go_takes_as_well(body: bytes, expected: AuthReply) -> None:
    assert read_auth_reply(body) == expected


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "the answer is not JSON of the right types"),
        (b"<html>", "the answer is not JSON of the right types"),
        (b"[" * 100_000, "the answer is not JSON of the right types"),
        (reply() + b"x", "the answer is not JSON of the right types"),
        (b"[]", "the answer is not JSON of the right types"),
        (b"null", "invalid TTL 0 (must be >0)"),
        (reply(ttl=0), "invalid TTL 0 (must be >0)"),
        (reply(ttl=-5), "invalid TTL -5 (must be >0)"),
        (reply(ttl="60"), "the answer is not JSON of the right types"),
        (reply(ttl=60.0), "the answer is not JSON of the right types"),
        (reply(identity=7), "the answer is not JSON of the right types"),
        (reply(authorizations={}), "the answer is not JSON of the right types"),
        (reply(authorizations=[7]), "the answer is not JSON of the right types"),
        (reply(authorizations=[{"topic": 7}]), "the answer is not JSON of the right types"),
        (reply(authorizations=[{"channels": "x"}]), "the answer is not JSON of the right types"),
        (reply(authorizations=[{"channels": [7]}]), "the answer is not JSON of the right types"),
        (reply(authorizations=[{"permissions": [True]}]), "the answer is not JSON of the right types"),
        (reply(authorizations=[{"permissions": ["manage"]}]), "unknown permission 'manage'"),
    ],
)
def test_what_cannot_be_used_has_a_reason(body: bytes, reason: str) -> None:
    assert read_auth_reply(body) == reason


def test_a_reply_may_only_have_so_many_patterns() -> None:
    entry = {"topic": "a", "channels": ["b"], "permissions": []}
    most = limits.LOGIN_PATTERNS_MAX // 2
    assert isinstance(read_auth_reply(reply(authorizations=[entry] * most)), AuthReply)
    assert read_auth_reply(reply(authorizations=[entry] * (most + 1))) == "more than 512 patterns"


@given(st.binary() | st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(
    st.sampled_from(["ttl", "Identity", "authorizations", "topic", "channels", "permissions"]), inner)).map(lambda v: json.dumps(v).encode()))  # fmt: skip
def test_any_reply_is_one_or_has_a_reason(body: bytes) -> None:
    assert isinstance(read_auth_reply(body), (AuthReply, str))


def test_arguments_are_written_as_go_writes_them() -> None:
    arguments = {"tls": b"false", "secret": b"se cret&x~\xff/", "remote_ip": b"127.0.0.1", "common_name": b""}
    assert form(arguments) == "common_name=&remote_ip=127.0.0.1&secret=se+cret%26x~%FF%2F&tls=false"


def test_an_address_is_a_host_and_port_or_a_url() -> None:
    assert server_url("127.0.0.1:5000") == "http://127.0.0.1:5000/auth"
    assert server_url("https://auth.invalid/v2/who") == "https://auth.invalid/v2/who"


@pytest.mark.parametrize(
    ("url", "body", "expected"),
    [
        ("http://h:1/auth?a=b", b'{"https_port":443}', "https://h:443/auth?a=b"),
        ("http://[::1]:1/auth", b'{"https_port":443}', "https://[::1]:443/auth"),
        ("https://h:1/auth", b'{"https_port":443}', None),
        ("http://h/auth", b'{"https_port":443}', None),
        ("http://h:1/auth", b'{"https_port":"443"}', None),
        ("http://h:1/auth", b'{"https_port":70000}', None),
        ("http://h:1/auth", b"{}", None),
        ("http://h:1/auth", b"forbidden", None),
    ],
)
def test_a_refusal_may_point_to_https(url: str, body: bytes, expected: str | None) -> None:
    assert https_url(url, body) == expected
