"""AUTH against polymq and nsqd, with the same authentication server: the same words, the same questions."""

from __future__ import annotations

import json
import socket
import ssl
import struct
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from polymq.clients.sync import Consumer, NsqOptions, Producer
from tests.interop.auth_server import AuthServer, auth_server, authorization, good
from tests.interop.conftest import chosen_kinds
from tests.interop.jobs import CLIENTS, Client, Step
from tests.interop.raw import Raw
from tests.interop.servers import Running, running

if TYPE_CHECKING:
    from collections.abc import Iterator
    from http.server import BaseHTTPRequestHandler

# Test certificate: CN test.invalid, its own authority.
IDENTITY = Path(__file__).parents[1] / "unit" / "wire" / "self_signed.pem"
ANSWER = b'{"identity":"me","identity_url":"http://me.invalid","permission_count":1}'


@dataclass(frozen=True)
class Guarded:
    """A server that wants AUTH, and who it asks."""

    server: Running
    auth: AuthServer


@pytest.fixture(scope="module", params=chosen_kinds())
def guarded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with (
        auth_server() as auth,
        running(request.param, tmp_path_factory.mktemp("auth"), options={"auth_http_addresses": auth.address}) as server,
    ):
        yield Guarded(server, auth)


def auth(secret: bytes) -> bytes:
    return b"AUTH\n" + struct.pack(">i", len(secret)) + secret


def pub(topic: str, body: bytes = b"x") -> bytes:
    return f"PUB {topic}\n".encode() + struct.pack(">i", len(body)) + body


def mpub(topic: str, *bodies: bytes) -> bytes:
    content = struct.pack(">i", len(bodies)) + b"".join(struct.pack(">i", len(body)) + body for body in bodies)
    return f"MPUB {topic}\n".encode() + struct.pack(">i", len(content)) + content


def dpub(topic: str, body: bytes = b"x") -> bytes:
    return f"DPUB {topic} 10\n".encode() + struct.pack(">i", len(body)) + body


def talk(server: Running, *commands: bytes) -> list[bytes]:
    """Send commands, each after the answer to the one before; the texts of the answers, b"" where the connection ended."""
    texts = []
    with Raw(server.tcp) as raw:
        assert json.loads(raw.settings)["auth_required"] is True
        for command in commands:
            try:
                raw.send(command)
                texts.append(raw.frame()[1])
            except (AssertionError, ConnectionError):
                texts.append(b"")
    return texts


# What is asked


def test_the_question_is_the_same(guarded: Guarded) -> None:
    secret = "se cret&x=ö"
    guarded.auth.answers[secret] = good()
    assert talk(guarded.server, auth(secret.encode())) == [ANSWER]
    assert guarded.auth.asked[-1] == {"path": "/auth", "common_name": "", "remote_ip": "127.0.0.1", "secret": secret, "tls": "false"}
    assert guarded.auth.heads[-1]["Accept"] == "application/vnd.nsq; version=1.0"


# Before, and after


@pytest.mark.parametrize(
    ("command", "name"),
    [(pub("t"), b"PUB"), (mpub("t", b"x"), b"MPUB"), (dpub("t"), b"DPUB"), (b"SUB t c\n", b"SUB"), (b"MPUB t\n", b"MPUB")],
)
def test_nothing_before_auth(guarded: Guarded, command: bytes, name: bytes) -> None:
    assert talk(guarded.server, command, b"NOP\n") == [b"E_AUTH_FIRST AUTH required before " + name, b""]


def test_auth_comes_once(guarded: Guarded) -> None:
    guarded.auth.answers["once"] = good()
    assert talk(guarded.server, auth(b"once"), auth(b"once"), b"NOP\n") == [ANSWER, b"E_INVALID AUTH already set", b""]


def test_auth_comes_before_sub(guarded: Guarded, topic: str) -> None:
    guarded.auth.answers["order"] = good()
    texts = talk(guarded.server, auth(b"order"), f"SUB {topic} c\n".encode(), auth(b"order"))
    assert texts == [ANSWER, b"OK", b"E_INVALID cannot AUTH in current state"]


def test_auth_may_be_the_first_command(guarded: Guarded) -> None:
    guarded.auth.answers["first"] = good()
    host, port = guarded.server.tcp.split(":")
    with socket.create_connection((host, int(port)), timeout=10) as client:
        client.sendall(b"  V2" + auth(b"first"))
        assert client.recv(1000)[8:] == ANSWER


