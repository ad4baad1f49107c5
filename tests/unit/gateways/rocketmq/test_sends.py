from __future__ import annotations

import zlib
from dataclasses import replace

import cramjam
import pytest

from polymq.core.access import Action, Permission, Principal
from polymq.core.patterns import EVERYTHING
from polymq.core.policies import TopicPolicy
from polymq.errors import Refusal, RefusalCode
from polymq.gateways.rocketmq.answers import Answer
from polymq.protocols.rocketmq.batches import BatchPart, join_batch
from polymq.protocols.rocketmq.codes import RequestCode, ResponseCode
from polymq.protocols.rocketmq.ids import parse_offset_message_id, physical_offset
from polymq.protocols.rocketmq.properties import parse
from polymq.wire.batch import read_messages
from polymq.wire.tickets import TicketState

from .harness import Talk, World, bodies, messages


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def talk(world: World) -> Talk:
    return world.connect()


def test_a_send_makes_the_topic_and_says_where_the_message_is(world: World, talk: Talk) -> None:
    answer = talk.put("T", b"hello", queue=2)
    assert answer.code == 0
    assert (answer.ext["queueId"], answer.ext["queueOffset"], answer.ext["TRACE_ON"]) == ("2", "0", "true")
    assert answer.ext["MSG_REGION"] == "DefaultRegion"
    number = world.broker.catalogue.topics["", "T"].partitions[2].number
    found = parse_offset_message_id(answer.ext["msgId"])
    assert found == (bytes([192, 0, 2, 1]), 10911, physical_offset(number, 0))
    assert world.house.topics.queues(talk.client.session, "T") == 4
    assert talk.put("T", queue=2).ext["queueOffset"] == "1"


@pytest.mark.parametrize("binary", [False, True])
def test_many_sends_at_once_go_to_their_queues_and_each_is_answered(world: World, talk: Talk, *, binary: bool) -> None:
    frames = [
        talk.frame(
            RequestCode.SEND_MESSAGE_V2,
            {"a": "P", "b": f"T{index % 2}", "c": "", "d": 4, "e": index % 4, "f": 0, "g": 1, "h": 0, "i": "", "j": 0},
            b"%d" % index,
            oneway=index == 5,
            binary=binary,
        )
        for index in range(12)
    ]
    talk.send(b"".join(frames))
    answers = talk.hear()
    assert sorted(answer.opaque for answer in answers) == [opaque for opaque in range(1, 13) if opaque != 6]
    for answer in answers:
        index = answer.opaque - 1
        assert (answer.code, answer.ext["queueId"], answer.binary) == (0, str(index % 4), binary)
        place = {0: (0, 4, 8), 1: (1, 5, 9), 2: (2, 6, 10), 3: (3, 7, 11)}[index % 4]
        assert answer.ext["queueOffset"] == str(place.index(index))
    assert bodies(talk.pull("T1", queue=1)) == [b"1", b"5", b"9"]


def test_a_queue_that_is_not_there_is_refused_and_a_negative_one_is_any(talk: Talk) -> None:
    assert talk.put("T", queue=3).code == 0
    refused = talk.put("T", queue=4)
    assert refused.code == ResponseCode.SYSTEM_ERROR
    assert refused.remark is not None
    assert "queueId[4] is illegal" in refused.remark
    assert {talk.put("T", queue=-1).ext["queueId"] for _ in range(8)} == {"0", "1", "2", "3"}


@pytest.mark.parametrize(
    ("topic", "code"),
    [("a b", ResponseCode.SYSTEM_ERROR), ("", ResponseCode.SYSTEM_ERROR), ("x" * 128, ResponseCode.SYSTEM_ERROR), ("SELF_TEST_TOPIC", 16)],
)
def test_names_that_nobody_may_send_to(world: World, talk: Talk, topic: str, code: int) -> None:
    assert talk.put(topic).code == code
    assert not world.broker.catalogue.topics


def test_what_is_too_large_is_illegal(world: World, talk: Talk) -> None:
    settings = world.house.settings
    assert talk.put("T", b"x" * settings.body_size_bytes_max).code == 0
    assert talk.put("T", b"x" * (settings.body_size_bytes_max + 1)).code == ResponseCode.MESSAGE_ILLEGAL
    for size in (32000, 32750, 32765, 32766):
        answer = talk.put("T", properties="A\x01" + "x" * size)
        assert answer.code == (0 if size == 32000 else ResponseCode.MESSAGE_ILLEGAL)
        assert answer.ext["MSG_REGION"] == "DefaultRegion"


