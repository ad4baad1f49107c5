"""RocketMQ's client libraries do to polymq what they do to a real nameserver and broker.

Every library does every job that it can (`rocketmq_jobs.py`). The same is done to a real broker by Java as the control: what fails there
as well is no finding about polymq. That is 4.9; 5.3 is asked for one job of each kind, or for all with POLYMQ_INTEROP_CONTROLS=all. Our own
client does all of its jobs to both.
"""

from __future__ import annotations

import itertools
import os
import time
from typing import TYPE_CHECKING

import pytest

from tests.interop.rocketmq_jobs import CLIENTS, JAVA, OWN, Client, Programs
from tests.interop.rocketmq_servers import EVERY_CONTROL, POLYMQ, REAL_KINDS, RocketmqServer, rocketmq_server

if TYPE_CHECKING:
    from collections.abc import Iterator

NUMBERS = itertools.count()
# Which library does its jobs to which server. A real one needs no client that is not its own, and one of the newest each.
CONTROLS = {"rocketmq-4.9": "java-4.9-json", "rocketmq-5.3": "java-5.3-binary"}
# Which of the real ones is asked for samples only.
SAMPLED = "rocketmq-5.3"
COUNT = 20
# Whose orderly consumers share the queues of a topic: Java asks for a lock that it was not given again after 20 s, so one of it is enough. Go's does not give up what it has
# no longer, for a minute.
SHARING = ("java-5.3-binary", "pypi-rocketmq", "polymq")
# Levels 1 and 2 as everywhere; what is given back waits a second from the third on, where it would be ten.
LEVELS = "1s 5s 1s 1s 1s 1s"
DELAYS = {POLYMQ: {"delay_levels": LEVELS}, **{kind: {"messageDelayLevel": LEVELS} for kind in REAL_KINDS}}
# Everybody's first rebalance, and one more.
SETTLING_S = 1.0


def chosen() -> list[tuple[str, Client]]:
    """Pairs of kind and client; POLYMQ_INTEROP_SERVERS and POLYMQ_INTEROP_CLIENTS name some, as tools for development."""
    kinds, clients = (os.environ.get(f"POLYMQ_INTEROP_{name}", "") for name in ("SERVERS", "CLIENTS"))
    pairs = [(POLYMQ, client) for client in CLIENTS]
    pairs += [(kind, client) for kind, name in CONTROLS.items() for client in CLIENTS if client.name in (name, OWN.name) or kinds]
    return [
        (kind, client)
        for kind, client in pairs
        if (not kinds or kind in kinds.split(",")) and (not clients or client.name in clients.split(","))
    ]


PAIRS = chosen()


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Programs]:
    with Programs(tmp_path_factory.mktemp("clients")) as running:
        yield running


@pytest.fixture(scope="module", params=list(dict.fromkeys(kind for kind, _ in PAIRS)))
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RocketmqServer]:
    with rocketmq_server(request.param, tmp_path_factory.mktemp(request.param), DELAYS[request.param]) as started:
        yield started


def able(*jobs: str, sample: bool = False) -> pytest.MarkDecorator:
    """Whoever can do these, by kind of server. Of the jobs of a kind, one is the `sample` that every real server is the control of."""
    everywhere = sample or EVERY_CONTROL or bool(os.environ.get("POLYMQ_INTEROP_SERVERS"))
    able = [(kind, client) for kind, client in PAIRS if client.can.issuperset(jobs)]
    pairs = [(kind, client) for kind, client in able if everywhere or kind != SAMPLED or client is OWN]
    return pytest.mark.parametrize(
        ("server", "client"), pairs, indirect=["server"], scope="module", ids=[f"{kind}-{client.name}" for kind, client in pairs]
    )


@pytest.fixture(autouse=True)
def everybody_leaves(programs: Programs) -> Iterator[None]:
    with programs.closing():
        yield


@pytest.fixture
def topic(server: RocketmqServer) -> str:
    """A new one. polymq makes topics when somebody asks for their route; of a real one not every library can make one."""
    name = f"Interop-{os.getpid()}-{next(NUMBERS)}"
    if server.kind != POLYMQ:
        server.make_topic(name)
    return name


def known_to_give_back(server: RocketmqServer, group: str) -> None:
    """Have a real one make where a group's messages come again, before the group asks: later, a library looks for it every 30 s only."""
    if server.kind != POLYMQ:
        server.make_topic(f"%RETRY%{group}", 1)


