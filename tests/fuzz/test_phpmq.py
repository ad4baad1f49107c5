"""Invariant: no input makes a PHPMQ codec raise, read outside its view, stop making progress, or differ between the builds.

Streams are written by a seeded generator that knows the messages, then damaged; a failure names its seed. Meant for
the build with bounds checks (`make fuzz`), where reading outside a view raises; every view ends where its bytes end.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from polymq.protocols.phpmq import decode
from polymq.protocols.phpmq.frames import FrameReader, Violation, WireMessage
from polymq.protocols.phpmq.ids import id_text
from polymq.protocols.phpmq.names import queue_of, topic_of
from polymq.protocols.phpmq.settings import PhpmqSettings
from tests.unit.protocols.phpmq import streams
from tests.unit.protocols.phpmq.streams import SALT, acknowledge, consume, dead_letter, message, requeue, run, send

if TYPE_CHECKING:
    from collections.abc import Callable

SEEDS = range(40)
STREAMS_PER_SEED = 60
SMALL = PhpmqSettings(salt=SALT, content_size_bytes_max=300, ttl_s_max=10_000)
NUMBERS = (0, 1, 5, 9_999, 10_000, 10_001, 2**31, 2**63 - 1, 2**63, 10**18, -1, "", "x", "1 ", "00000")

plain = streams.interpreted("polymq.protocols.phpmq.decode")


def one(random_: random.Random) -> bytes:
    """One message, right as a rule."""
    queue = random_.choice((b"q", b"queue", b"\xff\x00", b"", b"Q" * 255, b"Q" * 256))
    body = random_.randbytes(random_.choice((0, 1, 7, 40, 300, 301)))
    raw_id = random_.choice((id_text(random_.getrandbits(63), SALT), id_text(5, SALT + 1), b"f" * 32, b"", b"i" * 255))
    number = random_.choice(NUMBERS)
    makers: tuple[Callable[[], bytes], ...] = (
        lambda: send(queue, body) * random_.randint(1, 4),
        lambda: send(queue, body, random_.choice((0, 5, 10_000))) * random_.randint(1, 4),
        lambda: send(queue, body, number),
        lambda: acknowledge(queue, raw_id) * random_.randint(1, 5),
        lambda: consume(queue, number),
        lambda: requeue(queue, raw_id, number),
        lambda: dead_letter(queue, raw_id),
        lambda: message(random_.randint(0, 9), (random_.randint(0, 6), body), (1, queue), version=random_.choice((0, 1, 1, 1, 2))),
    )
    return random_.choice(makers)()


def damage(stream: bytes, random_: random.Random) -> bytes:
    """Change, remove, repeat or insert a few bytes."""
    damaged = bytearray(stream)
    for _ in range(random_.choice((0, 1, 1, 2, 5))):
        at = random_.randrange(len(damaged) + 1)
        size = random_.choice((1, 1, 4, 32))
        kind = random_.randrange(4)
        if kind == 0:
            damaged[at : at + size] = random_.randbytes(len(damaged[at : at + size]))
        elif kind == 1:
            del damaged[at : at + size]
        elif kind == 2:
            damaged[at:at] = damaged[at : at + size]
        else:
            damaged[at:at] = random_.choice((b"H", b"P", b"0", b"9" * 29, b"\n", b"\xff"))
    return bytes(damaged)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_servers_ear(seed: int) -> None:
    random_ = random.Random(seed)
    for _ in range(STREAMS_PER_SEED):
        stream = damage(b"".join(one(random_) for _ in range(random_.randint(1, 12))), random_)
        cuts = [random_.randrange(len(stream) + 1) for _ in range(random_.randint(0, 6))]
        whole = run(stream, settings=SMALL)
        assert run(stream, cuts, settings=SMALL) == whole
        assert run(stream, cuts, settings=SMALL, module=plain) == whole
        assert all(event[0] != "violation" for event in whole[:-1])


@pytest.mark.parametrize("seed", SEEDS)
def test_the_clients_ear(seed: int) -> None:
    random_ = random.Random(seed)
    for _ in range(STREAMS_PER_SEED):
        parts = []
        for _ in range(random_.randint(1, 6)):
            packets = [(1, b"q"), (2, random_.randbytes(random_.choice((0, 1, 50)))), (3, b"i" * 32), (5, b"%d" % random_.getrandbits(20))]
            random_.shuffle(packets)
            parts.append(message(3, *packets))
        stream = damage(b"".join(parts), random_)
        whole = FrameReader().feed(stream)
        reader, found, at = FrameReader(), [], 0
        while at < len(stream):
            step = random_.randint(1, 60)
            found += reader.feed(stream[at : at + step])
            at += step
        assert found == whole
        assert all(isinstance(each, WireMessage) for each in whole[:-1])
        assert all(isinstance(each, WireMessage | Violation) for each in whole)


@pytest.mark.parametrize("seed", SEEDS)
def test_names(seed: int) -> None:
    random_ = random.Random(seed)
    for _ in range(STREAMS_PER_SEED):
        raw = bytes(random_.choices((*b"%0123456789ABCDEFa", 0, 10, 127, 128, 195, 164, 237, 255), k=random_.randint(0, 90)))
        topic = topic_of(raw)
        assert topic is None or queue_of(topic) == raw


def test_the_seeds_reach_what_they_are_for() -> None:
    random_ = random.Random(1)
    kinds = set()
    for _ in range(500):
        kinds |= {event[0] if event[0] != "violation" else event[1] for event in run(one(random_), settings=SMALL)}
    assert kinds >= {
        "send",
        "settle",
        "foreign",
        "consume",
        "requeue",
        "remove",
        "number",
        "length",
        "type",
        "count",
        "version",
        "packet-type",
    }
    assert decode.__all__ == ["Decoder"]