def test_without_auto_creation_the_topic_has_to_be_there(world: World, talk: Talk) -> None:
    world.house.auto_create_topics = False
    assert talk.put("T").code == ResponseCode.TOPIC_NOT_EXIST
    assert talk.put("T", i="DELAY\x011").code == ResponseCode.TOPIC_NOT_EXIST
    world.core.session.create_topic("T")
    assert talk.put("T").code == 0
    assert talk.put("T", queue=1).code == ResponseCode.SYSTEM_ERROR  # others make topics of one queue


def test_the_old_names_of_the_fields_do_as_well(talk: Talk) -> None:
    ext = {
        "producerGroup": "P",
        "topic": "T",
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": 4,
        "queueId": 1,
        "sysFlag": 0,
        "bornTimestamp": 5,
        "flag": 7,
        "properties": "TAGS\x01A\x02WAIT\x01true\x02",
        "reconsumeTimes": 0,
        "unitMode": 0,
    }
    assert talk.ask(RequestCode.SEND_MESSAGE, ext, b"old").ext["queueId"] == "1"
    (message,) = messages(talk.pull("T", queue=1))
    assert (message.body, message.flag, message.born_ms, message.topic, message.queue_id) == (b"old", 7, 5, "T", 1)
    assert parse(message.properties) == {"TAGS": "A", "CLUSTER": "DefaultCluster"}
    assert (message.born_host, message.born_port) == (bytes([192, 0, 2, 9]), 40000)


def test_fields_that_are_missing_or_no_numbers_are_named(talk: Talk) -> None:
    cases: list[tuple[dict[str, object], str]] = [
        ({"b": "T", "e": "x"}, "<e>"),
        ({"b": "T"}, "<e>"),
        ({"b": "T", "e": 0}, "<f>"),
        ({"b": "T", "e": "9" * 30}, "<e>"),
    ]
    for ext, word in cases:
        answer = talk.ask(RequestCode.SEND_MESSAGE_V2, ext, b"x")
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark is not None
        assert word in answer.remark


def test_a_batch_is_stored_in_a_row(world: World, talk: Talk) -> None:
    talk.put("T", b"first")
    batch = join_batch([BatchPart(b"a", b"TAGS\x01x", 3), BatchPart(b"b"), BatchPart(b"c")])
    ext = {"a": "P", "b": "T", "c": "", "d": 4, "e": 0, "f": 0, "g": 9, "h": 0, "i": "WAIT\x01true", "j": 0, "m": True}
    answer = talk.ask(RequestCode.SEND_BATCH_MESSAGE, ext, batch)
    assert answer.ext["queueOffset"] == "1"
    ids = answer.ext["msgId"].split(",")
    assert len(set(ids)) == 3
    found = messages(talk.pull("T", 1))
    assert [(message.body, message.queue_offset) for message in found] == [(b"a", 1), (b"b", 2), (b"c", 3)]
    assert parse(found[0].properties) == {"TAGS": "x", "WAIT": "true", "CLUSTER": "DefaultCluster"}
    assert (found[0].flag, found[1].flag, found[0].born_ms) == (3, 0, 9)
    assert talk.ask(RequestCode.SEND_BATCH_MESSAGE, ext, b"\0\0\0\7abc").code == ResponseCode.SYSTEM_ERROR
    assert talk.ask(RequestCode.SEND_BATCH_MESSAGE, ext, b"").code == ResponseCode.SYSTEM_ERROR
    assert talk.ask(RequestCode.SEND_BATCH_MESSAGE, ext | {"f": -1}, batch).code == ResponseCode.MESSAGE_ILLEGAL
    assert talk.ask(RequestCode.SEND_BATCH_MESSAGE, ext | {"i": "DELAY\x013"}, batch).code == ResponseCode.MESSAGE_ILLEGAL
    assert talk.ask(RequestCode.SEND_BATCH_MESSAGE, ext | {"m": False}, batch).ext["queueOffset"] == "4"
    assert bodies(talk.pull("T", 4)) == [batch]


@pytest.mark.parametrize("properties", ["", "TIMER_DELIVER_MS\x011\x02"])
def test_a_packed_body_is_stored_as_it_came_and_unpacked(world: World, talk: Talk, properties: str) -> None:
    """RocketMQ's clients unpack it; other protocols' could make nothing of it."""
    world.house.settings = replace(world.house.settings, body_size_bytes_max=5000)
    for index, (body, flag, unpacked) in enumerate(
        [
            (zlib.compress(bytes(5000)), 0x301, bytes(5000)),
            (bytes(cramjam.zstd.compress(b"z" * 100)), 0x203, b"z" * 100),
            (zlib.compress(bytes(5001)), 0x301, zlib.compress(bytes(5001))),
            (b"none", 1, b"none"),
        ]
    ):
        assert talk.put("T", body, f=flag, properties=properties).code == 0
        world.wait(1)
        (message,) = messages(talk.pull("T", index))
        assert (message.body, message.sys_flag, message.body_crc) == (body, flag, zlib.crc32(body) & 0x7FFFFFFF)
        (kept,) = read_messages(world.log("T").data, world.log("T").index[index][2], 0, 0, 1, len(world.log("T").data))
        assert kept.body == unpacked
        # Whoever gives it back gives back what he got.
        back = {"group": "G", "offset": message.physical_offset, "delayLevel": 1, "originTopic": "T"}
        assert talk.ask(RequestCode.CONSUMER_SEND_MSG_BACK, back).code == 0
        world.wait(2)
        again = messages(talk.pull("%RETRY%G", index))[0]
        assert (again.body, again.sys_flag, again.reconsume_times) == (body, flag, 1)