def test_what_is_pipelined_behind_auth_waits_for_it(guarded: Guarded, topic: str) -> None:
    guarded.auth.answers["pipelined"] = good()
    with Raw(guarded.server.tcp) as raw:
        raw.send(auth(b"pipelined") + pub(topic) + mpub(topic, b"a", b"b") + f"SUB {topic} c\nRDY 10\n".encode())
        assert [raw.frame() for _ in range(4)] == [(0, ANSWER), (0, b"OK"), (0, b"OK"), (0, b"OK")]
        assert sorted(message.body for message in raw.take(3)) == [b"a", b"b", b"x"]


@pytest.mark.parametrize(
    ("entry", "command", "text"),
    [
        (authorization("ok"), pub("{}-xxokxx"), b"OK"),
        (authorization("^ok"), pub("{}-xxokxx"), b'E_UNAUTHORIZED AUTH failed for PUB on "{}-xxokxx" ""'),
        (authorization(".*", ("ch",)), pub("{}"), b'E_UNAUTHORIZED AUTH failed for PUB on "{}" ""'),
        (authorization(".*", ()), pub("{}"), b'E_UNAUTHORIZED AUTH failed for PUB on "{}" ""'),
        (authorization(".*", ("^$",)), pub("{}"), b"OK"),
        (authorization(".*", ("^$",)), b"SUB {} c\n", b'E_UNAUTHORIZED AUTH failed for SUB on "{}" "c"'),
        (authorization(".*", ("ch",)), b"SUB {} xchx\n", b"OK"),
        (authorization(".*", ("ch",)), b"SUB {} b\n", b'E_UNAUTHORIZED AUTH failed for SUB on "{}" "b"'),
        (authorization(".*", (".*",), ("subscribe",)), pub("{}"), b'E_UNAUTHORIZED AUTH failed for PUB on "{}" ""'),
        (authorization(".*", (".*",), ("subscribe",)), mpub("{}", b"a"), b'E_UNAUTHORIZED AUTH failed for MPUB on "{}" ""'),
        (authorization(".*", (".*",), ("subscribe",)), dpub("{}"), b'E_UNAUTHORIZED AUTH failed for DPUB on "{}" ""'),
        (authorization(".*", (".*",), ("publish",)), b"SUB {} c\n", b'E_UNAUTHORIZED AUTH failed for SUB on "{}" "c"'),
        (authorization(".*", (".*",), ()), pub("{}"), b'E_UNAUTHORIZED AUTH failed for PUB on "{}" ""'),
        (authorization("no", ("no",)), pub("a$b"), b'E_BAD_TOPIC PUB topic name "a$b" is not valid'),
        (authorization("no", ("no",)), b"SUB {} a$b\n", b'E_BAD_CHANNEL SUB channel name "a$b" is not valid'),
    ],
)
def test_what_an_entry_allows(guarded: Guarded, topic: str, entry: Any, command: bytes, text: bytes) -> None:
    guarded.auth.answers[topic] = good(entry)
    name = topic.encode()
    texts = talk(guarded.server, auth(name), command.replace(b"{}", name))
    assert texts == [ANSWER, text.replace(b"{}", name)]


def test_any_entry_is_enough(guarded: Guarded, topic: str) -> None:
    guarded.auth.answers[topic] = good(authorization("^a$"), authorization(".", (".*",), ("publish",)), authorization("^b$"))
    assert talk(guarded.server, auth(topic.encode()), pub(topic)) == [ANSWER.replace(b":1}", b":3}"), b"OK"]


# Answers that cannot be used


def body(**fields: object) -> tuple[int, bytes]:
    return 200, json.dumps(fields).encode()


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ((500, b"oops"), b"E_AUTH_FAILED AUTH failed"),
        ((403, b"forbidden"), b"E_AUTH_FAILED AUTH failed"),
        ((403, b'{"https_port":1}'), b"E_AUTH_FAILED AUTH failed"),
        ((204, b""), b"E_AUTH_FAILED AUTH failed"),
        ((200, b""), b"E_AUTH_FAILED AUTH failed"),
        ((200, b"<html>"), b"E_AUTH_FAILED AUTH failed"),
        ((200, b"null"), b"E_AUTH_FAILED AUTH failed"),
        ((200, b"[]"), b"E_AUTH_FAILED AUTH failed"),
        (good(ttl=0), b"E_AUTH_FAILED AUTH failed"),
        (good(ttl=-1), b"E_AUTH_FAILED AUTH failed"),
        (body(ttl="60"), b"E_AUTH_FAILED AUTH failed"),
        (body(ttl=60.0), b"E_AUTH_FAILED AUTH failed"),
        (good(authorization("(")), b"E_AUTH_FAILED AUTH failed"),
        (good(authorization(".", ("[",))), b"E_AUTH_FAILED AUTH failed"),
        (good(authorization(".", (".",), ("manage",))), b"E_AUTH_FAILED AUTH failed"),
        (good(identity=7), b"E_AUTH_FAILED AUTH failed"),
        (body(ttl=60), b"E_UNAUTHORIZED AUTH no authorizations found"),
        (body(ttl=60, authorizations=None), b"E_UNAUTHORIZED AUTH no authorizations found"),
        (body(TTL=60, Identity="a<b", Authorizations=[{}]), b'{"identity":"a\\u003cb","identity_url":"","permission_count":1}'),
        (body(ttl=60, authorizations=[None]), b'{"identity":"","identity_url":"","permission_count":1}'),
    ],
)
def test_what_the_server_makes_of_answers(guarded: Guarded, answer: tuple[int, bytes], text: bytes) -> None:
    guarded.auth.answers["answer"] = answer
    failed = text.startswith(b"E_")
    behind = [b"NOP\n"] if failed else []
    assert talk(guarded.server, auth(b"answer"), *behind) == [text, b""][: 1 + failed]


