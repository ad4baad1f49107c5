"""The checksum is zlib's, without its top bit."""

from __future__ import annotations

import random
import zlib

from polymq.protocols.rocketmq import checksums
from tests.unit.protocols.nsq.streams import interpreted

plain = interpreted("polymq.protocols.rocketmq.checksums")


def test_vectors_of_the_real_broker() -> None:
    for module in (checksums, plain):
        assert module.CHECKSUM.body_crc(b"hello", 0, 5) == 0x3610A686
        assert module.CHECKSUM.body_crc(b"xbatch1y", 1, 6) == 0x029AF228


def test_any_size_at_any_place() -> None:
    random_ = random.Random(1)
    data = random_.randbytes(300)
    for _ in range(300):
        at = random_.randrange(300)
        size = random_.randrange(300 - at)
        assert checksums.CHECKSUM.body_crc(data, at, size) == zlib.crc32(data[at : at + size]) & 0x7FFFFFFF


def test_the_tables_are_those_that_everybody_has() -> None:
    fresh = plain.Checksum()
    assert list(fresh.tables[:3]) == [0, 0x77073096, 0xEE0E612C]
