"""What clients bring, taken together, and no more from a client than it was relieved of."""

from __future__ import annotations

import asyncio

import pytest

from polymq.errors import ConnectionLost
from polymq.spool.receivers.arrivals import Arrivals


def test_each_client_is_asked_again_only_when_all_was_taken() -> None:
    async def go() -> None:
        asked = {"a": 0, "b": 0}

        async def take(name: str) -> list[str]:
            asked[name] += 1
            return [f"{name}{asked[name]}"]

        arrivals: Arrivals[str] = Arrivals()
        arrivals.add("a", lambda: take("a"))
        arrivals.add("b", lambda: take("b"))
        assert await arrivals.take() in (["a1"], ["a1", "b1"])
        for _ in range(5):
            await asyncio.sleep(0)
        assert max(asked.values()) <= 2
        found = arrivals.rest()
        assert "a2" in found
        await arrivals.close()
        assert await arrivals.take() in ([], ["b2"])

    asyncio.run(go())


@pytest.mark.parametrize("ends", [[], ConnectionLost("gone")])
def test_a_client_that_ends_is_told_behind_what_has_come(ends: list[str] | ConnectionLost) -> None:
    async def go() -> None:
        async def lost() -> list[str]:
            if isinstance(ends, ConnectionLost):
                raise ends
            return ends

        async def brings() -> list[str]:
            return ["x"]

        arrivals: Arrivals[str] = Arrivals()
        arrivals.add("brings", brings)
        arrivals.add("lost", lost)
        assert await arrivals.take() == ["x"]
        await arrivals.close()
        other: Arrivals[str] = Arrivals()
        other.add("lost", lost)
        with pytest.raises(ConnectionLost):
            await other.take()
        await other.close()

    asyncio.run(go())
