"""The store's journal entries: round trips."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from polymq.store import entries
from polymq.store.entries import Checkpoint, Start

I64 = st.integers(-1, 2**63 - 1)
U32, U64 = st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)


@given(U32, st.text(max_size=60))
def test_a_start_comes_back(epoch: int, boot_id: str) -> None:
    entry = entries.encode_start(Start(boot_id, epoch))
    assert entry[0] == entries.KIND_START
    assert entries.decode_start(memoryview(entry)) == Start(boot_id, epoch)


@given(st.builds(Checkpoint, U32, I64, I64, I64, U64, U64, I64, U64, st.lists(st.tuples(U32, I64), max_size=4).map(tuple)))
def test_a_checkpoint_comes_back(point: Checkpoint) -> None:
    entry = entries.encode_checkpoint(point)
    assert entry[0] == entries.KIND_CHECKPOINT
    assert entries.decode_checkpoint(memoryview(entry)) == point


def test_a_deletion_comes_back() -> None:
    entry = entries.encode_deleted(77)
    assert entry[0] == entries.KIND_DELETED
    assert entries.decode_deleted(memoryview(entry)) == 77


def test_kinds_are_the_stores() -> None:
    kinds = [
        entries.CLEAN_STOP[0],
        entries.SNAPSHOT_BEGIN[0],
        entries.SNAPSHOT_END[0],
        entries.KIND_START,
        entries.KIND_CHECKPOINT,
        entries.KIND_DELETED,
    ]
    assert len(set(kinds)) == 6
    assert all(kind < entries.CORE_KIND_MIN for kind in kinds)
