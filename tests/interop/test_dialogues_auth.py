"""AUTH, word by word as nsqd 1.3.0: which error comes first, what is read before it, and what a connection may do afterwards."""

from __future__ import annotations

import contextlib
import json
import struct
import time
from typing import TYPE_CHECKING

import pytest

from tests.interop.auth_server import AuthServer, auth_server, authorization, good
from tests.interop.dialogue import Case, Cases, Dialogue, Playing, Stage, Transcripts, dpub, identify, judge, mpub, played, pub, sized
from tests.interop.servers import KINDS, running

if TYPE_CHECKING:
    from collections.abc import Iterator

CASES = Cases()
case = CASES.case


@pytest.fixture(scope="module")
def transcripts(tmp_path_factory: pytest.TempPathFactory) -> Transcripts:
    @contextlib.contextmanager
    def playing() -> Iterator[Playing]:
        with contextlib.ExitStack() as stack:
            auths = {kind: stack.enter_context(auth_server()) for kind in KINDS}
            servers = {
                "": {
                    kind: stack.enter_context(
                        running(
                            kind,
                            tmp_path_factory.mktemp(kind),
                            options={"auth_http_addresses": auths[kind].address, "max_body_size": "2000", "max_msg_size": "1500"},
                        )
                    )
                    for kind in KINDS
                }
            }
            yield servers, {"auths": auths}

    return played(CASES, playing)


@pytest.mark.parametrize("each", CASES.all, ids=lambda each: each.name)
def test_both_say_the_same(each: Case, transcripts: Transcripts) -> None:
    judge(each, transcripts)


def auth(secret: str) -> bytes:
    return b"AUTH\n" + sized(secret.encode())


def keeper(stage: Stage) -> AuthServer:
    """Find the server that this stage's server asks."""
    found: AuthServer = stage.more["auths"][stage.server.kind]
    return found


def known(stage: Stage, secret: str, *entries: object, ttl: int = 3600) -> Dialogue:
    """Log in with a secret that allows this."""
    keeper(stage).answers[secret] = good(*entries, ttl=ttl)
    client = stage.connect(secret)
    client.say("AUTH", auth(secret))
    return client


def wrong_and_right() -> dict[str, bytes]:
    """Commands that something else may be wrong with than that nobody has logged in."""
    return {
        "PUB": pub("t"),
        "PUB without a topic": b"PUB\n",
        "PUB of a bad topic": pub("a$b"),
        "PUB of nothing": b"PUB t\n" + struct.pack(">i", 0),
        "PUB of too much": b"PUB t\n" + struct.pack(">i", 1 << 21),
        "PUB of less than nothing": b"PUB t\n" + struct.pack(">i", -1),
        "PUB, the body missing": b"PUB t\n" + struct.pack(">i", 5) + b"ab",
        "MPUB": mpub("t", b"x"),
        "MPUB without a topic": b"MPUB\n",
        "MPUB of a bad topic": mpub("a$b", b"x"),
        "MPUB of nothing": b"MPUB t\n" + struct.pack(">i", 0),
        "MPUB of an empty message": mpub("t", b""),
        "MPUB, the body missing": b"MPUB t\n",
        "DPUB": dpub("t", 1),
        "DPUB without a time": b"DPUB t\n",
        "DPUB with a bad time": b"DPUB t x\n" + sized(b"x"),
        "DPUB with too long a time": dpub("t", 3_600_001),
        "DPUB of a bad topic": dpub("a$b", 1),
        "DPUB of nothing": b"DPUB t 1\n" + struct.pack(">i", 0),
        "DPUB, the body missing": b"DPUB t 1\n",
        "SUB": b"SUB t c\n",
        "SUB without a channel": b"SUB t\n",
        "SUB of a bad topic": b"SUB a$b c\n",
        "SUB of a bad channel": b"SUB t c$\n",
        "SUB without heartbeats": identify(heartbeat_interval=-1) + b"SUB t c\n",
        "RDY": b"RDY 1\n",
        "FIN": b"FIN 0123456789abcdef\n",
        "CLS": b"CLS\n",
        "NOP": b"NOP\n",
        "unknown": b"HELLO\n",
    }


def add_commands() -> None:
    for name, command in wrong_and_right().items():

        def play(stage: Stage, name: str = name, command: bytes = command) -> None:
            stage.connect("nobody").say("", command)
            ended = stage.connect("nobody, then the end")
            ended.send(command)
            ended.finish()
            ended.hear("")
            secret = "nothing " + name
            known(stage, secret, authorization("^$")).say("", command)

        play.__name__ = name.replace(" ", "_")
        case()(play)


add_commands()


