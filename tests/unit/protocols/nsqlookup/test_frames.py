from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polymq.limits import LOOKUP_REPLY_SIZE_BYTES_MAX
from polymq.protocols.nsqlookup.encode import OK, response
from polymq.protocols.nsqlookup.events import Identify, Ping, Register, Unregister
from polymq.protocols.nsqlookup.frames import PING, ReplyReader, identify, register, unregister
from polymq.protocols.nsqlookup.identify import Identity
from tests.unit.protocols.nsqlookup.streams import run


def test_the_other_side_understands() -> None:
    who = Identity("b", "h", http_port=2, tcp_port=1)
    stream = identify(who) + register("t") + register("t", "c") + PING + unregister("t", "c") + unregister("t")
    assert run(stream) == [Identify(who), Register("t"), Register("t", "c"), Ping(), Unregister("t", "c"), Unregister("t")]


def read(stream: bytes, cuts: list[int]) -> list[bytes]:
    reader = ReplyReader()
    replies: list[bytes] = []
    rest = b""
    for start, stop in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        rest += stream[start:stop]
        if len(rest) >= reader.need:
            found, consumed = reader.feed(memoryview(rest))
            assert consumed is not None
            replies += found
            rest = rest[consumed:]
            assert reader.need > len(rest)
    return replies


@given(st.lists(st.binary(max_size=40), max_size=5), st.lists(st.integers(0, 200), max_size=5))
def test_any_cut_gives_the_same_answers(replies: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(response(reply) for reply in replies)
    assert read(stream, sorted(min(cut, len(stream)) for cut in cuts)) == replies


@pytest.mark.parametrize("size", [-1, -(2**31), LOOKUP_REPLY_SIZE_BYTES_MAX + 1, 0x48545450])
def test_what_is_no_answer(size: int) -> None:
    assert ReplyReader().feed(memoryview(OK + size.to_bytes(4, "big", signed=True))) == ([b"OK"], None)


def test_the_largest_answer() -> None:
    reader = ReplyReader()
    largest = b"x" * LOOKUP_REPLY_SIZE_BYTES_MAX
    assert reader.feed(memoryview(response(largest)[:-1])) == ([], 0)
    assert reader.need == 4 + len(largest)
    assert reader.feed(memoryview(response(largest))) == ([largest], 4 + len(largest))
