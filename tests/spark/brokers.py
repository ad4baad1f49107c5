"""Brokers for the tests of this folder: polymq with NSQ's HTTP ports as well, and what publishes into it."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

from polymq.clients.nsq import NsqProducer
from polymq.testing.server import PolymqServer

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["Broker"]

BODIES_PER_BATCH = 100


class Broker(PolymqServer):
    """`nsq_http` and `lookup_http` are addresses, on ports that stay as well."""

    def __init__(self, folder: Path) -> None:
        sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
        self.nsq_http, self.lookup_http = (f"127.0.0.1:{each.getsockname()[1]}" for each in sockets)
        for each in sockets:
            each.close()
        super().__init__(folder, {"nsq.http": self.nsq_http, "nsq.lookup_http": self.lookup_http})

    def publish(self, topic: str, bodies: Sequence[bytes]) -> None:
        """Publish by NSQ."""

        async def play() -> None:
            async with NsqProducer(self.nsq) as producer:
                for first in range(0, len(bodies), BODIES_PER_BATCH):
                    await producer.publish_many(topic, bodies[first : first + BODIES_PER_BATCH])

        asyncio.run(play())
