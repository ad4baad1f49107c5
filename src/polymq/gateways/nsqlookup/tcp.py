"""One node's connection: the decoder's events become entries of the registry, which go when the connection ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from polymq.errors import Refusal
from polymq.gateways.contract import BaseGateway
from polymq.gateways.effects import Close, Pause, Resume, Send, SetTimer, TimerName
from polymq.gateways.nsqlookup.registry import Node
from polymq.limits import LOOKUP_SILENCE_NS_MAX
from polymq.protocols.nsqlookup import problems
from polymq.protocols.nsqlookup.decode import Decoder
from polymq.protocols.nsqlookup.encode import OK, response
from polymq.protocols.nsqlookup.events import Identify, Ping, Register, Unregister, Violation
from polymq.protocols.nsqlookup.identify import write_identity
from polymq.protocols.nsqlookup.states import Command

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from polymq.gateways.contract import Peer
    from polymq.gateways.effects import Effect
    from polymq.gateways.nsqlookup.registry import Registry
    from polymq.protocols.nsqlookup.events import Event
    from polymq.protocols.nsqlookup.identify import Identity

__all__ = ["LookupGateway"]


class LookupGateway(BaseGateway):
    """The directory's side of one connection. `identity` is what the directory says of itself."""

    def __init__(self, registry: Registry, identity: Identity, peer: Peer, monotonic_ns: Callable[[], int]) -> None:
        self._decoder = Decoder()
        self.need = self._decoder.need
        self._registry = registry
        self._identity = identity
        self._peer = peer
        self._monotonic_ns = monotonic_ns
        self._node: Node | None = None
        self._heard_ns = monotonic_ns()

    def opened(self, effects: list[Effect]) -> None:
        """Start watching for nodes that went away without a word."""
        self._watch(effects)

    def feed(self, view: memoryview, effects: list[Effect]) -> int:
        """Carry out whole commands, but only so many in a turn; the answers go out together."""
        self._heard_ns = self._monotonic_ns()
        events, consumed = self._decoder.feed(view)
        goes_on = self._carry_out(events, effects)
        self.need = self._decoder.need or 1
        if goes_on and not self._decoder.need:
            effects.append(Pause())
            self.ring()
        return consumed

    def woken(self, effects: list[Effect]) -> None:
        """Go on with what was too much for one turn."""
        effects.append(Resume())

    def eof(self, effects: list[Effect]) -> None:
        """Say what a node that only closed its sending side can still read."""
        self._carry_out(self._decoder.eof(), effects)

    def timer(self, name: TimerName, effects: list[Effect]) -> None:
        """Close a connection that has been silent for too long."""
        if self._monotonic_ns() - self._heard_ns >= LOOKUP_SILENCE_NS_MAX:
            effects.append(Close("no command for a long time"))
        else:
            self._watch(effects)

    def ended(self) -> None:
        """Forget the node: what it registered is nowhere to be had now."""
        if self._node is not None:
            self._registry.disconnect(self._node)
            self._node = None

    def _watch(self, effects: list[Effect]) -> None:
        effects.append(SetTimer(TimerName.READ_DEADLINE, self._heard_ns + LOOKUP_SILENCE_NS_MAX))

    def _carry_out(self, events: list[Event], effects: list[Effect]) -> bool:
        """Do what a node asked for; whether the connection goes on."""
        answers: list[bytes] = []
        failure = b""
        for event in events:
            if isinstance(event, Violation):
                failure = event.text
                break
            try:
                answers.append(self._handlers[type(event)](self, event))
            except Refusal:
                failure = problems.limit_reached(Command.REGISTER, self._registry.registrations_max)
                break
        if failure:
            answers.append(response(failure))
        if answers:
            effects.append(Send(b"".join(answers)))
        if failure:
            effects.append(Close(failure.decode("utf-8", "replace")))
        return not failure

    def _ping(self, _event: Ping) -> bytes:
        if self._node is not None:
            self._registry.heard(self._node)
        return OK

    def _identify(self, event: Identify) -> bytes:
        self._node = Node(self._peer.address, event.identity, self._monotonic_ns())
        self._registry.connect(self._node)
        return response(write_identity(self._identity))

    def _register(self, event: Register) -> bytes:
        assert self._node is not None
        self._registry.register(self._node, event.topic, event.channel)
        return OK

    def _unregister(self, event: Unregister) -> bytes:
        assert self._node is not None
        self._registry.unregister(self._node, event.topic, event.channel)
        return OK

    _handlers: ClassVar[Mapping[type[Event], Callable[[LookupGateway, Any], bytes]]] = {
        Ping: _ping,
        Identify: _identify,
        Register: _register,
        Unregister: _unregister,
    }
