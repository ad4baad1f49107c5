"""One HTTP connection without a pump: bytes in, bytes out, with what the pump promises and nothing more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from polymq.core.ports import TicketState
from polymq.gateways.contract import Peer
from polymq.gateways.effects import Close, Pause, Resume, Send, SendAfter, SetTimer, TimerName, Upgrade, WantWritable
from polymq.gateways.http.gateway import HttpGateway

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from polymq.gateways.contract import Layer
    from polymq.gateways.effects import Effect
    from polymq.gateways.http.gateway import Answering
    from tests.unit.core.fakes import FakeClock

Context = TypeVar("Context")


class Wire(Generic[Context]):
    """Feeds a gateway and carries out its effects. `output` is what the peer has; `log` the effects' names."""

    def __init__(self, router: Answering[Context], context: Context, clock: FakeClock, make_tls: Callable[[], Layer] | None = None) -> None:
        self.clock = clock
        self.gateway = HttpGateway(router, context, clock, Peer("192.0.2.7", 40000), make_tls)
        self.rings = 0  # that have not been answered
        self.gateway.ring = self._ring
        self.layers: list[Layer] = []
        self.output = b""
        self.closed: str | None = None
        self.paused = False
        self.wants_writable = False
        self.timers: dict[TimerName, int] = {}
        self.waiting: list[Send | SendAfter] = []
        self.pending = b""
        self.log: list[str] = []
        self._call(self.gateway.opened)

    def send(self, *pieces: bytes) -> Wire[Context]:
        for piece in pieces:
            if self.closed is None:
                self.pending += piece
                self._feed()
        return self

    def end(self) -> Wire[Context]:
        if self.closed is None:
            self._call(self.gateway.eof)
        return self

    def drain(self) -> None:
        """Say that output has been written, as long as anybody wants to know."""
        while self.wants_writable and self.closed is None:
            self.wants_writable = False
            self._call(self.gateway.writable)

    def step(self) -> None:
        """Say once that output has been written."""
        assert self.wants_writable
        self.wants_writable = False
        self._call(self.gateway.writable)

    def _ring(self) -> None:
        self.rings += 1

    def wake(self) -> None:
        """End the turn in which the gateway rang."""
        while self.rings and self.closed is None:
            self.rings = 0
            self._call(self.gateway.woken)

    def wait(self, ns: int) -> None:
        """Let time pass, timer by timer."""
        self.wake()
        end_ns = self.clock.now_ns + ns
        while self.closed is None:
            due = min(((due_ns, name.value) for name, due_ns in self.timers.items()), default=None)
            if due is None or due[0] > end_ns:
                break
            self.clock.now_ns = max(self.clock.now_ns, due[0])
            name = TimerName(due[1])
            del self.timers[name]
            self._call(lambda effects, name=name: self.gateway.timer(name, effects))
        self.clock.now_ns = end_ns

    def settle(self) -> None:
        """Write what its commit allows, in order."""
        while self.waiting:
            effect = self.waiting[0]
            if isinstance(effect, SendAfter):
                if effect.ticket.state is TicketState.PENDING:
                    return
                if effect.ticket.state is TicketState.FAILED:
                    self.output += effect.failure(effect.ticket.failure)
                    self.closed = "commit failed"
                    self.waiting.clear()
                    return
            self.output += effect.data
            del self.waiting[0]

    def _feed(self) -> None:
        while self.closed is None and not self.paused and len(self.pending) >= self.gateway.need:
            buffer = bytearray(self.pending)
            view = memoryview(buffer)
            before = len(self.log)
            effects: list[Effect] = []
            consumed = self.gateway.feed(view, effects)
            assert 0 <= consumed <= len(self.pending)
            self.pending = self.pending[consumed:]
            # The view is only valid during the call: whoever kept it shall read nonsense.
            buffer[:] = b"\xaa" * len(buffer)
            self._apply(effects)
            if not consumed or len(self.log) == before:
                return

    def _call(self, function: object) -> None:
        effects: list[Effect] = []
        function(effects)  # type: ignore[operator]
        self._apply(effects)

    def _apply(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            assert self.closed is None, f"{effect} after the end"
            self.log.append(type(effect).__name__)
            if isinstance(effect, (Send, SendAfter)):
                self.waiting.append(effect)
                self.settle()
            elif isinstance(effect, Close):
                self.closed = effect.reason
                self.gateway.ended()
            elif isinstance(effect, Pause):
                assert not self.paused
                self.paused = True
            elif isinstance(effect, Resume):
                assert self.paused
                self.paused = False
                self._feed()
            elif isinstance(effect, WantWritable):
                self.wants_writable = True
            elif isinstance(effect, Upgrade):
                self.layers.append(effect.layer)
            else:
                assert isinstance(effect, SetTimer)
                self.timers.pop(effect.name, None)
                if effect.due_ns is not None:
                    self.timers[effect.name] = effect.due_ns
