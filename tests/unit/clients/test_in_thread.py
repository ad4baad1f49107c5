from __future__ import annotations

import asyncio
import threading
from collections import deque
from typing import TYPE_CHECKING

import pytest

from polymq.clients.in_thread import InThread, InThreadHandling
from polymq.errors import ConnectionLost, LocalProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


async def nothing() -> None:
    """Do nothing."""


async def trouble() -> None:
    raise OSError("trouble")


def threads_of(name: str) -> list[str]:
    return [each.name for each in threading.enumerate() if each.name == name]


class Door(InThread):
    def __init__(self, name: str, closing: Callable[..., object] = nothing) -> None:
        super().__init__(name)
        self.closings = 0
        self._closing = closing

    def open(self, *, fails: bool) -> None:
        self._begin(trouble() if fails else nothing())

    def close(self) -> None:
        self._end(self._close)

    async def _close(self) -> None:
        self.closings += 1
        await self._closing()  # type: ignore[misc]  # one of the two above


class Worker(InThreadHandling[int]):
    """Is given batches; messages below zero are no longer its own."""

    def __init__(self, *batches: list[int] | None) -> None:
        super().__init__("worker of a test")
        self.batches = deque(batches)
        self.handled: list[tuple[int, str]] = []
        self.interrupted: list[int] = []
        self._begin(nothing())

    def close(self) -> None:
        self._end(nothing)

    async def _take(self) -> Iterable[int] | None:
        if not self.batches:
            await asyncio.Event().wait()
        return self.batches.popleft()

    def _take_up(self, message: int) -> bool:
        return message >= 0

    def _handled(self, message: int, error: Exception | None) -> None:
        self.handled.append((message, str(error or "")))

    def _interrupted(self, message: int) -> None:
        self.interrupted.append(message)


def test_what_cannot_be_opened_leaves_no_thread() -> None:
    door = Door("a door that sticks")
    with pytest.raises(OSError, match="trouble"):
        door.open(fails=True)
    assert threads_of("a door that sticks") == []


def test_it_is_closed_once_at_the_end_of_a_with() -> None:
    with Door("a door") as door:
        door.open(fails=False)
        assert threads_of("a door") == ["a door"]
    door.close()
    assert door.closings == 1
    assert threads_of("a door") == []


def test_the_thread_ends_also_when_closing_fails() -> None:
    door = Door("a door that creaks", trouble)
    with pytest.raises(OSError, match="trouble"):
        door.close()
    assert threads_of("a door that creaks") == []
    door.close()


def test_messages_end_when_there_will_be_no_more_and_those_of_others_are_left_out() -> None:
    with Worker([1, -1, 2], [], [3], None) as worker:
        assert list(worker) == [1, 2, 3]


def test_messages_end_when_none_comes_for_a_while_and_go_on_later() -> None:
    with Worker([1]) as worker:
        assert list(worker.messages(0.01)) == [1]
        worker.batches.append([2])
        assert list(worker.messages(0.01)) == [2]


def test_messages_end_when_it_is_closed_meanwhile() -> None:
    worker = Worker([1, 2])
    found = []
    for message in worker:
        found.append(message)
        worker.close()
    assert found == [1, 2]
    with pytest.raises(ConnectionLost):
        worker._thread.call(nothing())


@pytest.mark.parametrize("concurrency", [1, 3])
def test_a_handler_gets_every_message_and_what_it_raises_is_told(concurrency: int) -> None:
    def handle(message: int) -> None:
        if message == 2:
            raise ValueError("two")

    with Worker([1, 2, 3], None, None, None) as worker:
        worker.run(handle, concurrency=concurrency)
        assert sorted(worker.handled) == [(1, ""), (2, "two"), (3, "")]


def test_an_interrupted_handler_hands_its_message_over() -> None:
    def interrupt(_message: int) -> None:
        raise KeyboardInterrupt

    with Worker([7]) as worker:
        with pytest.raises(KeyboardInterrupt):
            worker.run(interrupt)
        assert (worker.handled, worker.interrupted) == ([], [7])


def test_nobody_handles_with_no_threads() -> None:
    with Worker() as worker, pytest.raises(LocalProtocolError, match="concurrency is 0"):
        worker.run(print, concurrency=0)
