"""Messages and batches in the hands of whoever consumes."""

from __future__ import annotations

import pytest

from polymq.errors import LocalProtocolError
from tests.unit.clients.test_nsq import consumer, take
from tests.unit.clients.worlds import Server, in_virtual_time


def test_settle_requeue_and_touch_each_once() -> None:
    async def go() -> None:
        server = Server()
        async with consumer(server) as client:
            server.deliver(1, 2, attempts=3)
            found = []
            async for message in client:
                found.append((message.body, message.attempts, message.time_ns))
                message.touch()
                if message.body == b"1":
                    message.requeue(250)
                else:
                    message.settle()
                for again in (message.settle, message.requeue, message.touch):
                    with pytest.raises(LocalProtocolError):
                        again()
                if len(found) == 2:
                    break
            await client.flush()
            assert found == [(b"1", 3, 5), (b"2", 3, 5)]
            assert server.took("Touch", "Requeue", "FIN") == [("Touch", 1), ("Requeue", 1, 250), ("Touch", 2), ("FIN", 2)]

    in_virtual_time(go())


def test_batches() -> None:
    async def go() -> None:
        server = Server()
        async with consumer(server) as client:
            server.deliver(*range(5))
            batches = client.batches()
            batch = await anext(batches)
            assert (len(batch), batch.bodies()) == (5, [b"0", b"1", b"2", b"3", b"4"])
            batch.settle()
            batch.settle()
            server.deliver(10, 11, 12)
            batch = await anext(batches)
            first, second, _ = batch
            second.requeue()
            first.settle()
            batch.settle()
            await client.flush()
            assert server.took("FIN", "Requeue") == [
                *(("FIN", number) for number in range(5)),
                ("Requeue", 11, 0),
                ("FIN", 10),
                ("FIN", 12),
            ]

    in_virtual_time(go())


def test_batches_that_were_settled_give_settled_messages() -> None:
    async def go() -> None:
        server = Server()
        async with consumer(server) as client:
            server.deliver(1, 2)
            batch = await anext(client.batches())
            batch.settle()
            for message in batch:
                with pytest.raises(LocalProtocolError):
                    message.settle()
            await client.flush()
            assert server.took("FIN") == [("FIN", 1), ("FIN", 2)]

    in_virtual_time(go())


def test_messages_settled_elsewhere_are_not_given_out_again() -> None:
    async def go() -> None:
        server = Server()
        async with consumer(server) as client:
            server.deliver(1, 2, 3)
            async for message in client:
                message._batch.settle()
                break
            server.deliver(4)
            assert await take(client, 1) == [b"4"]

    in_virtual_time(go())
