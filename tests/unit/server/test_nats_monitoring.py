from __future__ import annotations

from typing import TYPE_CHECKING

from polymq.core.statistics import Registry
from polymq.gateways.nats.house import House
from polymq.server.nats_monitoring import register_nats
from tests.unit.gateways.nats.harness import PLAIN, SECOND_NS, World

if TYPE_CHECKING:
    import pytest

    from polymq.gateways.nats.figures import Totals


def test_the_registry_has_what_passes_through() -> None:
    world, registry = World(), Registry()
    register_nats(registry, world.house)
    listener, publisher = world.connect(PLAIN + b"SUB a 1\r\n"), world.connect(PLAIN)
    publisher.send(b"PUB a 3\r\nabc\r\nPUB b 1\r\nx\r\n")
    publisher.hang_up()
    found = {family.name: [sample.value for sample in family.collect()] for family in registry}
    assert found == {
        "polymq_live_received_messages_total": [2],
        "polymq_live_received_bytes_total": [4],
        "polymq_live_sent_messages_total": [1],
        "polymq_live_sent_bytes_total": [3],
        "polymq_live_subscriptions": [1],
        "polymq_live_slow_consumers_total": [0],
        "polymq_live_stalls_total": [0],
    }
    assert not listener.closed


def test_clients_are_added_up_once_for_all_families_that_are_collected_together(monkeypatch: pytest.MonkeyPatch) -> None:
    world, registry = World(), Registry()
    sums: list[Totals] = []
    totals = House.totals

    def counted(house: House) -> Totals:
        sums.append(totals(house))
        return sums[-1]

    monkeypatch.setattr(House, "totals", counted)
    register_nats(registry, world.house)
    publisher = world.connect(PLAIN)
    received = "polymq_live_received_messages_total"
    for expected in (1, 2, 3):
        publisher.send(b"PUB a 3\r\nabc\r\n")
        found = {family.name: [sample.value for sample in family.collect()] for family in registry}
        assert found[received] == [expected]
        assert found["polymq_live_received_bytes_total"] == [3 * expected]
        assert len(sums) == expected
    (last,) = (family for family in registry if family.name == "polymq_live_sent_bytes_total")
    list(last.collect())
    world.clock.now_ns += 2 * SECOND_NS
    publisher.send(b"PUB a 3\r\nabc\r\n")
    (first,) = (family for family in registry if family.name == received)
    assert [sample.value for sample in first.collect()] == [4], "what another family was told long ago is too old"