@case()
def what_identify_says(stage: Stage) -> None:
    client = stage.connect()
    client.settings()
    client.settings(tls_v1=True, snappy=False)
    client.say("without negotiation", identify(feature_negotiation=False))
    keeper(stage).answers["late"] = good()
    client.say("AUTH", auth("late"))
    client.settings()
    client.say("PUB", pub("late"))


@case()
def bodies_of_auth(stage: Stage) -> None:
    for name, data in {
        "size 0": b"AUTH\n" + struct.pack(">i", 0),
        "size -1": b"AUTH\n" + struct.pack(">i", -1),
        "too large": b"AUTH\n" + struct.pack(">i", 2001),
        "as large as may be": b"AUTH\n" + sized(b"y" * 2000),
        "a parameter": b"AUTH x\n" + sized(b"x"),
        "an empty parameter": b"AUTH \n" + sized(b"x"),
        "with CR": b"AUTH\r\n" + sized(b"nobody"),
        "zeros": auth("\0\0"),
        "lines": auth("a\nb\r\n"),
    }.items():
        client = stage.connect(name)
        client.say("", data)
    for name, data in {
        "no size": b"AUTH\n",
        "half a size": b"AUTH\n\0\0",
        "half a body": b"AUTH\n" + struct.pack(">i", 9) + b"abc",
    }.items():
        client = stage.connect(name)
        client.send(data)
        client.finish()
        client.hear("and the end")


@case()
def auth_in_every_state(stage: Stage) -> None:
    known(stage, "twice").say("again", auth("twice"))
    known(stage, "again wrong").say("again", b"AUTH\n" + struct.pack(">i", 0))
    known(stage, "again with a parameter").say("again", b"AUTH x\n")
    client = known(stage, "subscribed")
    client.say("SUB", b"SUB states c\n")
    client.say("AUTH", auth("subscribed"))
    client = known(stage, "closing")
    client.say("SUB, CLS", b"SUB states c\n", b"CLS\n")
    client.say("AUTH", auth("closing"))
    client = known(stage, "identified")
    client.say("IDENTIFY behind", identify())
    client.say("IDENTIFY again", identify(heartbeat_interval=1))


@case()
def what_is_pipelined_behind_auth(stage: Stage) -> None:
    keeper(stage).answers["pipelined"] = good(authorization("^fine"))
    client = stage.connect()
    client.say("all fine", auth("pipelined") + pub("fine1") + mpub("fine2", b"a") + b"NOP\n" + dpub("fine3", 0))
    client = stage.connect()
    client.say("the second is not", auth("pipelined") + pub("fine1") + pub("other") + pub("fine1"))
    client = stage.connect()
    client.say("nor is AUTH", auth("unknown") + pub("fine1"))
    client = stage.connect()
    client.say("IDENTIFY in front", identify() + auth("pipelined") + b"SUB fine4 c\nRDY 1\n" + pub("fine4"))


@case()
def other_entries(stage: Stage) -> None:
    entries = {
        "ephemeral": (authorization(r"#ephemeral$"), [pub("a#ephemeral"), pub("a")]),
        "no channel": (authorization(".*", ()), [b"SUB a c\n"]),
        "channel at its end": (authorization(".*", ("x$",)), [b"SUB a cx\n", b"SUB a xc\n"]),
        "dot": (authorization("^a.c$"), [pub("abc"), pub("a.c"), pub("ac")]),
        "classes": (authorization(r"^[[:alpha:]]+\d{2}$"), [pub("abc12"), pub("abc1")]),
        "case": (authorization("(?i)^ABC$"), [pub("abc"), pub("abcd")]),
        "no lookahead": (authorization("a(?=b)"), [pub("ab")]),
        "no reference back": (authorization(r"(a)\1"), [pub("aa")]),
        "named": (authorization(r"^(?P<x>a+)$"), [pub("aaa"), pub("b")]),
        "empty": (authorization(""), [pub("anything")]),
        "twice the same": (authorization("^a$", (".*",), ("publish", "publish")), [pub("a"), b"SUB a c\n"]),
        "upper case": (authorization("^a$", (".*",), ("PUBLISH",)), [pub("a")]),
    }
    for name, (entry, commands) in entries.items():
        client = known(stage, name, entry)
        for command in commands:
            client.say(repr(command[:12]), command)


