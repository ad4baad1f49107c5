"""NATS, byte by byte as nats-server: what a client is answered, on two versions of it and on polymq.

The cases for single connections are those that the codec's golden answers were made with; here they are said to live servers, whole and
in pieces, and beside them what needs several connections, or time. Where polymq answers otherwise, or the two nats-servers differ, it is
listed with a reason in `nats_differences.toml`, and has to be there.
"""

from __future__ import annotations

import contextlib
import difflib
import json
import re
import time
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.interop.nats_dialogue import ALONE, PLAIN, QUIET, Case, Cases, Stage, Transcripts, played, shown, text, wishes
from tests.interop.nats_runs import BOUND_RUNS, BOUND_WISHES, RUN_WISHES, RUNS, a_carriage_return_within_a_line
from tests.interop.nats_servers import NATS_KINDS, POLYMQ, SERVING_KINDS, NatsOptions, NatsServer, ending
from tests.unit.protocols.nats.golden_cases import CLIENT_CASES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CASES = Cases()
case = CASES.case
case()(a_carriage_return_within_a_line)
NEWEST, OLD = NATS_KINDS
DIFFERENCES: list[dict[str, Any]] = tomllib.loads(Path(__file__).with_name("nats_differences.toml").read_text(encoding="utf-8"))[
    "difference"
]
PIECES_SIZE_MAX = 48  # cases that are no longer are said in pieces as well
# Settings by name: as they are, once more for cases that are not to hear each other, with everything small, and impatient.
OPTIONS = {
    "": NatsOptions(),
    ALONE: NatsOptions(),
    "small": NatsOptions(more="max_payload: 100, max_control_line: 128, max_subscriptions: 3, max_subscription_tokens: 3"),
    "few": NatsOptions(more="max_connections: 2"),
    "bound": NatsOptions(
        authorization="""users: [
            {user: bound, password: p, permissions: {publish: {deny: "no.>"}}},
            {user: answers, password: p, permissions: {publish: {deny: "no.>"}, allow_responses: true}},
        ]"""
    ),
    "impatient": NatsOptions(more='ping_interval: "500ms", ping_max: 2'),
}


@pytest.fixture(scope="module")
def transcripts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Transcripts]:
    servers: dict[str, dict[str, NatsServer]] = {}
    with contextlib.ExitStack() as stack:
        for name, options in OPTIONS.items():
            for kind in SERVING_KINDS:
                server = NatsServer(kind, f"{kind}-{name or 'any'}", tmp_path_factory.mktemp("nats"), options)
                stack.enter_context(ending([server]))
                server.start()
                servers.setdefault(name, {})[kind] = server
        yield played(CASES, servers)


def as_of_old(lines: list[str]) -> list[str]:
    """What two innovations of 2.12 were before: 503 does not name the subject, and no INFO comes behind the first PONG."""
    lines = [
        re.sub(r"HMSG (\S+ \S+) \d+ \d+\\r\\n(NATS/1.0 503\\r\\n)Nats-Subject: \S+?\\r\\n", r"HMSG \1 16 16\\r\\n\2", line)
        for line in lines
    ]
    return [line.replace('INFO{"connect_info": true}\\r\\n', "") for line in lines]


@pytest.mark.parametrize("kind", [POLYMQ, OLD])
@pytest.mark.parametrize("each", CASES.all, ids=lambda each: each.name)
def test_all_say_the_same(each: Case, kind: str, transcripts: Transcripts) -> None:
    found, wanted = transcripts[each.name][kind], transcripts[each.name][NEWEST]
    assert wanted, "nothing was heard"
    assert not any("the case broke off" in line for line in wanted), wanted
    if kind == OLD:
        wanted, found = as_of_old(wanted), as_of_old(found)
    listed = [difference for difference in DIFFERENCES if each.name in difference["cases"] and kind == difference["server"]]
    assert len(listed) <= 1
    if listed:
        assert found != wanted, f"{kind} does as {NEWEST} does: take the difference off"
        wanted = listed[0].get("answer", found)
    if found != wanted:
        pytest.fail("\n" + "\n".join(difflib.unified_diff(wanted, found, "wanted", kind, n=1, lineterm="")), pytrace=False)


def test_every_difference_is_of_a_case_and_has_a_reason() -> None:
    names = {each.name for each in CASES.all}
    for difference in DIFFERENCES:
        assert names.issuperset(difference["cases"]), difference
        assert difference["reason"]
        assert difference["server"] == OLD or difference["answer"], "what polymq says is listed"


# -- one connection -------------------------------------------------------------------------------------------------------


def whole(data: bytes) -> Callable[[Stage], None]:
    def play(stage: Stage) -> None:
        stage.connect().say(data)

    return play


def in_pieces(data: bytes) -> Callable[[Stage], None]:
    """Say something in two pieces, cut at each byte, and then byte by byte; as many different answers as there are."""

    def play(stage: Stage) -> None:
        cuts = [(data[:at], data[at:]) for at in range(1, len(data))]
        answers: dict[str, str] = {}
        for pieces in [*cuts, tuple(data[at : at + 1] for at in range(len(data)))]:
            stage.connect().say(*pieces, note="in pieces")
            answers.setdefault(stage.lines.pop(), shown(pieces[0]))
        for answer in answers:
            stage.note(answer)

    return play


