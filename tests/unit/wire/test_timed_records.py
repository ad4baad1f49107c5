from __future__ import annotations

import importlib.util
import sys
from array import array
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polymq.wire import timed_records
from polymq.wire.batch import HEADER_SIZE_BYTES, BatchHeader, Message, encode_message, read_messages, seal
from polymq.wire.records import check
from polymq.wire.timed_records import TIMED_RECORD_OVERHEAD_BYTES, encode_timed

if TYPE_CHECKING:
    from types import ModuleType

BASE_NS = 1_700_000_000_000_000_000


def interpreted() -> ModuleType:
    source = Path(timed_records.__file__).parent / "timed_records.py"
    spec = importlib.util.spec_from_file_location("timed_records_interpreted", source)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


plain = interpreted()


def encoded(module: ModuleType, rows: list[tuple[bytes, int]], at: int) -> bytearray:
    source = b"?" + b"!".join(body for body, _ in rows)
    positions, sizes, times = array("q"), array("q"), array("q")
    position = 1
    for body, time_ns in rows:
        positions.append(position)
        sizes.append(len(body))
        times.append(time_ns)
        position += len(body) + 1
    target = bytearray(at + sum(sizes) + TIMED_RECORD_OVERHEAD_BYTES * len(rows))
    assert module.encode_timed(target, at, source, (positions, sizes, times), len(rows), BASE_NS) == len(target)
    return target


ROWS = st.lists(st.tuples(st.binary(max_size=30), st.integers(0, 2**63 - 1)), max_size=10)


@given(ROWS)
def test_a_record_is_what_encode_message_makes_and_both_builds_agree(rows: list[tuple[bytes, int]]) -> None:
    target = encoded(timed_records, rows, 3)
    assert target == encoded(plain, rows, 3)
    expected = b"".join(encode_message(Message(body, time_ns=time_ns), BASE_NS) for body, time_ns in rows if time_ns)
    if all(time_ns for _, time_ns in rows):
        assert target[3:] == expected


def test_a_sealed_batch_is_sound_and_read_back() -> None:
    rows = [(b"old", 5), (b"", 0), (b"new", BASE_NS + 7)]
    target = encoded(timed_records, rows, HEADER_SIZE_BYTES)
    seal(target, 0, len(target), BatchHeader(count=3, base_time_ns=BASE_NS))
    assert check(target, 0, len(target)) is None
    messages = read_messages(target, 0, 0, 0, 3, len(target))
    assert [(message.body, message.time_ns) for message in messages] == rows


def test_what_does_not_fit_is_a_bug_of_the_caller() -> None:
    columns = (array("q", [0]), array("q", [4]), array("q", [1]))
    for target, source in ((bytearray(19), b"body"), (bytearray(20), b"bod")):
        with pytest.raises(AssertionError):
            encode_timed(target, 0, source, columns, 1, BASE_NS)
