"""Invariant: no input makes a codec raise, read outside its view, stop making progress, or differ between the builds.

Streams are written by a seeded generator that knows the commands, then damaged; a failure names its seed. Meant for
the build with bounds checks (`make fuzz`), where reading outside a view raises; every view ends where its bytes end.
"""

from __future__ import annotations

import itertools
import random
from typing import TYPE_CHECKING, Any

import pytest

from polymq.protocols.nsq import decode, encode
from polymq.protocols.nsq.frames import FrameReader, MessageRun
from polymq.protocols.nsq.identify import first_agreement, negotiate
from polymq.protocols.nsq.settings import NsqSettings
from tests.unit.protocols.nsq import streams
from tests.unit.protocols.nsq.streams import dpub, i32, identify, mpub, pub, run

if TYPE_CHECKING:
    from collections.abc import Callable

SEEDS = range(40)
STREAMS_PER_SEED = 60
SMALL = NsqSettings(message_size_bytes_max=300, body_size_bytes_max=2000)
NUMBERS = (0, 1, 2, 4, 5, 299, 300, 301, 2000, 2001, 0x7FFF_FFFF, -1, -(2**31), 65536)

plain = streams.interpreted("polymq.protocols.nsq.decode")


def body(random_: random.Random) -> bytes:
    return random_.randbytes(random_.choice((1, 2, 7, 40, 300)))


def command(random_: random.Random) -> bytes:
    """One command, right as a rule."""
    topic = random_.choice((b"t", b"u", b"a.b#ephemeral", b"bad!"))
    raw_id = b"%016x" % random_.getrandbits(random_.choice((8, 40, 63, 64)))
    number = str(random_.choice(NUMBERS)).encode()
    makers: tuple[Callable[[], bytes], ...] = (
        lambda: pub(topic, body(random_)) * random_.randint(1, 4),
        lambda: mpub(topic, [body(random_) for _ in range(random_.randint(1, 6))], random_.choice((None, 1, 2000))),
        lambda: dpub(topic, random_.choice((0, 5, 3_600_000)), body(random_)),
        lambda: (b"FIN " + raw_id + b"\n") * random_.randint(1, 5),
        lambda: b"REQ " + raw_id + b" " + number + b"\n",
        lambda: b"TOUCH " + raw_id + b"\r\n",
        lambda: b"RDY " + number + b"\n",
        lambda: b"NOP\n",
        lambda: random_.choice((b"SUB t c\n", b"CLS\n", identify(), b"AUTH\n" + i32(1) + b"x")),
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
                damaged[at : at + 4] = i32(random_.choice(NUMBERS))
            case _:
                damaged[at:at] = random_.choice((b"\n", b" ", b"\r\n", b"FIN ", b"PUB t\n", b"MPUB t\n"))
    return bytes(damaged)


def stream_of(random_: random.Random) -> bytes:
    start = random_.choice((b"", b"SUB t c\n", b"SUB t c\n"))
    return damage(start + b"".join(command(random_) for _ in range(random_.randint(1, 10))), random_)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_decoder(seed: int) -> None:
    random_ = random.Random(seed)
    for _ in range(STREAMS_PER_SEED):
        stream = stream_of(random_)
        cuts = [random_.randrange(len(stream) + 1) for _ in range(random_.randrange(6))]
        # `run` checks that feeds consume what they may, ask for more than is left, and hand out bodies of the view.
        said = run(stream, cuts, module=decode, settings=SMALL)
        assert said == run(stream, settings=SMALL), (seed, stream, cuts)
        assert said == run(stream, cuts, module=plain, settings=SMALL), (seed, stream, cuts)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_frame_reader(seed: int) -> None:
    random_ = random.Random(seed)
    message = b"\0\0\0\x20\0\0\0\x02" + bytes(10) + b"0123456789abcdef" + b"hi"
    for _ in range(STREAMS_PER_SEED):
        parts = random_.choices((encode.OK_FRAME, encode.HEARTBEAT_FRAME, encode.error_frame(b"E_X y"), message), k=random_.randint(1, 8))
        stream = damage(b"".join(parts), random_)
        cuts = sorted(random_.randrange(len(stream) + 1) for _ in range(4))
        pieces = [stream[start:stop] for start, stop in itertools.pairwise([0, *cuts, len(stream)])]
        assert read(pieces) == read([stream]), (seed, stream, cuts)


def read(pieces: list[bytes]) -> list[Any]:
    reader = FrameReader()
    found: list[Any] = []
    for piece in pieces:
        for frame in reader.feed(piece):
            found.extend(frame.messages() if isinstance(frame, MessageRun) else [frame])
    return found


@pytest.mark.parametrize("seed", SEEDS)
def test_identify(seed: int) -> None:
    random_ = random.Random(seed)
    text = b'{"client_id":null,"HOSTNAME":"\\u00e9","heartbeat_interval":1e3,"msg_timeout":1000,"snappy":true,"x":[{"y":-0.5}]}'
    for _ in range(STREAMS_PER_SEED):
        settings = NsqSettings(snappy=True)
        outcome = negotiate(damage(text, random_), settings, first_agreement(settings))
        assert isinstance(outcome, bytes) or outcome.reply
