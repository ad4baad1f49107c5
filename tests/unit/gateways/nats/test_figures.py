from __future__ import annotations

from polymq.gateways.nats.figures import Departed, Totals, figures_of, subscriptions_of
from polymq.protocols.nats.problems import CloseReason
from tests.unit.gateways.nats.harness import World


def test_what_is_said_of_a_client() -> None:
    world = World()
    talk = world.connect(b'CONNECT {"verbose":false,"name":"n","lang":"l","version":"v"}\r\nSUB a q 1\r\nSUB b 2\r\nUNSUB 2 5\r\n')
    talk.say(b"PUB b 2\r\nxy\r\n")
    figures = figures_of(talk.client, pending_size_bytes=3, subscriptions_max=1)
    assert (figures.name, figures.lang, figures.version, figures.user, figures.tls_version) == ("n", "l", "v", "", "")
    assert (figures.in_size_bytes, figures.out_size_bytes, figures.pending_size_bytes) == (2, 2, 3)
    assert (figures.subscription_count, len(figures.subscriptions)) == (2, 1)
    plain, limited = subscriptions_of(talk.client, 10)
    assert (plain.subject, plain.queue, plain.sid, plain.given, plain.limit) == (b"a", b"q", b"1", 0, 0)
    assert (limited.given, limited.limit, limited.client_id) == (1, 5, talk.client.id)


def test_reasons_are_counted() -> None:
    client, departed = World().connect().client, Departed()
    for reason in (
        CloseReason.SLOW_CONSUMER_PENDING,
        CloseReason.SLOW_CONSUMER_DEADLINE,
        CloseReason.STALE_CONNECTION,
        CloseReason.CLIENT_CLOSED,
    ):
        departed.add(client, reason, now_ns=1)
    assert (departed.slow_consumer_count, departed.stale_count, len(departed.last)) == (2, 1, 4)


def test_totals() -> None:
    client = World().connect().client
    client.in_message_count = 2
    assert Totals(1, 2, 3, 4).with_those([client, client]) == Totals(5, 2, 3, 4)
