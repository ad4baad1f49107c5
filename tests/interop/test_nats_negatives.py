"""What a NATS client is refused, by those limits and rules that need a server of their own: the same words, or the same silence, as nats-server.

Limits of sizes and numbers, what cannot be read, and stale connections are in `test_nats_dialogues.py`, a client at the port of routes is in
`test_nats_route_dialogues.py`. What is answered otherwise is
listed with a reason in `nats_negatives.toml`, and has to be there.
"""

from __future__ import annotations

import contextlib
import socket
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.interop.nats_dialogue import PLAIN, QUIET, Case, Cases, Stage, Transcripts, played, wishes
from tests.interop.nats_secrets import nkey_of, tls_block
from tests.interop.nats_servers import NATS_KINDS, SERVING_KINDS, NatsOptions, NatsServer, ending

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.interop.nats_dialogue import Talk
    from tests.unit.wire.authority import Authority

CASES = Cases()
case = CASES.case
NEWEST = NATS_KINDS[0]
DIFFERENCES: list[dict[str, Any]] = tomllib.loads(Path(__file__).with_name("nats_negatives.toml").read_text(encoding="utf-8"))["difference"]
# Above what the system takes of who does not read, and what one server lets wait.
FLOOD_MESSAGES = 400
FLOOD_SIZE_BYTES = 64 * 1024
AFTER_DEADLINE_S = 1.5
READ_TIMEOUT_S = 20


def options(folder: Path, authority: Authority) -> dict[str, NatsOptions]:
    """Settings by name."""
    rules = """{user: u, password: p, permissions: {
        publish: {allow: ["yes.>", "_INBOX.>"], deny: "yes.no"},
        subscribe: {allow: ["yes.>", "q workers.*"], deny: "yes.no"},
    }}"""
    return {
        "password": NatsOptions(authorization="user: u, password: p, timeout: 1"),
        "users": NatsOptions(authorization=f"users: [{rules}, {{nkey: {nkey_of(folder)[0]}}}]"),
        "tls": NatsOptions(tls=tls_block(authority, "localhost").replace("timeout: 5", "timeout: 1")),
        "slow": NatsOptions(more="max_pending: 1MB"),
        "deadline": NatsOptions(more='write_deadline: "500ms"'),
    }


