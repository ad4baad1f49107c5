"""Frames of NSQ to records and FINs, compiled or not, and ids back out of records."""

from __future__ import annotations

import random
import struct

import pytest

from polymq.spool.intake import FIN_SIZE_BYTES, RECORD_EXTRA_BYTES, remember, take_frames
from polymq.spool.notes import encode_note, read_note
from polymq.spool.window import IdWindow, salt_of
from polymq.wire.records import HEADER_SIZE_BYTES, BatchHeader, Message, check, encode_message, read_messages, seal

NOW_NS = 1_700_000_000_000_000_000
NOTE = encode_note(b"topic", b"0" * 16)


def frame(message_id: bytes, body: bytes, attempts: int = 1, time_ns: int = NOW_NS) -> bytes:
    return struct.pack(">IIqH16s", 30 + len(body), 2, time_ns, attempts, message_id) + body


def taken(frames: list[bytes], window: IdWindow, salt: int = 5) -> tuple[bytes, int, bytes]:
    """Give a sealed batch, how many records it has, and the FINs."""
    data = b"".join(frames)
    target = bytearray(HEADER_SIZE_BYTES + len(data) + len(frames) * (RECORD_EXTRA_BYTES + len(NOTE)))
    finishes = bytearray(FIN_SIZE_BYTES * len(frames))
    at, count, end = take_frames(
        data, target, HEADER_SIZE_BYTES, NOTE, window, base_time_ns=NOW_NS, salt=salt, finishes=finishes, finishes_at=0
    )
    if count:
        seal(target, 0, at, BatchHeader(origin=1, count=count, base_time_ns=NOW_NS, producer_id=salt))
        assert check(target, 0, at) is None
    return bytes(target[:at]), count, bytes(finishes[:end])


def test_frames_become_records_and_finishes() -> None:
    frames = [frame(b"%016x" % n, b"body %d" % n, attempts=n + 1, time_ns=NOW_NS - n) for n in range(300)]
    batch, count, finishes = taken(frames, IdWindow(1000))
    assert count == 300
    assert finishes == b"".join(b"FIN %016x\n" % n for n in range(300))
    for n, message in enumerate(read_messages(batch, 0, 0, 0, count, len(batch))):
        assert (message.body, message.time_ns, message.headers) == (b"body %d" % n, NOW_NS - n, ())
        assert message.key is not None
        assert read_note(message.key) == (n + 1, b"topic", b"%016x" % n, b"", None)


def test_redeliveries_are_left_out_and_settled() -> None:
    window = IdWindow(1000)
    batch, count, finishes = taken([frame(b"a" * 16, b"x"), frame(b"b" * 16, b"y"), frame(b"a" * 16, b"x", attempts=2)], window)
    assert count == 2
    assert finishes.count(b"FIN ") == 3
    batch, count, finishes = taken([frame(b"a" * 16, b"x", attempts=3)], window)
    assert (count, len(batch), finishes) == (0, HEADER_SIZE_BYTES, b"FIN " + b"a" * 16 + b"\n")


def test_a_time_that_cannot_be_counts_as_1970() -> None:
    batch, count, _ = taken([frame(b"a" * 16, b"", time_ns=-1), frame(b"b" * 16, b"", time_ns=2**63 - 1)], IdWindow(10))
    assert [message.time_ns for message in read_messages(batch, 0, 0, 0, count, len(batch))] == [0, 2**63 - 1]


def test_what_is_not_whole_is_refused() -> None:
    whole = frame(b"a" * 16, b"body")
    for wrong in (whole[:-1], whole[:20], struct.pack(">I", 29) + whole[4:], whole + b"\0"):
        with pytest.raises(AssertionError):
            taken([wrong], IdWindow(10))


def test_ids_of_batches_come_back_into_a_window() -> None:
    draw = random.Random(3)
    salt = salt_of("server", b"topic")
    ids = [draw.randbytes(16) for _ in range(200)]
    batch, count, _ = taken([frame(each, draw.randbytes(draw.randrange(50))) for each in ids], IdWindow(1000), salt)
    other = bytearray(HEADER_SIZE_BYTES)
    odd = [Message(b"", encode_note(b"q", b"short")), Message(b"no note"), Message(b"", b"shrt"), Message(b"", b"\0\0\xff\xff\xff\xff\0\0")]
    for message in odd:
        other += encode_message(message)
    seal(other, 0, len(other), BatchHeader(count=len(odd), producer_id=9))
    unsalted = bytearray(HEADER_SIZE_BYTES) + encode_message(Message(b"", encode_note(b"s", b"i" * 16)))
    seal(unsalted, 0, len(unsalted), BatchHeader(count=1))
    window = IdWindow(1000)
    view = batch + bytes(other) + bytes(unsalted)
    assert remember(view, 0, len(view), window) == count + 1
    assert not any(window.add(each, salt) for each in ids)
    assert window.count == 201
