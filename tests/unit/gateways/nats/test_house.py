from __future__ import annotations

import json

from polymq.protocols.nats.problems import CloseReason
from tests.unit.gateways.nats.harness import PLAIN, QUIET, World


def test_clients_are_numbered_and_leave_once() -> None:
    world = World()
    first, second = world.connect(PLAIN), world.connect(PLAIN)
    assert list(world.house.clients) == [1, 2]
    for _ in range(2):
        world.house.dismiss(first.client, CloseReason.STALE_CONNECTION)
    assert list(world.house.clients) == [second.client.id]
    assert [each.reason for each in world.house.departed.last] == ["Stale Connection"]
    assert world.house.departed.stale_count == 1


def test_info_is_about_the_connection() -> None:
    house = World().house
    line = house.info_line(client_id=7, peer=World().connect().client.peer, nonce="n", connect_info=True)
    info = json.loads(line[5:])
    assert (info["client_id"], info["client_ip"], info["nonce"], info["connect_info"]) == (7, "192.0.2.9", "n", True)


def test_totals_are_of_all_who_ever_were() -> None:
    world = World()
    one, other = world.connect(QUIET + b"SUB a 1\r\n"), world.connect(PLAIN)
    other.send(b"PUB a 3\r\nabc\r\n")
    other.hang_up()
    totals = world.house.totals()
    assert (totals.in_message_count, totals.in_size_bytes, totals.out_message_count, totals.out_size_bytes) == (1, 3, 1, 3)
    assert world.house.routes() == ()
    assert not one.closed
