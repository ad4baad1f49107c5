"""An archive beside real nats-servers: a member of their cluster that stores what clients of all members publish."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

from tests.interop.nats_clients import TIMEOUT_S, connected, drained, received, settled
from tests.interop.nats_servers import NATS_KINDS, POLYMQ, NatsOptions, NatsServer, await_mesh, ending

if TYPE_CHECKING:
    from pathlib import Path

    from nats.aio.msg import Msg

    from tests.interop.nats_clients import Connected


class Archive(NatsServer):
    """polymq as a member of a cluster, which stores what matches `orders.>`, whoever has published it."""

    def command(self) -> list[str]:
        """What runs it."""
        settings = {
            "nats.capture": "orders.>,secret.>",
            "nats.capture_from": "both",
            "nats.log_requests": "both",
            "nats.log_requests_routed": "orders.>",
        }
        return [*super().command(), *(word for name, value in settings.items() for word in ("--polymq-set", f"{name}={value}"))]


class Node(NatsServer):
    """polymq that stores what matches `orders.>`, of those of whom it is told to."""

    capture_from = "both"

    def command(self) -> list[str]:
        """What runs it."""
        settings = {"nats.capture": "orders.>", "nats.capture_from": self.capture_from}
        return [*super().command(), *(word for name, value in settings.items() for word in ("--polymq-set", f"{name}={value}"))]


async def stored_in(connection: Connected, topic: str) -> list[bytes]:
    """What a topic has at a server."""
    inbox = connection.client.new_inbox()
    answers = await connection.subscribed(inbox)
    await connection.client.publish(f"$POLYMQ.LOG.READ.{topic}", b'{"count": 1000}', reply=inbox)
    found: list[bytes] = []
    while True:
        message = await answers.next_msg(timeout=TIMEOUT_S)
        if status := (message.headers or {}).get("Status"):
            assert status in {"204", "404"}, message.data
            return found
        found.append(message.data)


@pytest.mark.parametrize("capture_from", ["clients", "routes", "both"])
def test_every_message_is_stored_once_in_a_fleet(tmp_path: Path, capture_from: str) -> None:
    """Both store, and both have clients that publish and listen: where a message is stored is settled by whose it is."""
    nodes = [Node(POLYMQ, f"node-{number}", tmp_path, NatsOptions()) for number in range(2)]
    for node in nodes:
        node.clustered, node.capture_from = True, capture_from
        node.routes = [each for each in nodes if each is not node]
    own = [[b"%d of %d" % (number, index) for number in range(50)] for index in range(2)]

    async def play() -> None:
        async with connected(nodes[0]) as first, connected(nodes[1]) as second:
            listening = [await each.subscribed("orders.*") for each in (first, second)]
            for index, each in enumerate((first, second)):
                await settled(each, listening[1 - index], "orders.settled")
            await drained(*listening)
            for index, each in enumerate((first, second)):
                await each.published("orders.x", *own[index])
            for subscription in listening:
                found = await received(subscription, 100)
                assert sorted(found) == sorted(own[0] + own[1]), "nobody who listens has one twice"
            stored = [await stored_in(each, "orders.x") for each in (first, second)]
        assert stored == (own[::-1] if capture_from == "routes" else own)

    with ending(nodes):
        for node in nodes:
            node.start()
        await_mesh(nodes)
        asyncio.run(play())


@pytest.mark.parametrize("kind", NATS_KINDS)
def test_what_clients_of_all_members_publish_is_stored_once_and_read_anywhere(tmp_path: Path, kind: str) -> None:
    members = [
        Archive(POLYMQ, "archive", tmp_path, NatsOptions()),
        *(NatsServer(kind, f"real-{number}", tmp_path, NatsOptions()) for number in (1, 2)),
    ]
    for member in members:
        member.clustered = True
        member.routes = [each for each in members if each is not member]

    async def play() -> None:
        async with connected(members[0]) as archive, connected(members[1]) as one, connected(members[2]) as two:
            inbox = two.client.new_inbox()
            answers = await two.subscribed(inbox)
            live, near = await two.subscribed("orders.>"), await archive.subscribed("orders.>")
            # What was subscribed to before is known wherever this is.
            for listener, publishers in ((two, (one, archive)), (archive, (one, two))):
                barrier = await listener.subscribed("barrier")
                for publisher in publishers:
                    await settled(publisher, barrier, "barrier")
                await barrier.unsubscribe()
            await one.client.publish("orders.x", b"0", headers={"Key": "value"})
            await one.published("orders.x", *(b"%d" % number for number in range(1, 50)))
            # Each publisher begins when the archive's server has what was published before.
            found_near = [(await near.next_msg(timeout=TIMEOUT_S)).data for _ in range(50)]
            found_live = [(await live.next_msg(timeout=TIMEOUT_S)).data for _ in range(50)]
            await two.published("orders.x", b"50")
            found_near.append((await near.next_msg(timeout=TIMEOUT_S)).data)
            await archive.published("orders.x", b"51")
            assert found_live + await received(live, 2) == [b"%d" % number for number in range(52)]
            assert found_near + await received(near, 1) == [b"%d" % number for number in range(52)]
            await two.client.publish("$POLYMQ.LOG.READ.orders.x", json.dumps({"count": 1000}).encode(), reply=inbox)
            found: list[Msg] = []
            while not found or (found[-1].headers or {}).get("Status") is None:
                found.append(await answers.next_msg(timeout=TIMEOUT_S))
            assert [message.data for message in found[:-1]] == [b"%d" % number for number in range(52)]
            assert (found[0].headers or {})["Key"] == "value"
            await archive.published("secret.x", b"not for them")
            await two.client.publish("$POLYMQ.LOG.READ.secret.x", b"", reply=inbox)
            (refused,) = [await answers.next_msg(timeout=TIMEOUT_S)]
            assert (refused.headers or {})["Status"] == "403"

    with ending(members):
        for member in members:
            member.start()
        await_mesh(members)
        asyncio.run(play())
