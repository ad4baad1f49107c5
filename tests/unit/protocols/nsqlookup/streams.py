"""Streams of commands to a directory, and a decoder that is fed as the server does it."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from polymq.limits import LOOKUP_COMMANDS_PER_TURN_MAX
from polymq.protocols.nsqlookup.decode import Decoder
from polymq.protocols.nsqlookup.events import Violation
from polymq.protocols.nsqlookup.settings import MAGIC

if TYPE_CHECKING:
    from collections.abc import Iterable

    from polymq.protocols.nsqlookup.events import Event

GOOD = b'{"broadcast_address":"b","hostname":"h","http_port":2,"tcp_port":1,"version":"v"}'


def identify(body: bytes = GOOD, *, size: int | None = None) -> bytes:
    return b"IDENTIFY\n" + (len(body) if size is None else size).to_bytes(4, "big", signed=True) + body


def run(stream: bytes, cuts: Iterable[int] = (), *, magic: bytes = MAGIC) -> list[Event]:
    """Everything that a stream says when it arrives in the given pieces and then ends."""
    decoder = Decoder()
    stream = magic + stream
    events: list[Event] = []
    rest = b""
    places = [0, *sorted(cuts), len(stream)]
    for start, stop in itertools.pairwise(places):
        rest += stream[start:stop]
        if len(rest) < decoder.need:
            continue
        while True:
            found, consumed = decoder.feed(memoryview(rest))
            events += found
            rest = rest[consumed:]
            if decoder.need:
                break
            assert len(found) == LOOKUP_COMMANDS_PER_TURN_MAX
        assert decoder.need > len(rest), "need must ask for more than is there"
    return events + decoder.eof()


def three_ways(stream: bytes, *, magic: bytes = MAGIC) -> list[Event]:
    """Decode a stream whole, byte by byte, and with a PING behind it: the events are the same."""
    whole = run(stream, magic=magic)
    assert run(stream, range(len(magic + stream)), magic=magic) == whole
    if stream.endswith(b"\n"):
        followed = run(stream + b"PING\n", magic=magic)
        assert followed[: len(whole)] == whole
        assert len(followed) == len(whole) + (not (whole and isinstance(whole[-1], Violation)))
    return whole
