from __future__ import annotations

from polymq.gateways.buffers import BufferPool
from polymq.gateways.live_sheet import LiveSheet
from polymq.gateways.outbox import Outbox


def test_a_sheet_holds_the_newest_encoding_until_it_is_closed() -> None:
    pool, sheet = BufferPool(), LiveSheet()
    outboxes = Outbox(pool), Outbox(pool)
    buffers = []
    for outbox in outboxes:
        outbox.write(b"abc")
        buffers.append(outbox.data)
        sheet.put(b"key", outbox.lend(0))
        outbox.sent(3)
    assert (sheet.key, sheet.lent is not None) == (b"key", True)
    assert pool.take(3) is buffers[0]
    assert pool.take(3) is not buffers[1]
    sheet.close()
    assert (sheet.key, sheet.lent) == (None, None)
    assert pool.take(3) is buffers[1]
    sheet.close()
