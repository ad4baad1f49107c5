from __future__ import annotations

import pytest

from polymq.core.access import Action, Permission, Principal
from polymq.core.patterns import EVERYTHING, compile_pattern
from polymq.core.ports import TicketState
from polymq.gateways.rocketmq.returns import native
from polymq.protocols.rocketmq import properties as names
from polymq.protocols.rocketmq.codes import RequestCode, ResponseCode
from polymq.protocols.rocketmq.ids import physical_offset
from polymq.protocols.rocketmq.stored import ORIGIN_ROCKETMQ, Extra, make_message
from polymq.wire.records import Message

from .group_world import SECOND_NS, Caller, GroupWorld

BACK = RequestCode.CONSUMER_SEND_MSG_BACK
# The id of the first message of the first partition, as 127.0.0.1:20911 names it.
FIRST_ID = "7F000001000051AF0000000000000000"
PROPERTIES = "KEYS\x01KEY1\x02UNIQ_KEY\x01FD\x02CLUSTER\x01DefaultCluster\x02TAGS\x01TagA"


@pytest.fixture
def world() -> GroupWorld:
    return GroupWorld()


@pytest.fixture
def caller(world: GroupWorld) -> Caller:
    return world.caller()


def put(world: GroupWorld, *, properties: str = PROPERTIES, reconsume_times: int = 0, topic: str = "T") -> int:
    """Store a message as a client of RocketMQ has sent it; gives its physical offset."""
    session = world.house.session()
    extra = Extra(
        flag=7,
        sys_flag=1,
        born_ms=123,
        born_host=b"\x7f\0\0\1",
        born_port=5,
        reconsume_times=reconsume_times,
        properties=properties.encode(),
    )
    session.create_topic(topic, partitions=1)
    log = session.log(topic, 0)
    offset = log.end
    session.publish_messages(topic, [make_message(b"hello", extra)], origin=ORIGIN_ROCKETMQ)
    world.turn()
    return physical_offset(log.number, offset)


def stored(world: GroupWorld, topic: str) -> list[tuple[bytes, Extra]]:
    """What is in a topic of one queue."""
    found = world.broker.catalogue.topics.get(("", topic))
    if found is None:
        return []
    (partition,) = found.partitions
    return [(message.body, native(message)) for message in world.store.logs[partition.number].messages()]


def test_a_returned_message_comes_again_after_a_delay_with_the_properties_that_a_real_broker_gives_it(
    world: GroupWorld, caller: Caller
) -> None:
    offset = put(world)
    answer = caller.ask(BACK, group="CG1", offset=str(offset), delayLevel="0", originMsgId="FD", originTopic="T", maxReconsumeTimes="16")
    assert (answer.code, answer.remark, answer.body) == (0, None, b"")
    assert answer.ticket is not None
    assert answer.ticket.state is TicketState.DONE
    world.turn(10 * SECOND_NS - 1)
    assert stored(world, "%RETRY%CG1") == []
    world.turn(1)
    ((body, extra),) = stored(world, "%RETRY%CG1")
    assert body == b"hello"
    assert (extra.flag, extra.sys_flag, extra.born_ms, extra.born_port, extra.reconsume_times) == (7, 1, 123, 5, 1)
    assert names.parse(extra.properties) == {
        "REAL_TOPIC": "%RETRY%CG1",
        "ORIGIN_MESSAGE_ID": FIRST_ID,
        "RETRY_TOPIC": "T",
        "KEYS": "KEY1",
        "UNIQ_KEY": "FD",
        "CLUSTER": "DefaultCluster",
        "WAIT": "false",
        "DELAY": "3",
        "TAGS": "TagA",
        "REAL_QID": "0",
    }


def test_it_is_answered_only_when_that_is_durable(world: GroupWorld, caller: Caller) -> None:
    offset = put(world)
    world.store.commit = lambda: None  # type: ignore[method-assign]
    answer = caller.ask(BACK, group="G", offset=str(offset), delayLevel="0")
    assert answer.ticket is not None
    assert answer.ticket.state is TicketState.PENDING


def test_what_was_returned_survives_a_kill_and_the_delays_grow_with_the_attempts(world: GroupWorld, caller: Caller) -> None:
    offset = put(world)
    caller.ask(BACK, group="G", offset=str(offset), delayLevel="0")
    world.restart()
    world.turn(10 * SECOND_NS)
    assert [extra.reconsume_times for _body, extra in stored(world, "%RETRY%G")] == [1]
    (retry,) = world.broker.catalogue.topics["", "%RETRY%G"].partitions
    world.caller().ask(BACK, group="G", offset=str(physical_offset(retry.number, 0)), delayLevel="0", originTopic="T")
    world.turn(30 * SECOND_NS - 1)
    assert len(stored(world, "%RETRY%G")) == 1
    world.turn(1)
    _body, extra = stored(world, "%RETRY%G")[1]
    properties = names.parse(extra.properties)
    assert (extra.reconsume_times, properties["DELAY"], properties["RETRY_TOPIC"]) == (2, "4", "T")
    assert properties["ORIGIN_MESSAGE_ID"] == FIRST_ID


@pytest.mark.parametrize(("level", "seconds", "shown"), [("1", 1, "1"), ("18", 7200, "18"), ("99", 7200, "18")])
def test_a_consumer_may_choose_the_delay(world: GroupWorld, caller: Caller, level: str, seconds: int, shown: str) -> None:
    caller.ask(BACK, group="G", offset=str(put(world)), delayLevel=level)
    world.turn(seconds * SECOND_NS - 1)
    assert stored(world, "%RETRY%G") == []
    world.turn(1)
    ((_body, extra),) = stored(world, "%RETRY%G")
    assert names.parse(extra.properties)["DELAY"] == shown


