"""Which of the core's figures each of nsqd's is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from polymq.core.views import ConsumerView, GroupView, LatencyView, PeerView, ProducerView, TlsView, TopicView
from polymq.gateways.nsq.stats_model import ClientStats, LatencyStats, clients_of, producers_of, topic_stats

PEER = PeerView("nsq", "127.0.0.1:1", 5_999_999_999, protocol_version="V2", client_id="c", host_name="h", user_agent="a")
CONSUMER = ConsumerView(PEER, credit=7, leased=6, delivered=5, settled=4, requeued=3, sample_percent=2)
GROUP = GroupView(
    name="c",
    kind="work",
    paused=False,
    ephemeral=False,
    depth=1,
    leased=2,
    deferred=3,
    message_count=4,
    requeue_count=5,
    timeout_count=6,
    consumer_count=7,
    consumers=(CONSUMER,),
)
TOPIC = TopicView(
    namespace="",
    name="t",
    paused=False,
    ephemeral=False,
    held=1,
    scheduled=2,
    message_count=3,
    message_bytes=4,
    partitions=(),
    groups=(GROUP,),
)


def test_client() -> None:
    stats = ClientStats(PEER, CONSUMER, (("t", 9),)).json()
    names = ("state", "ready_count", "in_flight_count", "message_count", "finish_count", "requeue_count", "connect_ts", "sample_rate")
    assert [stats[name] for name in names] == [3, 7, 6, 5, 4, 3, 5, 2]
    assert stats["pub_counts"] == [{"topic": "t", "count": 9}]


@pytest.mark.parametrize(("consumer", "state"), [(None, 0), (CONSUMER, 3), (replace(CONSUMER, closing=True), 4)])
def test_states(consumer: ConsumerView | None, state: int) -> None:
    assert ClientStats(PEER, consumer, ()).state == state


def test_tls_compression_and_identity() -> None:
    tls = TlsView("TLS1.3", "TLS_AES_128_GCM_SHA256")
    peer = replace(PEER, tls=tls, compression="snappy", authenticated=True, identity="me", identity_url="u")
    stats = ClientStats(peer, None, ()).json()
    assert [stats[name] for name in ("snappy", "deflate", "tls", "tls_version")] == [True, False, True, "TLS1.3"]
    names = list(stats)
    at = names.index("user_agent")
    assert names[at + 1 : at + 5] == ["authed", "auth_identity", "auth_identity_url", "tls"]


def test_channel() -> None:
    (channel,) = topic_stats(TOPIC, None).channels
    counts = (channel.depth, channel.in_flight_count, channel.deferred_count, channel.message_count, channel.client_count)
    assert counts == (1, 2, 3 + TOPIC.groups[0].scheduled, 4, 7)
    assert channel.clients is None


def test_topic_without_channels_has_what_is_scheduled() -> None:
    assert topic_stats(TOPIC, None).depth == 1
    assert topic_stats(replace(TOPIC, groups=()), None).depth == 3
    assert topic_stats(replace(TOPIC, groups=(replace(GROUP, kind="cursor"),)), None).channels == []


def test_clients_that_have_published_as_well() -> None:
    describe = clients_of({PEER: (("t", 1), ("u", 2))}, "")
    assert describe([CONSUMER])[0].published == (("t", 1), ("u", 2))
    assert clients_of({PEER: (("t", 1), ("u", 2))}, "u")([CONSUMER])[0].published == (("u", 2),)
    assert clients_of({}, "")([CONSUMER])[0].published == ()


def test_producers() -> None:
    producer = ProducerView(PEER, (("t", 1),))
    other = ProducerView(replace(PEER, protocol="http"), (("t", 1),))
    assert [client.peer for client in producers_of((producer, other), "")] == [PEER]
    assert producers_of((producer,), "u")[0].published == ()


def test_latencies() -> None:
    view = replace(TOPIC, latency=LatencyView(3, ((0.99, 1_500_000),)))
    assert topic_stats(view, None).latency.json() == {"count": 3, "percentiles": [{"quantile": 0.99, "value": 1_500_000}]}
    assert LatencyStats(0, ()).json() == {"count": 0, "percentiles": None}


def test_the_share_of_a_peer_that_has_not_subscribed() -> None:
    peer = replace(PEER, sample_percent=42)
    assert ClientStats(peer, None, ()).json()["sample_rate"] == 42
    assert ClientStats(peer, CONSUMER, ()).json()["sample_rate"] == CONSUMER.sample_percent
