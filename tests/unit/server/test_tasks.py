from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from polymq.server.tasks import Tasks

if TYPE_CHECKING:
    import pytest


async def wait_for_ever(ended: list[str]) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        ended.append("cancelled")


async def fail() -> None:
    raise LookupError("no such thing")


async def end() -> None:
    return


def test_stopping_cancels_and_waits() -> None:
    ended: list[str] = []

    async def main() -> None:
        tasks = Tasks()
        tasks.start("for ever", wait_for_ever(ended))
        await asyncio.sleep(0)
        await tasks.stop()
        assert ended == ["cancelled"]

    asyncio.run(main())


def test_a_failure_is_logged_and_nothing_else_stops(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        tasks = Tasks()
        tasks.start("bad", fail())
        tasks.start("good", end())
        for _ in range(5):
            await asyncio.sleep(0)
        await tasks.stop()

    with caplog.at_level(logging.ERROR):
        asyncio.run(main())
    (record,) = caplog.records
    assert "bad ended: LookupError('no such thing')" in record.getMessage()
