"""Which endpoint answers, and what is said when none does, as httprouter does it behind nsqd."""

from __future__ import annotations

import pytest

from polymq.protocols.http.decode import BodyRule
from polymq.protocols.http.router import Route, Router
from polymq.protocols.http.target import parse_query
from polymq.wire.exchange import Request, Response, Retry

PUB = BodyRule(size_bytes_max=7, reads=True)


def echo(request: Request, context: str) -> Response:
    text = f"{context} {request.method} {request.path} {dict(request.parameters)}"
    return Response(body=text.encode())


def refuse(status: int) -> Response:
    return Response(status, (("X-Refused", "yes"),), b"no")


ROUTER = Router(
    [
        Route("GET", "/ping", echo),
        Route("POST", "/pub", echo, PUB),
        Route("GET", "/config/{opt}", echo),
        Route("PUT", "/config/{opt}", echo),
        Route("GET", "/v1/topics/{name}/{partition}/records", echo),
    ],
    refuse=refuse,
)


def ask(method: str, target: str, origin: str = "") -> Response:
    path, _, query = target.partition("?")
    answer = ROUTER.answer(Request(method, path, query=query, arguments=parse_query(query), origin=origin), "context")
    assert not isinstance(answer, Retry)
    return answer


def test_exact_path() -> None:
    assert ask("GET", "/ping").body == b"context GET /ping {}"


def test_parameters() -> None:
    assert ask("GET", "/config/a").body == b"context GET /config/a {'opt': 'a'}"
    body = ask("GET", "/v1/topics/t/0/records").body
    assert isinstance(body, bytes)
    assert body.endswith(b"{'name': 't', 'partition': '0'}")


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("POST", "/ping", "GET, OPTIONS"),
        ("HEAD", "/ping", "GET, OPTIONS"),
        ("get", "/ping", "GET, OPTIONS"),
        ("GET", "/pub", "OPTIONS, POST"),
        ("DELETE", "/config/x", "GET, OPTIONS, PUT"),
        ("GET", "*", "GET, OPTIONS, POST, PUT"),
    ],
)
def test_other_methods_are_named(method: str, path: str, allow: str) -> None:
    answer = ask(method, path)
    assert (answer.status, answer.body) == (405, b"no")
    assert answer.headers == (("X-Refused", "yes"), ("Allow", allow))


@pytest.mark.parametrize("path", ["/", "//", "/nope", "/config", "/config/", "/config/a/b", "/ping/x", "", "/pub/"])
def test_unknown_paths(path: str) -> None:
    assert ask("GET", path).status == 404


def test_options() -> None:
    assert ask("OPTIONS", "/pub") == Response(headers=(("Allow", "OPTIONS, POST"),))
    assert ask("OPTIONS", "*") == Response()
    assert ask("OPTIONS", "/nope").status == 404


@pytest.mark.parametrize(
    ("target", "location"),
    [
        ("/ping/", "/ping"),
        ("/PING", "/ping"),
        ("//ping", "/ping"),
        ("/a/../ping", "/ping"),
        ("/x/../ping/.", "/ping"),
        ("/Ping/?a=b&c=%3c", "/ping?a=b&c=%3c"),
        ("/config/log_level/", "/config/log_level"),
        ("/CONFIG/Log_Level", "/config/Log_Level"),
        ("/config/é !/", "/config/%C3%A9%20%21"),
    ],
)
def test_redirects_of_get(target: str, location: str) -> None:
    answer = ask("GET", target)
    assert answer.status == 301
    assert answer.headers == (("Location", location), ("Content-Type", "text/html; charset=utf-8"))


def test_redirect_bodies_are_escaped() -> None:
    assert ask("GET", '/ping/?<x>="q"&\'').body == (b'<a href="/ping?&lt;x&gt;=&#34;q&#34;&amp;&#39;">Moved Permanently</a>.\n\n')


def test_redirects_of_other_methods() -> None:
    assert ask("POST", "/PUB/?topic=x") == Response(307, (("Location", "/pub?topic=x"),))


def test_redirects_keep_the_origin() -> None:
    assert ask("GET", "/ping/", origin="http://h").headers[0] == ("Location", "http://h/ping")


def test_body_rules() -> None:
    assert ROUTER.body_rule("POST", "/pub") is PUB
    assert not ROUTER.body_rule("GET", "/ping").reads
    assert not ROUTER.body_rule("GET", "/nope").reads
