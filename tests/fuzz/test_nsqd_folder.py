"""Invariant: no bytes make the decoders of nsqd's files raise anything but their own error, read outside, or differ between the builds.

Files are made as nsqd makes them, then damaged. Everything before the first damaged byte's record is found.
"""

from __future__ import annotations

import contextlib
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polymq.errors import RemoteProtocolError
from polymq.protocols.nsq import diskqueue
from polymq.protocols.nsq.datafolder import parse_file_name, parse_meta, parse_metadata
from tests.unit.protocols.nsq.queues import Stored, record
from tests.unit.protocols.nsq.streams import interpreted

plain = interpreted("polymq.protocols.nsq.diskqueue")
SEEDS = range(40)
FILES_PER_SEED = 30


def damaged(data: bytes, random_: random.Random) -> tuple[bytes, int]:
    """Change a few bytes; also gives the first place that may differ."""
    changed = bytearray(data)
    first = len(data)
    for _ in range(random_.choice((0, 1, 1, 3))):
        at = random_.randrange(len(changed) + 1)
        first = min(first, at)
        piece = random_.randbytes(random_.choice((0, 1, 4, 30)))
        changed[at : at + random_.choice((0, len(piece), 4, 1000))] = piece
    return bytes(changed), min(first, len(changed))


@pytest.mark.parametrize("seed", SEEDS)
def test_data_files(seed: int) -> None:
    random_ = random.Random(seed)
    for _ in range(FILES_PER_SEED):
        stored = [
            Stored(
                random_.getrandbits(63),
                random_.getrandbits(62),
                random_.randbytes(random_.choice((0, 1, 50, 3000))),
                random_.getrandbits(16),
            )
            for _ in range(random_.randrange(20))
        ]
        ends = [0]
        for message in stored:
            ends.append(ends[-1] + len(record(message)))
        data, first = damaged(b"".join(map(record, stored)), random_)
        start = random_.choice([0, 0, 0, *(end for end in ends if end <= len(data))])
        told = []
        for build in (diskqueue, plain):
            index, queue = build.MessageIndex(), build.QueueColumns(0)
            stop = index.scan(data, start, len(data), 3, queue)
            assert start <= stop <= len(data)
            if start <= first:
                assert stop >= max(end for end in ends if end <= first)
            order, _ = build.merge([queue], index.times())
            told.append(
                (stop, queue.rows(), list(index.times()), list(order), list(build.ranges_of([queue], order, len(order), len(index))))
            )
            behind = build.oversized(data, stop, len(data))
            assert behind == 0 or stop < behind <= len(data)
            again = build.resume(data, stop, len(data))
            assert stop < again <= len(data) or stop == again == len(data)
        assert told[0] == told[1]


@given(st.binary(max_size=300) | st.text('{}[]",:nullametopicshd1.-', max_size=300).map(str.encode))
def test_metadata(data: bytes) -> None:
    for parse in (parse_metadata, parse_meta):
        with contextlib.suppress(RemoteProtocolError):
            parse(data)


@given(st.text("0123456789,\n-", max_size=60))
def test_positions(text: str) -> None:
    with contextlib.suppress(RemoteProtocolError):
        meta = parse_meta(text.encode())
        assert min(meta.read_file, meta.read_position, meta.write_file, meta.write_position) >= 0


@given(st.text(max_size=60) | st.text("ab:.diskqueuemt0-", max_size=60))
def test_names(name: str) -> None:
    found = parse_file_name(name)
    assert found is None or found.topic