@case()
def answers_that_are_almost_good(stage: Stage) -> None:
    answers = {
        "bom": b'\xef\xbb\xbf{"ttl":60,"authorizations":[{}]}',
        "behind it": b'{"ttl":60,"authorizations":[{}]} x',
        "space around": b' \n{"ttl":60,"authorizations":[{}]}\n ',
        "ttl of a float": b'{"ttl":6e1,"authorizations":[{}]}',
        "large ttl": b'{"ttl":9223372036854775807,"authorizations":[{}]}',
        "too large ttl": b'{"ttl":9223372036854775808,"authorizations":[{}]}',
        "ttl that overflows as a time": b'{"ttl":10000000000,"authorizations":[{}]}',
        "null topic": b'{"ttl":60,"authorizations":[{"topic":null,"channels":null,"permissions":null}]}',
        "topic of a number": b'{"ttl":60,"authorizations":[{"topic":1}]}',
        "channels of a string": b'{"ttl":60,"authorizations":[{"channels":"a"}]}',
        "null permission": b'{"ttl":60,"authorizations":[{"permissions":[null]}]}',
        "authorizations of an object": b'{"ttl":60,"authorizations":{}}',
        "twice the key": b'{"ttl":0,"ttl":60,"authorizations":[],"authorizations":[{}]}',
        "not UTF-8": b'{"ttl":60,"identity":"\xff","authorizations":[{}]}',
        "quoted": b'{"ttl":60,"identity":"<a&b>\\u2028\\n\\u0001\xc3\xb6","authorizations":[{}]}',
        "unknown keys": b'{"ttl":60,"more":{"a":[1]},"authorizations":[{"x":1}]}',
        "wrapped": b'{"status_code":200,"data":{"ttl":60,"authorizations":[{}]}}',
    }
    for name, body in answers.items():
        keeper(stage).answers[name] = (200, body)
        stage.connect(name).say("", auth(name))
    for status in (201, 202, 206, 300, 304, 400, 401, 404, 503):
        name = str(status)
        keeper(stage).answers[name] = (status, b'{"ttl":60,"authorizations":[{}]}' if status != 304 else b"")
        stage.connect(name).say("", auth(name))


@case()
def the_time_runs_out(stage: Stage) -> None:
    client = known(stage, "ttl", authorization("^a"), ttl=1)
    other = known(stage, "ttl-sub", authorization("^a"), ttl=1)
    client.say("PUB", pub("a1"))
    other.say("SUB", b"SUB a1 c\n", b"RDY 1\n")
    time.sleep(1.3)
    keeper(stage).answers["ttl"] = good(authorization("^b"), ttl=1)
    keeper(stage).answers["ttl-sub"] = (500, b"")
    other.say("FIN", b"FIN " + other.ids[-1] + b"\n")
    other.say("CLS", b"CLS\n")
    client.say("PUB of what is allowed since", pub("b1"))
    time.sleep(1.3)
    client.say("three at once, the second not", pub("b1") + pub("a1") + pub("b1"))
    other.say("PUB after the server has failed", pub("a1"))
    stage.note(f"asked {keeper(stage).count('ttl')} and {keeper(stage).count('ttl-sub')} times")


@case()
def the_time_runs_out_before_anything_is_done(stage: Stage) -> None:
    for name, command in {"PUB": pub("a"), "MPUB": mpub("a", b"x"), "DPUB": dpub("a", 0), "SUB": b"SUB a c\n"}.items():
        secret = f"lapse {name}"
        client = known(stage, secret, ttl=1)
        time.sleep(1.2)
        keeper(stage).answers[secret] = (200, b'{"ttl":60,"authorizations":[]}')
        client.say("nothing any more", command)
        client = known(stage, f"{secret} fails", ttl=1)
        time.sleep(1.2)
        keeper(stage).answers[f"{secret} fails"] = (403, b"")
        client.say("nobody knows", command)
        client = known(stage, f"{secret} wrong", ttl=1)
        time.sleep(1.2)
        wrong = command.replace(b" a", b" a$")
        client.say("wrong as well", wrong)
        stage.note(f"asked {keeper(stage).count(f'{secret} wrong')} times")


def shown(stage: Stage, found: list[dict[str, object]] | None) -> None:
    for each in found or []:
        stage.note(str({name: value for name, value in each.items() if name not in {"remote_address", "connect_ts"}}))


@case()
def what_statistics_say(stage: Stage) -> None:
    client = known(stage, "shown")
    client.say("SUB", b"SUB shown c\n")
    shown(stage, stage.server.topic("shown")["channels"][0]["clients"])


@case()
def what_statistics_say_of_a_producer(stage: Stage) -> None:
    client = known(stage, "producing")
    client.say("IDENTIFY, PUB", identify(client_id="producing"), pub("producing"))
    found = json.loads(stage.server.request("GET", "/stats?format=json&topic=producing&include_mem=false")[1])
    shown(stage, [each for each in found["producers"] if each["client_id"] == "producing"])


@case()
def http_is_open(stage: Stage) -> None:
    stage.ask("POST", "/pub?topic=http", b"x")
    stage.ask("POST", "/mpub?topic=http", b"x\ny")
    stage.ask("POST", "/topic/create?topic=http2")
    stage.ask("POST", "/topic/pause?topic=http2")
    stage.ask("GET", "/config/auth_http_request_method")
