"""One connection's output: a single buffer that gateways encode into and the pump sends from, without a copy.

Bytes `start … end` of `data` wait to be sent. A gate is a position that nothing behind may pass until its ticket is
durable: an acknowledgement that waits for a commit. Buffers come from a pool and go back when all is sent, so an idle
connection holds none, and a busy one uses memory that is warm in the cache. What many connections get alike is encoded once
and waits in all their outboxes (`Lent`): as pieces ahead of what is in `data`.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from polymq.gateways.buffers import BufferPool, Lent
from polymq.wire.tickets import TicketState

if TYPE_CHECKING:
    from collections.abc import Callable

    from polymq.core.ports import Ticket
    from polymq.gateways.contract import Layer

__all__ = ["Outbox"]

# In a buffer of this size moving what waits to the front costs little.
_BUFFER_SIZE_BYTES_SMALL: Final = 64 * 1024
# What waits is left where it is, from so much on, if it is most of its buffer; what follows goes to another, of at most so much
# if it has not to be larger.
_PIECE_SIZE_BYTES_MIN: Final = 64 * 1024
_PIECE_SIZE_BYTES_MAX: Final = 1024 * 1024
# So many pieces are sent at a time.
_PIECES_MAX: Final = 64
# Looking a member up in its enumeration costs more than comparing it.
_DONE: Final = TicketState.DONE
_FAILED: Final = TicketState.FAILED


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

    __slots__ = ("_ahead", "_ahead_size_bytes", "_gates", "_pool", "data", "end", "hold_below", "start")

    def __init__(self, pool: BufferPool | None = None) -> None:
        self._pool = pool or BufferPool()
        self._gates: list[_Gate | _Mark] = []
        # Pieces that are sent before anything in `data`, each from the position beside it on; none of them is gated.
        self._ahead: deque[tuple[Lent, int]] | None = None
        self._ahead_size_bytes = 0
        self.data = bytearray()
        self.start = 0
        self.end = 0
        self.hold_below = 0

    @property
    def size_bytes(self) -> int:
        """How much waits, behind gates or not."""
        return self.end - self.start + self._ahead_size_bytes

    @property
    def gated(self) -> bool:
        """Whether anything waits for a commit, or for a layer."""
        return bool(self._gates)

    @property
    def ready_size_bytes(self) -> int:
        """How much may be sent now."""
        return self._ahead_size_bytes + self._limit() - self.start

    def views(self) -> list[memoryview]:
        """Give what may be sent now, in order, or the first of it; valid until the next change."""
        found = []
        for lent, at in self._ahead or ():
            found.append(memoryview(lent.data)[at : lent.end])
            if len(found) == _PIECES_MAX:
                return found
        limit = self._limit()
        if limit > self.start:
            found.append(memoryview(self.data)[self.start : limit])
        return found

    def first(self, size_bytes_max: int) -> bytes:
        """Copy the first of what may be sent now."""
        found = bytearray()
        for view in self.views():
            found += view[: size_bytes_max - len(found)]
            if len(found) == size_bytes_max:
                break
        return bytes(found)

    def _limit(self) -> int:
        """Where in `data` sending has to stop: at the first gate, or at the end."""
        return self._gates[0].position if self._gates else self.end

    def reserve(self, size: int) -> int:
        """Make room for `size` bytes and say where to write them. Amortised O(1); at times moves what waits."""
        if self.end + size > len(self.data):
            self._make_room(size)
        return self.end

    def advance(self, end: int) -> None:
        """Say that everything before `end` has been written."""
        assert self.end <= end <= len(self.data)
        self.end = end

    def write(self, data: bytes | memoryview) -> None:
        """Append bytes that exist already: for what is not hot."""
        size = len(data)
        end = self.end
        if end + size > len(self.data):
            self._make_room(size)
            end = self.end
        self.data[end : end + size] = data
        self.end = end + size

    def lend(self, at: int) -> Lent | None:
        """Let other outboxes send what was written last, from `at` on; the caller holds it until it calls `release`.

        None where something waits for a commit: that may have to be taken back.
        """
        assert self.start <= at <= self.end
        if self._gates:
            return None
        lent = Lent(self._pool, self.data, at, self.end)
        lent.hold()
        self._push(lent, self.start)
        self._leave_data()
        return lent

    def borrow(self, lent: Lent) -> None:
        """Append what is lent: without a copy, unless something waits for a commit, or much of the buffer would wait for nothing."""
        if self._gates or (not lent.is_dense and self.size_bytes):
            self.write(memoryview(lent.data)[lent.at : lent.end])
            return
        if self.end > self.start:
            self._push(Lent(self._pool, self.data, self.start, self.end), self.start)
            self._leave_data()
        self._push(lent, lent.at)

    def _push(self, lent: Lent, at: int) -> None:
        lent.hold()
        if self._ahead is None:
            self._ahead = deque()
        self._ahead.append((lent, at))
        self._ahead_size_bytes += lent.end - at

    def _leave_data(self) -> None:
        self.data = bytearray()
        self.start = self.end = 0

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
        if not isinstance(gate, _Mark) or gate.position != self.start or self._ahead:
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

    def sent(self, count: int) -> None:
        """Forget the first `count` bytes."""
        ahead = self._ahead
        while ahead and count:
            lent, at = ahead[0]
            done = min(lent.end - at, count)
            self._ahead_size_bytes -= done
            count -= done
            if at + done < lent.end:
                ahead[0] = (lent, at + done)
            else:
                ahead.popleft()
                lent.release()
        self.start += count
        assert self.start <= self.end
        if self.start == self.end and not self._gates and not ahead:
            self.clear()

    def clear(self) -> None:
        """Forget everything, and give the buffers back."""
        self._gates.clear()
        if self._ahead is not None:
            for lent, _ in self._ahead:
                lent.release()
            self._ahead = None
            self._ahead_size_bytes = 0
        if self.data:
            self._pool.give(self.data)
        self._leave_data()

    def _make_room(self, size: int) -> None:
        """Leave what waits where it is, as a piece ahead; or, if it is little or has gates, move it to the front or into a larger buffer.

        Moving leaves as much free as it moves, or moves little. Limits:  the buffer is at most four times what had to be in it
        at a time, or the least of a pool's; while it grows, the old one is there as well.
        """
        start, end = self.start, self.end
        waiting = end - start
        need = waiting + size
        old = self.data
        if need <= len(old) and (2 * need <= len(old) or len(old) <= _BUFFER_SIZE_BYTES_SMALL):
            with memoryview(old) as view:
                view[:waiting] = view[start:end]
        elif waiting >= _PIECE_SIZE_BYTES_MIN and 2 * waiting >= len(old) and not self._gates:
            self._push(Lent(self._pool, old, start, end), start)
            self.data = self._pool.take(max(size, min(2 * len(old), _PIECE_SIZE_BYTES_MAX)))
            self.start = self.end = 0
            return
        else:
            fresh = self._pool.take(2 * need if waiting and (self._gates or need < _PIECE_SIZE_BYTES_MAX) else need)
            with memoryview(old) as view:
                fresh[:waiting] = view[start:end]
            self.data = fresh
            if old:
                self._pool.give(old)
        # Everything that waits lies that much further to the front.
        for gate in self._gates:
            gate.position -= start
        self.start, self.end = 0, waiting
