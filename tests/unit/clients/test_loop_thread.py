"""An event loop in a thread: what is handed to it is done, or whoever waits hears that it is closed."""

from __future__ import annotations

import asyncio

import pytest

from polymq.clients.loop_thread import LoopThread
from polymq.errors import ConnectionLost


async def answer(value: int) -> int:
    await asyncio.sleep(0)
    return value


def test_work_is_done_in_the_loop_and_in_order() -> None:
    thread = LoopThread("test")
    seen: list[int] = []
    thread.soon(seen.append, 1)
    thread.soon(seen.append, 2)
    assert thread.call(answer(3)) == 3
    assert seen == [1, 2]
    thread.close()
    thread.close()


def test_a_closed_loop_does_nothing() -> None:
    thread = LoopThread("test")
    thread.close()
    thread.soon(pytest.fail)
    with pytest.raises(ConnectionLost, match="closed"):
        thread.call(answer(1))