for name, data in CLIENT_CASES.items():
    CASES.add(name, whole(data), ALONE)
    if 1 < len(data) <= PIECES_SIZE_MAX:
        CASES.add(f"{name}, in pieces", in_pieces(data), ALONE)


# Words with which a connection begins, beside those above: what is asked for, and what is said then.
WISHES: dict[str, bytes] = {
    "everything": b'{"verbose":true,"pedantic":true,"echo":true,"headers":true,"no_responders":true,"protocol":1,"name":"n","lang":"l","version":"1"}',
    "nothing": b"{}",
    "echo off": b'{"verbose":false,"echo":false}',
    "pedantic": b'{"verbose":false,"pedantic":true}',
    "verbose": b'{"verbose":true,"pedantic":false}',
    "a login that nobody wants": b'{"verbose":false,"user":"u","pass":"p"}',
    "a token that nobody wants": b'{"verbose":false,"auth_token":"t"}',
    "a key that nobody wants": b'{"verbose":false,"nkey":"UABC","sig":"xyz"}',
    "TLS that is not there": b'{"verbose":false,"tls_required":true}',
    "unknown keys": b'{"verbose":false,"unknown":{"deep":[1,2,{"x":null}]}}',
    "the same key twice": b'{"verbose":true,"verbose":false}',
    "blanks": b' { "verbose" : false , "pedantic" : false } ',
    "escapes": b'{"verbose":false,"name":"\\u00e9\\ud800\\n"}',
    "bytes that are no text": b'{"verbose":false,"name":"\xff\xfe"}',
    "a number for a name": b'{"verbose":false,"name":7}',
    "a list": b"[]",
    "a string": b'"x"',
    "a trailing comma": b'{"verbose":false,}',
    "half an object": b'{"verbose":false',
    "a float for protocol": b'{"protocol":0.5}',
    "a huge protocol": b'{"protocol":99999999999999999999}',
    "echo as text": b'{"echo":"false"}',
    "headers as null": b'{"verbose":false,"headers":null}',
    "no_responders without headers": b'{"verbose":false,"no_responders":true,"headers":false}',
}
AFTERWARDS = b"SUB wishes.SELF 1\r\nPUB wishes.SELF 2\r\nok\r\nPUB wishes.* 1\r\nx\r\nHPUB wishes.SELF 12 14\r\nNATS/1.0\r\n\r\nok\r\n"


def wishing(wanted: bytes) -> Callable[[Stage], None]:
    def play(stage: Stage) -> None:
        stage.connect().say(b"CONNECT " + wanted + b"\r\n", AFTERWARDS.replace(b"SELF", stage.word.encode()))

    return play


for name, data in WISHES.items():
    CASES.add(f"CONNECT that asks for {name}", wishing(data))

