"""Invariant: no input makes NATS' decoder raise, read outside its view, stop making progress, or differ between the builds.

Streams are written by a seeded generator that knows the commands, then damaged; a failure names its seed. Meant for
the build with bounds checks (`make fuzz`), where reading outside a view raises; every view ends where its bytes end.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from polymq.protocols.nats import decode, info
from polymq.protocols.nats.commands import PeerKind
from polymq.protocols.nats.settings import NatsSettings
from tests.fuzz.test_nsq import SEEDS
from tests.unit.protocols.nats.streams import Facts, hpub, pub, run
from tests.unit.protocols.nsq.streams import interpreted

if TYPE_CHECKING:
    from collections.abc import Callable

STREAMS_PER_SEED = 60
SMALL = NatsSettings(payload_size_bytes_max=300, line_size_bytes_max=80, routed_payload_size_bytes_max=200)
SIZES = (b"0", b"1", b"40", b"199", b"201", b"301", b"999999999", b"1000000000", b"-1", b"x")

plain = interpreted("polymq.protocols.nats.decode")


def name(random_: random.Random) -> bytes:
    return random_.choice(
        (b"a", b"a.b", b"foo.*", b">", b"_INBOX.abc", b"_GR_.x", b"_R", b"$JS.ACK.x", b"$N", b"+", b"|", random_.randbytes(3))
    )


def payload(random_: random.Random) -> bytes:
    return random_.randbytes(random_.choice((0, 1, 2, 7, 40, 300)))


def routed(random_: random.Random) -> bytes:
    verb = random_.choice((b"RMSG", b"HMSG", b"LMSG", b"rmsg"))
    words = [verb, *([b"o"] if verb == b"LMSG" else []), *([b"$G"] if random_.random() < 0.8 else []), name(random_)]
    words += random_.choice(
        ([], [b"r"], [b"+", b"r"], [b"|", b"q"], [b"+", b"r", b"q", b"p"], [b"|", b"q", b"p"], [b"|", b"_sys_", b"q", b"_sys_"])
    )
    body = payload(random_)
    words += [b"%d" % random_.randint(0, len(body))] if verb.upper() != b"RMSG" else []
    return random_.choice((b" ", b"\t", b"  ")).join([*words, b"%d" % len(body)]) + b"\r\n" + body + b"\r\n"


def command(random_: random.Random) -> bytes:
    """One command, right as a rule."""
    makers: tuple[Callable[[], bytes], ...] = (
        lambda: pub(name(random_), payload(random_), random_.choice((b"", b"r"))) * random_.randint(1, 4),
        lambda: hpub(name(random_), payload(random_), payload(random_), random_.choice((b"", b"r"))),
        lambda: routed(random_),
        lambda: routed(random_),
        lambda: b"SUB " + name(random_) + random_.choice((b" 1\r\n", b" q 1\n")),
        lambda: b"UNSUB 1 " + random_.choice(SIZES) + b"\r\n",
        lambda: (
            random_.choice((b"RS+ $G ", b"RS- $G ", b"LS+ o $G ", b"LS-  $G ", b"A+ "))
            + name(random_)
            + random_.choice((b"\r\n", b" q 2\r\n"))
        ),
        lambda: random_.choice(
            (b"PING\r\n", b"PONG x\n", b"+OK\r\n", b"CONNECT {}\r\n", b"INFO {}\r\n", b"CONNECT{noheaders}\r\n", b"-ERR x\r\n")
        ),
    )
    return random_.choice(makers)()


def damage(stream: bytes, random_: random.Random) -> bytes:
    """Change, remove, repeat or insert a few bytes."""
    damaged = bytearray(stream)
    for _ in range(random_.choice((0, 1, 1, 2, 5))):
        at = random_.randrange(len(damaged) + 1)
        size = random_.choice((1, 1, 2, 4, 30))
        match random_.randrange(5):
            case 0:
                damaged[at : at + size] = random_.randbytes(size)
            case 1:
                del damaged[at : at + size]
            case 2:
                damaged[at:at] = damaged[at : at + size]
            case 3:
                damaged[at : at + 1] = random_.choice(SIZES)
            case _:
                damaged[at:at] = random_.choice((b"\n", b" ", b"\r\n", b"\r", b"PUB ", b"PUB a 1\r\n", b"\t", b" " * 90))
    return bytes(damaged)


@pytest.mark.parametrize("kind", PeerKind)
@pytest.mark.parametrize("seed", SEEDS)
def test_the_decoder(seed: int, kind: PeerKind) -> None:
    random_ = random.Random(seed)
    for _ in range(STREAMS_PER_SEED):
        stream = damage(b"".join(command(random_) for _ in range(random_.randint(1, 10))), random_)
        cuts = [random_.randrange(len(stream) + 1) for _ in range(random_.randrange(6))]
        facts = Facts(random_.random() < 0.9, random_.random() < 0.1, random_.random() < 0.3)
        # `run` checks that feeds consume what they may, ask for more than is left, and hand out rows within the view.
        said = run(stream, cuts, kind=kind, module=decode, settings=SMALL, facts=facts)
        assert said == run(stream, kind=kind, settings=SMALL, facts=facts), (seed, stream, cuts)
        assert said == run(stream, cuts, kind=kind, module=plain, settings=SMALL, facts=facts), (seed, stream, cuts)


@pytest.mark.parametrize("seed", SEEDS)
def test_info_and_connect(seed: int) -> None:
    random_ = random.Random(seed)
    text = (
        b'{"server_id":"N","PORT":4222,"connect_urls":["a:1",null],"import":{"allow":["\\u003e"],"deny":null},"verbose":true,'
        b'"protocol":1,"pass":"\\ud800","client_id":1e3,"x":[{"y":-0.5}],"gossip_mode":1}'
    )
    for _ in range(STREAMS_PER_SEED):
        body = damage(text, random_)
        found = info.parse_info(body)
        if found is not None:
            assert info.parse_info(info.write_info(found)[5:]) == found
        connect = info.parse_connect(body)
        assert connect is None or info.parse_connect(b"{}", connect) == connect
        route = info.parse_route_connect(body)
        assert route is None or info.parse_route_connect(info.write_connect(route)[8:]) is not None
