"""Tools for the tests of this package: commands as bytes, a stand-in for the pump, events as comparable tuples."""

from __future__ import annotations

import importlib.util
import itertools
import struct
import sys
from typing import TYPE_CHECKING, Any

from polymq.protocols.nsq import decode, events
from polymq.protocols.nsq.settings import NsqSettings
from polymq.protocols.nsq.states import Command

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from types import ModuleType

MAGIC = b"  V2"


def i32(value: int) -> bytes:
    return struct.pack(">i", value)


def identify(body: bytes = b"{}") -> bytes:
    return b"IDENTIFY\n" + i32(len(body)) + body


def pub(topic: bytes, body: bytes) -> bytes:
    return b"PUB " + topic + b"\n" + i32(len(body)) + body


def dpub(topic: bytes, delay_ms: int, body: bytes) -> bytes:
    return b"DPUB %b %d\n" % (topic, delay_ms) + i32(len(body)) + body


def mpub(topic: bytes, bodies: Sequence[bytes], stated_size: int | None = None) -> bytes:
    inner = i32(len(bodies)) + b"".join(i32(len(body)) + body for body in bodies)
    return b"MPUB " + topic + b"\n" + i32(len(inner) if stated_size is None else stated_size) + inner


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
    """Say what one event stands for, command by command, so that runs do not show."""
    if isinstance(event, events.Publish):
        bodies = event.batch.bodies()
        assert event.batch.count == len(bodies) > 0
        assert event.batch.size_bytes == sum(map(len, bodies))
        if event.command is Command.PUB:
            assert event.answers == len(bodies)
            return [("PUB", event.topic, body) for body in bodies]
        assert event.answers == 1
        return [(event.command.name, event.topic, event.delay_ms, tuple(bodies))]
    if isinstance(event, events.Finish):
        assert event.count > 0
        return [("FIN", event.ids[event.first + index]) for index in range(event.count)]
    return [(type(event).__name__, *(getattr(event, name) for name in event.__slots__))]


def tidied(steps: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Take away what depends on how the stream was cut: repeated signs of life, RDYs that no longer count, and beginnings that reached their end.

    Of a run of FINs and RDYs the last RDY counts, behind the FINs.
    """
    result: list[tuple[Any, ...]] = []
    for step in steps:
        if step == ("Nop",) and result and result[-1] == step:
            continue
        if step[0] in {"Ready", "FIN"} and result and result[-1][0] == "Ready":
            ready = result.pop()
            result += [step] if step[0] == "Ready" else [step, ready]
            continue
        if step[0] == "MPUB" and result and result[-1] == ("PublishBegun", step[1]):
            result.pop()
        result.append(step)
    return result


class Pump:
    """Feeds a decoder as the server does: the rest again at the start, never less than it needs.

    Every view is a buffer of its own that ends where the bytes end, so that reading on would be noticed by a build
    with bounds checks.
    """

    def __init__(self, module: ModuleType = decode, settings: NsqSettings | None = None, *, magic: bool = True) -> None:
        self.decoder = module.Decoder(settings or NsqSettings())
        self.rest = b""
        self.steps: list[tuple[Any, ...]] = []
        self.feeds = 0
        if magic:
            self.push(MAGIC)

    def push(self, data: bytes) -> None:
        self.rest += data
        while len(self.rest) >= self.decoder.need:
            found, consumed = self.decoder.feed(memoryview(self.rest))
            self.feeds += 1
            for event in found:
                self.steps.extend(told(event))
            self.rest = self.rest[consumed:]
            if self.decoder.need:
                assert self.decoder.need > len(self.rest), "need must ask for more than is there"
                return

    def end(self) -> list[tuple[Any, ...]]:
        for event in self.decoder.eof():
            self.steps.extend(told(event))
        return tidied(self.steps)


def run(
    stream: bytes, cuts: Iterable[int] = (), *, module: ModuleType = decode, settings: NsqSettings | None = None
) -> list[tuple[Any, ...]]:
    """Everything that a stream (behind the magic) says when it arrives in the given pieces and then ends."""
    pump = Pump(module, settings)
    places = [0, *sorted(cuts), len(stream)]
    for start, stop in itertools.pairwise(places):
        pump.push(stream[start:stop])
    return pump.end()


def three_ways(stream: bytes, *, settings: NsqSettings | None = None) -> list[tuple[Any, ...]]:
    """Decode a stream whole, byte by byte, and with a NOP behind it: the events are the same."""
    whole = run(stream, settings=settings)
    assert run(stream, range(len(stream)), settings=settings) == whole
    followed = run(stream + b"NOP\n", settings=settings)
    ended = whole and whole[-1][0] in {"Violation", "SilentClose"}
    if not ended:
        assert followed == tidied([*whole, ("Nop",)])
    return whole