def numbered(count: int = COUNT, **more: object) -> list[dict[str, object]]:
    return [{"body": f"message {number}", **more} for number in range(count)]


def bodies(count: int = COUNT) -> list[str]:
    return [f"message {number}" for number in range(count)]


# -- sending --------------------------------------------------------------------------------------------------------------


@able("sync", "push", sample=True)
def test_what_is_sent_is_received(server: RocketmqServer, client: Client, programs: Programs, topic: str) -> None:
    sent = programs.producer(client, server).send(topic, numbered(keys="one two", tags="blue"))
    got = programs.push(client, server, topic, f"group-{topic}").wait(COUNT)
    assert sorted(each["body"] for each in got) == sorted(bodies())
    by_body = {each["body"]: each for each in got}
    for body, result in zip(bodies(), sent, strict=True):
        message = by_body[body]
        assert result["status"] == "SEND_OK"
        # Not every library says which queue it was.
        assert (message["queue"], message["offset"]) == (result.get("queue", message["queue"]), result["offset"])
        assert message["tags"] == "blue"
        assert message["keys"] == "one two"
        assert message["topic"] == topic
        assert message["reconsumed"] == 0


@able("async", "push")
def test_asynchronous_sends(server: RocketmqServer, client: Client, programs: Programs, topic: str) -> None:
    # The first one finds out where the topic is, which asynchronous ones do not wait for everywhere.
    producer = programs.producer(client, server)
    producer.send(topic, [{"body": "first"}])
    sent = producer.send(topic, numbered(100), "async")
    places = {(each["queue"], each["offset"]) for each in sent}
    assert len(places) == 100
    got = programs.push(client, server, topic, f"group-{topic}").wait(101)
    assert {each["body"] for each in got} == {"first", *bodies(100)}


@able("oneway", "push")
def test_oneway_sends(server: RocketmqServer, client: Client, programs: Programs, topic: str) -> None:
    producer = programs.producer(client, server)
    producer.send(topic, [{"body": "first"}])
    producer.send(topic, numbered(), "oneway")
    got = programs.push(client, server, topic, f"group-{topic}").wait(COUNT + 1)
    assert {each["body"] for each in got} == {"first", *bodies()}


@able("batch", "push")
def test_a_batch(server: RocketmqServer, client: Client, programs: Programs, topic: str) -> None:
    messages = [{"body": f"message {number}", "tags": f"t{number % 3}", "keys": f"key{number}"} for number in range(COUNT)]
    (sent,) = programs.producer(client, server).send(topic, messages, "batch")
    assert sent["status"] == "SEND_OK"
    got = programs.push(client, server, topic, f"group-{topic}").wait(COUNT)
    ordered = sorted(got, key=lambda each: each["offset"])
    assert [each["body"] for each in ordered] == bodies()
    assert {each["queue"] for each in got} == {sent["queue"]}
    assert [each["offset"] for each in ordered] == list(range(sent["offset"], sent["offset"] + COUNT))
    assert [(each["tags"], each["keys"]) for each in ordered] == [(each["tags"], each["keys"]) for each in messages]


@able("large", "push")
def test_large_messages_are_compressed_by_the_client(server: RocketmqServer, client: Client, programs: Programs, topic: str) -> None:
    programs.producer(client, server).send(topic, [{"body": "large", "size": 1_000_000}, {"body": "small", "size": 5}])
    got = programs.push(client, server, topic, f"group-{topic}").wait(2)
    assert sorted(each["size"] for each in got) == [5, 1_000_000]


@able("sync", "delay", "push")
def test_a_delayed_message_comes_late(server: RocketmqServer, client: Client, programs: Programs, topic: str) -> None:
    producer = programs.producer(client, server)
    producer.send(topic, [{"body": "at once"}])
    consumer = programs.push(client, server, topic, f"group-{topic}")
    consumer.wait(1)
    began = time.time() * 1000
    producer.send(topic, [{"body": "level 2", "delay": 2}, {"body": "level 1", "delay": 1}, {"body": "now"}])
    got = {each["body"]: each for each in consumer.wait(4)}
    assert got["now"]["at"] - began < 900
    assert 900 <= got["level 1"]["at"] - began < 3_500
    assert 4_900 <= got["level 2"]["at"] - began < 8_000


