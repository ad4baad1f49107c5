"""Packed bodies are unpacked, up to a limit."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import cramjam
import pytest

from polymq.errors import RemoteProtocolError
from polymq.protocols.rocketmq.compression import unpack

if TYPE_CHECKING:
    from collections.abc import Callable

BODY = b"abc" * 1000
MOST = 64 * 1024 * 1024


@pytest.mark.parametrize(
    ("body", "sys_flag"),
    [
        (BODY, 0),
        (zlib.compress(BODY), 0x1),
        (zlib.compress(BODY), 0x301),
        (bytes(cramjam.lz4.compress(BODY)), 0x101),
        (bytes(cramjam.zstd.compress(BODY)), 0x201),
    ],
)
def test_packed_bodies(body: bytes, sys_flag: int) -> None:
    assert unpack(body, sys_flag, MOST) == BODY


@pytest.mark.parametrize("sys_flag", [0x1, 0x101, 0x201])
def test_bodies_that_are_not_what_they_say(sys_flag: int) -> None:
    with pytest.raises(RemoteProtocolError):
        unpack(b"no such thing", sys_flag, MOST)


@pytest.mark.parametrize("pack", [(zlib.compress, 1), (cramjam.lz4.compress, 0x101), (cramjam.zstd.compress, 0x201)])
def test_bodies_that_unfold_to_too_much(pack: tuple[Callable[[bytes], bytes], int]) -> None:
    how, sys_flag = pack
    for size, most in ((3000, 2999), (9_000_000, 8_999_999), (9_000_000, 100)):
        body = bytes(size)
        assert unpack(bytes(how(body)), sys_flag, size) == body
        with pytest.raises(RemoteProtocolError):
            unpack(bytes(how(body)), sys_flag, most)
