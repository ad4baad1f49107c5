"""Invariant: no input makes the directory's codecs raise, stop making progress, or depend on how the input is cut.

Streams are written by a seeded generator that knows the commands, then damaged; a failure names its seed. The whole
gateway is fuzzed too: whatever nodes say, what the registry counts is what it holds, and it is empty when all are gone.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from polymq.protocols.nsqlookup.encode import OK, response
from polymq.protocols.nsqlookup.frames import ReplyReader
from polymq.protocols.nsqlookup.identify import parse_identity, parse_reply
from tests.fuzz.test_nsq import damage
from tests.unit.gateways.nsqlookup.memory import MemoryDirectory
from tests.unit.protocols.nsqlookup.streams import GOOD, identify, run

if TYPE_CHECKING:
    from collections.abc import Callable

SEEDS = range(40)
STREAMS_PER_SEED = 60
NAMES = (b"t", b"u", b"v#ephemeral", b"bad!", b"", b"x" * 65)


def command(random_: random.Random) -> bytes:
    """One command, right as a rule."""
    topic, channel = random_.choice(NAMES), random_.choice(NAMES)
    makers: tuple[Callable[[], bytes], ...] = (
        lambda: b"REGISTER " + topic + b" " + channel + b"\n",
        lambda: b"REGISTER " + topic + b"\n",
        lambda: b"UNREGISTER " + topic + b" " + channel + b"\r\n",
        lambda: b"UNREGISTER " + topic + b"\n",
        lambda: b"PING\n",
    )
    return random_.choice(makers)()


def stream_of(random_: random.Random) -> bytes:
    start = random_.choice((identify(), identify(), identify(b"{}"), b""))
    return damage(start + b"".join(command(random_) for _ in range(random_.randint(0, 10))), random_)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_decoder(seed: int) -> None:
    random_ = random.Random(seed)
    for _ in range(STREAMS_PER_SEED):
        stream = stream_of(random_)
        cuts = [random_.randrange(len(stream) + 1) for _ in range(random_.randrange(6))]
        assert run(stream, cuts) == run(stream), (seed, stream, cuts)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_directory(seed: int) -> None:
    random_ = random.Random(seed)
    directory = MemoryDirectory(registrations_max=random_.choice((3, 10, 1000)))
    for number in range(STREAMS_PER_SEED // 10):
        directory.connect(str(number))
        directory.send(str(number), b"  V1")
    for number in range(STREAMS_PER_SEED):
        name = random_.choice(list(directory.links))
        directory.send(name, stream_of(random_))
        if random_.random() < 0.2:
            directory.close(name)
            directory.connect(str(100 + number))
            directory.send(str(100 + number), b"  V1")
        for path in ("/nodes", "/debug", "/topics", "/lookup?topic=t"):
            assert directory.ask("GET", path)[0] in (200, 404), seed
        directory.wait(random_.choice((0, 1, 200)))
    for name in list(directory.links):
        directory.close(name)
    assert directory.registry.nodes() == []
    directory.ask("POST", "/topic/delete?topic=*")
    assert directory.registry.size == 0, seed


@pytest.mark.parametrize("seed", SEEDS)
def test_the_answers(seed: int) -> None:
    random_ = random.Random(seed)
    for _ in range(STREAMS_PER_SEED):
        parts = random_.choices((OK, response(GOOD), response(b"E_INVALID x"), response(b"")), k=random_.randint(1, 6))
        stream = damage(b"".join(parts), random_)
        whole = read(stream, [])
        assert read(stream, sorted(random_.randrange(len(stream) + 1) for _ in range(4))) == whole, (seed, stream)


def read(stream: bytes, cuts: list[int]) -> list[bytes | None]:
    """Everything that a node hears; None last if it is nonsense."""
    reader = ReplyReader()
    found: list[bytes | None] = []
    rest = b""
    for start, stop in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        rest += stream[start:stop]
        if len(rest) < reader.need:
            continue
        replies, consumed = reader.feed(memoryview(rest))
        found += replies
        if consumed is None:
            return [*found, None]
        rest = rest[consumed:]
        assert reader.need > len(rest)
    return found


@pytest.mark.parametrize("seed", SEEDS)
def test_identities(seed: int) -> None:
    random_ = random.Random(seed)
    for _ in range(STREAMS_PER_SEED):
        body = damage(GOOD, random_)
        parse_identity(body)
        parse_reply(body)
