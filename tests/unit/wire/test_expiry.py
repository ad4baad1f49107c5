from __future__ import annotations

import importlib.util
import sys
from array import array
from pathlib import Path
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from polymq.wire import expiry
from polymq.wire.batch import HEADER_SIZE_BYTES, BatchHeader, Message, read_messages, seal
from polymq.wire.expiry import EXPIRING_RECORD_OVERHEAD_BYTES, encode_expiring, expiry_of, leading
from polymq.wire.records import check
from polymq.wire.slices import MessageBatch
from tests.unit.protocols.nsq.test_encode import BASE_TIME_NS, slice_of

if TYPE_CHECKING:
    from types import ModuleType


def interpreted() -> ModuleType:
    spec = importlib.util.spec_from_file_location("expiry_interpreted", Path(expiry.__file__).parent / "expiry.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


plain = interpreted()
NOW_NS = BASE_TIME_NS
lifetimes = st.just(0) | st.integers(1, ((1 << 63) - 1 - NOW_NS) // 1000)


@given(st.lists(st.tuples(st.binary(max_size=40), lifetimes), min_size=1, max_size=20), st.integers(0, 5))
def test_records_have_their_bodies_and_ends(rows: list[tuple[bytes, int]], skipped: int) -> None:
    batch = MessageBatch.of([body for body, _ in rows])
    batch.first = min(skipped, len(rows) - 1)
    batch.count = len(rows) - batch.first
    lasting = memoryview(array("q", [end for _, end in rows]))
    written = []
    for module in (expiry, plain):
        target = bytearray(HEADER_SIZE_BYTES + batch.size_bytes + batch.count * EXPIRING_RECORD_OVERHEAD_BYTES)
        end = module.encode_expiring(target, HEADER_SIZE_BYTES, batch, lasting, 1000, NOW_NS)
        seal(target, 0, end, BatchHeader(count=batch.count, base_time_ns=BASE_TIME_NS, segment_id=1))
        assert check(target, 0, end) is None
        written.append(bytes(target[:end]))
    assert written[0] == written[1]
    expected = [Message(body, time_ns=BASE_TIME_NS, expiry_ns=NOW_NS + 1000 * life if life else None) for body, life in rows[batch.first :]]
    assert read_messages(written[0], 0, 0, 0, batch.count, len(written[0])) == expected


messages = st.builds(
    Message,
    st.binary(max_size=10),
    key=st.none() | st.just(b"k"),
    time_ns=st.just(0) | st.just(BASE_TIME_NS + 1),
    expiry_ns=st.none() | st.integers(BASE_TIME_NS - 1, BASE_TIME_NS + 2),
)


@given(st.lists(st.lists(messages, min_size=1, max_size=6), min_size=1, max_size=4), st.data())
def test_how_many_at_the_front_are_alike(groups: list[list[Message]], data: st.DataObject) -> None:
    flat = [message for group in groups for message in group]
    skipped = data.draw(st.integers(0, len(groups[0]) - 1))
    count = data.draw(st.integers(1, len(flat) - skipped))
    piece = slice_of(groups, skipped, count)
    over = [message.expiry_ns is not None and message.expiry_ns <= BASE_TIME_NS for message in flat[skipped : skipped + count]]
    alike = over.index(not over[0]) if (not over[0]) in over else len(over)
    assert leading(piece, BASE_TIME_NS) == plain.leading(piece, BASE_TIME_NS) == (-alike if over[0] else alike)
    assert expiry_of(piece) == plain.expiry_of(piece) == (flat[skipped].expiry_ns or 0)


def test_a_slice_that_begins_with_a_header() -> None:
    piece = slice_of([[Message(b"x", expiry_ns=7)]], 0, 1)
    piece.position, piece.batch_left = 0, 0
    assert (expiry_of(piece), leading(piece, 6), leading(piece, 7)) == (7, 1, -1)
    assert encode_expiring(bytearray(17), 0, MessageBatch.of([b"x"]), memoryview(array("q", [5])), 1, 0) == 17
