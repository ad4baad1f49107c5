"""The product's own endpoints over the real core, on a fake store that can be read in batches."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

from polymq.admin.door import Door, refuse
from polymq.admin.endpoints import ENDPOINTS
from polymq.core.access import ANONYMOUS
from polymq.core.broker import Broker
from polymq.core.settings import CoreSettings
from polymq.protocols.http.router import Route, Router
from polymq.wire.records import check, parse_header, read_messages
from tests.unit.core.conftest import World
from tests.unit.core.fakes import FakeClock, FakeLog, FakeRandom, FakeStore
from tests.unit.gateways.http.harness import Wire
from tests.unit.gateways.nsq.http_world import Answer, parse

if TYPE_CHECKING:
    from polymq.core.ports import Store


class ReadableLog(FakeLog):
    """Hands out batches like the real log; `reads_from_disk` of them only when asked a second time."""

    reads_from_disk = 0
    asked = 0

    def batches(self, offset: int, size_bytes_max: int) -> memoryview | None:
        self.asked += 1
        if self.reads_from_disk:
            self.reads_from_disk -= 1
            return None
        ends = [at for _, _, at in self.index[1:]] + [len(self.data)]
        start = stop = None
        for (base, count, at), end in zip(self.index, ends, strict=True):
            if base + count <= offset or base + count > self.readable:
                continue
            if start is None:
                start, stop = at, end
            elif end - start <= size_bytes_max:
                stop = end
            else:
                break
        # A copy: what was handed out must not keep the data from growing.
        return memoryview(bytes(self.data[start:stop])) if start is not None else memoryview(b"")

    def offset_at(self, time_ns: int) -> int | None:
        if self.reads_from_disk:
            self.reads_from_disk -= 1
            return None
        for base, _, at in self.index:
            if parse_header(self.data, at).base_time_ns >= time_ns:
                return base
        return self.end


class ReadableStore(FakeStore):
    def create_log(self, number: int, *, sync: bool) -> FakeLog:
        self.logs[number] = ReadableLog(number, sync=sync)
        return self.logs[number]


class DoorWorld(World):
    def __init__(self, partitions: int = 1) -> None:
        self.clock = FakeClock()
        self.store = ReadableStore()
        self.settings = CoreSettings(partitions=partitions)
        self.broker = Broker(cast("Store", self.store), self.clock, FakeRandom(), settings=self.settings)
        self.broker.start()
        self.session = self.broker.session(ANONYMOUS)
        self.door = Door(self.session, self.clock, self.broker.statistics, node="n1")
        self.router = Router([Route(*endpoint) for endpoint in ENDPOINTS], refuse=refuse)

    def log(self, number: int | None = None) -> ReadableLog:
        log = self.store.logs[next(iter(self.store.logs)) if number is None else number]
        assert isinstance(log, ReadableLog)
        return log

    def wire(self, path: str, method: str = "GET") -> Wire[Door]:
        wire = Wire(self.router, self.door, self.clock)
        return wire.send(f"{method} {path} HTTP/1.1\r\nHost: h\r\n\r\n".encode())

    def get(self, path: str) -> Answer:
        wire = self.wire(path)
        wire.drain()
        return parse(wire.output)

    def json(self, path: str, status: int = 200) -> Any:
        answer = self.get(path)
        assert (answer.status, answer.headers["Content-Type"]) == (status, "application/json")
        return json.loads(answer.text)


def offsets_and_bodies(data: bytes) -> list[tuple[int, bytes]]:
    """Read whole batches as a client would, and check every byte of them."""
    found: list[tuple[int, bytes]] = []
    at = 0
    while at < len(data):
        assert check(data, at, len(data)) is None
        header = parse_header(data, at)
        messages = read_messages(data, at + 80, header.count, header.base_time_ns, header.count, at + header.size)
        found += [(header.base_offset + index, message.body) for index, message in enumerate(messages)]
        at += header.size
    return found
