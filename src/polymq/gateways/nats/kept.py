"""What a node of ours tells another one of messages, on a route: that it stores them, or that only the groups that they name are to have them.

A message that is stored is not to be stored once more. One that came from another server, for a queue group whose last member here
has left, is sent on a second step: whoever else wants it there has had it from where it came from, and a nats-server gives it to
them again. Such messages name one queue group more on their way, of a name that nobody can subscribe to: behind the others the one
that is stored, before them the one that is sent on. Only nodes of ours are told so: a nats-server would pass the message to its
takers as well, but nobody of ours would hear of it behind one hop.
Whoever writes to a route calls `tell_directed` and `tell_kept` before it encodes, whoever reads from one `hear_marks` before it publishes.
Every message between two nodes of ours passes here, whether anything is stored or not. Hot; compiled if possible (docs/adr/0001).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import cython

from polymq.protocols.nats.subjects import RESERVED_QUEUE
from polymq.wire import live

if not cython.compiled:
    from polymq.wire.inline import equal_bytes

if TYPE_CHECKING:
    from polymq.core.interest.targets import Target
    from polymq.wire.live import LiveBatch

__all__ = ["MARK", "hear_marks", "tell_directed", "tell_kept"]

# The servers' own group, to which no client may belong.
MARK: Final = RESERVED_QUEUE

_MARK_SIZE = cython.declare(cython.Py_ssize_t, len(MARK))
_COLUMNS = cython.declare(cython.Py_ssize_t, live.COLUMNS)
_QUEUES_AT = cython.declare(cython.Py_ssize_t, live.QUEUES_AT)
_QUEUES_SIZE = cython.declare(cython.Py_ssize_t, live.QUEUES_SIZE)
_SPARE = cython.declare(cython.Py_ssize_t, live.SPARE)
_KEPT = cython.declare(cython.int, live.KEPT)
_DIRECTED = cython.declare(cython.int, live.DIRECTED)


def tell_directed(batch: LiveBatch, target: Target) -> None:
    """Have those of a route's messages that another server has sent here say so. Cost: 30 ns per message that is for groups."""
    rows: cython.int[::1] = batch.rows
    index: cython.Py_ssize_t
    for index, names in target.queues.items():
        if rows[_COLUMNS * index + _QUEUES_SIZE]:
            names.insert(0, MARK)


def tell_kept(batch: LiveBatch, target: Target) -> None:
    """Have those of a route's messages that are stored say so. Cost: 1 ns per message, 60 ns more if it is stored."""
    rows: cython.int[::1] = batch.rows
    pairs: cython.int[::1] = target.pairs
    count: cython.Py_ssize_t = target.pair_count
    place: cython.Py_ssize_t
    assert 2 * count <= len(pairs)
    queues = target.queues
    for place in range(count):
        if rows[_COLUMNS * pairs[2 * place] + _SPARE] & _KEPT:
            queues.setdefault(pairs[2 * place], []).append(MARK)


def hear_marks(batch: LiveBatch) -> None:
    """Mark the messages of a route that say that they are stored, or sent on. Cost: 1 ns per message, 5 more if it names groups."""
    rows: cython.int[::1] = batch.rows
    view: cython.const[cython.uchar][::1] = batch.view
    row: cython.Py_ssize_t
    at: cython.Py_ssize_t
    size: cython.Py_ssize_t
    end: cython.Py_ssize_t
    index: cython.Py_ssize_t
    for index in range(batch.count):
        row = _COLUMNS * index
        size = rows[row + _QUEUES_SIZE]
        if size >= _MARK_SIZE:
            # From the first byte of the first name to the last one of the last.
            at = rows[row + _QUEUES_AT]
            end = at + size
            if equal_bytes(MARK, view, end - _MARK_SIZE, _MARK_SIZE) and (size == _MARK_SIZE or _is_blank(view[end - _MARK_SIZE - 1])):
                rows[row + _SPARE] |= _KEPT
            if size > _MARK_SIZE and _is_blank(view[at + _MARK_SIZE]) and equal_bytes(MARK, view, at, _MARK_SIZE):
                rows[row + _SPARE] |= _DIRECTED


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _is_blank(byte: cython.uchar) -> cython.bint:
    """Say whether this is between names, as the decoder has it."""
    return byte == 32 or byte == 9