def test_a_message_that_was_sent_back_too_often_is_a_dead_letter(world: World, talk: Talk) -> None:
    assert talk.put("%RETRY%G", b"again", j=2, l=3).code == 0
    assert talk.put("%RETRY%G", b"over", j=3, l=3, i="DELAY\x013\x02").code == 0
    assert talk.put("%RETRY%G", b"over", j=16).code == 0
    assert [world.house.topics.queues(talk.client.session, topic) for topic in ("%RETRY%G", "%DLQ%G")] == [1, 1]
    assert bodies(talk.pull("%RETRY%G")) == [b"again"]
    assert bodies(talk.pull("%DLQ%G")) == [b"over", b"over"]


def test_what_is_for_later_is_handed_on(world: World, talk: Talk) -> None:
    taken = []

    class Delays:
        def take(self, client: object, sending: object) -> Answer | None:
            taken.append(sending)
            return Answer(ext={"msgId": "later"}) if len(taken) == 1 else None

    world.house.delays = Delays()
    assert talk.put("T", i="DELAY\x013").ext["msgId"] == "later"
    assert talk.put("T", i="TIMER_DELAY_SEC\x013").ext["queueOffset"] == "0"
    assert len(taken) == 2
    assert talk.put("T", i="DELAY\x013", queue=9).code == ResponseCode.SYSTEM_ERROR
    assert len(taken) == 2


def test_transactions_are_refused(talk: Talk) -> None:
    assert talk.put("T", i="TRAN_MSG\x01true\x02PGROUP\x01P").code == ResponseCode.NO_PERMISSION


@pytest.mark.parametrize("delayed", [False, True])
def test_whoever_may_not_publish_is_told(world: World, *, delayed: bool) -> None:
    world.house.principal = Principal("x", permissions=(Permission(frozenset({Action.READ}), EVERYTHING, (EVERYTHING,)),))
    talk = world.connect()
    assert talk.put("T", i="DELAY\x011" if delayed else "").code == ResponseCode.NO_PERMISSION
    assert not world.broker.catalogue.topics


def test_a_full_topic_and_a_full_disk_are_not_available(world: World, talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    talk.put("T")
    world.core.session.set_topic_policy("T", TopicPolicy(messages_max=1))
    answer = talk.put("T")
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE

    def full(*_args: object, **_kw: object) -> None:
        raise Refusal(RefusalCode.STORE_FULL, "no room")

    monkeypatch.setattr("polymq.core.topic.Partition.append_run", full)
    answer = talk.put("U")
    assert (answer.code, answer.remark) == (ResponseCode.SERVICE_NOT_AVAILABLE, "no room")


@pytest.mark.parametrize("binary", [False, True])
def test_a_commit_that_fails_is_an_error_for_each(world: World, talk: Talk, *, binary: bool) -> None:
    talk.put("T")
    ticket_of = world.log("T")

    def commit() -> None:
        if ticket_of.ticket is not None:
            ticket_of.ticket.state, ticket_of.ticket.failure = TicketState.FAILED, "disk on fire"

    world.files.on_commit = commit
    ext = {"a": "P", "b": "T", "c": "", "d": 4, "e": 0, "f": 0, "g": 1, "h": 0, "i": "", "j": 0}
    talk.send(b"".join(talk.frame(RequestCode.SEND_MESSAGE_V2, ext, b"x", binary=binary) for _ in range(3)))
    answers = talk.hear()
    assert [(answer.code, answer.remark, answer.binary) for answer in answers] == [(1, "disk on fire", binary)] * 3
    assert [answer.opaque for answer in answers] == [2, 3, 4]
    assert talk.closed


def test_every_send_is_a_request_where_requests_are_looked_at(world: World) -> None:
    class Gate:
        def admit(self, client: object, request: object) -> Answer | None:
            return None if getattr(request, "ext", {}).get("AccessKey") == "k" else Answer(16, "who are you?")

    world.house.gate = Gate()
    talk = world.connect()
    assert talk.put("T").remark == "who are you?"
    assert talk.put("T", AccessKey="k").code == 0
