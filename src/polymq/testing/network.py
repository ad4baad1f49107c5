"""The network port over memory: streams whose segmentation, delays, partial sends and ends come from a seed.

A connection is two `FakeStream`s, one for each side; what one sends the other can receive some time later, in pieces
of any size, in order. `reset()` loses what is under way, `end_output()` closes one direction only, `stall()` keeps
everything back for a while, as a cut cable does. Nothing here runs by itself: whoever drives the run asks
`wakes_at_ns` when the next byte arrives and moves the clock there.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from polymq.testing.clock import FakeClock

__all__ = ["FakeNetwork", "FakeStream", "NetworkConditions"]


@dataclass(frozen=True, slots=True)
class NetworkConditions:
    """How bad the network is. Delays are drawn per send, sizes per send and per receive."""

    delay_ns_max: int = 0
    window_size_bytes: int = 1 << 20  # bytes under way in one direction before sends block
    partial_send_percent: int = 0  # how often a send takes only a part
    partial_receive_percent: int = 0  # how often a receive gives only a part


class FakeNetwork:
    """Makes connections under one set of conditions."""

    __slots__ = ("clock", "conditions", "random")

    def __init__(self, clock: FakeClock, random: Random | int = 0, conditions: NetworkConditions | None = None) -> None:
        self.clock = clock
        self.random = Random(random) if isinstance(random, int) else random
        self.conditions = conditions or NetworkConditions()

    def pair(self) -> tuple[FakeStream, FakeStream]:
        """Make one connection: the client's end and the server's."""
        client, server = FakeStream(self), FakeStream(self)
        client.peer, server.peer = server, client
        return client, server


class FakeStream:
    """The `Stream` port: one end of a connection."""

    __slots__ = ("_arriving", "_finished_ns", "_last_ns", "_network", "_reset", "_size_bytes", "closed", "on_close", "on_send", "peer")

    def __init__(self, network: FakeNetwork) -> None:
        self.peer: FakeStream = self  # replaced by FakeNetwork.pair
        self.closed = False
        # For whoever looks on: `on_send(bytes taken, were those all)` after each send, `on_close()` at the first close.
        self.on_send: Callable[[bytes, bool], None] | None = None
        self.on_close: Callable[[], None] | None = None
        self._network = network
        self._arriving: deque[tuple[int, bytes]] = deque()  # (when, what); the first may have been read in part
        self._size_bytes = 0
        self._last_ns = 0  # bytes do not overtake one another
        self._finished_ns: int | None = None  # when the peer's end of stream arrives
        self._reset = False

    @property
    def readable(self) -> bool:
        """Whether `recv_into` would give bytes, an end, or an error instead of blocking."""
        at = self.wakes_at_ns
        return at is not None and at <= self._network.clock.monotonic_ns()

    @property
    def writable(self) -> bool:
        """Whether `send` would take a byte or raise instead of blocking."""
        return self._room() > 0 or self._reset or self.peer.closed

    @property
    def wakes_at_ns(self) -> int | None:
        """When `readable` becomes or became true, if nothing else happens."""
        if self.closed:
            return None
        if self._reset:
            return 0
        if self._arriving:
            return self._arriving[0][0]
        return self._finished_ns

    def recv_into(self, buffer: bytearray | memoryview) -> int:
        """Take what has arrived; 0 is the peer's end. Raises BlockingIOError, ConnectionResetError."""
        assert not self.closed
        if self._reset:
            raise ConnectionResetError
        now_ns = self._network.clock.monotonic_ns()
        view = memoryview(buffer)
        limit = len(view)
        random, conditions = self._network.random, self._network.conditions
        if conditions.partial_receive_percent and random.randrange(100) < conditions.partial_receive_percent:
            limit = min(limit, 1 + random.randrange(64))
        size = 0
        while self._arriving and size < limit and self._arriving[0][0] <= now_ns:
            at_ns, data = self._arriving.popleft()
            part = data[: limit - size]
            view[size : size + len(part)] = part
            size += len(part)
            if len(part) < len(data):
                self._arriving.appendleft((at_ns, data[len(part) :]))
        self._size_bytes -= size
        if size or (not self._arriving and self._finished_ns is not None and self._finished_ns <= now_ns):
            return size
        raise BlockingIOError

    def take_all(self) -> bytes:
        """Take everything that is under way, whenever it would arrive: what the other side has said until now."""
        data = b"".join(part for _, part in self._arriving)
        self._arriving.clear()
        self._size_bytes = 0
        return data

    def send(self, data: bytes | bytearray | memoryview) -> int:
        """Hand bytes to the network, or some of them. Raises BlockingIOError, ConnectionResetError, BrokenPipeError."""
        assert not self.closed
        if self._reset or self.peer.closed:
            raise ConnectionResetError
        if self.peer._finished_ns is not None:  # noqa: SLF001 - the two ends are one object to the network
            raise BrokenPipeError
        view = memoryview(data).cast("B")
        size = min(len(view), self._room())
        random, conditions = self._network.random, self._network.conditions
        if size and conditions.partial_send_percent and random.randrange(100) < conditions.partial_send_percent:
            size = 1 + random.randrange(size)
        taken = bytes(view[:size])
        if self.on_send is not None:
            self.on_send(taken, size == len(view))
        if not size:
            raise BlockingIOError
        self.peer._arrive(taken, self._delay_ns())  # noqa: SLF001
        return size

    def end_output(self) -> None:
        """Close the sending direction: the peer reads the rest and then the end."""
        peer = self.peer
        if peer._finished_ns is None:  # noqa: SLF001
            peer._finished_ns = max(peer._last_ns, self._network.clock.monotonic_ns() + self._delay_ns())  # noqa: SLF001

    def close(self) -> None:
        """Close both directions. What the peer sends from here on fails."""
        if not self.closed:
            self.end_output()
            self.closed = True
            if self.on_close is not None:
                self.on_close()

    def reset(self) -> None:
        """Break the connection: both ends see an error, and what is under way is lost."""
        for end in (self, self.peer):
            end._reset = True  # noqa: SLF001
            end._arriving.clear()  # noqa: SLF001
            end._size_bytes = 0  # noqa: SLF001

    def stall(self, for_ns: int) -> None:
        """Keep back what is on its way to this end, and all that follows, for a while."""
        until_ns = self._network.clock.monotonic_ns() + for_ns
        self._last_ns = max(self._last_ns, until_ns)
        self._arriving = deque((max(at_ns, until_ns), data) for at_ns, data in self._arriving)
        if self._finished_ns is not None:
            self._finished_ns = max(self._finished_ns, until_ns)

    def _room(self) -> int:
        return max(0, self._network.conditions.window_size_bytes - self.peer._size_bytes)  # noqa: SLF001

    def _delay_ns(self) -> int:
        limit = self._network.conditions.delay_ns_max
        return self._network.random.randrange(limit) if limit else 0

    def _arrive(self, data: bytes, delay_ns: int) -> None:
        self._last_ns = max(self._last_ns, self._network.clock.monotonic_ns() + delay_ns)
        self._arriving.append((self._last_ns, data))
        self._size_bytes += len(data)
