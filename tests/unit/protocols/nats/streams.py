"""Tools for the tests of this package: a stand-in for the pump, and events as comparable tuples."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from polymq.limits import NATS_EVENTS_PER_FEED_MAX
from polymq.protocols.nats import decode, events
from polymq.protocols.nats.commands import PeerKind
from polymq.protocols.nats.settings import NatsSettings
from polymq.wire import live

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import ModuleType


@dataclass(frozen=True, slots=True)
class Facts:
    """What the gateway has told the decoder."""

    headers: bool = True
    connect_first: bool = False
    account_omitted: bool = False


USUAL = Facts()
SUSPICIOUS = (b"_G", b"_R", b"$J", b"$N")


def pub(subject: bytes, payload: bytes, reply: bytes = b"") -> bytes:
    return b"PUB %b %b%d\r\n%b\r\n" % (subject, reply + b" " if reply else b"", len(payload), payload)


def hpub(subject: bytes, header: bytes, payload: bytes, reply: bytes = b"") -> bytes:
    sizes = b"%d %d" % (len(header), len(header) + len(payload))
    return b"HPUB %b %b%b\r\n%b%b\r\n" % (subject, reply + b" " if reply else b"", sizes, header, payload)


def told(event: events.Event, kind: PeerKind) -> list[tuple[Any, ...]]:
    """Say what one event stands for, message by message, so that runs do not show."""
    if isinstance(event, events.Publishes):
        batch = event.batch
        messages = batch.messages()
        assert batch.count == len(messages) > 0
        assert len(batch.rows) == batch.count * live.COLUMNS
        assert {batch.rows[live.COLUMNS * index + live.SPARE] for index in range(batch.count)} == {0}
        assert min(batch.rows) >= 0
        assert event.size_bytes == sum(len(message.payload) for message in messages)
        names = [name for message in messages for name in (message.subject, message.reply)]
        if kind is PeerKind.CLIENT:
            assert event.unusual == any(name.startswith(SUSPICIOUS) for name in names)
        else:
            assert event.unusual == any(message.queues for message in messages)
        return [
            ("MSG", each.account, each.subject, each.reply, each.queues, each.payload[: each.header_size], each.payload[each.header_size :])
            for each in messages
        ]
    return [(type(event).__name__, *(getattr(event, name) for name in event.__slots__))]


class Pump:
    """Feeds a decoder as the server does: the rest again at the start, never less than it needs.

    Every view is a buffer of its own that ends where the bytes end, so that reading on would be noticed by a build
    with bounds checks. A CONNECT that asks for headers gets them.
    """

    def __init__(
        self, kind: PeerKind = PeerKind.CLIENT, module: ModuleType = decode, settings: NatsSettings | None = None, facts: Facts = USUAL
    ) -> None:
        self.kind = kind
        self.decoder = module.Decoder(settings or NatsSettings(), kind)
        self.decoder.headers = facts.headers
        self.decoder.connect_first = facts.connect_first
        self.decoder.account_omitted = facts.account_omitted
        self.rest = b""
        self.steps: list[tuple[Any, ...]] = []
        self.feeds = 0

    def push(self, data: bytes) -> None:
        self.rest += data
        while len(self.rest) >= self.decoder.need:
            found, consumed = self.decoder.feed(memoryview(self.rest))
            self.feeds += 1
            for event in found:
                self.steps.extend(told(event, self.kind))
                if isinstance(event, events.Connect):
                    self.decoder.headers = b"noheaders" not in event.body
            self.rest = self.rest[consumed:]
            if self.decoder.need:
                assert self.decoder.need > len(self.rest), "need must ask for more than is there"
                return
            assert len(found) == NATS_EVENTS_PER_FEED_MAX or isinstance(found[-1], events.Connect | events.Info)


def run(
    stream: bytes,
    cuts: Iterable[int] = (),
    *,
    kind: PeerKind = PeerKind.CLIENT,
    module: ModuleType = decode,
    settings: NatsSettings | None = None,
    facts: Facts = USUAL,
) -> list[tuple[Any, ...]]:
    """Everything that a stream says when it arrives in the given pieces."""
    pump = Pump(kind, module, settings, facts)
    places = [0, *sorted(cuts), len(stream)]
    for start, stop in itertools.pairwise(places):
        pump.push(stream[start:stop])
    return pump.steps


def three_ways(
    stream: bytes, *, kind: PeerKind = PeerKind.CLIENT, settings: NatsSettings | None = None, facts: Facts = USUAL
) -> list[tuple[Any, ...]]:
    """Decode a stream whole, byte by byte, and with a PING behind it: the events are the same."""
    whole = run(stream, kind=kind, settings=settings, facts=facts)
    assert run(stream, range(len(stream)), kind=kind, settings=settings, facts=facts) == whole
    followed = run(stream + b"PING\r\n", kind=kind, settings=settings, facts=facts)
    ended = whole and whole[-1][0] in {"Violation", "SilentClose", "PeerError"}
    assert followed == (whole if ended else [*whole, ("Ping",)])
    return whole