@pytest.mark.parametrize("how", ["hang_up", "talk_nonsense", "redirect_in_a_circle"])
def test_servers_that_misbehave(guarded: Guarded, how: str) -> None:
    guarded.auth.answers[how] = getattr(guarded.auth, how)
    assert talk(guarded.server, auth(how.encode())) == [b"E_AUTH_FAILED AUTH failed"]


# nsqd reads a flood for five seconds, and keeps all of it.
NEVER_ENDING = [(kind, how) for kind in chosen_kinds() for how in ("hang", "drip", "flood") if (kind, how) != ("nsqd", "flood")]


@pytest.mark.parametrize(("guarded", "how"), NEVER_ENDING, indirect=["guarded"])
def test_servers_that_never_end(guarded: Guarded, how: str, topic: str) -> None:
    guarded.auth.answers |= {how: getattr(guarded.auth, how), topic: good()}
    with Raw(guarded.server.tcp) as waiting:
        began = time.monotonic()
        waiting.send(auth(how.encode()))
        # Nobody else notices.
        for _ in range(5):
            assert talk(guarded.server, auth(topic.encode()), pub(topic)) == [ANSWER, b"OK"]
        assert time.monotonic() - began < 4
        assert waiting.frame() == (1, b"E_AUTH_FAILED AUTH failed")
        assert time.monotonic() - began < 7


