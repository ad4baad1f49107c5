"""Splitting bodies of /mpub, against the plainest way to do it. Runs compiled and interpreted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from polymq.gateways.nsq.http_bodies import BAD_BODY, BAD_MESSAGE, MESSAGE_TOO_LARGE, split_binary, split_lines

from .golden_requests import number

if TYPE_CHECKING:
    from polymq.wire.slices import MessageBatch


def lines(body: bytes, size_bytes_max: int = 100) -> list[bytes] | str:
    found = split_lines(memoryview(body), size_bytes_max=size_bytes_max)
    return found if isinstance(found, str) else checked(found)


def binary(body: bytes, size_bytes_max: int = 100, count_max: int = 100) -> list[bytes] | str:
    found = split_binary(memoryview(body), size_bytes_max=size_bytes_max, count_max=count_max)
    return found if isinstance(found, str) else checked(found)


def checked(batch: MessageBatch) -> list[bytes]:
    bodies = batch.bodies()
    assert batch.size_bytes == sum(map(len, bodies))
    assert len(bodies) == batch.count
    return bodies


def encoded(bodies: list[bytes]) -> bytes:
    return number(len(bodies)) + b"".join(number(len(body)) + body for body in bodies)


def test_lines() -> None:
    assert lines(b"a\nbb\n\nc") == [b"a", b"bb", b"c"]
    assert lines(b"a\nb\n") == [b"a", b"b"]
    assert lines(b"") == []
    assert lines(b"\n\n") == []
    assert lines(b"a\r\n") == [b"a\r"]


def test_largest_line() -> None:
    assert lines(b"x" * 100 + b"\n") == [b"x" * 100]
    assert lines(b"a\n" + b"x" * 101) == MESSAGE_TOO_LARGE


@given(st.lists(st.sampled_from([b"\n", b"a", b"bc", b"\r", b"\x00\xff"])))
def test_lines_are_those_of_split(parts: list[bytes]) -> None:
    body = b"".join(parts)
    assert lines(body, 1000) == [line for line in body.split(b"\n") if line]


def test_binary() -> None:
    assert binary(encoded([b"a", b"bb"])) == [b"a", b"bb"]
    assert binary(encoded([b"a"]) + b"trailing") == [b"a"]


def test_binary_without_a_true_count() -> None:
    for body in (b"", b"\0\0\0", number(0), number(-1), number(101), number(2**31 - 1)):
        assert binary(body) == BAD_BODY


def test_binary_that_is_cut_off() -> None:
    whole = encoded([b"a", b"bb", b"ccc"])
    for size in range(4, len(whole)):
        assert binary(whole[:size]) == BAD_MESSAGE


def test_binary_with_wrong_sizes() -> None:
    for size in (0, -1, 101, 2**31 - 1):
        assert binary(number(1) + number(size) + b"x" * 200) == BAD_MESSAGE
    assert binary(number(1) + number(100) + b"x" * 100) == [b"x" * 100]


@given(st.lists(st.binary(min_size=1, max_size=20), min_size=1, max_size=20), st.binary(max_size=5))
def test_binary_gives_back_what_was_encoded(bodies: list[bytes], trailing: bytes) -> None:
    assert binary(encoded(bodies) + trailing) == bodies


@given(st.binary(max_size=60))
def test_any_bytes_are_a_batch_or_a_problem(body: bytes) -> None:
    found = binary(body)
    assert found in (BAD_BODY, BAD_MESSAGE) or isinstance(found, list)