@pytest.fixture(scope="module")
def transcripts(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[Transcripts]:
    folder = tmp_path_factory.mktemp("nats")
    servers: dict[str, dict[str, NatsServer]] = {}
    with contextlib.ExitStack() as stack:
        for name, found in options(folder, authority).items():
            for kind in SERVING_KINDS:
                server = NatsServer(kind, f"{kind}-{name}", folder, found)
                stack.enter_context(ending([server]))
                server.start()
                servers.setdefault(name, {})[kind] = server
        yield played(CASES, servers)


@pytest.mark.parametrize("kind", [each for each in SERVING_KINDS if each != NEWEST])
@pytest.mark.parametrize("each", CASES.all, ids=lambda each: each.name)
def test_all_refuse_alike(each: Case, kind: str, transcripts: Transcripts) -> None:
    found, wanted = transcripts[each.name][kind], transcripts[each.name][NEWEST]
    assert wanted
    assert not any("the case broke off" in line for line in wanted), wanted
    listed = [difference for difference in DIFFERENCES if each.name in difference["cases"] and kind == difference["server"]]
    if listed:
        assert found != wanted, "take the difference off"
        assert listed[0]["reason"]
        wanted = listed[0]["answer"]
    assert found == wanted


def test_every_difference_is_of_a_case() -> None:
    names = {each.name for each in CASES.all}
    assert all(names.issuperset(difference["cases"]) for difference in DIFFERENCES)


def said(*pieces: bytes) -> Callable[[Stage], None]:
    def play(stage: Stage) -> None:
        talk = stage.connect()
        for piece in pieces:
            talk.say(piece)

    return play


# -- who comes in ---------------------------------------------------------------------------------------------------------

for name, first in {
    "PING": b"",
    "PONG": b"PONG\r\n",
    "SUB": b"SUB a 1\r\n",
    "UNSUB": b"UNSUB 1\r\n",
    "PUB": b"PUB a 1\r\nx\r\n",
    "HPUB": b"HPUB a 12 13\r\nNATS/1.0\r\n\r\nx\r\n",
    "INFO": b"INFO {}\r\n",
    "+OK": b"+OK\r\n",
    "an unknown word": b"NOPE\r\n",
    "an empty line": b"\r\n",
    "half of CONNECT": b"CONN\r\n",
}.items():
    CASES.add(f"before CONNECT, {name}", said(first), "password")
WRONG: dict[str, dict[str, object]] = {
    "nothing": {},
    "no password": {"user": "u"},
    "another password": {"user": "u", "pass": "P"},
    "another user": {"user": "U", "pass": "p"},
    "a token": {"auth_token": "p"},
    "a key": {"nkey": "UABC", "sig": "abc"},
    "a JWT": {"jwt": "e.e.e", "sig": "abc"},
    "an account": {"user": "u", "pass": "p", "account": "A"},
    "a new account": {"user": "u", "pass": "p", "account": "A", "new_account": True},
    "a wrong protocol": {"user": "u", "pass": "p", "protocol": 7},
    "a wrong protocol and password": {"user": "u", "pass": "x", "protocol": 7},
    "no headers for no_responders": {"user": "u", "pass": "p", "no_responders": True, "headers": False},
}
for name, wanted in WRONG.items():
    CASES.add(f"CONNECT with {name}", said(wishes(verbose=False, **wanted)), "password")
WRONG_KEYS: dict[str, dict[str, object]] = {
    "a key that is none": {"nkey": "x", "sig": "x"},
    "a key without a signature": {"nkey": "UABC"},
    "a JWT where there are keys": {"jwt": "e.e.e", "sig": "abc"},
}
for name, wanted in WRONG_KEYS.items():
    CASES.add(f"CONNECT with {name}", said(wishes(verbose=False, **wanted)), "users")
RIGHT = wishes(verbose=False, user="u", **{"pass": "p"})
CASES.add("CONNECT that is right, and then wrong", said(RIGHT, PLAIN, b"PUB a 0\r\n\r\n"), "password")


@case("password")
def nobody_says_who_he_is(stage: Stage) -> None:
    heard = stage.connect().hear_for(5)
    stage.note(f"{b''.join(data for _, data in heard)!r}, in time: {0.9 < heard[-1][0] < 3}")


# -- who may do what ------------------------------------------------------------------------------------------------------

for name, line in {
    "SUB": b"SUB no 1\r\nSUB yes.no 2\r\nSUB yes.a 3\r\n",
    "SUB of everything": b"SUB > 1\r\nSUB * 2\r\nSUB *.a 3\r\n",
    "SUB in a group": b"SUB no g 1\r\nSUB q workers.a 2\r\nSUB q loafers 3\r\nSUB q 4\r\nSUB yes.no workers.a 5\r\n",
    "SUB of nothing good": b"SUB no..a 1\r\nSUB yes..a 2\r\nSUB no _sys_ 3\r\n",
    "PUB": b"PUB no 0\r\n\r\nPUB yes.no 0\r\n\r\nPUB yes.a 0\r\n\r\n",
    "HPUB": b"HPUB no 12 12\r\nNATS/1.0\r\n\r\n\r\n",
    "PUB with quotes": b"PUB a\"b'c\\d 0\r\n\r\n",
    "PUB with bytes that are no text": b"PUB \xff\x01 0\r\n\r\n",
    "PUB with a reply": b"PUB yes.a no 0\r\n\r\nPUB no yes.a 0\r\n\r\n",
    "UNSUB of what was forbidden": b"SUB no 1\r\nUNSUB 1\r\nSUB yes.a 1\r\n",
}.items():
    for called, verbose in (("quiet", False), ("verbose", True)):
        connect = wishes(verbose=verbose, pedantic=False, headers=True, user="u", **{"pass": "p"})
        CASES.add(f"forbidden, {name}, {called}", said(connect + line), "users")


# -- doors ----------------------------------------------------------------------------------------------------------------


@case("tls")
def plain_words_where_tls_is_wanted(stage: Stage) -> None:
    talk = stage.connect()
    talk.send(PLAIN + b"PING\r\n")
    stage.note(repr([data for _, data in talk.hear_for(3)]))


@case("tls")
def silence_where_tls_is_wanted(stage: Stage) -> None:
    heard = stage.connect().hear_for(5)
    stage.note(f"{b''.join(data for _, data in heard)!r}, closed in time: {0.9 < heard[-1][0] < 3}")


# -- who does not read ----------------------------------------------------------------------------------------------------


def flooded(stage: Stage) -> None:
    """Somebody who does not read, beside somebody who does: who is closed, and with which words at the end."""
    slow, quick, publisher = (stage.connect(name, connect=QUIET) for name in ("slow", "quick", "publisher"))
    for talk in (slow, quick):
        talk.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
        talk.say(b"SUB flood.%b 1\r\n" % stage.word.encode())
    body = bytes(FLOOD_SIZE_BYTES)
    line = b"MSG flood.%b 1 %d\r\n" % (stage.word.encode(), len(body))
    reader = ThreadPoolExecutor(1)
    got = reader.submit(had_all, quick, line)
    for _ in range(FLOOD_MESSAGES):
        publisher.say(b"PUB" + line[3:].replace(b" 1 ", b" ") + body + b"\r\n")
        stage.lines.pop()
    stage.note(f"quick had all: {got.result()}")
    reader.shutdown()
    time.sleep(AFTER_DEADLINE_S)
    data = b"".join(heard for _, heard in slow.hear_for(5))
    stage.note(f"slow is closed: {slow.closed}, had all: {data.count(line) == FLOOD_MESSAGES}, was told: {b'-ERR' in data}")
    publisher.say(b"")


def had_all(talk: Talk, line: bytes) -> bool:
    """Read until all messages have begun, if they come."""
    talk.socket.settimeout(READ_TIMEOUT_S)
    found, rest = 0, b""
    while found < FLOOD_MESSAGES:
        data = talk.socket.recv(1 << 18)
        if not data:
            return False
        rest += data
        found += rest.count(line)
        rest = rest[1 - len(line) :]
    return True


CASES.add("more than max_pending waits", flooded, "slow")
CASES.add("nothing is taken for write_deadline", flooded, "deadline")
