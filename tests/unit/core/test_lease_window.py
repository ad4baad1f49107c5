from __future__ import annotations

from array import array

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polymq import limits
from polymq.core.lease_window import DEFERRED, FAIL_NOT_LEASED, FAIL_NOT_OWNED, LEASED, SETTLED, WAITING, LeaseWindow

PARTITION = 5


def ids(*offsets: int) -> array[int]:
    return array("q", [PARTITION << limits.OFFSET_BITS | offset for offset in offsets])


def settle(window: LeaseWindow, *offsets: int, owner: int = 1) -> list[tuple[int, int]]:
    failures: list[tuple[int, int]] = []
    assert window.settle(ids(*offsets), 0, len(offsets), owner, failures) == len(offsets)
    return failures


def ranges(window: LeaseWindow) -> list[tuple[int, int]]:
    flat = array("q", window.drain())
    return list(zip(flat[::2], flat[1::2], strict=True))


def test_settled_runs_are_noted_as_ranges() -> None:
    window = LeaseWindow(PARTITION, 100)
    window.lease(10, 1)
    assert settle(window, 100, 101, 102, 105, 104) == []
    assert ranges(window) == [(100, 102), (105, 105), (104, 104)]
    assert ranges(window) == []
    assert (window.floor, window.next, window.leased) == (103, 110, 5)


def test_ids_of_another_partition_end_the_run() -> None:
    window = LeaseWindow(PARTITION, 0)
    window.lease(3, 1)
    failures: list[tuple[int, int]] = []
    mixed = array("q", [*ids(0), 6 << limits.OFFSET_BITS, *ids(1)])
    assert window.settle(mixed, 0, 3, 1, failures) == 1
    assert failures == []


def test_refusals_say_why() -> None:
    window = LeaseWindow(PARTITION, 0)
    window.lease(2, 1)
    assert settle(window, 0, owner=2) == [(0, FAIL_NOT_OWNED)]
    assert settle(window, 2, owner=1) == [(0, FAIL_NOT_LEASED)]
    assert settle(window, 0, 0) == [(1, FAIL_NOT_LEASED)]


def test_many_ranges_do_not_fit_the_first_array() -> None:
    window = LeaseWindow(PARTITION, 0)
    window.lease(1000, 1)
    assert settle(window, *range(0, 1000, 2)) == []
    assert ranges(window) == [(offset, offset) for offset in range(0, 1000, 2)]


def test_stragglers_move_to_the_overflow_and_can_still_be_settled() -> None:
    window = LeaseWindow(PARTITION, 0)
    window.lease(3, 1)
    window.put_back(1, deferred=False)
    window.put_back(2, deferred=True)
    for _ in range(400):
        first = window.next
        window.lease(2500, 2)
        assert settle(window, *range(first, first + 2500), owner=2) == []
        window.drain()
    assert window.floor > 500_000
    assert window.first_unsettled() == 0
    assert window.stragglers() == [(0, LEASED, 1, 1), (1, WAITING, 1, 1), (2, DEFERRED, 1, 1)]
    assert [window.slot(offset) for offset in (0, 3)] == [(LEASED, 1, 1), (SETTLED, 0, 0)]
    assert settle(window, 0, owner=2) == [(0, FAIL_NOT_OWNED)]
    assert settle(window, 0) == []
    assert window.wake(2)
    assert not window.wake(2)
    assert window.lease_again(1, 7) == 2
    assert window.leased_in(0, 3, 7, 2) == [1]
    assert not window.is_over(0, 3, 7, 2)
    assert window.is_over(0, 3, 7, 1)
    assert window.put_back(1, deferred=False) == 2
    assert window.lease_again(1, 7) == 3
    assert settle(window, 1, owner=7) == []
    assert window.first_unsettled() == 2


def test_what_waits_and_cannot_be_delivered_is_discarded() -> None:
    window = LeaseWindow(PARTITION, 0)
    window.lease(2, 1)
    window.put_back(0, deferred=False)
    window.discard(0)
    assert ranges(window) == [(0, 0)]
    assert window.floor == 1