# Said by one connection, about subjects of its own: S is the word that begins them.
ALONE_SAID: dict[str, bytes] = {
    "answers come before own messages": b"SUB S.a 1\r\nPUB S.a 1\r\nx\r\nSUB S.b 2\r\nPUB S.b 1\r\ny\r\nUNSUB 1\r\n",
    "own messages in a run": QUIET + b"SUB S.> 1\r\nPUB S.a 1\r\n1\r\nPUB S.b 1\r\n2\r\nPUB S.c r 1\r\n3\r\nPUB S.a 0\r\n\r\n",
    "own messages in a verbose run": b"SUB S.> 1\r\nPUB S.a 1\r\n1\r\nPUB S.b 1\r\n2\r\nPUB S.c r 1\r\n3\r\n",
    "PING between own messages": QUIET + b"SUB S 1\r\nPUB S 1\r\n1\r\nPING\r\nPUB S 1\r\n2\r\nPING\r\nPUB S 1\r\n3\r\n",
    "many subscriptions of one": QUIET + b"".join(b"SUB S %d\r\n" % n for n in range(1, 4)) + b"PUB S 1\r\nx\r\n",
    "a payload that looks like commands": QUIET + b"SUB S 1\r\nPUB S 21\r\nPING\r\nPUB x 1\r\nx\r\n \r\n",
    "a payload of zeros and newlines": QUIET + b"SUB S 1\r\nPUB S 6\r\n\x00\r\n\n\r\xff\r\n",
    "a sid of letters": QUIET + b"SUB S abc-.*>\r\nPUB S 1\r\nx\r\n",
    "a long sid": QUIET + b"SUB S " + b"9" * 1000 + b"\r\nPUB S 1\r\nx\r\n",
    "a long subject": QUIET + b"SUB S." + b"a" * 2000 + b" 1\r\nPUB S." + b"a" * 2000 + b" 1\r\nx\r\n",
    "a subject of a hundred tokens": QUIET + b"SUB S" + b".a" * 100 + b" 1\r\nPUB S" + b".a" * 100 + b" 1\r\nx\r\n",
    "a long reply": QUIET + b"SUB S 1\r\nPUB S " + b"r" * 2000 + b" 1\r\nx\r\n",
    "a reply with strange tokens": QUIET + b"SUB S 1\r\nPUB S r..*.> 1\r\nx\r\nPUB S . 1\r\nx\r\n",
    "subjects that are not ASCII": QUIET + "SUB S.ünï.* 1\r\nPUB S.ünï.☃ 1\r\nx\r\n".encode(),
    "subjects in another case": QUIET + b"SUB S.Foo 1\r\nPUB S.foo 1\r\nx\r\nPUB S.FOO 1\r\nx\r\nPUB S.Foo 1\r\ny\r\n",
    "wildcards as parts of tokens": QUIET
    + b"SUB S.a* 1\r\nSUB S.>b 2\r\nPUB S.a* 1\r\n1\r\nPUB S.ab 1\r\n2\r\nPUB S.>b 1\r\n3\r\nPUB S.xb 1\r\n4\r\n",
    "publishing to wildcards": QUIET + b"SUB S.* 1\r\nPUB S.* 1\r\n1\r\nPUB S.> 1\r\n2\r\nPUB S.a.* 1\r\n3\r\nPUB *.a 1\r\n4\r\n",
    "publishing to > with takers": QUIET + b"SUB S.> 1\r\nSUB S.*.* 2\r\nPUB S.> 1\r\n1\r\nPUB S.*.> 1\r\n2\r\n",
    "publishing to empty tokens": QUIET + b"SUB S.> 1\r\nPUB S. 1\r\n1\r\nPUB S..a 1\r\n2\r\nPUB S.a. 1\r\n3\r\nPUB S 1\r\n4\r\n",
    "pedantic, publishing to wildcards with takers": wishes(verbose=False, pedantic=True)
    + b"SUB S.* 1\r\nPUB S.* 1\r\n1\r\nPUB S.a 1\r\n2\r\n",
    "what does not match": QUIET
    + b"SUB S.a.b 1\r\nSUB S.*.c 2\r\nSUB S.d.> 3\r\nPUB S.a 1\r\n1\r\nPUB S.a.b 1\r\n2\r\nPUB S.a.b.c 1\r\n3\r\nPUB S.x.c 1\r\n4\r\nPUB S.d 1\r\n5\r\nPUB S.d.e.f 1\r\n6\r\n",
    "a duplicate sid of the same subject": QUIET + b"SUB S 1\r\nSUB S 1\r\nPUB S 1\r\nx\r\n",
    "a duplicate sid of another subject": QUIET + b"SUB S.a 1\r\nSUB S.b 1\r\nPUB S.a 1\r\nx\r\nPUB S.b 1\r\ny\r\n",
    "a duplicate sid, verbose": b"SUB S.a 1\r\nSUB S.b 1\r\nPUB S.b 1\r\ny\r\n",
    "a duplicate sid of another queue": QUIET + b"SUB S q 1\r\nSUB S p 1\r\nSUB S 1\r\nPUB S 1\r\nx\r\n",
    "a sid again after UNSUB": QUIET + b"SUB S.a 1\r\nUNSUB 1\r\nSUB S.b 1\r\nPUB S.a 1\r\nx\r\nPUB S.b 1\r\ny\r\n",
    "a sid again after its last message": QUIET + b"SUB S 1\r\nUNSUB 1 1\r\nPUB S 1\r\nx\r\nSUB S 1\r\nPUB S 1\r\ny\r\n",
    "UNSUB at two": QUIET + b"SUB S 1\r\nUNSUB 1 2\r\nPUB S 1\r\n1\r\nPUB S 1\r\n2\r\nPUB S 1\r\n3\r\n",
    "UNSUB at two, one by one, verbose": b"SUB S 1\r\nUNSUB 1 2\r\nPUB S 1\r\n1\r\nPING\r\nPUB S 1\r\n2\r\nPING\r\nPUB S 1\r\n3\r\n",
    "UNSUB below what it had": QUIET + b"SUB S 1\r\nPUB S 1\r\n1\r\nPUB S 1\r\n2\r\nUNSUB 1 1\r\nPUB S 1\r\n3\r\n",
    "UNSUB at what it had": QUIET + b"SUB S 1\r\nPUB S 1\r\n1\r\nPUB S 1\r\n2\r\nUNSUB 1 2\r\nPUB S 1\r\n3\r\n",
    "UNSUB at one more than it had": QUIET + b"SUB S 1\r\nPUB S 1\r\n1\r\nPUB S 1\r\n2\r\nUNSUB 1 3\r\nPUB S 1\r\n3\r\nPUB S 1\r\n4\r\n",
    "UNSUB at zero": QUIET + b"SUB S 1\r\nUNSUB 1 0\r\nPUB S 1\r\n1\r\n",
    "UNSUB at nonsense": QUIET + b"SUB S 1\r\nUNSUB 1 x\r\nPUB S 1\r\n1\r\n",
    "UNSUB at less than nothing": QUIET + b"SUB S 1\r\nUNSUB 1 -5\r\nPUB S 1\r\n1\r\n",
    "UNSUB at more digits than a number has": QUIET + b"SUB S 1\r\nUNSUB 1 1000000000\r\nPUB S 1\r\n1\r\n",
    "UNSUB later, then sooner": QUIET + b"SUB S 1\r\nUNSUB 1 5\r\nPUB S 1\r\n1\r\nUNSUB 1 2\r\nPUB S 1\r\n2\r\nPUB S 1\r\n3\r\n",
    "UNSUB sooner, then later": QUIET + b"SUB S 1\r\nUNSUB 1 1\r\nUNSUB 1 3\r\n" + b"PUB S 1\r\nx\r\n" * 5,
    "UNSUB later, then at once": QUIET + b"SUB S 1\r\nUNSUB 1 5\r\nUNSUB 1\r\nPUB S 1\r\n1\r\n",
    "UNSUB twice": b"SUB S 1\r\nUNSUB 1\r\nUNSUB 1\r\nPUB S 1\r\nx\r\n",
    "UNSUB of one of two": QUIET + b"SUB S 1\r\nSUB S 2\r\nUNSUB 1\r\nPUB S 1\r\nx\r\n",
    "a queue group of one": QUIET + b"SUB S q 1\r\nPUB S 1\r\nx\r\n",
    "a queue group of three gets one": QUIET + b"SUB S q 1\r\nSUB S q 1\r\nPUB S 1\r\nx\r\n",
    "two queue groups and a plain one": QUIET + b"SUB S q 1\r\nSUB S p 2\r\nSUB S 3\r\nUNSUB 3\r\nUNSUB 2\r\nPUB S 1\r\nx\r\n",
    "a queue group and a wildcard of its name": QUIET + b"SUB S.a q.* 1\r\nPUB S.a 1\r\nx\r\n",
    "a queue group with UNSUB at one": QUIET + b"SUB S q 1\r\nUNSUB 1 1\r\nPUB S 1\r\nx\r\nPUB S 1\r\ny\r\n",
    "a queue of a hundred bytes": QUIET + b"SUB S " + b"q" * 100 + b" 1\r\nPUB S 1\r\nx\r\n",
    "headers to one who has them": QUIET
    + b"SUB S 1\r\nHPUB S 18 20\r\nNATS/1.0\r\nK: v\r\n\r\nok\r\nHPUB S r 18 20\r\nNATS/1.0\r\nK: v\r\n\r\nok\r\n",
    "headers and nothing else": QUIET + b"SUB S 1\r\nHPUB S 18 18\r\nNATS/1.0\r\nK: v\r\n\r\n\r\n",
    "headers of nothing": QUIET + b"SUB S 1\r\nHPUB S 0 2\r\nok\r\n",
    "headers that are nonsense": QUIET + b"SUB S 1\r\nHPUB S 5 7\r\nabcdeok\r\nHPUB S 12 14\r\nNATS/9.9\r\n\r\nok\r\n",
    "HPUB too large, with a taker": QUIET + b"SUB S 1\r\nHPUB S 18 1048577\r\n",
    "HPUB as large as can be": QUIET + b"HPUB S 12 1048576\r\nNATS/1.0\r\n\r\n" + b"x" * 1048564 + b"\r\n",
    "HPUB and PUB by turns": QUIET + b"SUB S 1\r\n" + b"HPUB S 12 13\r\nNATS/1.0\r\n\r\na\r\nPUB S 1\r\nb\r\n" * 3,
    "a message as large as can be, and back": QUIET + b"SUB S 1\r\nPUB S 1048576\r\n" + b"x" * 1048576 + b"\r\n",
    "nobody answers": QUIET + b"SUB S.in.* 1\r\nPUB S.nobody S.in.1 1\r\nx\r\n",
    "nobody answers, twice in a run": QUIET
    + b"SUB S.in.* 1\r\nPUB S.nobody S.in.1 1\r\nx\r\nPUB S.none S.in.2 1\r\nx\r\nPUB S.x 1\r\nx\r\n",
    "nobody answers, verbose": wishes(headers=True, no_responders=True, pedantic=False) + b"SUB S.in.* 1\r\nPUB S.nobody S.in.1 1\r\nx\r\n",
    "nobody answers a message with headers": QUIET + b"SUB S.in.* 1\r\nHPUB S.nobody S.in.1 12 13\r\nNATS/1.0\r\n\r\nx\r\n",
    "nobody answers, and nobody waits": QUIET + b"PUB S.nobody S.in.1 1\r\nx\r\n",
    "nobody answers, a queue waits": QUIET + b"SUB S.in.* q 1\r\nPUB S.nobody S.in.1 1\r\nx\r\n",
    "nobody answers, two wait": QUIET + b"SUB S.in.* 1\r\nSUB S.in.1 2\r\nPUB S.nobody S.in.9 1\r\nx\r\n",
    "nobody answers, and it counts": QUIET + b"SUB S.in 1\r\nUNSUB 1 1\r\nPUB S.nobody S.in 1\r\nx\r\nPUB S.in 1\r\ny\r\n",
    "nobody answers, and it counts as one of two": QUIET
    + b"SUB S.in 1\r\nUNSUB 1 2\r\nPUB S.nobody S.in 1\r\nx\r\nPUB S.in 1\r\ny\r\nPUB S.in 1\r\nz\r\n",
    "nobody answers, and nobody asked to be told": PLAIN + b"SUB S.in.* 1\r\nPUB S.nobody S.in.1 1\r\nx\r\n",
    "nobody answers to a wildcard": QUIET + b"SUB S.in.* 1\r\nPUB S.* S.in.1 1\r\nx\r\nPUB S..a S.in.2 1\r\nx\r\n",
    "somebody answers": QUIET + b"SUB S.in.* 1\r\nSUB S.here 2\r\nPUB S.here S.in.1 1\r\nx\r\n",
    "somebody answers who is not told": wishes(verbose=False, headers=True, no_responders=True, echo=False)
    + b"SUB S.in.* 1\r\nSUB S.here 2\r\nPUB S.here S.in.1 1\r\nx\r\n",
    "the reply is the subject": QUIET + b"SUB S.in 1\r\nPUB S.in S.in 1\r\nx\r\n",
    "echo off": wishes(verbose=False, echo=False) + b"SUB S 1\r\nPUB S 1\r\nx\r\n",
    "echo off, verbose": wishes(echo=False) + b"SUB S 1\r\nPUB S 1\r\nx\r\n",
    "CONNECT again, verbose": QUIET + b"SUB S 1\r\n" + wishes(verbose=True) + b"PUB S 1\r\nx\r\n",
    "CONNECT again, and its subscriptions": wishes(verbose=False) + b"SUB S 1\r\n" + wishes(verbose=False) + b"PUB S 1\r\nx\r\n",
    "CONNECT again without headers": QUIET
    + wishes(verbose=False, headers=False, no_responders=False)
    + b"HPUB S 12 13\r\nNATS/1.0\r\n\r\nx\r\n",
    "CONNECT again with half of it": QUIET + b'CONNECT {"headers":false}\r\n',
    "CONNECT again with nothing": QUIET + b"CONNECT {}\r\nHPUB S 12 13\r\nNATS/1.0\r\n\r\nx\r\n",
    "CONNECT again with a wrong protocol": QUIET + b'CONNECT {"protocol":9}\r\n',
    "CONNECT behind PING": b"PING\r\n" + QUIET + b"PING\r\n",
    "CONNECT behind messages": b"SUB S 1\r\nPUB S 1\r\nx\r\n" + QUIET + b"PUB S 1\r\ny\r\n",
    "PING with protocol 1": wishes(verbose=False, protocol=1) + b"PING\r\nPING\r\n",
    "protocol 1 after the first PING": b"PING\r\n" + wishes(verbose=False, protocol=1) + b"PING\r\n",
    "PONGs that nobody wanted": QUIET + b"PONG\r\n" * 5,
    "a hundred PINGs": QUIET + b"PING\r\n" * 100,
    "PUB below $SYS": QUIET + b"SUB $SYS.S 1\r\nPUB $SYS.S 1\r\nx\r\n",
    "PUB below $JS.API": QUIET + b"SUB $JS.API.S 1\r\nPUB $JS.API.S 1\r\nx\r\n",
    "PUB below $NRG": QUIET + b"PUB $NRG.S 1\r\nx\r\nPUB $NRG 1\r\nx\r\nPUB $NRGS 1\r\nx\r\n",
    "PUB below $NRG, verbose": b"PUB $NRG.S 1\r\nx\r\n",
    "PUB below _GR_ with a taker": QUIET + b"SUB _GR_.S 1\r\nPUB _GR_.S 1\r\nx\r\n",
    "PUB below _R_ with a taker": QUIET + b"SUB _R_.S 1\r\nPUB _R_.S 1\r\nx\r\n",
    "replies of the servers' own": QUIET
    + b"SUB S 1\r\nPUB S _R_.a 1\r\n1\r\nPUB S $JS.ACK.a 1\r\n2\r\nPUB S _GR_.a 1\r\n3\r\nPUB S _GRa 1\r\n4\r\n",
    "replies of the servers' own, verbose": b"SUB S 1\r\nPUB S _R_.a 1\r\n1\r\nPUB S r 1\r\n2\r\n",
    "SUB of the reserved queue": QUIET + b"SUB S _sys_ 1\r\nPUB S 1\r\nx\r\n",
    "SUB of nothing good": QUIET + b"SUB S..a 1\r\nSUB S. 1\r\nSUB S.>.a 1\r\nSUB S 1\r\nPUB S 1\r\nx\r\n",
    "UNSUB of a SUB that failed": b"SUB S..a 1\r\nUNSUB 1\r\nSUB S 1\r\nPUB S 1\r\nx\r\n",
    "SUB of everything, then only of its own": QUIET + b"SUB S.> 1\r\nUNSUB 1\r\nSUB S.a 2\r\nPUB S.a 1\r\nx\r\n",
    "an unknown word behind messages": QUIET + b"SUB S 1\r\nPUB S 1\r\nx\r\nNOPE\r\nPUB S 1\r\ny\r\n",
    "a size that is none, behind messages": QUIET + b"SUB S 1\r\nPUB S 1\r\nx\r\nPUB S z\r\nPUB S 1\r\ny\r\n",
    "a payload that is longer than it says, behind messages": QUIET + b"SUB S 1\r\nPUB S 1\r\nx\r\nPUB S 1\r\nxyz\r\n",
    "a payload that is too large, behind messages": QUIET + b"SUB S 1\r\nPUB S 1\r\nx\r\nPUB S 1048577\r\nxyz\r\n",
    "HTTP": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "NSQ": b"  V2PUB t\n\x00\x00\x00\x01x",
    "zeros": b"\x00" * 64,
    "INFO of a server": b'INFO {"server_id":"x","port":4222} \r\n',
    "a line of 4096 bytes behind messages": QUIET + b"SUB S 1\r\nPUB S 1\r\nx\r\nSUB " + b"a" * 4090 + b" 1\r\nPUB S 1\r\nx\r\n",
    "a line of 5000 bytes behind messages": QUIET + b"SUB S 1\r\nPUB S 1\r\nx\r\nSUB " + b"a" * 5000 + b" 1\r\nPUB S 1\r\nx\r\n",
}


