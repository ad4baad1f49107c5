"""A loop whose time passes at once, and an NSQ server without a socket that does as it is told."""

from __future__ import annotations

import asyncio
import selectors
import struct
from typing import TYPE_CHECKING, Any

from polymq.protocols.nsq import encode, events
from polymq.protocols.nsq.decode import Decoder
from polymq.protocols.nsq.identify import Agreement, first_agreement, negotiate
from polymq.protocols.nsq.settings import NsqSettings
from polymq.wire.deflate import DeflateLayer
from polymq.wire.layers import LayerFailed, LayerStack
from polymq.wire.snappy import SnappyLayer
from tests.unit.protocols.nsq.streams import told
from tests.unit.wire.streams import take

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from polymq.wire.layers import Layer
    from polymq.wire.tls import TlsLayer


class _Selector(selectors.SelectSelector):
    """Waits no time, but lets it pass."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        assert timeout is not None, "everybody waits and nothing will ever happen"
        self.now += max(0.0, timeout)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock jumps to the next thing that is planned."""

    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.now


def in_virtual_time(main: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(main)


def encode_message(number: int, body: bytes, attempts: int = 1) -> bytes:
    return struct.pack(">iiqH", 30 + len(body), 2, 5, attempts) + b"%016x" % number + body


class Wire(asyncio.Transport):
    """The client's end of a connection to `Server`."""

    def __init__(self, server: Server, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self.server = server
        self.protocol = protocol
        self.decoder = Decoder(server.settings)
        self.agreement = first_agreement(server.settings)
        self.writes: list[bytes] = []
        self.ended = False
        self.rest = b""
        self.layers: LayerStack | None = None
        self.paused = False
        self.unread: list[bytes] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.writes.append(bytes(data))
        asyncio.get_running_loop().call_soon(self.arrive, bytes(data))

    def arrive(self, data: bytes) -> None:
        if self.layers is not None:
            try:
                data = take(self.layers, data)
            except LayerFailed:
                self.end()
                return
            if self.layers.wants_write():
                self.reply(b"")
        self.rest += data
        while not self.ended and not self.server.is_deaf and len(self.rest) >= self.decoder.need:
            found, consumed = self.decoder.feed(memoryview(self.rest))
            for event in found:
                self.server.steps.extend(told(event))
                self.server.react(self, event)
            self.rest = self.rest[consumed:]
            if self.decoder.need:
                return

    def reply(self, data: bytes) -> None:
        if self.layers is not None:
            data = self.layers.send(data)
        asyncio.get_running_loop().call_soon(self.receive, data)

    def receive(self, data: bytes) -> None:
        """Give the client what has reached it, if it reads."""
        if self.paused:
            self.unread.append(data)
        else:
            self.protocol.data_received(data)

    def pause_reading(self) -> None:
        assert not self.paused
        self.paused = True

    def resume_reading(self) -> None:
        assert self.paused
        self.paused = False
        unread, self.unread = self.unread, []
        for data in unread:
            asyncio.get_running_loop().call_soon(self.receive, data)

    def agree(self, agreement: Agreement) -> None:
        """Answer IDENTIFY and put layers in place, in as few reads as a careless server can make of it."""
        answer = encode.response_frame(agreement.reply)
        layers = LayerStack()
        compression = SnappyLayer() if agreement.snappy else DeflateLayer(agreement.deflate_level) if agreement.deflate else None
        if agreement.tls:
            assert self.server.make_tls is not None
            self.reply(answer)
            self.layers = layers
            self.push(self.server.make_tls())
            self.reply(encode.OK_FRAME)
            answer = b""
        if compression is not None:
            self.layers = layers
            self.push(compression)
            answer += layers.send(encode.OK_FRAME)
        if answer:
            asyncio.get_running_loop().call_soon(self.receive, answer)

    def push(self, layer: Layer) -> None:
        assert self.layers is not None
        self.layers.push_input(layer)
        self.layers.push_output(layer)

    def refuse(self, text: bytes) -> None:
        self.reply(encode.error_frame(text))
        self.end()

    def end(self, error: Exception | None = None) -> None:
        if not self.ended:
            self.ended = True
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, error)

    def close(self) -> None:
        asyncio.get_running_loop().call_soon(self.end)
        self.closing = True

    closing = False

    def abort(self) -> None:
        self.end()

    def is_closing(self) -> bool:
        return self.closing or self.ended

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """There is no buffer."""


class Server:
    """Accepts everything; `refusals` has the error text for the next commands of a kind, None to be silent."""

    def __init__(self) -> None:
        self.settings = NsqSettings()
        self.wires: list[Wire] = []
        self.steps: list[tuple[Any, ...]] = []
        self.refusals: dict[type, bytes | None] = {}
        self.is_down = False
        self.is_deaf = False
        self.attempts_at: list[float] = []
        self.make_tls: Callable[[], TlsLayer] | None = None
        self.secrets: list[bytes] = []

    async def open(self, address: str, factory: Callable[[], asyncio.Protocol]) -> None:
        self.attempts_at.append(asyncio.get_running_loop().time())
        if self.is_down:
            raise ConnectionRefusedError(f"nobody at {address}")
        protocol = factory()
        self.wires.append(Wire(self, protocol))
        protocol.connection_made(self.wires[-1])

    def react(self, wire: Wire, event: events.Event) -> None:
        if type(event) in self.refusals:
            text = self.refusals[type(event)]
            if text is not None:
                wire.refuse(text)
            return
        match event:
            case events.Identify(body):
                outcome = negotiate(body, self.settings, wire.agreement)
                assert isinstance(outcome, Agreement)
                wire.agree(outcome)
            case events.Auth(secret):
                self.secrets.append(secret)
                wire.reply(encode.response_frame(b'{"identity":"me","identity_url":"","permission_count":1}'))
            case events.Subscribe():
                wire.reply(encode.OK_FRAME)
            case events.Publish():
                wire.reply(encode.ok_frames(event.answers))
            case events.Cls():
                wire.reply(encode.CLOSE_WAIT_FRAME)
            case events.ForeignId(command, raw_id):
                name = command.value
                wire.reply(encode.error_frame(b"E_%b_FAILED %b %b failed ID not in flight" % (name, name, raw_id)))
            case events.Violation(text):
                wire.refuse(text)

    def deliver(self, *ids: int, attempts: int = 1) -> None:
        """Send messages whose body is their id in decimal."""
        self.wires[-1].reply(b"".join(encode_message(each, b"%d" % each, attempts) for each in ids))

    def took(self, *names: str) -> list[tuple[Any, ...]]:
        """What arrived of some kinds of command."""
        return [step for step in self.steps if step[0] in names]