# -- consuming ------------------------------------------------------------------------------------------------------------


@able("sync", "tags", "push", sample=True)
def test_tags_choose(server: RocketmqServer, client: Client, programs: Programs, topic: str) -> None:
    # "Aa" and "BB" have the same hash, which is all that the broker looks at; the client looks at the tag as well.
    tags = ["red", "green", "Aa", "BB", "red", "Aa"]
    messages = [{"body": f"{number} {tag}", "tags": tag} for number, tag in enumerate(tags)]
    programs.producer(client, server).send(topic, [*messages, {"body": "none"}])
    consumer = programs.push(client, server, topic, f"group-{topic}", expression="red || Aa")
    everything = programs.push(client, server, topic, f"all-{topic}")
    assert len(everything.wait(7)) == 7
    consumer.wait(4)
    time.sleep(SETTLING_S)
    assert sorted(consumer.bodies) == ["0 red", "2 Aa", "4 red", "5 Aa"]


@able("ordered", "orderly")
def test_orderly_consumers_keep_the_order(server: RocketmqServer, client: Client, programs: Programs, topic: str) -> None:
    shards = ["a", "b", "c", "d", "e"]
    messages = [{"body": f"{shard} {number}", "shard": shard} for number in range(20) for shard in shards]
    programs.producer(client, server).send(topic, messages, "ordered")
    consumers = [programs.push(client, server, topic, f"group-{topic}", orderly=True) for _ in range(2 if client.name in SHARING else 1)]
    program = consumers[0].program
    # Some may come twice when a queue changes hands.
    program.wait_for(lambda: len({body for each in consumers for body in each.bodies}) == len(messages), 60)
    got = sorted((message for each in consumers for message in each.messages), key=lambda each: each["at"])
    for shard in shards:
        heard = list(dict.fromkeys(each["body"] for each in got if each["body"].startswith(shard)))
        assert heard == [f"{shard} {number}" for number in range(20)]


@able("ordered", "orderly")
def test_an_orderly_consumer_that_fails_gets_the_same_again_first(
    server: RocketmqServer, client: Client, programs: Programs, topic: str
) -> None:
    programs.producer(client, server).send(topic, [{"body": f"message {number}", "shard": "a"} for number in range(3)], "ordered")
    consumer = programs.push(client, server, topic, f"group-{topic}", orderly=True, failures=2)
    consumer.wait(9)
    assert consumer.bodies == [body for body in bodies(3) for _ in range(3)]


@able("sync", "broadcast")
def test_everybody_gets_what_is_broadcast(server: RocketmqServer, client: Client, programs: Programs, topic: str) -> None:
    programs.producer(client, server).send(topic, numbered())
    consumers = [programs.push(client, server, topic, f"group-{topic}", model="broadcasting") for _ in range(2)]
    for each in consumers:
        each.wait(COUNT)
    programs.producer(client, server).send(topic, [{"body": "later"}])
    for each in consumers:
        each.wait(COUNT + 1)
        assert sorted(each.bodies) == sorted(["later", *bodies()])


@able("sync", "push")
def test_a_group_goes_on_where_it_was(server: RocketmqServer, client: Client, programs: Programs, topic: str) -> None:
    producer = programs.producer(client, server)
    producer.send(topic, numbered())
    consumer = programs.push(client, server, topic, f"group-{topic}")
    consumer.wait(COUNT)
    consumer.close()
    producer.send(topic, [{"body": "while nobody is there"}])
    again = programs.push(client, server, topic, f"group-{topic}")
    again.wait(1)
    time.sleep(SETTLING_S)
    assert again.bodies == ["while nobody is there"]


@able("sync", "lite")
def test_asking_for_messages(server: RocketmqServer, client: Client, programs: Programs, topic: str) -> None:
    programs.producer(client, server).send(topic, numbered(tags="x"))
    programs.producer(client, server).send(topic, [{"body": "other", "tags": "y"}])
    consumer = programs.lite(client, server, topic, f"group-{topic}", expression="x")
    consumer.wait(COUNT)
    time.sleep(2 * SETTLING_S)
    assert sorted(consumer.bodies) == sorted(bodies())
    consumer.close()
    again = programs.lite(client, server, topic, f"group-{topic}", expression="y")
    time.sleep(SETTLING_S)
    assert "message 0" not in again.bodies