def said_alone(data: bytes) -> Callable[[Stage], None]:
    def play(stage: Stage) -> None:
        stage.connect().say(re.sub(rb"\bS\b", stage.word.encode(), data))

    return play


for name, data in ALONE_SAID.items():
    CASES.add(name, said_alone(data))
for name, data in RUNS.items():
    for called, connect in RUN_WISHES.items():
        CASES.add(f"{name}, {called}", said_alone(connect + data))


def said_by(user: str, connect: bytes, data: bytes) -> Callable[[Stage], None]:
    named = b'CONNECT {"user":"%b","pass":"p",' % user.encode() + connect.partition(b"{")[2]
    return said_alone(named + data)


for name, data in BOUND_RUNS.items():
    for called, connect in BOUND_WISHES.items():
        CASES.add(f"{name}, {called}", said_by("bound", connect, data), "bound")
        CASES.add(f"{name}, {called}, by who may answer", said_by("answers", connect, data), "bound")


# -- several connections --------------------------------------------------------------------------------------------------


@case()
def echo_off_is_for_one_connection(stage: Stage) -> None:
    word = stage.word.encode()
    one, other = stage.connect("one", connect=wishes(verbose=False, echo=False)), stage.connect("other", connect=QUIET)
    for talk in (one, other):
        talk.say(b"SUB %b 1\r\n" % word)
    one.say(b"PUB %b 3\r\none\r\n" % word)
    other.say(b"")
    other.say(b"PUB %b 5\r\nother\r\n" % word)
    one.say(b"")


