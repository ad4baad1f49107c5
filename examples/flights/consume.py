"""The consumers of the channel `delays`: settle every flight, and write down that they did."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from polymq.errors import TransportError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

__all__ = ["Consumed", "Delivery", "consume", "identity"]

_RETRY_SECONDS: Final = 0.1


class Delivery(Protocol):
    """What a consumer needs of a message."""

    body: bytes
    attempts: int

    async def settle(self) -> None:
        """Tell the broker that the message is done with."""


@dataclass
class Consumed:
    """What the consumers have done together."""

    settled: int = 0
    flights: set[tuple[str, str, int]] = field(default_factory=set)
    late: int = 0


def identity(body: bytes) -> tuple[tuple[str, str, int], int | None]:
    """Take from a message which flight it is, and its departure delay in minutes."""
    flight = json.loads(body)
    return (flight["time_hour"], flight["carrier"], flight["flight"]), flight["dep_delay"]


async def consume(subscribe: Callable[[], AbstractAsyncContextManager[AsyncIterator[Delivery]]], path: Path, state: Consumed) -> None:
    """Settle what comes, for ever; subscribe again when the connection ends. Cancel to stop.

    Each line of `path` is a flight that was settled, and in which attempt: it is written after the settling was sent.
    """
    with path.open("a", encoding="utf-8", buffering=1 << 16) as lines:
        while True:
            try:
                async with subscribe() as deliveries:
                    async for delivery in deliveries:
                        flight, delay = identity(delivery.body)
                        await delivery.settle()
                        lines.write(f"{flight[0]}\t{flight[1]}\t{flight[2]}\t{delivery.attempts}\n")
                        state.settled += 1
                        state.flights.add(flight)
                        state.late += delay is not None and delay > 15
            except (TransportError, OSError):
                pass
            await asyncio.sleep(_RETRY_SECONDS)
