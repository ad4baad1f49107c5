from __future__ import annotations

import pytest

from polymq.core.access import Action, Permission, Principal
from polymq.core.patterns import EVERYTHING
from polymq.protocols.rocketmq.codes import RequestCode, ResponseCode
from polymq.protocols.rocketmq.ids import parse_offset_message_id, physical_offset
from polymq.protocols.rocketmq.properties import parse
from polymq.wire.records import Message

from .harness import Talk, World, bodies, messages

FOREVER = (1 << 63) - 1


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def talk(world: World) -> Talk:
    return world.connect()


def ask(key: str, *, topic: str = "T", most: int = 32, begin: int = 0, end: int = FOREVER, unique: bool = False) -> dict[str, object]:
    said: dict[str, object] = {"topic": topic, "key": key, "maxNum": most, "beginTimestamp": begin, "endTimestamp": end}
    return said | ({"_UNIQUE_KEY_QUERY": "true"} if unique else {})


def test_a_message_is_found_by_its_id(talk: Talk) -> None:
    talk.put("T", b"other")
    found = parse_offset_message_id(talk.put("T", b"that one").ext["msgId"])
    assert found is not None
    assert bodies(talk.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": found[2]})) == [b"that one"]
    for physical in (found[2] + 1, -1, 1 << 60, physical_offset(4000, 0)):
        answer = talk.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": physical})
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark is not None
        assert str(physical) in answer.remark


def test_a_message_that_waits_is_found_by_its_id(world: World, talk: Talk) -> None:
    ids = [
        talk.put("T", body, queue=2, properties=f"{later}\x02").ext["msgId"]
        for body, later in ((b"a", "DELAY\x013"), (b"b", "TIMER_DELAY_SEC\x015"))
    ]
    stranger = world.connect()
    stranger.client.session = world.broker.session(Principal("x", "elsewhere"))
    found = [parse_offset_message_id(each) for each in ids]
    for after_s in (0, 20):
        world.wait(after_s)
        for place, queue, body in zip(found, (2, 0), (b"a", b"b"), strict=True):
            assert place is not None
            (message,) = messages(talk.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": place[2]}))
            assert (message.topic, message.queue_id, message.body) == ("SCHEDULE_TOPIC_XXXX", queue, body)
            assert parse(message.properties)["REAL_TOPIC"] == "T"
            assert stranger.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": place[2]}).code == ResponseCode.SYSTEM_ERROR
    place = found[0]
    assert place is not None
    assert talk.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": place[2] + 7}).code == ResponseCode.SYSTEM_ERROR
    talk.client.session.delete_topic("T")
    assert talk.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": place[2]}).code == ResponseCode.SYSTEM_ERROR


def test_a_message_on_the_disk_is_waited_for_and_goes_with_its_asker(world: World, talk: Talk) -> None:
    found = parse_offset_message_id(talk.put("T", b"cold").ext["msgId"])
    assert found is not None
    other = world.connect()
    world.log("T").cold = True
    for each in (talk, other):
        each.send(each.frame(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": found[2]}))
    assert (talk.hear(), len(world.house.jobs)) == ([], 2)
    other.stream.input_ended = True
    world.pump.readable(other.connection)
    assert len(world.house.jobs) == 1
    world.log("T").cold = False
    world.turn()
    (answer,) = talk.hear()
    assert bodies(answer) == [b"cold"]
    assert len(world.house.jobs) == 0


def test_messages_are_found_by_one_of_their_keys(talk: Talk) -> None:
    talk.put("T", b"a", properties="KEYS\x01k1 k2\x02", queue=0)
    talk.put("T", b"b", properties="KEYS\x01k2\x02", queue=1)
    talk.put("T", b"c", properties="KEYS\x01k22\x02TAGS\x01k2\x02", queue=2)
    talk.put("T", b"k2", queue=3)
    answer = talk.ask(RequestCode.QUERY_MESSAGE, ask("k2"))
    assert sorted(bodies(answer)) == [b"a", b"b"]
    assert int(answer.ext["indexLastUpdateTimestamp"]) > 0
    assert int(answer.ext["indexLastUpdatePhyoffset"]) >= 0
    assert len(bodies(talk.ask(RequestCode.QUERY_MESSAGE, ask("k2", most=1)))) == 1
    assert talk.ask(RequestCode.QUERY_MESSAGE, ask("k3")).code == ResponseCode.QUERY_NOT_FOUND
    assert talk.ask(RequestCode.QUERY_MESSAGE, ask("k2", topic="U")).code == ResponseCode.QUERY_NOT_FOUND
    assert talk.ask(RequestCode.QUERY_MESSAGE, ask("")).code == ResponseCode.QUERY_NOT_FOUND


def test_a_unique_key_is_a_key_as_well_and_the_other_way_round(talk: Talk) -> None:
    talk.put("T", b"a", properties="UNIQ_KEY\x01u1\x02KEYS\x01k\x02")
    talk.put("T", b"b", properties="KEYS\x01u1\x02")
    assert bodies(talk.ask(RequestCode.QUERY_MESSAGE, ask("u1", unique=True))) == [b"a"]
    assert bodies(talk.ask(RequestCode.QUERY_MESSAGE, ask("u1"))) == [b"a", b"b"]
    talk.put("T", b"c", properties="KEYS\x01k l\x02")
    assert bodies(talk.ask(RequestCode.QUERY_MESSAGE, ask("k", unique=True))) == [b"a", b"c"]


def test_the_time_range_counts(world: World, talk: Talk) -> None:
    times = []
    for body in (b"a", b"b", b"c"):
        talk.put("T", body, properties="KEYS\x01k\x02")
        times.append(world.log("T").last_time_ns // 1_000_000)
        world.wait(10)
    query = RequestCode.QUERY_MESSAGE
    assert bodies(talk.ask(query, ask("k", begin=times[1]))) == [b"b", b"c"]
    assert bodies(talk.ask(query, ask("k", end=times[1]))) == [b"a", b"b"]
    assert bodies(talk.ask(query, ask("k", begin=times[0] + 1, end=times[2] - 1))) == [b"b"]


def test_keys_of_others_messages_are_found(world: World, talk: Talk) -> None:
    """As RocketMQ's clients are shown them: a key of several words, or a header KEYS."""
    others = [Message(b"x", key=b"k"), Message(b"y", key=b"j k"), Message(b"z", headers=((b"KEYS", b"k"),)), Message(b"no", key=b"kk")]
    world.core.session.publish_messages("T", [*others, Message(b"no", headers=((b"UNIQ_KEY", b"k"),))], origin=3)
    world.turn()
    assert bodies(talk.ask(RequestCode.QUERY_MESSAGE, ask("k"))) == [b"x", b"y", b"z"]


def test_a_query_goes_on_over_turns_and_meets_the_disk(world: World, talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("polymq.gateways.rocketmq.queries.QUERY_PIECE_SIZE_BYTES", 1)
    for index in range(20):
        talk.put("T", b"%d" % index, properties="KEYS\x01k\x02" if index in (0, 19) else "")
    world.log("T").cold = True
    talk.send(talk.frame(RequestCode.QUERY_MESSAGE, ask("k")))
    assert talk.hear() == []
    world.log("T").cold = False
    world.turn()
    (answer,) = talk.hear()
    assert bodies(answer) == [b"0", b"19"]


@pytest.mark.parametrize(("limit", "value"), [("QUERY_SIZE_BYTES_MAX", 10), ("QUERY_NS_MAX", -1)])
def test_a_query_ends(world: World, talk: Talk, monkeypatch: pytest.MonkeyPatch, limit: str, value: int) -> None:
    monkeypatch.setattr("polymq.gateways.rocketmq.queries.QUERY_PIECE_SIZE_BYTES", 1)
    monkeypatch.setattr(f"polymq.gateways.rocketmq.queries.{limit}", value)
    for index in range(3):
        talk.put("T", b"%d" % index, properties="KEYS\x01k\x02")
    assert bodies(talk.ask(RequestCode.QUERY_MESSAGE, ask("k"))) == [b"0"]


def test_an_answer_has_so_many_messages_and_bytes(world: World, talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(70):
        talk.put("T", b"x", properties="KEYS\x01k\x02")
    assert len(bodies(talk.ask(RequestCode.QUERY_MESSAGE, ask("k", most=1000)))) == 64
    monkeypatch.setattr("polymq.gateways.rocketmq.queries.QUERY_ANSWER_SIZE_BYTES_MAX", 10)
    assert len(bodies(talk.ask(RequestCode.QUERY_MESSAGE, ask("k")))) == 1


def test_too_many_questions_are_refused(world: World, talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("polymq.gateways.rocketmq.jobs.JOBS_PER_CONNECTION_MAX", 1)
    talk.put("T")
    world.log("T").cold = True
    talk.send(talk.frame(RequestCode.QUERY_MESSAGE, ask("k")))
    assert talk.ask(RequestCode.QUERY_MESSAGE, ask("k")).code == ResponseCode.SYSTEM_BUSY
    monkeypatch.setattr("polymq.gateways.rocketmq.jobs.JOBS_MAX", 1)
    physical = physical_offset(world.log("T").number, 0)
    assert world.connect().ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": physical}).code == ResponseCode.SYSTEM_BUSY


def test_whoever_may_not_read_is_told(world: World, talk: Talk) -> None:
    found = parse_offset_message_id(talk.put("T").ext["msgId"])
    assert found is not None
    only = Permission(frozenset({Action.PUBLISH}), EVERYTHING, (EVERYTHING,))
    world.house.principal = Principal("x", permissions=(only,))
    other = world.connect()
    assert other.ask(RequestCode.QUERY_MESSAGE, ask("k")).code == ResponseCode.NO_PERMISSION
    assert other.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": found[2]}).code == ResponseCode.NO_PERMISSION


def test_what_was_put_back_by_others_is_found_once(world: World, talk: Talk) -> None:
    world.core.session.publish_messages("T", [Message(b"x", key=b"k")], origin=3)
    world.turn()
    world.core.renew("T", Message(b"x", key=b"k"))
    assert bodies(talk.ask(RequestCode.QUERY_MESSAGE, ask("k"))) == [b"x"]