@case()
def headers_are_cut_for_who_has_none(stage: Stage) -> None:
    word = stage.word.encode()
    without, having = stage.connect("without", connect=PLAIN), stage.connect("having", connect=QUIET)
    for talk in (without, having):
        talk.say(b"SUB %b.> 1\r\n" % word)
    having.say(
        b"HPUB %b.a 18 20\r\nNATS/1.0\r\nK: v\r\n\r\nok\r\nHPUB %b.b r 12 12\r\nNATS/1.0\r\n\r\n\r\nPUB %b.c 1\r\nx\r\n"
        % (word, word, word)
    )
    without.say(b"")


@case()
def who_is_verbose_hears_of_its_own(stage: Stage) -> None:
    word = stage.word.encode()
    one, other = stage.connect("one"), stage.connect("other", connect=QUIET)
    one.say(b"SUB %b 1\r\n" % word)
    other.say(b"PUB %b 1\r\nx\r\n" % word * 3)
    one.say(b"UNSUB 1\r\n")
    other.say(b"PUB %b 1\r\nx\r\n" % word)
    one.say(b"")


@case()
def a_question_is_answered(stage: Stage) -> None:
    word = stage.word.encode()
    asking, answering = stage.connect("asking", connect=QUIET), stage.connect("answering", connect=QUIET)
    answering.say(b"SUB %b.service workers 7\r\n" % word)
    asking.say(b"SUB %b.in.* 1\r\nPUB %b.service %b.in.x 4\r\nwhat\r\n" % (word, word, word))
    answering.say(b"")
    answering.say(b"PUB %b.in.x 4\r\nthat\r\n" % word)
    asking.say(b"")
    answering.close()
    for _ in range(100):
        time.sleep(0.02)
        if "503" in asking.say(b"PUB %b.service %b.in.y 4\r\nwhat\r\n" % (word, word), note="ask again"):
            break
        stage.lines.pop()


