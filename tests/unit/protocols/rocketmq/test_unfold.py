"""Runs of stored messages as columns: what the decoder of single messages finds is what is in them."""

from __future__ import annotations

import random
import struct
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from polymq.errors import RemoteProtocolError
from polymq.protocols.rocketmq import properties, runs, unfold
from polymq.protocols.rocketmq.generic import generic_of
from polymq.protocols.rocketmq.ids import offset_message_id
from polymq.protocols.rocketmq.messages import StoredMessage, body_crc, decode_stored
from polymq.protocols.rocketmq.runs import Unfolded, encode_one
from tests.unit.protocols.nsq.streams import interpreted

if TYPE_CHECKING:
    from types import ModuleType

plain = interpreted("polymq.protocols.rocketmq.unfold")
both = pytest.mark.parametrize("module", [unfold, plain], ids=["as built", "interpreted"])
BLANK = struct.pack(">II", 20, 0xCBD43194) + bytes(12)
Row = tuple[object, ...]


def stored(offset: int, body: bytes = b"body", **fields: object) -> StoredMessage:
    made = StoredMessage("orders", 3, offset, 1000 + offset, body, b"", 0, 0, body_crc(body), 5, b"\x7f\0\0\1", 77, 1_795_212_447_778)
    return replace(made, **fields)  # type: ignore[arg-type]


def run_of(*found: StoredMessage) -> bytes:
    return b"".join(map(encode_one, found))


