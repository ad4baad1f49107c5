"""A directory in memory: its gateways without a pump, on a clock that stands still."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polymq.gateways.contract import Peer
from polymq.gateways.effects import Close, Pause, Resume, Send, SetTimer, TimerName
from polymq.gateways.nsqlookup.http import LookupHttp, lookup_router
from polymq.gateways.nsqlookup.registry import Registry
from polymq.gateways.nsqlookup.tcp import LookupGateway
from polymq.protocols.nsqlookup.identify import Identity
from tests.unit.core.fakes import FakeClock
from tests.unit.gateways.http.harness import Wire
from tests.unit.gateways.nsq.http_world import parse

if TYPE_CHECKING:
    from polymq.gateways.effects import Effect
    from polymq.protocols.nsqlookup.settings import LookupSettings

SECOND_NS = 1_000_000_000
DIRECTORY = Identity("here", "vm", http_port=4161, tcp_port=4160)


class Link:
    """One node's connection."""

    def __init__(self, gateway: LookupGateway) -> None:
        self.gateway = gateway
        self.timers: dict[TimerName, int | None] = {}
        self.closed = False
        self.reason = ""
        self.turns = 0  # how often the gateway asked to go on in another turn
        self._paused = False
        self._rest = b""
        self._output = b""
        self._call(gateway.opened)

    def send(self, data: bytes) -> list[bytes | None]:
        self._rest += data
        self._feed()
        while self._paused and not self.closed:
            self.turns += 1
            self._call(self.gateway.woken)
        return self._taken()

    def _feed(self) -> None:
        effects: list[Effect] = []
        if not self.closed and len(self._rest) >= self.gateway.need:
            consumed = self.gateway.feed(memoryview(self._rest), effects)
            self._rest = self._rest[consumed:]
        self._apply(effects)

    def finish(self) -> list[bytes | None]:
        if not self.closed:
            self._call(self.gateway.eof)
            self.close()
        return self._taken()

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.gateway.ended()

    def timer(self, name: TimerName) -> None:
        self._call(lambda effects: self.gateway.timer(name, effects))

    def _call(self, function: object) -> None:
        effects: list[Effect] = []
        function(effects)  # type: ignore[operator]  # one of the gateway's methods
        self._apply(effects)

    def _apply(self, effects: list[Effect]) -> None:
        for effect in effects:
            assert not self.closed
            if isinstance(effect, Send):
                self._output += effect.data
            elif isinstance(effect, Close):
                self.reason = effect.reason
                self.close()
            elif isinstance(effect, Pause):
                self._paused = True
            elif isinstance(effect, Resume):
                self._paused = False
                self._feed()
            else:
                assert isinstance(effect, SetTimer)
                self.timers[effect.name] = effect.due_ns

    def _taken(self) -> list[bytes | None]:
        found: list[bytes | None] = []
        data, self._output = self._output, b""
        while data:
            end = 4 + int.from_bytes(data[:4], "big")
            found.append(data[4:end])
            data = data[end:]
        return [*found, None] if self.closed else found


class MemoryDirectory:
    """What `golden_script.play` and the tests talk to."""

    def __init__(self, settings: LookupSettings | None = None, *, registrations_max: int = 1_000_000) -> None:
        self.clock = FakeClock()
        self.registry = Registry(self.clock.monotonic_ns, settings, registrations_max=registrations_max)
        self.links: dict[str, Link] = {}
        self._router = lookup_router()
        self._port = 50000

    def connect(self, name: str) -> None:
        self._port += 1
        peer = Peer("127.0.0.1", self._port)
        self.links[name] = Link(LookupGateway(self.registry, DIRECTORY, peer, self.clock.monotonic_ns))

    def send(self, name: str, data: bytes) -> list[bytes | None]:
        return self.links[name].send(data)

    def finish(self, name: str) -> list[bytes | None]:
        return self.links[name].finish()

    def close(self, name: str) -> None:
        self.links.pop(name).close()

    def http(self) -> Wire[LookupHttp]:
        return Wire(self._router, LookupHttp(self.registry, self.clock), self.clock)

    def ask(self, method: str, path: str) -> tuple[int, dict[str, str], bytes]:
        wire = self.http()
        wire.send(f"{method} {path} HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n".encode())
        wire.drain()
        answer = parse(wire.output, is_head=method == "HEAD")
        return answer.status, answer.headers, answer.body

    def wait(self, seconds: float) -> None:
        self.clock.now_ns += int(seconds * SECOND_NS)
