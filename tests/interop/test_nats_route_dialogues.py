"""What a server answers on a route to another server that is made of bytes: polymq as the newest nats-server, or a reason why not.

Each dialogue is held with both, on their route ports: lines are sent, and what comes back is compared, without INFO and without what
real servers tell each other in their own account; then whether the connection is still there.
"""

from __future__ import annotations

import contextlib
import socket
from typing import TYPE_CHECKING

import pytest

from tests.interop.nats_route_peer import HELLO, TIMEOUT_S, Talk, await_no_routes, connect, info
from tests.interop.nats_secrets import tls_block, tls_context
from tests.interop.nats_servers import NATS_KINDS, POLYMQ, NatsOptions, NatsServer, ending

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterator
    from pathlib import Path

    from tests.unit.wire.authority import Authority

NEW = NATS_KINDS[0]

DIALOGUES: dict[str, bytes] = {
    "good": HELLO,
    "ping first": b"",
    "info first": info(),
    "interest first": b"RS+ $G foo\r\n",
    "a client": connect(lang="go"),
    "a gateway": connect(gateway="G"),
    "another cluster": connect(cluster="elsewhere"),
    "no cluster": connect(cluster=""),
    "another cluster in info": connect() + info(cluster="elsewhere"),
    "no cluster in info": connect() + info(cluster=""),
    "an account": connect(account="A"),
    "a new account": connect(new_account=True),
    "tls required": connect(tls_required=True) + info(),
    "bad json in connect": b"CONNECT {\r\n",
    "bad json in info": connect() + b"INFO {\r\n",
    "connect twice": HELLO + connect(),
    "no id in info": connect() + info(server_id=None),
    "no name": connect() + info(server_name=None),
    "an account of its own": connect() + info(route_account="A1"),
    "the system's account of its own": connect() + info(route_account="$SYS"),
    "unknown compression": connect() + info(compression="zip"),
    "compression off": connect() + info(compression="off"),
    "no headers": connect(headers=False) + info(headers=False),
    "gossip that is turned off": connect() + info(gossip_mode=1),
    "unknown verb": HELLO + b"XYZ\r\n",
    "blank line": HELLO + b"\r\n",
    "leading blank": HELLO + b" PING\r\n",
    "ping with text": HELLO + b"PING xyz\r\n",
    "newline alone": HELLO + b"PING\n",
    "ok": HELLO + b"+OK\r\n",
    "error": HELLO + b"-ERR 'x'\r\n",
    "RS+ one word": HELLO + b"RS+ $G\r\n",
    "RS+ three words": HELLO + b"RS+ $G foo q\r\n",
    "RS+ five words": HELLO + b"RS+ $G foo q 1 2\r\n",
    "RS- one word": HELLO + b"RS- $G\r\n",
    "RS- four words": HELLO + b"RS- $G foo q 1\r\n",
    "RS+ weight is none": HELLO + b"RS+ $G foo q xx\r\n",
    "RS+ weight 0": HELLO + b"RS+ $G foo q 0\r\n",
    "RS+ bad subject": HELLO + b"RS+ $G foo..bar\r\n",
    "RS+ wildcard in the middle": HELLO + b"RS+ $G a.>.b\r\n",
    "RS+ unknown account": HELLO + b"RS+ NONE foo\r\n",
    "RS- unknown": HELLO + b"RS- $G nothing\r\n",
    "LS lines": HELLO + b"LS+ leaf $G foo\r\nLS+ leaf $G foo q 1\r\nLS-  $G foo\r\nLS- $G foo q\r\n",
    "LS+ two words": HELLO + b"LS+ $G foo\r\n",
    "A lines": HELLO + b"A+ $G\r\nA- $G\r\n",
    "SUB": HELLO + b"SUB foo 1\r\n",
    "UNSUB": HELLO + b"UNSUB 1\r\n",
    "PUB": HELLO + b"PUB foo 5\r\nhello\r\n",
    "MSG": HELLO + b"MSG foo 1 5\r\nhello\r\n",
    "RMSG": HELLO + b"RMSG $G foo 5\r\nhello\r\n",
    "RMSG size is none": HELLO + b"RMSG $G foo xx\r\n",
    "RMSG two words": HELLO + b"RMSG $G 5\r\n",
    "RMSG no sign": HELLO + b"RMSG $G foo a b 5\r\nhello\r\n",
    "RMSG no groups": HELLO + b"RMSG $G foo + r 5\r\nhello\r\n",
    "RMSG bad end": HELLO + b"RMSG $G foo 5\r\nhelloXX\r\n",
    "RMSG unknown account": HELLO + b"RMSG NONE foo 5\r\nhello\r\n",
    "HMSG more headers than message": HELLO + b"HMSG $G foo 9 5\r\nhello\r\n",
    "LMSG": HELLO + b"LMSG leaf $G foo 0 5\r\nhello\r\n",
    "a line of 40 kB": HELLO + b"RS+ $G " + b"a" * 40_000 + b"\r\n",
    "a line of 70 kB": HELLO + b"RS+ $G " + b"a" * 70_000 + b"\r\n",
    "verbose": connect(verbose=True) + info() + b"RS+ $G foo\r\nRS- $G foo\r\n",
    "word of nobody": HELLO + info(server_id="NX"),
    "word of somebody nowhere": HELLO + info(server_id="NX", ip="garbage"),
    "word of a gateway": HELLO + info(server_id="NX", gateway="G"),
    "request for an account": HELLO + info(route_acc_add_reqid="r", route_account="A"),
}

