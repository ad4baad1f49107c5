"""Finding the questions that nobody heard, in a batch of messages most of which are none."""

from __future__ import annotations

from polymq.protocols.nats.encode import next_unheard
from polymq.wire.live import COLUMNS, SPARE, LiveBatch, LiveMessage


def test_only_what_asks_and_was_not_taken_is_found() -> None:
    batch = LiveBatch.of([LiveMessage(b"a", b""), LiveMessage(b"b", b"", b"r1"), LiveMessage(b"c", b"", b"r2"), LiveMessage(b"d", b"")])
    assert next_unheard(batch, 0) == 4
    for index in (0, 2, 3):
        batch.rows[COLUMNS * index + SPARE] = 1
    assert next_unheard(batch, 0) == 2
    assert next_unheard(batch, 2) == 2
    assert next_unheard(batch, 3) == 4
    assert next_unheard(batch, 4) == 4
