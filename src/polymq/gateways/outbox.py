"""One connection's output: a single buffer that gateways encode into and the pump sends from, without a copy.

Bytes `start … end` of `data` wait to be sent. A gate is a position that nothing behind may pass until its ticket is
durable: an acknowledgement that waits for a commit. Buffers come from a pool and go back when all is sent, so an idle
connection holds none, and a busy one uses memory that is warm in the cache.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from polymq.wire.tickets import TicketState

if TYPE_CHECKING:
    from collections.abc import Callable

    from polymq.core.ports import Ticket
    from polymq.gateways.contract import Layer

__all__ = ["BufferPool", "Outbox"]

# A new buffer: one message frame of a usual size fits many times, and a pool of them is small.
_BUFFER_SIZE_BYTES_FIRST: Final = 64 * 1024
# A buffer that grew beyond this for one large message is not kept.
_BUFFER_SIZE_BYTES_KEPT: Final = 2 * 1024 * 1024
_BUFFERS_KEPT: Final = 8
# Smaller ones, and how many of each are kept: in a turn that serves thousands of connections each has one of these. A
# buffer of 64 KiB costs 30 us to make, which is more than all else that is done for such a connection.
_SMALLER: Final = ((2 * 1024, 2048), (32 * 1024, 128))
_SMALLER_MAX: Final = _SMALLER[-1][0]
# Looking a member up in its enumeration costs more than comparing it.
_DONE: Final = TicketState.DONE
_FAILED: Final = TicketState.FAILED


class BufferPool:
    """Buffers that no connection uses at the moment, a few large ones and many small ones, the most recently used first."""

    __slots__ = ("_free", "_smaller")

    def __init__(self) -> None:
        self._free: list[bytearray] = []
        self._smaller: dict[int, tuple[list[bytearray], int]] = {size: ([], kept) for size, kept in _SMALLER}

    def take(self, size: int) -> bytearray:
        """Hand out a buffer of at least `size` bytes, if that is little, else of some size; what it contains is meaningless."""
        for smaller, (free, _) in self._smaller.items():
            if size <= smaller:
                return free.pop() if free else bytearray(smaller)
        return self._free.pop() if self._free else bytearray(_BUFFER_SIZE_BYTES_FIRST)

    def give(self, buffer: bytearray) -> None:
        """Take a buffer back that nobody refers to any more."""
        size = len(buffer)
        free, kept = self._smaller.get(size) or (self._free, _BUFFERS_KEPT)
        if size <= _BUFFER_SIZE_BYTES_KEPT and len(free) < kept:
            free.append(buffer)


class _Gate:
    """Output from `position` on waits for tickets: `sizes[i]` bytes for `tickets[i]`, and what follows for the last one.

    `failure` makes the bytes to send instead of all that is left, if one fails.
    """

    __slots__ = ("failure", "position", "sizes", "tickets")

    def __init__(self, position: int, tickets: list[Ticket], sizes: list[int], failure: Callable[[str], bytes]) -> None:
        self.position = position
        self.tickets = tickets
        self.sizes = sizes
        self.failure = failure

    def waits_for(self) -> Ticket | None:
        """Move behind what is durable, and give the ticket that holds up the rest, if there is one."""
        for index, ticket in enumerate(self.tickets):
            if ticket.state is not _DONE:
                self.position += sum(self.sizes[:index])
                del self.tickets[:index], self.sizes[:index]
                return ticket
        return None


class _Mark:
    """Output from `position` on goes through `layer`, and waits until all before has been taken out."""

    __slots__ = ("layer", "position")

    def __init__(self, position: int, layer: Layer) -> None:
        self.position = position
        self.layer = layer


class Outbox:
    """Output that waits. Use: `at = outbox.reserve(n)`, write into `outbox.data` from `at`, `outbox.advance(end)`.

    `data` may be another object after every `reserve`. `hold_below`: while fewer bytes than this wait, and nothing
    else asks for it, nothing is sent; for protocols whose client asked for output to be gathered.
    """

    __slots__ = ("_gates", "_pool", "data", "end", "hold_below", "start")

    def __init__(self, pool: BufferPool | None = None) -> None:
        self._pool = pool or BufferPool()
        self._gates: list[_Gate | _Mark] = []
        self.data = bytearray()
        self.start = 0
        self.end = 0
        self.hold_below = 0

    @property
    def size_bytes(self) -> int:
        """How much waits, behind gates or not."""
        return self.end - self.start

    @property
    def gated(self) -> bool:
        """Whether anything waits for a commit, or for a layer."""
        return bool(self._gates)

    def reserve(self, size: int) -> int:
        """Make room for `size` bytes and say where to write them. Amortised O(1); at times moves what waits."""
        if self.end + size > len(self.data):
            self._make_room(size)
        return self.end

    def advance(self, end: int) -> None:
        """Say that everything before `end` has been written."""
        assert self.end <= end <= len(self.data)
        self.end = end

    def write(self, data: bytes) -> None:
        """Append bytes that exist already: for what is not hot."""
        size = len(data)
        end = self.end
        if end + size > len(self.data):
            self._make_room(size)
            end = self.end
        self.data[end : end + size] = data
        self.end = end + size

    def write_after(self, ticket: Ticket, data: bytes, failure: Callable[[str], bytes]) -> None:
        """Append bytes that may only be sent once `ticket` is durable, and hold back all that follows them."""
        gates = self._gates
        # One ticket stands for everything written together: behind its own gate, no second one is needed.
        last = gates[-1] if gates else None
        if not isinstance(last, _Gate) or last.tickets[-1] is not ticket:
            gates.append(_Gate(self.end, [ticket], [len(data)], failure))
        self.write(data)

    def write_after_each(self, tickets: list[Ticket], sizes: list[int], data: bytes, failure: Callable[[str], bytes]) -> None:
        """Append bytes of which each part, in turn, may only be sent once its ticket is durable; the lists are the outbox's from here on."""
        self._gates.append(_Gate(self.end, tickets, sizes, failure))
        self.write(data)

    def settle(self) -> str | None:
        """Open the gates whose tickets are durable, in order.

        Returns None, or why a commit failed: what was behind that gate is then gone, replaced by the failure's bytes,
        and the connection has to be closed.
        """
        gates = self._gates
        opened = 0
        for gate in gates:
            if isinstance(gate, _Mark):
                break  # what is behind is settled when the mark has been passed
            ticket = gate.waits_for()
            if ticket is None:
                opened += 1
            elif ticket.state is _FAILED:
                gates.clear()
                self.end = gate.position
                self.write(gate.failure(ticket.failure))
                return ticket.failure or "commit failed"
            else:
                break
        del gates[:opened]
        return None

    def mark(self, layer: Layer) -> None:
        """Hold back all that follows until everything before has been sent: it is to go through `layer`."""
        self._gates.append(_Mark(self.end, layer))

    def pass_mark(self) -> Layer | None:
        """Take the mark away that output has come to, if there is one, and return its layer."""
        gate = self._gates[0] if self._gates else None
        if not isinstance(gate, _Mark) or gate.position != self.start:
            return None
        del self._gates[0]
        return gate.layer

    def cut(self, layer: Layer) -> None:
        """Drop what was meant for a layer that will not be used, if it is still behind its mark."""
        for index, gate in enumerate(self._gates):
            if isinstance(gate, _Mark) and gate.layer is layer:
                self.end = gate.position
                del self._gates[index:]
                return

    def limit(self) -> int:
        """Where sending has to stop: at the first gate, or at the end."""
        return self._gates[0].position if self._gates else self.end

    def sent(self, count: int) -> None:
        """Forget the first `count` bytes."""
        self.start += count
        assert self.start <= self.end
        if self.start == self.end and not self._gates:
            self.clear()

    def clear(self) -> None:
        """Forget everything, and give the buffer back."""
        self._gates.clear()
        self.start = self.end = 0
        if self.data:
            self._pool.give(self.data)
            self.data = bytearray()

    def _make_room(self, size: int) -> None:
        start, end = self.start, self.end
        waiting = end - start
        data = self.data
        if len(data) <= _SMALLER_MAX and waiting + size > len(data):
            # Nothing yet, or a small one that has become too small: that one is somebody else's again.
            self.data = self._pool.take(waiting + size)
            self.data[:waiting] = data[start:end]
            if data:
                self._pool.give(data)
            data = self.data
            self._move_gates(start)
        elif start:
            data[:waiting] = data[start:end]
            self._move_gates(start)
        if waiting + size > len(data):
            data.extend(bytes(max(len(data), waiting + size - len(data))))

    def _move_gates(self, distance: int) -> None:
        """Everything that waits lies that much further to the front."""
        for gate in self._gates:
            gate.position -= distance
        self.start, self.end = 0, self.end - distance
