"""A run of plain sends: rows of numbers over the bytes that they came in. Hot; compiled if possible. Read next: `decode`, which makes them."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any, Final

import cython

from polymq.rocketmq_limits import SENDS_PER_FEED_MAX

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "BINARY",
    "BODY_AT",
    "BODY_SIZE",
    "COLUMNS",
    "EXTRA_AT",
    "EXTRA_SIZE",
    "FLAGS",
    "GENERIC_SIZE",
    "ONEWAY",
    "OPAQUE",
    "ORDERS",
    "QUEUES",
    "QUEUE_ID",
    "TOPIC",
    "V2",
    "Orders",
    "Sends",
    "run_of",
]

# The columns of a row: int32 each.
COLUMNS: Final = 10
OPAQUE: Final = 0
FLAGS: Final = 1
TOPIC: Final = 2  # an index of `Sends.topics`
QUEUE_ID: Final = 3
BODY_AT: Final = 4  # in `Sends.view`
BODY_SIZE: Final = 5
EXTRA_AT: Final = 6  # in `Sends.extras`
EXTRA_SIZE: Final = 7
GENERIC_SIZE: Final = 8  # what key and headers take in the record (`generic`)
QUEUES: Final = 9  # how many queues the topic is to have if it is not there; 0: nothing is said about that

# Bits of FLAGS.
ONEWAY: Final = 1  # nothing may be answered
BINARY: Final = 2  # the answer's header is to be binary, too
V2: Final = 4  # SEND_MESSAGE_V2, not SEND_MESSAGE


@cython.final
@cython.cclass
class Sends:
    """A run of sends that are nothing but appends: rows `first` to `first + count`, each COLUMNS numbers of `rows`.

    That is: SEND_MESSAGE and SEND_MESSAGE_V2 of a valid topic that is nobody's retry or dead-letter topic and not the broker's
    own, with all fields that are needed, body and properties within their limits, not packed, no batch, no transaction, no delay, no reply.
    The queue may be one that is not there, or negative: any. `size_bytes` is what all of it takes in the log.

    Bodies lie in `view`, as it was fed; `extras` has the native extra of each message (`stored`), ready for its record. Valid until the
    next feed of any decoder: who keeps something copies it.
    """

    # `numbers`, `data` and `extra_bytes` are `rows`, `view` and `extras` as compiled modules read them: each is looked at once.
    def __init__(
        self, view: memoryview, rows: memoryview, extras: memoryview, topics: Sequence[str], *, first: int, count: int, size_bytes: int
    ) -> None:
        self.view = self.data = view
        self.rows = self.numbers = rows
        self.extras = self.extra_bytes = extras
        self.topics = topics
        self.first = first
        self.count = count
        self.size_bytes = size_bytes

    def number(self, row: int, column: int) -> int:
        """Read one number; rows count from the start of `rows`, as they do in the orders of `encode.by_queue`."""
        return int(self.rows[COLUMNS * row + column])

    def topic(self, row: int) -> str:
        """Name the topic of a row."""
        return self.topics[self.rows[COLUMNS * row + TOPIC]]

    def body(self, row: int) -> bytes:
        """Copy a body out: for what is not hot."""
        at = self.rows[COLUMNS * row + BODY_AT]
        return bytes(self.view[at : at + self.rows[COLUMNS * row + BODY_SIZE]])

    def extra(self, row: int) -> bytes:
        """Copy a native extra out: for what is not hot."""
        at = self.rows[COLUMNS * row + EXTRA_AT]
        return bytes(self.extras[at : at + self.rows[COLUMNS * row + EXTRA_SIZE]])


@cython.ccall
def run_of(
    view: Any,
    rows: Any,
    extras: Any,
    topics: Any,
    data: cython.const[cython.uchar][::1],
    numbers: cython.int[::1],
    extra_bytes: cython.uchar[::1],
    first: cython.Py_ssize_t,
    count: cython.Py_ssize_t,
    size_bytes: cython.Py_ssize_t,
) -> Sends:
    """Make a run of what the decoder has looked at already: to look at a buffer from Python takes 0.1 µs each."""
    run: Sends = Sends.__new__(Sends)
    run.view, run.rows, run.extras, run.topics = view, rows, extras, topics
    run.data, run.numbers, run.extra_bytes = data, numbers, extra_bytes
    run.first, run.count, run.size_bytes = first, count, size_bytes
    return run


@cython.final
@cython.cclass
class Orders:
    """The order of all runs that are for one queue: `view` counts from 0 on. For the same reason."""

    def __init__(self) -> None:
        self.view = memoryview(array("i", range(SENDS_PER_FEED_MAX)))
        self._numbers = self.view

    @cython.ccall
    def numbers_of(self, order: object) -> cython.int[::1]:
        """Give an order as compiled modules read it."""
        return self._numbers if order is self.view else order


ORDERS: Final = Orders()
