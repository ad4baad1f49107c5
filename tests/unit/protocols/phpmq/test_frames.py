from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from polymq.errors import LocalProtocolError
from polymq.phpmq_limits import ID_SIZE_BYTES_MAX, QUEUE_SIZE_BYTES_MAX
from polymq.protocols.phpmq import frames
from polymq.protocols.phpmq.frames import FrameReader, Violation, WireMessage
from tests.unit.protocols.phpmq.streams import message, packet, run

if TYPE_CHECKING:
    from collections.abc import Callable


def dispatch(content: bytes = b"x", ttl: bytes | None = b"5") -> bytes:
    rest = [] if ttl is None else [(5, ttl)]
    return message(3, (1, b"q"), (2, content), (3, b"i" * 32), *rest)


def test_messages_of_both_dialects_come_out_whole() -> None:
    stream = dispatch() + dispatch(b"y" * 1000, None) + dispatch(b"")
    expected = [
        WireMessage(b"q", b"x", b"i" * 32, 5),
        WireMessage(b"q", b"y" * 1000, b"i" * 32, None),
        WireMessage(b"q", b"", b"i" * 32, 5),
    ]
    for step in (1, 3, 50, 7000):
        reader = FrameReader()
        assert [each for at in range(0, len(stream), step) for each in reader.feed(stream[at : at + step])] == expected


@pytest.mark.parametrize(
    "stream",
    [
        b"HTTP/1.1",
        b"H0100102",
        b"H0200304",
        b"H0100305",
        message(3, (1, b"q"), (2, b""), (4, b"")),
        message(3, (1, b"q"), (1, b"q"), (2, b"")),
        b"H0100304" + b"X" * 32,
        b"H0100304P99" + b"0" * 29,
        b"H0100304P02" + b"9" * 29,
        b"H0100304" + packet(1, b"q")[:11] + b"x" * 21,
        dispatch(ttl=b"-1"),
        dispatch(ttl=b""),
    ],
)
def test_what_no_server_sends_ends_the_stream(stream: bytes) -> None:
    reader = FrameReader()
    first, last = reader.feed(dispatch() + stream + dispatch())
    assert first == WireMessage(b"q", b"x", b"i" * 32, 5)
    assert isinstance(last, Violation)
    assert reader.feed(dispatch()) == []


def test_what_is_written_is_what_a_server_reads() -> None:
    stream = frames.send("q", b"a") + frames.send(b"q", b"b", ttl_s=None) + frames.consume("ü", 0) + frames.send("q", b"c", ttl_s=9)
    assert run(stream) == [
        ("send", b"q", b"a", 0, False),
        ("send", b"q", b"b", 0, True),
        ("consume", "ü".encode(), 0),
        ("send", b"q", b"c", 9, False),
    ]
    assert run(frames.acknowledge("q", [b"x", b"y" * 32])) == [("foreign", b"q")] * 2


def test_what_no_server_takes_is_not_written() -> None:
    makers: tuple[Callable[[], bytes], ...] = (
        lambda: frames.send("", b"x"),
        lambda: frames.send("q" * (QUEUE_SIZE_BYTES_MAX + 1), b"x"),
        lambda: frames.send("q", b"x", ttl_s=-1),
        lambda: frames.send("q", b"x", ttl_s=1 << 63),
        lambda: frames.send("q", bytes(frames.CONTENT_SIZE_BYTES_MAX + 1)),
        lambda: frames.consume("q", -1),
        lambda: frames.acknowledge("q", [b""]),
        lambda: frames.requeue("q", b"i" * (ID_SIZE_BYTES_MAX + 1)),
    )
    for make in makers:
        with pytest.raises(LocalProtocolError):
            make()
