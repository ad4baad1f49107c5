"""Ways to feed a decoder: the same bytes must mean the same however they are cut."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from polymq.protocols.http.decode import BodyRule, Continue, Event, RequestDecoder, Violation
from polymq.wire.exchange import Request

if TYPE_CHECKING:
    from collections.abc import Sequence

READS = BodyRule(size_bytes_max=100, reads=True)
DISCARDS = BodyRule(size_bytes_max=50, reads=False)


def rule(method: str, path: str) -> BodyRule:
    return READS if method in ("POST", "PUT") and path.startswith("/read") else DISCARDS


def facts(event: Event) -> tuple[object, ...]:
    """What an event says, with the body copied out."""
    if isinstance(event, Continue):
        return ("continue",)
    if isinstance(event, Violation):
        return ("violation", event.line, event.text)
    assert isinstance(event, Request)
    return (
        event.method,
        event.origin,
        event.path,
        event.query,
        bytes(event.body_view),
        event.body_state.name,
        event.content_length,
        event.keep_alive,
        event.version_minor,
    )


def decode(pieces: Sequence[bytes]) -> list[tuple[object, ...]]:
    """Feed pieces one after the other, as the pump does: what is not consumed comes again, in front of the next."""
    decoder = RequestDecoder(rule)
    events: list[tuple[object, ...]] = []
    pending = b""
    for piece in pieces:
        pending += piece
        if len(pending) < decoder.need:
            continue
        at = 0
        view = memoryview(pending)
        decoder.begin_turn()
        while not decoder.ended:
            event, at = decoder.next(view, at)
            if event is not None:
                events.append(facts(event))
            elif len(pending) - at < decoder.need:
                break
            else:
                decoder.begin_turn()
        pending = pending[at:]
    return events


def cut(data: bytes, places: Sequence[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[start:end] for start, end in pairwise(edges)]
