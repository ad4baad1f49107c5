"""nsqd's statistics over the real core, against what a real nsqd said in the same state."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from polymq.core.access import ANONYMOUS
from polymq.core.views import PeerView
from polymq.wire.slices import MessageBatch
from tests.unit.core.fakes import Inbox
from tests.unit.gateways.nsq.http_world import NsqWorld

HERE = Path(__file__).parent
SECOND_NS = 1_000_000_000
JSON_VECTORS = (HERE / "golden_stats.jsonl").read_text(encoding="utf-8").splitlines()


def peer(client_id: str, host: str, agent: str, *, port: int, since_s: int) -> PeerView:
    return PeerView(
        protocol="nsq",
        protocol_version="V2",
        remote_address=f"127.0.0.1:{port}",
        connected_at_ns=since_s * SECOND_NS,
        client_id=client_id,
        host_name=host,
        user_agent=agent,
    )


def ports_and_times() -> list[tuple[int, int]]:
    """Port and connect time of the three clients, from the vector."""
    pairs = re.findall(r'"client_id":"(\S+?)".*?"remote_address":"127.0.0.1:(\d+)".*?"connect_ts":(\d+)', JSON_VECTORS[0])
    found = {client_id: (int(port), int(since_s)) for client_id, port, since_s in pairs}
    return [found["pub-1"], found["sub-1"], found["both"]]


@pytest.fixture
def world() -> NsqWorld:
    """Three clients: one publishes, one consumes, one did both and is closing."""
    world = NsqWorld()
    world.context.node = replace(world.context.node, runtime="go1.26.8")
    (pub_port, pub_s), (sub_port, sub_s), (both_port, both_s) = ports_and_times()

    producer = world.broker.session(ANONYMOUS)
    producer.describe(peer("pub-1", "<host>&co", "made up/1.0", port=pub_port, since_s=pub_s))
    producer.publish("st", MessageBatch.of([b"abc"]), origin=1)
    producer.publish("st", MessageBatch.of([b"a", b"bb"]), origin=1)

    consumer = world.broker.session(ANONYMOUS)
    consumer.describe(peer("sub-1", "host-2", "x", port=sub_port, since_s=sub_s))
    subscription = consumer.subscribe("st", "ch", listener=Inbox(), lease_ns=60 * SECOND_NS)
    consumer.credit(subscription, 2)
    world.turn()
    listener = subscription.listener
    assert isinstance(listener, Inbox)
    world.settle(subscription, listener.ids[0])
    consumer.requeue(subscription, listener.ids[1], delay_ns=100 * SECOND_NS)
    world.turn()

    both = world.broker.session(ANONYMOUS)
    both.describe(peer("both", "host-3", "y", port=both_port, since_s=both_s))
    both.publish("other", MessageBatch.of([b"abc"]), origin=1)
    closing = both.subscribe("st", "ch#ephemeral", listener=Inbox(), lease_ns=60 * SECOND_NS, ephemeral_group=True)
    closing.closing = True

    producer.publish("st", MessageBatch.of([b"abc"]), origin=1, delay_ns=1000 * SECOND_NS)
    world.turn()
    return world


def masked(text: str) -> str:
    """Leave out what varies. nsqd lists producers in the order of a Go map, which is none."""
    opening, marker, producers = text.partition('"producers":[')
    if marker:
        text = opening + marker + ",".join(sorted(re.findall(r'\{"client_id".*?(?:true|false)\}', producers)))
    opening, marker, producers = text.partition("\nProducers:\n")
    text = opening + marker + "\n".join(sorted(producers.splitlines()))
    text = re.sub(r'"start_time":\d+', '"start_time":S', text)
    text = re.sub(r"start_time \S+", "start_time S", text)
    text = re.sub(r"uptime \S+", "uptime U", text)
    return re.sub(r"connected: \S+", "connected: C", text)


@pytest.mark.parametrize(
    ("query", "vector"), [("", 0), ("&topic=st", 1), ("&include_clients=false", 2)], ids=["all", "topic", "no clients"]
)
def test_json_is_that_of_nsqd(world: NsqWorld, query: str, vector: int) -> None:
    answer = world.get("/stats?format=json&include_mem=false" + query)
    assert masked(answer.text) == masked(JSON_VECTORS[vector])


@pytest.mark.parametrize(("query", "vector"), [("", "all"), ("&topic=st", "topic")])
def test_text_is_that_of_nsqd(world: NsqWorld, query: str, vector: str) -> None:
    answer = world.get("/stats?include_mem=false" + query)
    assert masked(answer.text) == masked((HERE / f"golden_stats_{vector}.txt").read_text(encoding="utf-8"))


def test_channel_filter_leaves_topics_without_it_out(world: NsqWorld) -> None:
    topics = json.loads(world.get("/stats?format=json&channel=ch").text)["topics"]
    assert [(topic["topic_name"], [channel["channel_name"] for channel in topic["channels"]]) for topic in topics] == [("st", ["ch"])]


def test_memory_has_nsqds_keys(world: NsqWorld) -> None:
    text = world.get("/stats?format=json").text
    assert (
        '"memory":{"heap_objects":1,"heap_idle_bytes":0,"heap_in_use_bytes":0,"heap_released_bytes":0,'
        '"gc_pause_usec_100":0,"gc_pause_usec_99":0,"gc_pause_usec_95":0,"next_gc_bytes":0,"gc_total_runs":2},"producers":['
    ) in text


def test_prefix_that_tools_look_for() -> None:
    text = NsqWorld().get("/stats?format=json").text
    assert re.match(r'\{"version":"1.3.0","health":"OK","start_time":\d+,"topics":\[\],"memory":\{', text)
    assert text.endswith('},"producers":null}')


def test_deferred_publish_waits_with_the_topic_until_there_is_a_channel() -> None:
    world = NsqWorld()
    world.post("/pub?topic=t&defer=1000", b"x")
    topic = json.loads(world.get("/stats?format=json").text)["topics"][0]
    assert (topic["depth"], topic["message_count"], topic["channels"]) == (1, 1, [])
    world.post("/channel/create?topic=t&channel=c")
    topic = json.loads(world.get("/stats?format=json").text)["topics"][0]
    channel = topic["channels"][0]
    assert (topic["depth"], channel["depth"], channel["deferred_count"], channel["message_count"]) == (0, 0, 1, 1)
    world.wait(2)
    channel = json.loads(world.get("/stats?format=json").text)["topics"][0]["channels"][0]
    assert (channel["depth"], channel["deferred_count"], channel["message_count"]) == (1, 0, 1)


def test_paused_topic_holds_messages_and_is_marked() -> None:
    world = NsqWorld()
    for path in ("/topic/create?topic=t", "/channel/create?topic=t&channel=c", "/topic/pause?topic=t"):
        assert world.post(path).status == 200
    world.post("/channel/pause?topic=t&channel=c")
    world.post("/pub?topic=t", b"x")
    text = world.get("/stats?include_mem=0").text
    assert "\n*P [t              ] depth: 1     be-depth: 0     msgs: 1        e2e%: \n" in text
    assert "\n   *P [c                        ] depth: 0     be-depth: 0     inflt: 0    def: 0 " in text


def test_groups_of_other_kinds_are_no_channels(world: NsqWorld) -> None:
    world.session.commit_offset("st", "cursor", 0, 1)
    channels = json.loads(world.get("/stats?format=json&topic=st").text)["topics"][0]["channels"]
    assert [channel["channel_name"] for channel in channels] == ["ch", "ch#ephemeral"]


def test_sessions_of_other_protocols_are_no_producers(world: NsqWorld) -> None:
    other = world.broker.session(ANONYMOUS)
    other.publish("st", MessageBatch.of([b"x"]), origin=2)
    world.post("/pub?topic=st", b"x")
    producers = json.loads(world.get("/stats?format=json").text)["producers"]
    assert [producer["client_id"] for producer in producers] == ["pub-1", "both"]


def test_every_topic_that_was_published_to_is_counted() -> None:
    session_peer = peer("p", "h", "a", port=1, since_s=1)
    world = NsqWorld()
    session = world.broker.session(ANONYMOUS)
    session.describe(session_peer)
    for topic in ("a", "b", "a"):
        session.publish(topic, MessageBatch.of([b"x"]), origin=1)
    (client,) = json.loads(world.get("/stats?format=json").text)["producers"]
    assert client["pub_counts"] == [{"topic": "a", "count": 2}, {"topic": "b", "count": 1}]


def test_unhealthy_node(monkeypatch: pytest.MonkeyPatch) -> None:
    world = NsqWorld()
    monkeypatch.setattr(world.store, "health", lambda: ["disk full", "partition 3 is damaged"])
    answer = world.get("/ping")
    assert (answer.status, answer.text) == (500, "NOK - disk full; partition 3 is damaged")
    assert "X-Nsq-Content-Type" not in answer.headers
    assert '"health":"NOK - disk full; partition 3 is damaged"' in world.get("/stats?format=json").text
    assert "\nHealth: NOK - disk full; partition 3 is damaged\n" in world.get("/stats").text


def test_many_topics_are_made_in_pieces() -> None:
    world = NsqWorld()
    for index in range(500):
        world.session.create_topic(f"t{index:04d}")
    wire = world.raw(b"GET /stats?format=json HTTP/1.1\r\nHost: h\r\n\r\n")
    assert wire.log.count("WantWritable") > 2
    topics = json.loads(world.get("/stats?format=json").text)["topics"]
    assert [topic["topic_name"] for topic in topics] == [f"t{index:04d}" for index in range(500)]


def test_topic_that_goes_while_it_is_being_described() -> None:
    world = NsqWorld()
    for index in range(500):
        world.session.create_topic(f"t{index:04d}")
    wire = world.raw()
    wire.send(b"GET /stats?format=json&include_mem=0 HTTP/1.1\r\nHost: h\r\n\r\n")
    world.session.delete_topic("t0499")
    wire.drain()
    assert b"t0498" in wire.output
    assert b"t0499" not in wire.output
    assert wire.output.endswith(b'],"producers":null}\r\n0\r\n\r\n')