# To servers without pools, as polymq always is. On a place where there is none (route_pool_idx) nats-server 2.15.2 panics.
POOL_DIALOGUES: dict[str, bytes] = {
    "a pool": connect() + info(route_pool_size=3),
    "a place in a pool": connect() + info(route_pool_size=3, route_pool_idx=1),
}
# To a server with a secret; its own connection each.
SECRET_DIALOGUES: dict[str, bytes] = {
    "right": connect(user="route", **{"pass": "r0ute"}) + info(),
    "wrong password": connect(user="route", **{"pass": "route"}) + info(),
    "wrong user": connect(user="root", **{"pass": "r0ute"}) + info(),
    "no password": connect(user="route") + info(),
    "nothing": HELLO,
    "a token": connect(auth_token="r0ute") + info(),
    "info first": info(),
    "interest first": b"RS+ $G foo\r\n",
    "ping first": b"",
    "a wrong verb first": b"XYZ\r\n",
    "a client": connect(lang="go", user="route", **{"pass": "r0ute"}),
    "another cluster": connect(cluster="elsewhere", user="route", **{"pass": "r0ute"}),
    "another cluster and wrong": connect(cluster="elsewhere", user="route"),
    "a client and wrong": connect(lang="go", user="route"),
}
# Where polymq answers otherwise: what nats-server says and polymq does not, and why.
DIFFERENCES: dict[str, tuple[tuple[bytes, ...], str]] = {
    "RS+ bad subject": ((b"-ERR 'Invalid Subscription'",), "nats-server hangs up on a route on which it is told of an error"),
    "RS+ wildcard in the middle": ((b"-ERR 'Invalid Subscription'",), "nats-server hangs up on a route on which it is told of an error"),
}


def started(folder: Path, options: NatsOptions) -> Iterator[dict[str, NatsServer]]:
    """A server of each kind with the same options."""
    made = {kind: NatsServer(kind, kind, folder, options) for kind in (POLYMQ, NEW)}
    for server in made.values():
        server.clustered = True
    with ending(list(made.values())):
        for server in made.values():
            server.start()
        yield made


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, NatsServer]]:
    yield from started(tmp_path_factory.mktemp("dialogues"), NatsOptions())


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, NatsServer]]:
    """They ask for a password, and give up soon whom they do not hear of."""
    options = NatsOptions(route_user="route:r0ute", route_more='ping_interval: "300ms", ping_max: 2')
    yield from started(tmp_path_factory.mktemp("guarded"), options)


@pytest.fixture(scope="module")
def without_pools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, NatsServer]]:
    yield from started(tmp_path_factory.mktemp("poolless"), NatsOptions(route_more="pool_size: -1"))


