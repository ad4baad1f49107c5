from __future__ import annotations

import importlib.util
import sys
from array import array
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polymq.wire import rows as compiled
from polymq.wire.batch import HEADER_SIZE_BYTES, BatchHeader, Message, encode_message, read_messages, seal
from polymq.wire.crc import crc32c
from polymq.wire.records import check

if TYPE_CHECKING:
    from types import ModuleType


def interpreted() -> ModuleType:
    spec = importlib.util.spec_from_file_location("rows_interpreted", Path(compiled.__file__).parent / "rows.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


plain = interpreted()
BUILDS = (compiled, plain)
times = st.none() | st.integers(0, 1 << 62)
pieces = st.binary(max_size=12)
row = st.tuples(pieces, st.none() | pieces, st.none() | pieces, st.lists(st.tuples(pieces, pieces), max_size=3), times, times)
Row = tuple[bytes, "bytes | None", "bytes | None", list[tuple[bytes, bytes]], "int | None", "int | None"]


def column(values: list[bytes]) -> tuple[memoryview, memoryview]:
    ends = array("i", [0])
    for value in values:
        ends.append(ends[-1] + len(value))
    return memoryview(ends), memoryview(b"".join(values))


def optional(values: list[bytes | None]) -> tuple[memoryview, memoryview, memoryview]:
    return memoryview(bytes(value is not None for value in values)), *column([value or b"" for value in values])


def rows_of(build: Any, given_rows: list[Row]) -> Any:
    value_ends, values = column([each[0] for each in given_rows])
    key_valid, key_ends, keys = optional([each[1] for each in given_rows])
    tag_valid, tag_ends, tags = optional([each[2] for each in given_rows])
    header_ends = array("i", [0])
    for each in given_rows:
        header_ends.append(header_ends[-1] + len(each[3]))
    name_ends, names = column([name for each in given_rows for name, _ in each[3]])
    content_ends, contents = column([content for each in given_rows for _, content in each[3]])
    return build.Rows(
        len(given_rows),
        value_ends,
        values,
        key_valid,
        key_ends,
        keys,
        tag_valid,
        tag_ends,
        tags,
        memoryview(header_ends),
        name_ends,
        names,
        content_ends,
        contents,
        memoryview(array("q", [-1 if each[4] is None else each[4] for each in given_rows])),
        memoryview(array("q", [-1 if each[5] is None else each[5] for each in given_rows])),
    )


def message_of(each: Row) -> Message:
    value, key, tag, headers, time_ns, expiry_ns = each
    tags = () if tag is None else ((b"TAGS", tag),)
    return Message(value, key, (*tags, *headers), time_ns=time_ns or 0, expiry_ns=expiry_ns)


@given(st.lists(row, min_size=1, max_size=8), st.integers(1, 100))
def test_rows_become_the_records_that_they_say(given_rows: list[Row], enough: int) -> None:
    found: list[Message] = []
    for build in BUILDS:
        at, first, room = HEADER_SIZE_BYTES, 0, bytearray(4096)
        while first < len(given_rows):
            begun_at = at
            at, last = build.encode_rows(room, at, rows_of(build, given_rows), first, enough)
            assert last > first
            assert last == len(given_rows) or at - begun_at >= enough
            first = last
        seal(room, 0, at, BatchHeader(count=len(given_rows)))
        assert check(room, 0, at) is None
        found = read_messages(room, 0, 0, 0, len(given_rows), at)
        # A time of 0 cannot be told from none.
        assert found == [message_of(each) for each in given_rows]


@pytest.mark.parametrize("build", BUILDS)
def test_what_does_not_fit_is_left(build: Any) -> None:
    rows = rows_of(build, [(b"x" * 100, None, None, [], None, None)] * 3)
    room = bytearray(250)
    assert build.encode_rows(room, 0, rows, 0, 1000) == (216, 2)
    assert build.encode_rows(room, 216, rows, 2, 1000) == (216, 2)
    big = rows_of(build, [(b"", b"k" * (1 << 24), None, [], None, None)])
    assert build.encode_rows(bytearray(1 << 25), 0, big, 0, 1) == (0, 0)


@given(st.lists(st.none() | pieces, min_size=1, max_size=9), st.integers(1, 256))
def test_keys_go_where_the_broker_sends_them(keys: list[bytes | None], partitions: int) -> None:
    for build in BUILDS:
        target = array("i", bytes(4 * len(keys)))
        build.place_keys(target, *optional(keys), len(keys), partitions)
        assert target.tolist() == [-1 if key is None else crc32c(key) % partitions for key in keys]


@given(st.lists(st.booleans(), min_size=1, max_size=5))
def test_extras_are_seen(which: list[bool]) -> None:
    records = b"".join(encode_message(Message(b"body", extras=((2, b"x"),) if each else ())) for each in which)
    for build in BUILDS:
        assert build.has_extras(b"head" + records, 4, len(which)) == any(which)