def rows(unfolded: Unfolded) -> list[Row]:
    """Read the buffers as Arrow does."""
    count = unfolded.count
    found: list[Row] = []

    def text(field: int, row: int) -> str | None:
        if not unfolded.text_valid[field * ((count + 7) // 8) + row // 8] >> (row % 8) & 1:
            return None
        start, end = unfolded.text_ends[field * (count + 1) + row : field * (count + 1) + row + 2]
        return unfolded.texts[unfolded.text_starts[field] + start : unfolded.text_starts[field] + end].decode()

    for row in range(count):
        headers = [
            (
                unfolded.names[unfolded.name_ends[index] : unfolded.name_ends[index + 1]].decode(),
                bytes(unfolded.values[unfolded.value_ends[index] : unfolded.value_ends[index + 1]]),
            )
            for index in range(unfolded.header_ends[row], unfolded.header_ends[row + 1])
        ]
        body = bytes(unfolded.bodies[unfolded.body_ends[row] : unfolded.body_ends[row + 1]])
        texts = [text(field, row) for field in range(runs.FIELDS)]
        found.append((unfolded.offsets[row], unfolded.times_us[row], unfolded.reconsume_times[row], body, *texts, headers))
    return found


def told_by_the_decoder(run: bytes, first: int, end: int) -> list[Row]:
    found: list[Row] = []
    for each in decode_stored(run):
        if first <= each.queue_offset < end:
            key, headers = generic_of(each.properties)
            others = [(name.decode(), value) for name, value in headers]
            named = properties.parse(each.properties)
            identity = named.get("UNIQ_KEY") or offset_message_id(each.store_host, each.store_port, each.physical_offset)
            texts = (None if key is None else key.decode(), named.get("TAGS"), named.get("reply-to"), identity)
            found.append((each.queue_offset, each.store_ms * 1000, each.reconsume_times, each.body, *texts, others))
    return found


MANY = (
    stored(7),
    stored(8, b"", properties=b"KEYS\x01a b\x02UNIQ_KEY\x01FD00\x02TAGS\x01TagA\x02colour\x01blue\x02size\x01gro\xc3\x9f"),
    stored(
        9,
        b"x" * 1000,
        properties=b"KEYS\x01a\x02KEYS\x01b\x02colour\x01red\x02colour\x01blue\x02\x02WAIT\x01true\x02=\x01\x02\x01v\x02n\x02",
    ),
    stored(10, reconsume_times=3, born_host=bytes(16), sys_flag=0x10, properties=b"reply-to\x01inbox.7\x02CLUSTER\x01c\x02"),
    stored(11, store_host=bytes(range(16)), store_port=10911, sys_flag=0x20),
    stored(12, topic="t" * 200, properties=b"TAGS\x01A\x01B\x02"),
    stored(13, body_crc=0),
)


@both
@pytest.mark.parametrize(("first", "end"), [(0, 100), (7, 14), (8, 11), (13, 14), (14, 20), (0, 7)])
def test_columns_have_what_the_decoder_finds(module: ModuleType, first: int, end: int) -> None:
    run = run_of(*MANY[:3]) + BLANK + run_of(*MANY[3:])
    assert rows(module.unfold(run, first, end)) == told_by_the_decoder(run, first, end)
    assert not module.is_packed(run)


@both
def test_an_empty_run_has_no_rows(module: ModuleType) -> None:
    assert module.unfold(b"", 0, 5).count == module.unfold(BLANK, 0, 5).count == 0
    assert module.unfold(BLANK, 0, 5).gap == -1


@both
def test_random_runs_have_what_the_decoder_finds(module: ModuleType) -> None:
    random_ = random.Random(5)
    names = ["KEYS", "TAGS", "reply-to", "UNIQ_KEY", "WAIT", "colour", "keys", "REPLY-TO", "x" * 31, "é"]
    for _ in range(60):
        found = []
        for offset in range(20, 20 + random_.randrange(30)):
            named = "".join(f"{random_.choice(names)}\x01{'v' * random_.randrange(4)}\x02" for _ in range(random_.randrange(7)))
            found.append(stored(offset, random_.randbytes(random_.randrange(50)), properties=named.encode()))
        run = run_of(*found)
        assert rows(module.unfold(run, 22, 40)) == told_by_the_decoder(run, 22, 40)


@both
def test_offsets_that_are_missing_are_told(module: ModuleType) -> None:
    assert module.unfold(run_of(stored(5), stored(6)), 5, 9).gap == -1
    assert module.unfold(run_of(stored(6)), 5, 9).gap == 5
    assert module.unfold(run_of(stored(5), stored(8), stored(20)), 5, 9).gap == 6
    assert module.unfold(run_of(stored(5), stored(20)), 5, 9).gap == -1


@both
def test_a_damaged_body_ends_the_rows(module: ModuleType) -> None:
    found = module.unfold(run_of(stored(5), stored(6, body_crc=1), stored(7)), 5, 9)
    assert (found.count, found.damaged) == (1, 6)
    # What is not asked for may be as it likes.
    assert module.unfold(run_of(stored(4, body_crc=1), stored(5)), 5, 9).damaged == -1


@both
def test_offsets_that_do_not_grow_are_refused(module: ModuleType) -> None:
    for wrong in (run_of(stored(6), stored(6)), run_of(stored(6), stored(5))):
        with pytest.raises(RemoteProtocolError, match="do not fit"):
            module.unfold(wrong, 0, 9)


@both
def test_what_is_not_asked_for_may_stand_between(module: ModuleType) -> None:
    run = run_of(stored(5), stored(20), stored(6), stored(1), stored(7))
    assert rows(module.unfold(run, 5, 9)) == told_by_the_decoder(run, 5, 9)


@both
def test_every_cut_is_noticed(module: ModuleType) -> None:
    run = run_of(MANY[1], MANY[3])
    whole = {0, len(encode_one(MANY[1])), len(run)}
    for size in range(len(run) + 1):
        if size in whole:
            module.unfold(run[:size], 0, 99)
        else:
            with pytest.raises(RemoteProtocolError, match="do not fit"):
                module.unfold(run[:size], 0, 99)


@both
@pytest.mark.parametrize(
    ("at", "lie"),
    [
        (0, b"\0\0\0\x05"),
        (0, b"\xff\xff\xff\xff"),
        (4, b"\0\0\0\0"),
        (20, b"\xff"),
        (36, b"\0\0\0\x30"),
        (56, b"\xff"),
        (56, b"\x7f" * 8),
        (72, b"\xff"),
        (84, b"\xff\xff\xff\xff"),
        (84, b"\0\0\0\x20"),
        (92, b"\xff"),
        (99, b"\xff\xff"),
        (99, b"\0\x20"),
    ],
)
def test_lies_are_refused(module: ModuleType, at: int, lie: bytes) -> None:
    run = bytearray(run_of(stored(1), stored(2)))
    assert run[84:88] == b"\0\0\0\x04"
    assert run[92] == len("orders")
    run[at : at + len(lie)] = lie
    with pytest.raises(RemoteProtocolError):
        module.unfold(bytes(run), 0, 9)


@both
@pytest.mark.parametrize(("sys_flag", "expected"), [(1, True), (0x301, True), (0xC0, True), (0x80, False), (0x40, False), (0x30A, False)])
def test_packed_messages_are_seen(module: ModuleType, sys_flag: int, expected: bool) -> None:
    assert module.is_packed(run_of(stored(1), stored(2, sys_flag=sys_flag))) is expected
    assert module.is_packed(BLANK + run_of(stored(2, sys_flag=sys_flag))) is expected
    assert not module.is_packed(b"\xff" * 200)


@both
def test_runs_are_limited(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    if module is plain:
        monkeypatch.setattr(module, "RUN_SIZE_BYTES_MAX", 99)
        with pytest.raises(AssertionError):
            module.unfold(bytes(100), 0, 1)