@able("sync", "assign")
def test_asking_for_messages_of_chosen_queues(server: RocketmqServer, client: Client, programs: Programs, topic: str) -> None:
    programs.producer(client, server).send(topic, numbered())
    consumer = programs.lite(client, server, topic, f"group-{topic}", assign=True)
    consumer.wait(COUNT)
    assert sorted(consumer.bodies) == sorted(bodies())


# -- again, and never again -----------------------------------------------------------------------------------------------


@able("sync", "retry", sample=True)
def test_what_fails_comes_again(server: RocketmqServer, client: Client, programs: Programs, topic: str) -> None:
    programs.producer(client, server).send(topic, numbered(3, keys="again", tags="blue"))
    known_to_give_back(server, f"group-{topic}")
    consumer = programs.push(client, server, topic, f"group-{topic}", failures=1, expression="blue")
    got = consumer.wait(6)
    for body in bodies(3):
        first, second = (each for each in got if each["body"] == body)
        assert (first["reconsumed"], second["reconsumed"]) == (0, 1)
        assert second["topic"] == topic
        assert (second["tags"], second["keys"]) == ("blue", "again")
        if "unique" in client.can:
            assert second["message_id"] == first["message_id"]
        assert second["at"] - first["at"] >= 900


@able("sync", "dead")
def test_what_fails_for_good_is_a_dead_letter(server: RocketmqServer, client: Client, programs: Programs, topic: str) -> None:
    group = f"group-{topic}"
    programs.producer(client, server).send(topic, [{"body": "hopeless", "keys": "k"}])
    known_to_give_back(server, group)
    consumer = programs.push(client, server, topic, group, failures=99, reconsume_max=2)
    consumer.wait(3)
    # Later, a library looks for its route every 30 s only.
    server.await_route(f"%DLQ%{group}")
    dead = programs.push(client, server, f"%DLQ%{group}", f"undertaker-{topic}")
    (letter,) = dead.wait(1)
    assert letter["body"] == "hopeless"
    assert letter["keys"] == "k"
    assert [each["reconsumed"] for each in consumer.messages] == [0, 1, 2]


# -- looking --------------------------------------------------------------------------------------------------------------


@able("sync", "query", sample=True)
def test_messages_are_found_by_key_and_by_id(server: RocketmqServer, client: Client, programs: Programs, topic: str) -> None:
    producer = programs.producer(client, server)
    sent = producer.send(topic, [{"body": "one", "keys": "k1 both"}, {"body": "two", "keys": "k2 both"}, {"body": "three"}])
    deadline = time.monotonic() + 20
    found: list[str] = []
    # A real one writes its index behind the answers.
    while time.monotonic() < deadline and len(found) < 2:
        found = sorted(each["body"] for each in producer.do("query", topic=topic, key="both"))
    assert found == ["one", "two"]
    assert [each["body"] for each in producer.do("query", topic=topic, key="k2")] == ["two"]
    for body, result in zip(("one", "two", "three"), sent, strict=True):
        for name in ("id", "offset_id"):
            message = producer.do("view", topic=topic, message_id=result[name])
            assert message["body"] == body
            assert (message["queue"], message["offset"]) == (result["queue"], result["offset"])


@able("sync", "offsets")
def test_offsets_of_queues_and_of_times(server: RocketmqServer, client: Client, programs: Programs, topic: str) -> None:
    producer = programs.producer(client, server)
    began = int(time.time() * 1000)
    producer.send(topic, numbered())
    time.sleep(0.05)
    between = int(time.time() * 1000)
    time.sleep(0.05)
    producer.send(topic, numbered())
    found = producer.do("offsets", topic=topic, timestamp=between)
    assert [each["queue"] for each in found] == [0, 1, 2, 3]
    assert sum(each["max"] for each in found) == 2 * COUNT
    # A real one takes the nearest, and not the next.
    assert COUNT - len(found) <= sum(each["at"] for each in found) <= COUNT
    for each in found:
        assert each["min"] == 0
        assert began <= each["earliest"] <= between


def test_controls_are_real() -> None:
    assert set(CONTROLS) == set(REAL_KINDS)
    assert {client.name for client in JAVA}.issuperset(CONTROLS.values())