def test_pairs_come_in_pieces_the_spill_first() -> None:
    window = LeaseWindow(PARTITION, 0)
    window.lease(1, 1)
    for _ in range(300):
        first = window.next
        window.lease(2500, 1)
        settle(window, *range(first, first + 2500))
    window.lease(10_000, 1)
    pieces = window.unsettled_pairs()
    assert [len(piece) // 16 for piece in pieces] == [4096, 4096, 1809]
    assert array("q", pieces[0][:16]).tolist() == [0, 1]


def test_attempts_stop_at_their_maximum() -> None:
    window = LeaseWindow(PARTITION, 0)
    window.restore_next(1)
    window.restore(0, limits.ATTEMPTS_MAX, deferred=False)
    assert window.lease_again(0, 1) == limits.ATTEMPTS_MAX


def test_truncation_forgets_what_is_behind() -> None:
    window = LeaseWindow(PARTITION, 0)
    window.lease(10, 1)
    settle(window, *range(10))
    window.truncate(4)
    assert (window.floor, window.next) == (4, 4)
    window.lease(2, 1)
    assert window.slot(4) == (LEASED, 1, 1)


@pytest.mark.parametrize("out", [0, 1, 3000])
def test_stepping_over_very_many_takes_no_slots(out: int) -> None:
    window, restored = LeaseWindow(PARTITION, 7), LeaseWindow(PARTITION, 7)
    if out:
        window.lease(out, 1)
    first, end = 7 + out, 7 + out + (1 << 40)
    window.skip(1 << 40)
    assert (window.next, window.slot(first), window.slot(end - 1), window.slot(end)) == (end, *[(SETTLED, 0, 0)] * 2, (0, 0, 0))
    assert window.first_unsettled() == (7 if out else end)
    window.lease(2, 1)
    assert settle(window, end) == []
    noted = window.drain()
    assert array("q", noted).tolist() == [first, end]
    restored.restore_ranges(noted)
    restored.restore_next(end + 2)
    assert [offset for offset, _state, _attempts in restored.unsettled()] == [*range(7, 7 + out), end + 1]
    assert settle(window, *range(7, 7 + out)) == []
    restored.restore_ranges(window.drain())
    assert (window.first_unsettled(), restored.first_unsettled()) == (end + 1, end + 1)


def test_what_was_stepped_over_can_be_taken_back_by_recovery() -> None:
    window = LeaseWindow(PARTITION, 0)
    window.restore_ranges(array("q", [0, (1 << 40) - 1]).tobytes())
    window.restore(9, 2, deferred=False)
    assert list(window.unsettled()) == [(9, WAITING, 2)]
    window.truncate(1 << 39)
    assert (window.floor, window.next, window.first_unsettled()) == (1 << 39, 1 << 39, 9)
    window.lease(1, 1)
    window.truncate(5)
    assert (window.floor, window.next, list(window.unsettled())) == (5, 5, [])


class Model:
    """What a window should be: a dictionary."""

    def __init__(self) -> None:
        self.next = 0
        self.slots: dict[int, tuple[int, int, int]] = {}


@settings(max_examples=200)
@given(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 60), st.integers(1, 3)), max_size=80), st.sampled_from((1, 1 << 18)))
def test_window_is_a_dictionary_of_slots(steps: list[tuple[int, int, int]], dense: int) -> None:
    window = LeaseWindow(PARTITION, 0, slots_dense=dense)
    model = Model()
    restored = LeaseWindow(PARTITION, 0)
    for action, number, owner in steps:
        if action == 0:
            window.lease(number + 1, owner)
            model.slots.update({model.next + index: (LEASED, 1, owner) for index in range(number + 1)})
            model.next += number + 1
            continue
        slot = model.slots.get(number, (0, 0, 0))
        if action == 1:
            failed = settle(window, number, owner=owner)
            assert bool(failed) == (slot[0] != LEASED or slot[2] != owner)
            if not failed:
                model.slots[number] = (SETTLED, slot[1], slot[2])
        elif action in (2, 3) and slot[0] == LEASED:
            window.put_back(number, deferred=action == 3)
            model.slots[number] = (DEFERRED if action == 3 else WAITING, slot[1], slot[2])
        elif action == 4 and slot[0] == WAITING:
            assert window.lease_again(number, owner) == slot[1] + 1
            model.slots[number] = (LEASED, slot[1] + 1, owner)
        elif action == 5:
            assert window.wake(number) == (slot[0] == DEFERRED)
            if slot[0] == DEFERRED:
                model.slots[number] = (WAITING, slot[1], slot[2])
        elif action == 6:
            # Thousands that are settled at once push what is open into the spill, if that is to happen early.
            first = window.next
            window.lease(3000, owner)
            assert settle(window, *range(first, first + 3000), owner=owner) == []
            model.slots.update(dict.fromkeys(range(first, first + 3000), (SETTLED, 1, owner)))
            model.next += 3000
        elif action == 7:
            window.skip(number + 1)
            model.slots.update(dict.fromkeys(range(model.next, model.next + number + 1), (SETTLED, 0, 0)))
            model.next += number + 1
    for owner in (1, 2, 3):
        mine = {o for o, slot in model.slots.items() if slot == (LEASED, 1, owner)}
        assert set(window.leased_in(0, model.next, owner, 1)) == mine
        assert window.is_over(0, model.next, owner, 1) == (not mine)
    open_slots = {offset: slot for offset, slot in model.slots.items() if slot[0] != SETTLED}
    assert window.leased == sum(slot[0] == LEASED for slot in open_slots.values())
    assert {o: (s, a) for o, s, a in window.unsettled()} == {o: slot[:2] for o, slot in open_slots.items()}
    flat = array("q", b"".join(window.unsettled_pairs()))
    assert list(zip(flat[::2], flat[1::2], strict=True)) == sorted((o, slot[1]) for o, slot in open_slots.items())
    assert window.first_unsettled() == min(open_slots, default=model.next)
    restored.restore_ranges(window.drain())
    restored.restore_next(model.next)
    assert {offset for offset, _state, _attempts in restored.unsettled()} == set(open_slots)