def test_a_redirect_is_followed(guarded: Guarded) -> None:
    def elsewhere(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(307)
        handler.send_header("Location", handler.path.replace("moved", "arrived"))
        handler.end_headers()

    guarded.auth.answers |= {"moved": elsewhere, "arrived": good()}
    assert talk(guarded.server, auth(b"moved")) == [ANSWER]


# The login's time


def test_a_login_is_renewed_when_it_is_needed(guarded: Guarded, topic: str) -> None:
    secret = topic.encode()
    guarded.auth.answers[topic] = good(ttl=1)
    with Raw(guarded.server.tcp) as raw:
        raw.send(auth(secret))
        assert raw.frame() == (0, ANSWER)
        for _ in range(3):
            raw.ok(pub(topic))
        assert guarded.auth.count(topic) == 1
        time.sleep(1.2)  # real servers have no other clock
        raw.send(b"NOP\n")
        raw.ok(pub(topic))
        raw.ok(pub(topic))
        assert guarded.auth.count(topic) == 2
        time.sleep(1.2)  # real servers have no other clock
        raw.subscribe(topic, "c", ready=1)
        assert guarded.auth.count(topic) == 3
        guarded.auth.answers[topic] = good(authorization("^else$"), ttl=1)
        time.sleep(1.2)  # real servers have no other clock
        # What is subscribed stays so, whatever has been taken away.
        for _ in range(5):
            raw.finish(raw.message())
        raw.send(pub(topic))
        assert raw.frame() == (1, b'E_UNAUTHORIZED AUTH failed for PUB on "%b" ""' % secret)


def test_a_server_that_fails_when_a_login_is_renewed(guarded: Guarded, topic: str) -> None:
    guarded.auth.answers[topic] = good(ttl=1)
    with Raw(guarded.server.tcp) as raw:
        raw.send(auth(topic.encode()))
        assert raw.frame() == (0, ANSWER)
        guarded.auth.answers[topic] = (500, b"")
        time.sleep(1.2)  # real servers have no other clock
        raw.send(pub(topic) + pub(topic))
        assert raw.frame() == (1, b"E_AUTH_FAILED AUTH failed")


# Statistics, and HTTP


def test_statistics_show_who_is_there(guarded: Guarded, topic: str) -> None:
    guarded.auth.answers[topic] = good()
    with Raw(guarded.server.tcp) as raw:
        raw.send(auth(topic.encode()))
        assert raw.frame() == (0, ANSWER)
        raw.subscribe(topic, "c")
        (client,) = guarded.server.channel(topic, "c")["clients"]
    assert (client["authed"], client["auth_identity"], client["auth_identity_url"]) == (True, "me", "http://me.invalid")


def test_http_is_open(guarded: Guarded, topic: str) -> None:
    assert guarded.server.request("POST", f"/pub?topic={topic}", b"x") == (200, b"OK")


# Client libraries


@pytest.mark.cell("auth")
@pytest.mark.parametrize("client", [client for client in CLIENTS if "auth" not in client.cannot], ids=lambda client: client.name)
def test_libraries_publish_and_consume(guarded: Guarded, client: Client, topic: str) -> None:
    guarded.auth.answers[topic] = good(authorization(f"^{topic}$"))
    bodies = [b"%d" % number for number in range(200)]
    steps = [Step(bodies[:100]), *(Step([body]) for body in bodies[100:])]
    address = guarded.server.tcp
    # The channel is there first, so that it gets everything.
    with Raw(address) as raw:
        raw.send(auth(topic.encode()))
        assert raw.frame() == (0, ANSWER)
        raw.subscribe(topic, "ch")
        assert client.publish(address, topic, steps, auth_secret=topic) == len(bodies)
    deliveries = client.consume(address, topic, "ch", len(bodies), max_in_flight=20, auth_secret=topic)
    assert sorted(each.body for each in deliveries) == sorted(bodies)
    assert guarded.auth.count(topic) == 3


@pytest.mark.cell("auth", client="polymq.clients.nsq")
def test_our_client_publishes_and_consumes(guarded: Guarded, topic: str) -> None:
    guarded.auth.answers[topic] = good(authorization(f"^{topic}$"))
    options, bodies = NsqOptions(auth_secret=topic, deadline_seconds=10), [b"%d" % number for number in range(200)]
    with Producer(guarded.server.tcp, options) as producer, Consumer(guarded.server.tcp, topic, "ch", options) as consumer:
        producer.publish_many(topic, bodies)
        seen = []
        for message in consumer:
            seen.append(message.body)
            message.settle()
            if len(seen) == len(bodies):
                break
    assert sorted(seen) == sorted(bodies)
    assert guarded.auth.count(topic) == 2


# More servers than one


@pytest.mark.parametrize("kind", chosen_kinds())
def test_any_of_several_servers_is_enough(kind: str, tmp_path: Any) -> None:
    with auth_server() as first, auth_server() as second:
        first.answers["s"] = (500, b"")
        second.answers["s"] = good()
        dead = "127.0.0.1:1"
        with running(kind, tmp_path, options={"auth_http_addresses": f"{dead},{first.address},{second.address}"}) as server:
            for _ in range(5):
                assert talk(server, auth(b"s")) == [ANSWER]
        assert second.count("s") == 5


def test_by_post(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A later nsqd can do that as well; 1.3.0, the control, cannot."""
    monkeypatch.setenv("POLYMQ_NSQ_AUTH_HTTP_REQUEST_METHOD", "post")
    with auth_server() as auths:
        auths.answers["s<"] = good()
        with running("polymq", tmp_path, options={"auth_http_addresses": auths.address}) as server:
            assert talk(server, auth(b"s<")) == [ANSWER]
        assert auths.asked == [{"path": "/auth", "common_name": "", "remote_ip": "127.0.0.1", "secret": "s<", "tls": "false"}]


# Within TLS


@pytest.mark.parametrize("certificate", [False, True])
@pytest.mark.parametrize("kind", chosen_kinds())
def test_within_tls_the_server_is_told_so(kind: str, certificate: bool, tmp_path: Any) -> None:
    policy = {"tls_client_auth_policy": "require-verify", "tls_root_ca_file": str(IDENTITY)} if certificate else {}
    with auth_server() as auths:
        auths.answers["s"] = good()
        options = {"auth_http_addresses": auths.address, "tls_cert": str(IDENTITY), "tls_key": str(IDENTITY), **policy}
        with running(kind, tmp_path, options=options) as server, Raw(server.tcp, tls_v1=True) as raw:
            assert json.loads(raw.settings)["tls_v1"] is True
            context = ssl.create_default_context(cafile=str(IDENTITY))
            if certificate:
                context.load_cert_chain(IDENTITY)
            raw.socket = context.wrap_socket(raw.socket, server_hostname="test.invalid")
            assert raw.frame() == (0, b"OK")
            raw.send(auth(b"s"))
            assert raw.frame() == (0, ANSWER)
        (asked,) = auths.asked
    assert (asked["tls"], asked["common_name"]) == ("true", "test.invalid" if certificate else "")
