"""Packed messages of a run are made plain, whatever packs them."""

from __future__ import annotations

import zlib
from dataclasses import replace

import cramjam
import pytest

from polymq.errors import RemoteProtocolError
from polymq.protocols.rocketmq import runs
from polymq.protocols.rocketmq.batches import BatchPart, join_batch
from polymq.protocols.rocketmq.messages import body_crc, decode_stored
from polymq.protocols.rocketmq.runs import encode_one, unpacked_run
from tests.unit.protocols.rocketmq.test_unfold import BLANK, run_of, stored

TEXT = b"what is long enough to be packed " * 20


def test_what_is_written_is_what_is_read() -> None:
    for each in (stored(1), stored(2, b"", topic="t" * 300), stored(3, sys_flag=0x30, born_host=bytes(16), store_host=bytes(16))):
        assert decode_stored(encode_one(each)) == [each]


def test_blank_records_are_passed_over() -> None:
    assert decode_stored(BLANK + run_of(stored(1)) + BLANK) == [stored(1)]


@pytest.mark.parametrize(
    ("sys_flag", "body"),
    [
        (0x1, zlib.compress(TEXT)),
        (0x301, zlib.compress(TEXT)),
        (0x101, bytes(cramjam.lz4.compress(TEXT))),
        (0x201, bytes(cramjam.zstd.compress(TEXT))),
    ],
)
def test_bodies_are_unpacked(sys_flag: int, body: bytes) -> None:
    packed = stored(5, body, sys_flag=sys_flag | 0x8, properties=b"TAGS\x01A")
    (first, second) = decode_stored(unpacked_run(run_of(packed, stored(6))))
    assert first == stored(5, TEXT, sys_flag=0x8, properties=b"TAGS\x01A")
    assert second == stored(6)


@pytest.mark.parametrize("sys_flag", [0xC0, 0xC1])
def test_messages_inside_of_one_have_offsets_of_their_own(sys_flag: int) -> None:
    inner = join_batch([BatchPart(b"a", b"TAGS\x01A"), BatchPart(b"b", b"", 7), BatchPart(b"", b"KEYS\x01k")])
    body = zlib.compress(inner) if sys_flag & 1 else inner
    found = decode_stored(unpacked_run(run_of(stored(5, body, sys_flag=sys_flag, properties=b"INNER_NUM\x013"))))
    expected = [stored(5, b"a", properties=b"TAGS\x01A"), stored(6, b"b", flag=7), stored(7, b"", properties=b"KEYS\x01k")]
    assert found == [replace(each, physical_offset=1005) for each in expected]


@pytest.mark.parametrize("sys_flag", [0x1, 0x101, 0x201, 0xC0])
def test_what_does_not_unpack_stays_as_it_is(sys_flag: int) -> None:
    (found,) = decode_stored(unpacked_run(run_of(stored(5, b"not packed", sys_flag=sys_flag))))
    assert (found.body, found.sys_flag, found.queue_offset) == (b"not packed", 0, 5)


def test_a_damaged_body_is_left_to_be_found() -> None:
    (found,) = decode_stored(unpacked_run(run_of(stored(5, zlib.compress(TEXT), sys_flag=1, body_crc=9))))
    assert found.body_crc == 9 != body_crc(found.body)


def test_what_unfolds_to_too_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "UNPACKED_SIZE_BYTES_MAX", 1000)
    packed = stored(5, zlib.compress(TEXT), sys_flag=1)
    assert len(unpacked_run(run_of(packed))) < 1000
    with pytest.raises(RemoteProtocolError, match="too much"):
        unpacked_run(run_of(packed, stored(6, bytes(900)), stored(7)))


def test_what_is_cut_off_is_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="does not fit"):
        unpacked_run(run_of(stored(5))[:-1])
