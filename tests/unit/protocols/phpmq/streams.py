"""Tools for the tests of this package: messages as bytes, a stand-in for the pump, events as comparable tuples."""

from __future__ import annotations

import importlib.util
import itertools
import sys
from typing import TYPE_CHECKING, Any

from polymq.protocols.phpmq import decode, events
from polymq.protocols.phpmq.settings import PhpmqSettings

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import ModuleType

SALT = 0xDEAD_BEEF_0123_4567
SETTINGS = PhpmqSettings(salt=SALT)


def packet(kind: int, content: bytes) -> bytes:
    return b"P%02d%029d" % (kind, len(content)) + content


def message(kind: int, *packets: tuple[int, bytes], count: int | None = None, version: int = 1) -> bytes:
    head = b"H%02d%03d%02d" % (version, kind, len(packets) if count is None else count)
    return head + b"".join(packet(*each) for each in packets)


def send(queue: bytes, content: bytes, ttl: object = None) -> bytes:
    packets = [(1, queue), (2, content)]
    return message(1, *packets, *([] if ttl is None else [(5, str(ttl).encode())]))


def consume(queue: bytes, count: object) -> bytes:
    return message(2, (1, queue), (4, str(count).encode()))


def acknowledge(queue: bytes, raw_id: bytes) -> bytes:
    return message(4, (1, queue), (3, raw_id))


def requeue(queue: bytes, raw_id: bytes, ttl: object = 0) -> bytes:
    return message(5, (1, queue), (3, raw_id), (5, str(ttl).encode()))


def dead_letter(queue: bytes, raw_id: bytes) -> bytes:
    return message(6, (1, queue), (3, raw_id))


def interpreted(name: str) -> ModuleType:
    """Load a hot module from its source, whatever was compiled."""
    spec = importlib.util.find_spec(name)
    assert spec is not None
    assert spec.origin is not None
    source = spec.origin.partition(".")[0] + ".py"
    fresh = importlib.util.spec_from_file_location(f"{name}_interpreted", source)
    assert fresh is not None
    assert fresh.loader is not None
    module = importlib.util.module_from_spec(fresh)
    sys.modules[fresh.name] = module
    fresh.loader.exec_module(module)
    return module


def told(event: events.Event) -> list[tuple[Any, ...]]:
    """Say what one event stands for, message by message, so that runs do not show."""
    if isinstance(event, events.Publish):
        batch = event.batch
        span = range(batch.first, batch.first + batch.count)
        ttls = [0] * batch.count if event.ttls is None else [event.ttls[index] for index in span]
        assert batch.size_bytes == sum(map(len, batch.bodies()))
        return [("send", event.queue, body, ttl, event.legacy) for body, ttl in zip(batch.bodies(), ttls, strict=True)]
    if isinstance(event, events.Settle):
        ids = [("settle", event.queue, event.ids[event.first + index]) for index in range(event.count)]
        return [*ids, *[("foreign", event.queue)] * event.foreign]
    if isinstance(event, events.Consume):
        return [("consume", event.queue, event.count)]
    if isinstance(event, events.Requeue):
        return [("requeue", event.queue, event.id, event.ttl_s)]
    if isinstance(event, events.Remove):
        return [("remove", event.queue, event.id)]
    if isinstance(event, events.ForeignId):
        return [("foreign", event.queue)]
    return [("violation", event.problem.value, event.text)]


def run(
    stream: bytes, cuts: Iterable[int] = (), *, module: ModuleType = decode, settings: PhpmqSettings = SETTINGS
) -> list[tuple[Any, ...]]:
    """Feed a stream in pieces, obeying `need`, with what is left in front of what comes."""
    decoder = module.Decoder(settings)
    found: list[tuple[Any, ...]] = []
    rest = b""
    places = sorted({0, *cuts, len(stream)})
    for first, last in itertools.pairwise(places):
        rest += stream[first:last]
        if len(rest) >= decoder.need:
            seen, consumed = decoder.feed(memoryview(rest))
            for event in seen:
                found += told(event)
            rest = rest[consumed:]
            assert decoder.need > len(rest)
            assert decoder.partial is bool(rest)
    return foreign_last(found)


def foreign_last(found: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Put what is foreign behind the rest of its run of acknowledgements: a run only counts it, and where a run ends depends on the reads."""
    ordered: list[tuple[Any, ...]] = []
    for _, run_of in itertools.groupby(found, key=lambda event: event[1] if event[0] in ("settle", "foreign") else event):
        ordered += sorted(run_of, key=lambda event: event[0] == "foreign")
    return ordered