@case()
def nobody_answers_a_question_of_two_queues(stage: Stage) -> None:
    word = stage.word.encode()
    one, other = stage.connect("one", connect=QUIET), stage.connect("other", connect=QUIET)
    other.say(b"SUB %b.a q 1\r\nSUB %b.a p 2\r\nUNSUB 1\r\n" % (word, word))
    one.say(b"SUB %b.in 1\r\nPUB %b.a %b.in 1\r\nx\r\n" % (word, word, word))
    other.say(b"UNSUB 2\r\n")
    one.say(b"PUB %b.a %b.in 1\r\nx\r\n" % (word, word))


@case()
def the_last_message_of_a_member_goes_to_another(stage: Stage) -> None:
    word = stage.word.encode()
    one, other, publisher = (stage.connect(name, connect=QUIET) for name in ("one", "other", "publisher"))
    one.say(b"SUB %b q 1\r\nUNSUB 1 2\r\n" % word)
    other.say(b"SUB %b q 1\r\nUNSUB 1 2\r\n" % word)
    for number in range(6):
        publisher.say(b"PUB %b 1\r\n%d\r\n" % (word, number))
    heard = [talk.say(b"").count("MSG") for talk in (one, other)]
    del stage.lines[-2:]
    stage.note(f"each had {heard}")


