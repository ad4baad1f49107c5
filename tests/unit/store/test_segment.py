"""The segment header: round trip, and every byte matters."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from polymq.store.segment import (
    MAGIC_JOURNAL,
    MAGIC_LOG,
    SEGMENT_HEADER_SIZE_BYTES,
    Segment,
    check_segment_header,
    encode_segment_header,
    parse_segment_header,
)
from polymq.testing.disk import FakeFiles

U32, U64, I64 = st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1), st.integers(0, 2**63 - 1)


@given(U32, U64, I64, I64, U64, U32)
def test_a_header_comes_back(partition: int, segment_id: int, base: int, created: int, size: int, epoch: int) -> None:
    data = encode_segment_header(
        MAGIC_LOG, partition, segment_id=segment_id, base_offset=base, created_ns=created, size_bytes=size, epoch=epoch
    )
    assert len(data) == SEGMENT_HEADER_SIZE_BYTES
    assert check_segment_header(data, MAGIC_LOG, partition, base) is None
    header = parse_segment_header(data)
    assert header[4:] == (partition, segment_id, base, created, size, epoch)


def test_a_change_of_any_byte_is_noticed() -> None:
    data = encode_segment_header(MAGIC_LOG, 3, segment_id=9, base_offset=5, created_ns=1, size_bytes=4096, epoch=1)
    for at in range(len(data)):
        changed = bytearray(data)
        changed[at] ^= 1
        assert check_segment_header(bytes(changed), MAGIC_LOG, 3, 5) is not None, at


def test_what_is_wrong_is_said() -> None:
    data = encode_segment_header(MAGIC_LOG, 3, segment_id=9, base_offset=5, created_ns=1, size_bytes=4096, epoch=1)
    assert check_segment_header(data[:63], MAGIC_LOG, 3, 5) == "the file has 63 bytes, fewer than a segment header"
    assert "magic" in (check_segment_header(data, MAGIC_JOURNAL, 3, 5) or "")
    assert "not 6 of 3" in (check_segment_header(data, MAGIC_LOG, 3, 6) or "")
    assert "not 5 of 4" in (check_segment_header(data, MAGIC_LOG, 4, 5) or "")


def test_a_released_segment_can_be_opened_again() -> None:
    files = FakeFiles()
    segment = Segment("a", 0)
    segment.release()
    segment.file = files.open("a", create=True)
    segment.file.allocate(64)
    segment.view = segment.file.map(64)
    segment.release()
    assert segment.file is None
    assert segment.view is None
