"""The digits of FIN lines are read as `int` reads them, and what is not in the usual form is left where it is."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polymq.protocols.nsq.line_runs import FINISH_SIZE_BYTES
from tests.unit.protocols.nsq import streams

plain = streams.interpreted("polymq.protocols.nsq.line_runs")


@given(st.binary(min_size=8, max_size=8) | st.text("0123456789abcdef", min_size=8, max_size=8).map(str.encode))
def test_eight_digits_are_read_as_int_reads_them(text: bytes) -> None:
    value = plain._eight_digits(int.from_bytes(text, "little", signed=True))
    assert value == (int(text, 16) if all(byte in b"0123456789abcdef" for byte in text) else -1)


@pytest.mark.parametrize(("room", "read"), [(5, 3), (3, 3), (2, 2), (0, 0)])
def test_ids_are_read_as_long_as_there_is_room(room: int, read: int) -> None:
    lines = b"".join(b"FIN %016x\n" % number for number in (1, 2**63 - 1, 0x0123456789ABCDEF))
    ids = array("q", [-1] * (1 + room))
    assert (
        plain.read_finishes(lines + b"FIN 8000000000000000\n", 0, len(lines) + FINISH_SIZE_BYTES, ids, 1, 1 + room)
        == read * FINISH_SIZE_BYTES
    )
    assert list(ids[1:]) == [1, 2**63 - 1, 0x0123456789ABCDEF][:read] + [-1] * (room - read)