@pytest.fixture(scope="module")
def within_tls(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[dict[str, NatsServer]]:
    options = NatsOptions(route_tls=tls_block(authority, "localhost", verify=True).replace("timeout: 5", "timeout: 1"))
    yield from started(tmp_path_factory.mktemp("tls"), options)


def held(server: NatsServer, said: bytes) -> tuple[tuple[bytes, ...], bool]:
    """Hold a dialogue once the last one's route is gone."""
    await_no_routes(server)
    talk = Talk(server.route_port)
    try:
        return talk.hold(said)
    finally:
        talk.close()


@pytest.mark.parametrize("name", DIALOGUES)
def test_a_dialogue_goes_as_with_a_real_server(servers: dict[str, NatsServer], name: str) -> None:
    ours, theirs = (held(servers[kind], DIALOGUES[name]) for kind in (POLYMQ, NEW))
    left_out, _ = DIFFERENCES.get(name, ((), ""))
    if left_out:
        assert set(left_out) <= set(theirs[0])
    assert ours == (tuple(line for line in theirs[0] if line not in left_out), theirs[1])


@pytest.mark.parametrize("which", ["its own id", "its own name"])
def test_a_server_meets_itself(servers: dict[str, NatsServer], which: str) -> None:
    found = []
    for kind in (POLYMQ, NEW):
        talk = Talk(servers[kind].route_port)
        told = talk.greeting()
        said = {"server_id": told["server_id"]} if which == "its own id" else {"server_name": told["server_name"]}
        found.append(talk.hold(connect() + info(**said)))
        talk.close()
    assert found[0] == found[1] == ((), True)


def test_the_same_server_comes_twice(servers: dict[str, NatsServer]) -> None:
    found = []
    for kind in (POLYMQ, NEW):
        first, second = Talk(servers[kind].route_port), Talk(servers[kind].route_port)
        assert first.hold(HELLO) == ((b"PONG",), False)
        found.append(second.hold(HELLO))
        with contextlib.closing(first), contextlib.closing(second):
            first.heard = b""
            assert b"PONG" in first.hold(b"")[0]
            assert not first.ended
    assert found[0] == found[1] == ((), True)


def test_two_copies_of_a_line_are_one_interest(servers: dict[str, NatsServer]) -> None:
    """What a client publishes crosses once, with the names of the groups that were chosen, whatever matches."""
    found = []
    for kind in (POLYMQ, NEW):
        talk = Talk(servers[kind].route_port)
        talk.hold(HELLO + b"RS+ $G foo\r\nRS+ $G foo\r\nRS+ $G *\r\nRS+ $G foo q 2\r\n")
        talk.heard = b""
        with socket.create_connection(("127.0.0.1", servers[kind].client_port)) as client:
            client.sendall(
                b'CONNECT {"verbose":false,"headers":true}\r\nPUB foo 1\r\n1\r\nPUB foo r 1\r\n2\r\n'
                b"HPUB foo 12 13\r\nNATS/1.0\r\n\r\n3\r\nPUB bar 1\r\n4\r\nPUB a.b 1\r\n5\r\nPING\r\n"
            )
            while b"PONG" not in client.recv(65_536):
                pass
        while talk.heard.count(b"MSG $G") < 4:
            talk.hear(TIMEOUT_S)
        found.append(talk.hold(b""))
        talk.close()
    assert found[0] == found[1]
    assert found[0][0][:4] == (b"RMSG $G foo | q 1", b"1", b"RMSG $G foo + r q 1", b"2")


@pytest.mark.parametrize("name", POOL_DIALOGUES)
def test_who_asks_for_a_pool(without_pools: dict[str, NatsServer], name: str) -> None:
    ours, theirs = (held(without_pools[kind], POOL_DIALOGUES[name]) for kind in (POLYMQ, NEW))
    assert ours == theirs


@pytest.mark.parametrize("name", SECRET_DIALOGUES)
def test_a_dialogue_with_a_secret_goes_as_with_a_real_server(guarded: dict[str, NatsServer], name: str) -> None:
    ours, theirs = (held(guarded[kind], SECRET_DIALOGUES[name]) for kind in (POLYMQ, NEW))
    assert ours == theirs


def ended(server: NatsServer, said: bytes, tls: ssl.SSLContext | None = None) -> tuple[bytes, ...]:
    """What is heard by somebody who says this, and nothing more, until the server has closed; without its PINGs."""
    await_no_routes(server)
    with contextlib.closing(Talk(server.route_port, tls)) as talk:
        talk.say(said)
        talk.hear_end()
        return tuple(line for line in talk.lines() if line != b"PING")


@pytest.mark.parametrize("said", [b"", SECRET_DIALOGUES["right"]], ids=["nobody says anything", "nobody answers"])
def test_who_is_waited_for_in_vain(guarded: dict[str, NatsServer], said: bytes) -> None:
    """No CONNECT in time, and no PONG. Which of the two comes first where neither does depends on the server's settings."""
    ours, theirs = (ended(guarded[kind], said) for kind in (POLYMQ, NEW))
    assert ours == theirs
    assert len(ours) == 1


@pytest.mark.parametrize("said", [b"", HELLO], ids=["nothing", "plain text"])
def test_what_is_no_tls(within_tls: dict[str, NatsServer], said: bytes) -> None:
    ours, theirs = (ended(within_tls[kind], said) for kind in (POLYMQ, NEW))
    assert ours == theirs


def test_tls_without_a_certificate(within_tls: dict[str, NatsServer], authority: Authority) -> None:
    """The handshake is done where TLS 1.3 is spoken, and fails then."""
    for kind in (POLYMQ, NEW):
        assert ended(within_tls[kind], HELLO, tls_context(authority)) == ()
        with contextlib.closing(Talk(within_tls[kind].route_port, tls_context(authority, authority.issue("localhost")))) as talk:
            assert talk.hold(HELLO) == ((b"PONG",), False)