@pytest.mark.parametrize(
    ("level", "times", "ext", "version"),
    [
        ("-1", 0, {}, 409),
        ("0", 16, {}, 409),
        ("0", 3, {"maxReconsumeTimes": "3"}, 409),
        ("0", 0, {"maxReconsumeTimes": "0"}, 121),
        ("5", 16, {"maxReconsumeTimes": "99"}, 120),
    ],
)
def test_what_was_tried_too_often_is_given_up(
    world: GroupWorld, caller: Caller, level: str, times: int, ext: dict[str, str], version: int
) -> None:
    offset = put(world, reconsume_times=times)
    answer = caller.ask(BACK, version=version, group="G", offset=str(offset), delayLevel=level, said=ext)
    assert answer.code == 0
    ((_body, extra),) = stored(world, "%DLQ%G")
    assert extra.reconsume_times == times + 1
    assert names.parse(extra.properties) == {
        **names.parse(PROPERTIES.encode()),
        "RETRY_TOPIC": "T",
        "ORIGIN_MESSAGE_ID": FIRST_ID,
        "WAIT": "false",
        "DELAY": "0",
    }
    assert stored(world, "%RETRY%G") == []


@pytest.mark.parametrize(
    ("times", "ext", "version"), [(3, {"maxReconsumeTimes": "3"}, 120), (15, {}, 409), (16, {"maxReconsumeTimes": "17"}, 121)]
)
def test_an_old_client_has_no_say_in_how_often(world: GroupWorld, caller: Caller, times: int, ext: dict[str, str], version: int) -> None:
    caller.ask(BACK, version=version, group="G", offset=str(put(world, reconsume_times=times)), delayLevel="0", said=ext)
    world.turn(7200 * SECOND_NS)
    assert [len(stored(world, topic)) for topic in ("%RETRY%G", "%DLQ%G")] == [1, 0]


def test_messages_of_other_protocols_can_be_returned_as_well(world: GroupWorld, caller: Caller) -> None:
    session = world.house.session()
    session.create_topic("a.b", partitions=1)
    message = Message(b"x", key=b"k", headers=((b"name", b"value"), (b"none", b"va\x01lue")))
    session.publish_messages("a.b", [message], origin=3)
    world.turn()
    assert caller.ask(BACK, group="G", offset=str(physical_offset(session.log("a.b", 0).number, 0)), delayLevel="1").code == 0
    world.turn(SECOND_NS)
    ((body, extra),) = stored(world, "%RETRY%G")
    assert (body, extra.born_ms) == (b"x", world.clock.wall_ns() // 1_000_000 - 1000)
    found = names.parse(extra.properties)
    assert (found["KEYS"], found["name"], found.get("none"), found["RETRY_TOPIC"]) == ("k", "value", None, "a%2Eb")


@pytest.mark.parametrize("group", [" ", "a b", "x" * 121])
def test_a_group_that_cannot_be_is_unknown(world: GroupWorld, caller: Caller, group: str) -> None:
    answer = caller.ask(BACK, group=group, offset=str(put(world)), delayLevel="0")
    assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    assert answer.remark is not None
    assert answer.remark.startswith(f"subscription group not exist, {group}")


def test_nothing_is_found_for_a_group_without_a_name(world: GroupWorld, caller: Caller) -> None:
    answer = caller.ask(BACK, group="", offset=str(put(world)), delayLevel="0")
    assert (answer.code, (answer.remark or "").split(",")[0]) == (ResponseCode.SYSTEM_ERROR, "look message by offset failed")


@pytest.mark.parametrize("offset", ["5", "-1", "9223372036854775807", "4503599627370496"])
def test_a_message_that_is_not_there_is_an_error_in_the_real_brokers_words(world: GroupWorld, caller: Caller, offset: str) -> None:
    put(world)
    answer = caller.ask(BACK, group="G", offset=offset, delayLevel="0")
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {offset}")


@pytest.mark.parametrize("ext", [{}, {"group": "G"}, {"group": "G", "offset": "x", "delayLevel": "0"}, {"group": "G", "offset": "0"}])
def test_a_request_without_what_it_needs_is_an_error(caller: Caller, ext: dict[str, str]) -> None:
    assert caller.ask(BACK, said=ext).code == ResponseCode.SYSTEM_ERROR


def test_properties_that_become_too_large_are_an_error(world: GroupWorld, caller: Caller) -> None:
    offset = put(world, properties="K\x01" + "x" * 32_700)
    answer = caller.ask(BACK, group="G", offset=str(offset), delayLevel="0")
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "MESSAGE_ILLEGAL")


def test_who_is_in_no_group_returns_nothing_and_whoever_is_needs_no_other_right() -> None:
    rights = (
        Permission(frozenset({Action.SUBSCRIBE}), EVERYTHING, (compile_pattern("^G$"),)),
        Permission(frozenset({Action.PUBLISH, Action.READ, Action.MANAGE}), compile_pattern("^T$"), ()),
    )
    world = GroupWorld(principal=Principal("someone", permissions=rights))
    caller = world.caller()
    offset = str(put(world))
    assert caller.ask(BACK, group="H", offset=offset, delayLevel="0").code == ResponseCode.NO_PERMISSION
    assert caller.ask(BACK, group="G", offset=offset, delayLevel="-1").code == 0
