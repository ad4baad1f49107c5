from __future__ import annotations

import pytest

from polymq.gateways.buffers import BufferPool, Lent
from polymq.gateways.outbox import Outbox


def test_huge_and_many_buffers_are_not_kept() -> None:
    pool = BufferPool()
    outbox = Outbox(pool)
    outbox.write(bytes(8 * 1024 * 1024))
    outbox.sent(outbox.size_bytes)
    assert len(pool.take(100_000)) < 1024 * 1024
    for size, count, kept_max in ((100_000, 100, 16), (20_000, 300, 128), (100, 5000, 2048)):
        many = [pool.take(size) for _ in range(count)]
        for buffer in many:
            pool.give(buffer)
        again = {id(pool.take(size)) for _ in range(count)} & {id(buffer) for buffer in many}
        assert 0 < len(again) <= kept_max


@pytest.mark.parametrize("size", [0, 1, 2048, 2049, 65_536, 65_537, 1_100_000, 2_700_000, 10_000_000])
def test_a_buffer_is_large_enough_and_not_much_larger(size: int) -> None:
    assert size <= len(BufferPool().take(size)) < max(2 * size, 2049, 1.3 * size)


def test_buffers_of_other_sizes_are_let_go() -> None:
    pool, other = BufferPool(), bytearray(3000)
    pool.give(other)
    assert pool.take(3000) is not other


def test_what_is_lent_goes_back_when_nobody_holds_it() -> None:
    pool = BufferPool()
    buffer = pool.take(4000)
    lent = Lent(pool, buffer, 100, 3000)
    assert lent.is_dense
    assert not Lent(pool, buffer, 100, 1000).is_dense
    lent.hold()
    lent.hold()
    lent.release()
    assert pool.take(4000) is not buffer
    lent.release()
    assert pool.take(4000) is buffer