@case()
def a_group_shares(stage: Stage) -> None:
    word = stage.word.encode()
    members = [stage.connect(str(number), connect=QUIET) for number in range(3)]
    for member in members:
        member.say(b"SUB %b.* q 1\r\n" % word)
    publisher = stage.connect("publisher", connect=QUIET)
    publisher.say(b"".join(b"PUB %b.a 3\r\n%03d\r\n" % (word, number) for number in range(300)), note="300 messages")
    heard = [member.say(b"", note="").count("MSG") for member in members]
    del stage.lines[-3:]
    stage.note(f"all {sum(heard)}, and everyone has his share: {min(heard) > 60}")


@case()
def a_group_and_others_beside_it(stage: Stage) -> None:
    word = stage.word.encode()
    plain, member, publisher = (stage.connect(name, connect=QUIET) for name in ("plain", "member", "publisher"))
    plain.say(b"SUB %b.a 1\r\nSUB %b.> 2\r\n" % (word, word))
    member.say(b"SUB %b.a q 1\r\n" % word)
    publisher.say(b"PUB %b.a 1\r\nx\r\n" % word)
    heard = plain.say(b"", note="")
    stage.lines.pop()
    stage.note(f"the plain one twice: {sorted(heard.split(chr(92) + 'r' + chr(92) + 'n'))}")
    member.say(b"")


@case()
def order_of_one_publisher(stage: Stage) -> None:
    word = stage.word.encode()
    one, other = stage.connect("one", connect=QUIET), stage.connect("other", connect=QUIET)
    one.say(b"SUB %b.> 1\r\nSUB other.%b 2\r\n" % (word, word))
    other.say(b"".join(b"PUB %b.%d 2\r\n%02d\r\n" % (word, number % 7, number) for number in range(20)))
    one.say(b"")


@case()
def who_hangs_up_is_gone(stage: Stage) -> None:
    word = stage.word.encode()
    one, other = stage.connect("one", connect=QUIET), stage.connect("other", connect=QUIET)
    other.say(b"SUB %b 1\r\n" % word)
    one.send(b"PUB %b 4\r\nlast\r\n" % word)
    one.finish()
    one.hear("hangs up")
    other.hear("and is heard")
    other.say(b"PUB %b 2\r\nme\r\n" % word)


@case()
def who_hangs_up_in_the_middle(stage: Stage) -> None:
    word = stage.word.encode()
    one, other = stage.connect("one", connect=QUIET), stage.connect("other", connect=QUIET)
    other.say(b"SUB %b 1\r\n" % word)
    one.send(b"PUB %b 4\r\nla" % word)
    one.finish()
    one.hear("hangs up")
    other.say(b"")


@case()
def a_violation_does_not_disturb_others(stage: Stage) -> None:
    word = stage.word.encode()
    one, other = stage.connect("one", connect=QUIET), stage.connect("other", connect=QUIET)
    for talk in (one, other):
        talk.say(b"SUB %b 1\r\n" % word)
    one.say(b"PUB %b 1\r\nx\r\nNOPE\r\nPUB %b 1\r\ny\r\n" % (word, word))
    other.say(b"PUB %b 1\r\nz\r\n" % word)


@case()
def a_large_message_reaches_all(stage: Stage) -> None:
    word = stage.word.encode()
    talks = [stage.connect(str(number), connect=QUIET) for number in range(3)]
    for talk in talks:
        talk.say(b"SUB %b 1\r\n" % word)
    body = bytes(range(256)) * 4096
    talks[0].say(b"PUB %b %d\r\n%b\r\n" % (word, len(body), body))
    for talk in talks[1:]:
        talk.say(b"")


@case()
def subscriptions_of_many(stage: Stage) -> None:
    word = stage.word.encode()
    talk = stage.connect("", connect=QUIET)
    talk.say(b"".join(b"SUB %b.%d %d\r\n" % (word, number, number) for number in range(2000)), note="2000 subscriptions")
    talk.say(b"PUB %b.1999 1\r\nx\r\nPUB %b.0 1\r\ny\r\nUNSUB 1999\r\nPUB %b.1999 1\r\nz\r\n" % (word, word, word))


@case()
def info_of_the_greeting(stage: Stage) -> None:
    info = stage.connect().info
    stage.note(json.dumps({name: type(value).__name__ for name, value in sorted(info.items())}))
    again = stage.connect().info
    stage.note(
        f"numbers of clients grow: {again['client_id'] > info['client_id']}; everything else is the same: "
        f"{ {**again, 'client_id': 0} == {**info, 'client_id': 0} }"
    )
    stage.note(json.dumps({name: info.get(name) for name in ("client_ip", "headers", "host", "max_payload", "proto")}))


# -- limits ---------------------------------------------------------------------------------------------------------------

