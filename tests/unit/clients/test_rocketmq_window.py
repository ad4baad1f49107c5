"""The window of a queue: what may be committed, and when it is full."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polymq.clients import rocketmq_window
from polymq.clients.rocketmq_messages import RocketMQMessage
from polymq.clients.rocketmq_routes import MessageQueue
from polymq.clients.rocketmq_window import QueueWindow

if TYPE_CHECKING:
    import pytest

QUEUE = MessageQueue("t", "broker-a", 1)


def messages(*offsets: int, size: int = 1) -> list[RocketMQMessage]:
    return [RocketMQMessage("t", QUEUE, offset, b"x" * size, {}) for offset in offsets]


def filled(*offsets: int, next_offset: int | None = None) -> QueueWindow:
    window = QueueWindow(QUEUE, offsets[0])
    window.add(messages(*offsets), offsets[-1] + 1 if next_offset is None else next_offset)
    return window


def took(window: QueueWindow) -> RocketMQMessage:
    message = window.take()
    assert message is not None
    return message


def test_the_position_is_the_first_that_is_not_settled() -> None:
    window = filled(5, 6, 9, next_offset=12)
    hands = [took(window) for _ in range(3)]
    assert window.take() is None
    positions = []
    for message in (hands[1], hands[0], hands[2]):
        assert window.settled(message)
        positions.append(window.position)
    assert positions == [5, 9, 12]
    assert not window.settled(hands[0])


def test_what_was_pulled_before_is_not_taken_again() -> None:
    window = filled(5, 6)
    window.add(messages(5, 6, 7), 8)
    assert (window.count, window.next_offset) == (3, 8)


def test_an_empty_window_follows_what_is_pulled() -> None:
    window = QueueWindow(QUEUE, 3, committed=3)
    assert not window.wants_commit
    window.add((), 10)
    assert window.position == 10
    assert window.wants_commit


def test_a_position_that_nobody_confirms_is_told_twice() -> None:
    window = QueueWindow(QUEUE, 3)
    wants = [window.wants_commit]
    for _ in range(2):
        window.told(3, is_answered=False)
        wants.append(window.wants_commit)
    assert wants == [True, True, False]
    window.add((), 4)
    window.told(4, is_answered=True)
    assert not window.wants_commit


def test_put_back_messages_come_in_order_again() -> None:
    window = filled(1, 2, 3)
    hands = [took(window) for _ in range(3)]
    for message in (hands[2], hands[0], hands[1]):
        window.put_back(message)
    window.put_back(hands[0])
    assert [took(window).queue_offset for _ in range(3)] == [1, 2, 3]
    assert window.take() is None


def test_a_dropped_window_gives_nothing_more_and_keeps_its_position() -> None:
    window = filled(1, 2, 3)
    message = took(window)
    window.drop()
    assert window.take() is None
    assert window.position == 1
    window.settled(message)
    assert window.position == 2
    assert window.is_dropped


def test_windows_are_full_by_count_by_size_and_by_span(monkeypatch: pytest.MonkeyPatch) -> None:
    window = QueueWindow(QUEUE, 0)
    window.add(messages(*range(999)), 999)
    assert not window.is_full
    window.add(messages(999), 1000)
    assert window.is_full
    monkeypatch.setattr(rocketmq_window, "_SIZE_BYTES_MAX", 10)
    window = QueueWindow(QUEUE, 0)
    window.add(messages(0, size=10), 1)
    assert window.is_full
    assert window.settled(took(window))
    assert not window.is_full
    window = QueueWindow(QUEUE, 0)
    window.add(messages(0, 2000), 2001)
    assert not window.is_full
    window.add(messages(2001), 2002)
    assert window.is_full
