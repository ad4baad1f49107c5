"""The consumers of the channel `delays`: settle every flight, and write down that they did."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

__all__ = ["Batch", "Consumed", "Consumer", "Message", "consume", "identity"]

_LATE_MINUTES: Final = 15


class Message(Protocol):
    """What is needed of a message."""

    body: bytes
    attempts: int


class Batch(Protocol):
    """What is needed of messages that came together."""

    def __iter__(self) -> Iterator[Message]:
        """Give the messages."""

    def settle(self) -> None:
        """Tell the broker that all of them are done with."""


class Consumer(Protocol):
    """What is needed of a client; `polymq.clients.nsq.NsqConsumer` finds its broker again by itself."""

    def batches(self) -> AsyncIterator[Batch]:
        """Give messages as they come."""


@dataclass
class Consumed:
    """What the consumers have done together."""

    settled: int = 0
    late: int = 0
    flights: set[tuple[str, str, int]] = field(default_factory=set)


def identity(body: bytes) -> tuple[tuple[str, str, int], int | None]:
    """Take from a message which flight it is, and its departure delay in minutes."""
    flight = json.loads(body)
    return (flight["time_hour"], flight["carrier"], flight["flight"]), flight["dep_delay"]


async def consume(consumer: Consumer, path: Path, state: Consumed) -> None:
    """Settle what comes, until the consumer is closed.

    Each line of `path` is a flight that was settled, and in which attempt. A settling that the broker never saw does
    no harm: the flight comes again, and gets a second line.
    """
    with path.open("a", encoding="utf-8") as lines:
        async for batch in consumer.batches():
            written = []
            for message in batch:
                flight, delay = identity(message.body)
                state.flights.add(flight)
                state.settled += 1
                state.late += delay is not None and delay > _LATE_MINUTES
                written.append(f"{flight[0]}\t{flight[1]}\t{flight[2]}\t{message.attempts}\n")
            batch.settle()
            lines.write("".join(written))
            lines.flush()
