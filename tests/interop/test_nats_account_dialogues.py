"""Services of other accounts, byte by byte: who is told that nobody is there, and what a service is told of who asks."""

from __future__ import annotations

import json
import re
import time
from typing import TYPE_CHECKING

import pytest

from tests.interop.nats_dialogue import TIMEOUT_S, Stage, wishes
from tests.interop.nats_servers import SERVING_KINDS, NatsOptions, nats_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.interop.nats_dialogue import Talk

    People = Callable[..., Talk]

pytestmark = pytest.mark.parametrize("kind", SERVING_KINDS, scope="module")

# THIRD asks SECOND what SECOND asks FIRST.
ACCOUNTS = """
    FIRST: {
        users: [{ user: "first", password: "1" }]
        exports: [{ service: "svc.>" }]
    }
    SECOND: {
        users: [{ user: "second", password: "1" }]
        imports: [{ service: { account: FIRST, subject: "svc.*" }, to: "mine.*" }]
        exports: [{ service: "mine.>" }]
    }
    THIRD: {
        users: [{ user: "third", password: "1" }]
        imports: [{ service: { account: SECOND, subject: "mine.*" }, to: "chain.*" }]
    }
"""
HEARD = "[open]"


@pytest.fixture
def people(kind: str, tmp_path: Path) -> Iterator[People]:
    """Connect somebody of an account."""
    with nats_server(kind, tmp_path, NatsOptions(accounts=ACCOUNTS)) as server:
        stage = Stage(server, "no word")

        def connect(user: str, **wanted: object) -> Talk:
            asked = {"verbose": False, "pedantic": False, "headers": True, "no_responders": True, **wanted}
            return stage.connect(user, connect=wishes(user=user, **{"pass": "1"}, **asked))

        try:
            yield connect
        finally:
            stage.end()


def unheard(kind: str, sid: str, subject: str, reply: str) -> str:
    """What the asker is told, as `Talk` writes it; the old server lets who asks another account wait."""
    if kind == "nats-server-2.9":
        return ""
    size = len(f"NATS/1.0 503\r\nNats-Subject: {subject}\r\n\r\n")
    return rf"HMSG {reply} {sid} {size} {size}\r\nNATS/1.0 503\r\nNats-Subject: {subject}\r\n\r\n\r\n"


def test_only_who_asks_is_told_that_nobody_is_there(kind: str, people: People) -> None:
    asking, listening = people("second"), people("second")
    simple, uninterested = people("second", headers=False, no_responders=False), people("second", no_responders=False)
    listening.say(b"SUB in.> 9\r\n")
    for each in (simple, uninterested):
        assert each.say(b"SUB in.x 1\r\nPUB mine.n in.x 0\r\n\r\n") == rf"PONG\r\n {HEARD}"
    told = unheard(kind, "1", "mine.n", "in.y")
    said = asking.say(b"SUB in.y 1\r\nUNSUB 1 1\r\nPUB mine.n in.y 0\r\n\r\nPUB mine.n in.y 0\r\n\r\n")
    assert said == rf"{told}{told}PONG\r\n {HEARD}", "it counts for nothing"
    assert listening.say() == rf"PONG\r\n {HEARD}"


@pytest.mark.parametrize("verbose", [False, True])
def test_it_is_told_in_order(kind: str, people: People, verbose: bool) -> None:
    asking = people("second", verbose=verbose)
    ok = r"+OK\r\n" if verbose else ""
    asking.say(b"SUB in.> 1\r\nSUB own 2\r\n")
    said = asking.say(b"PUB mine.n in.1 0\r\n\r\nPUB own 1\r\nx\r\nPUB mine.n in.2 0\r\n\r\n")
    first, second = unheard(kind, "1", "mine.n", "in.1"), unheard(kind, "1", "mine.n", "in.2")
    assert said == rf"{ok}{first}{ok}MSG own 2 1\r\nx\r\n{ok}{second}PONG\r\n {HEARD}"


@pytest.mark.parametrize("group", [b"", b"q "])
def test_who_answers_in_the_account_of_who_asks_is_heard(kind: str, people: People, group: bytes) -> None:
    asking, responder = people("second"), people("second")
    responder.say(b"SUB mine.x %b1\r\n" % group)
    assert asking.say(b"SUB in 1\r\nPUB mine.x in 0\r\n\r\n") == rf"PONG\r\n {HEARD}"
    assert responder.say() == rf"MSG mine.x 1 in 0\r\n\r\nPONG\r\n {HEARD}"


def test_chains(kind: str, people: People) -> None:
    asking, responder = people("third"), people("second")
    told = unheard(kind, "1", "chain.x", "in")
    assert asking.say(b"SUB in 1\r\nPUB chain.x in 0\r\n\r\n") == rf"{told}PONG\r\n {HEARD}"
    responder.say(b"SUB mine.x 1\r\n")
    assert asking.say(b"PUB chain.x in 0\r\n\r\n") == rf"PONG\r\n {HEARD}"
    found = re.search(r"HMSG mine\.x 1 (\S+) ", responder.say())
    assert found is not None
    responder.say(b"PUB %b 2\r\nhi\r\n" % found[1].encode())
    assert asking.say() == rf"MSG in 1 2\r\nhi\r\nPONG\r\n {HEARD}"


def told(talk: Talk) -> list[tuple[dict[str, object], str]]:
    """What a service was told of who asks, but for what differs each time, and all other headers."""
    found = []
    for block in re.findall(r"NATS/1\.0\\r\\n(.*?)\\r\\n\\r\\n", talk.say()):
        lines = block.split(r"\r\n")
        infos = [json.loads(line.partition(":")[2]) for line in lines if line.lower().startswith("nats-request-info:")]
        assert len(infos) == 1
        infos[0].pop("rtt", None)
        found.append((infos[0], " ".join(line for line in lines if not line.lower().startswith("nats-request-info:"))))
    return found


FORGED = b'NATS/1.0\r\nNats-Request-Info: {"acc":"ADMIN","user":"root"}\r\nKey: value\r\n\r\n'


def test_nobody_says_himself_who_asks(kind: str, people: People) -> None:
    service, asking, further = people("first"), people("second"), people("third")
    service.say(b"SUB svc.> 1\r\n")
    end = time.monotonic() + TIMEOUT_S
    for each, question in ((asking, b"mine.settled"), (further, b"chain.settled")):  # real servers may not yet have seen that it is there
        while not told_one(service, each, question):
            assert time.monotonic() < end
    sizes = (len(FORGED), len(FORGED) + 1, FORGED)
    asking.say(b"HPUB mine.x %d %d\r\n%bx\r\n" % sizes, note="forged")
    asking.say(b"HPUB mine.x in %d %d\r\n%bx\r\nPUB mine.x in 1\r\nx\r\n" % sizes, note="forged")
    further.say(b"HPUB chain.x in %d %d\r\n%bx\r\n" % sizes, note="forged")
    second, third = {"acc": "SECOND"}, {"acc": "THIRD", "svc": "SECOND"}
    assert told(service) == [(second, "Key: value"), (second, "Key: value"), (second, ""), (third, "Key: value")]


def told_one(service: Talk, asking: Talk, question: bytes) -> bool:
    asking.say(b"PUB %b 0\r\n\r\n" % question)
    return len(told(service)) > 0