SMALL_SAID: dict[str, bytes] = {
    "max_payload": b"SUB S 1\r\nPUB S 100\r\n" + b"x" * 100 + b"\r\nPUB S 101\r\n" + b"x" * 101 + b"\r\n",
    "max_payload with headers": b"SUB S 1\r\nHPUB S 12 100\r\nNATS/1.0\r\n\r\n" + b"x" * 88 + b"\r\nHPUB S 12 101\r\n",
    "max_payload, far beyond": b"PUB S 999999999\r\nxxx",
    "max_control_line, as long as can be": b"SUB S." + b"a" * 110 + b" 1\r\nPUB S." + b"a" * 110 + b" 1\r\nx\r\n",
    "max_control_line of SUB": b"SUB S." + b"a" * 128 + b" 1\r\n",
    "max_control_line of PUB": b"PUB S." + b"a" * 128 + b" 1\r\nx\r\n",
    "max_control_line without an end": b"SUB S." + b"a" * 1000,
    "max_control_line of UNSUB": b"UNSUB " + b"1" * 129 + b"\r\n",
    "max_subscriptions": b"SUB S.a 1\r\nSUB S.b 2\r\nSUB S.c 3\r\nSUB S.d 4\r\nPUB S.d 1\r\nx\r\nUNSUB 1\r\nSUB S.d 4\r\nPUB S.d 1\r\ny\r\n",
    "max_subscriptions and a sid again": b"SUB S.a 1\r\nSUB S.b 2\r\nSUB S.c 3\r\nSUB S.a 1\r\n",
    "max_subscriptions and a bad subject": b"SUB S.a 1\r\nSUB S.b 2\r\nSUB S.c 3\r\nSUB S..d 4\r\n",
    "max_subscriptions and UNSUB at a number": b"SUB S.a 1\r\nUNSUB 1 1\r\nSUB S.b 2\r\nSUB S.c 3\r\nPUB S.a 1\r\nx\r\nSUB S.d 4\r\n",
    "max_subscription_tokens": b"SUB S.a.b 1\r\nSUB S.a.b.c 2\r\nSUB S.*.> 3\r\nSUB S.*.*.> 4\r\nPUB S.a.b.c 1\r\nx\r\n",
    "max_subscription_tokens of a queue": b"SUB S.a.b.c q 2\r\n",
    "max_subscription_tokens and a bad subject": b"SUB S.a.b..c 2\r\n",
}


def said_to_small(data: bytes) -> Callable[[Stage], None]:
    def play(stage: Stage) -> None:
        said = re.sub(rb"\bS\b", stage.word.encode(), data)
        stage.connect("quiet", connect=wishes(verbose=False, pedantic=False, headers=True)).say(said)
        stage.connect("verbose", connect=wishes(pedantic=False, headers=True)).say(said)

    return play


for name, data in SMALL_SAID.items():
    CASES.add(name, said_to_small(data), "small")


@case("small")
def info_tells_max_payload(stage: Stage) -> None:
    stage.note(str(stage.connect().info["max_payload"]))


@case("few")
def max_connections(stage: Stage) -> None:
    talks = [stage.connect(str(number), connect=PLAIN) for number in range(2)]
    third = stage.connect("third")
    stage.note(f"INFO comes: {bool(third.info)}")
    third.hear("one too many")
    talks[0].close()
    for _ in range(100):
        time.sleep(0.02)
        again = stage.connect("again")
        if "maximum" not in again.say(PLAIN, note="again"):
            break
        stage.lines.pop()
    talks[1].say(b"")


# -- time -----------------------------------------------------------------------------------------------------------------


def timed(stage: Stage, note: str, heard: list[tuple[float, bytes]], step_s: float) -> None:
    """Write down what came, in steps of time."""
    stage.note(f"{note} -> " + " | ".join(f"{int(at / step_s)}: {text(data) or '[closed]'}" for at, data in heard))


@case("impatient")
def who_is_silent_is_given_up(stage: Stage) -> None:
    talk = stage.connect("", connect=PLAIN)
    timed(stage, "silent", [(at, data) for at, data in talk.hear_for(3)], 100)


@case("impatient")
def who_answers_stays(stage: Stage) -> None:
    talk = stage.connect("", connect=PLAIN)
    for _ in range(4):
        heard = talk.hear_for(0.7)
        stage.note(f"pinged: {any(b'PING' in data for _, data in heard)}")
        talk.send(b"PONG\r\n")
    talk.say(b"")


@case("impatient")
def who_talks_and_does_not_answer_is_given_up(stage: Stage) -> None:
    talk = stage.connect("", connect=PLAIN)
    said = b""
    for _ in range(30):
        talk.send(b"PUB x 0\r\n\r\n")
        said += b"".join(data for _, data in talk.hear_for(0.1))
    stage.note(text(said))


@case("impatient")
def who_pings_by_itself(stage: Stage) -> None:
    talk = stage.connect("", connect=PLAIN)
    said = b""
    for _ in range(15):
        talk.send(b"PING\r\nPONG\r\n")
        said += b"".join(data for _, data in talk.hear_for(0.1))
    stage.note(f"PINGs of the server: {min(said.count(b'PING'), 1)}; {'[closed]' if talk.closed else '[open]'}")


@case()
def the_first_ping(stage: Stage) -> None:
    talk = stage.connect("", connect=PLAIN)
    heard = talk.hear_for(3)
    stage.note(f"after CONNECT: {[(1.9 < at < 2.7, data) for at, data in heard]}")
    stage.note(f"without: {stage.connect().hear_for(3)}")
