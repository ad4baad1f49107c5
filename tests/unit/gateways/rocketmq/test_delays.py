from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from polymq.core.ports import TicketState
from polymq.gateways.rocketmq.answers import Stumble
from polymq.gateways.rocketmq.delays import DEFAULT_LEVELS, Deferred, Delays, Illegal, parse_levels
from polymq.gateways.rocketmq.sends import Sending
from polymq.protocols.rocketmq import properties as names
from polymq.protocols.rocketmq.codes import ResponseCode
from polymq.protocols.rocketmq.ids import physical_offset
from polymq.protocols.rocketmq.places import Place
from polymq.protocols.rocketmq.stored import decode_stored, encode_stored, stored_room
from polymq.rocketmq_limits import DELAY_LEVELS_MAX

from .group_world import Caller, GroupWorld
from .harness import World, bodies

if TYPE_CHECKING:
    from polymq.gateways.rocketmq.answers import Answer
    from polymq.gateways.rocketmq.client import RocketmqClient
    from polymq.protocols.rocketmq.stored import StoredMessage

SECOND_NS = 1_000_000_000
NOW_MS = 1_795_212_447_899
DAY_MS = 24 * 3600 * 1000


def arrange(**properties: str) -> Deferred | Illegal | None:
    return Delays().arrange(properties, topic="T", queue_id=3, now_ms=NOW_MS)


def test_the_levels_are_those_of_rocketmq() -> None:
    levels = parse_levels(DEFAULT_LEVELS)
    assert len(levels) == 18
    assert levels[:5] == (SECOND_NS, 5 * SECOND_NS, 10 * SECOND_NS, 30 * SECOND_NS, 60 * SECOND_NS)
    assert levels[-1] == 7200 * SECOND_NS


@pytest.mark.parametrize("text", ["", "1", "s", "1w", "-1s", "1s,5s", "1.5s", " ".join(["1s"] * (DELAY_LEVELS_MAX + 1))])
def test_levels_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"no time|there must be"):
        parse_levels(text)


def test_a_level_gives_the_properties_that_a_real_broker_has_given_by_the_time_of_delivery() -> None:
    said = {"KEYS": "DELAY", "UNIQ_KEY": "FD", "CLUSTER": "DefaultCluster", "DELAY": "2", "WAIT": "true", "TAGS": "TagA"}
    assert arrange(**said) == Deferred(5 * SECOND_NS, {**said, "REAL_TOPIC": "T", "REAL_QID": "3"})


def test_a_level_above_the_last_is_the_last() -> None:
    assert arrange(DELAY="99") == Deferred(7200 * SECOND_NS, {"DELAY": "18", "REAL_TOPIC": "T", "REAL_QID": "3"})


@pytest.mark.parametrize("level", ["0", "-1", "-2147483648"])
def test_no_level_is_no_delay(level: str) -> None:
    assert arrange(DELAY=level) is None


@pytest.mark.parametrize("level", ["", "x", "1.0", " 1", "2147483648", "١", "9" * 5000])
def test_a_level_that_is_no_number_is_an_error_of_the_real_brokers_words(level: str) -> None:
    found = arrange(DELAY=level)
    assert isinstance(found, Illegal)
    assert found.code is ResponseCode.SYSTEM_ERROR
    assert found.remark.startswith('java.lang.NumberFormatException: For input string: "')
    assert len(found.remark) < 200


@pytest.mark.parametrize(
    ("properties", "delay_ns"),
    [
        ({"TIMER_DELAY_SEC": "3"}, 3 * SECOND_NS),
        ({"TIMER_DELAY_MS": "1500"}, 1_500_000_000),
        ({"TIMER_DELIVER_MS": str(NOW_MS + 250)}, 250_000_000),
        ({"TIMER_DELAY_SEC": "3", "TIMER_DELAY_MS": "1", "TIMER_DELIVER_MS": "x"}, 3 * SECOND_NS),
        ({"TIMER_DELAY_SEC": str(3 * 24 * 3600)}, 3 * 24 * 3600 * SECOND_NS),
    ],
)
def test_a_message_may_have_a_time_of_its_own(properties: dict[str, str], delay_ns: int) -> None:
    out_ms = str(NOW_MS + delay_ns // 1_000_000)
    assert arrange(**properties) == Deferred(delay_ns, {**properties, "TIMER_OUT_MS": out_ms, "REAL_TOPIC": "T", "REAL_QID": "3"})


@pytest.mark.parametrize(
    "properties",
    [{"TIMER_DELIVER_MS": str(NOW_MS)}, {"TIMER_DELIVER_MS": "-5"}, {"TIMER_DELAY_MS": "0"}, {"TIMER_DELAY_SEC": "-9223372036854775808"}],
)
def test_what_is_due_already_is_stored_at_once(properties: dict[str, str]) -> None:
    assert arrange(**properties) is None


@pytest.mark.parametrize(
    "properties",
    [
        {"TIMER_DELAY_SEC": "x"},
        {"TIMER_DELAY_MS": "1e3"},
        {"TIMER_DELIVER_MS": "99999999999999999999"},
        {"TIMER_DELAY_SEC": str(3 * 24 * 3600 + 1)},
        {"TIMER_DELIVER_MS": str(NOW_MS + 3 * DAY_MS + 1)},
        {"TIMER_DELIVER_MS": str((1 << 63) - 1)},
        {"TIMER_DELAY_SEC": str((1 << 63) - 1)},
    ],
)
def test_a_time_that_is_none_or_too_far_away_is_illegal(properties: dict[str, str]) -> None:
    found = arrange(**properties)
    assert isinstance(found, Illegal)
    assert found.code is ResponseCode.MESSAGE_ILLEGAL
    assert found.remark == (
        "timer message illegal, the delay time should not be bigger than the max delay 259200000ms; "
        "or if set del msg, the delay time should be bigger than the current time"
    )


def test_a_timer_that_recalls_another_is_refused_rather_than_delivered() -> None:
    for due_ms in (NOW_MS - 1, NOW_MS + 1):
        found = arrange(TIMER_DELIVER_MS=str(due_ms), TIMER_DEL_UNIQKEY="FD")
        assert isinstance(found, Illegal)
        assert found.code is ResponseCode.MESSAGE_ILLEGAL


def test_a_level_counts_rather_than_a_time_which_goes() -> None:
    found = arrange(DELAY="1", TIMER_DELAY_SEC="3", TIMER_DELAY_MS="4", TIMER_DELIVER_MS="5")
    assert found == Deferred(SECOND_NS, {"DELAY": "1", "REAL_TOPIC": "T", "REAL_QID": "3"})


def test_what_a_broker_has_delivered_by_time_already_is_not_delayed_again() -> None:
    assert arrange(TIMER_DELAY_SEC="3", TIMER_OUT_MS="5") is None


def test_an_operator_may_allow_longer_times() -> None:
    delays = Delays(timer_ns_max=40 * DAY_MS * 1_000_000)
    assert isinstance(delays.arrange({"TIMER_DELAY_MS": str(40 * DAY_MS)}, topic="T", queue_id=0, now_ms=NOW_MS), Deferred)
    assert isinstance(delays.arrange({"TIMER_DELAY_MS": str(40 * DAY_MS + 1)}, topic="T", queue_id=0, now_ms=NOW_MS), Illegal)


# -- with the core ---------------------------------------------------------------------------------------------------

DELAYED = b"KEYS\x01DELAY\x02UNIQ_KEY\x01FD\x02WAIT\x01true\x02DELAY\x012\x02TAGS\x01TagA"


def take(caller: Caller, properties: bytes = DELAYED, *, queue_id: int = 2) -> Answer | None:
    sending = Sending("PG1", "T", queue_id, b"delayed", properties, sysflag=0, flag=7, born_ms=NOW_MS)
    return caller.house.delays.take(cast("RocketmqClient", caller), sending)


def pull(world: GroupWorld, queue_id: int) -> list[StoredMessage]:
    """Give what is in a queue, as clients get it."""
    partition = world.broker.catalogue.topics["", "T"].partitions[queue_id]
    piece = partition.log.reader(0).take(32, 1 << 20)
    if piece is None:
        return []
    place = Place(b"T", queue_id, partition.number, b"\x7f\0\0\1", 20911, b"DefaultRegion")
    target = bytearray(stored_room(piece, place, 1 << 20))
    end, _count, _next, _scanned = encode_stored(target, 0, piece, place, None, 32, 1 << 20)
    return decode_stored(bytes(target[:end]))


@pytest.fixture
def world() -> GroupWorld:
    found = GroupWorld()
    found.house.session().create_topic("T", partitions=4)
    return found


def test_a_delayed_message_survives_a_kill_and_comes_to_its_queue_as_a_new_record(world: GroupWorld) -> None:
    answer = take(world.caller())
    assert answer is not None
    assert answer.ticket is not None
    assert answer.ticket.state is TicketState.PENDING
    world.turn()
    assert answer.ticket.state is TicketState.DONE
    number = world.broker.catalogue.topics["", "T"].partitions[2].schedule.log.number
    assert answer.code == 0
    assert (answer.ext["queueId"], answer.ext["queueOffset"]) == ("2", "0")
    assert answer.ext["msgId"] == f"7F000001000051AF{physical_offset(number, 0):016X}"
    world.turn(SECOND_NS)
    world.restart()
    world.turn(4 * SECOND_NS - 1)
    assert [pull(world, queue_id) for queue_id in range(4)] == [[], [], [], []]
    world.turn(1)
    assert [len(pull(world, queue_id)) for queue_id in range(4)] == [0, 0, 1, 0]
    (message,) = pull(world, 2)
    assert (message.body, message.flag, message.born_ms, message.born_host) == (b"delayed", 7, NOW_MS, b"\xc0\0\2\x09")
    assert (message.queue_id, message.queue_offset, message.reconsume_times) == (2, 0, 0)
    assert message.store_ms == world.clock.wall_ns() // 1_000_000
    cluster = {"CLUSTER": "DefaultCluster", "REAL_TOPIC": "T", "REAL_QID": "2"}
    assert names.parse(message.properties) == {**names.parse(DELAYED), **cluster}


def test_many_that_are_due_at_once_have_each_the_time_of_their_delivery(world: GroupWorld) -> None:
    caller = world.caller()
    for _ in range(3):
        take(caller)
    world.turn()
    world.turn(9 * SECOND_NS)
    assert [message.store_ms for message in pull(world, 2)] == [world.clock.wall_ns() // 1_000_000] * 3


def test_a_message_for_any_queue_gets_one_and_its_properties_say_which(world: GroupWorld) -> None:
    caller = world.caller()
    found = set()
    for _ in range(8):
        answer = take(caller, queue_id=-1)
        assert answer is not None
        found.add(answer.ext["queueId"])
    world.turn()
    world.turn(9 * SECOND_NS)
    assert found == {"0", "1", "2", "3"}
    for queue_id in range(4):
        assert {names.parse(message.properties)["REAL_QID"] for message in pull(world, queue_id)} == {str(queue_id)}


def test_what_is_due_at_once_is_left_to_whoever_stores_messages(world: GroupWorld) -> None:
    assert take(world.caller(), b"DELAY\x010\x02") is None
    assert take(world.caller(), b"TIMER_DELIVER_MS\x015\x02") is None


def test_what_cannot_be_is_not_taken(world: GroupWorld) -> None:
    caller = world.caller()
    with pytest.raises(Stumble):
        take(caller, b"DELAY\x01x\x02")
    codes = [take(caller, raw) for raw in (b"TIMER_DELAY_SEC\x01999999\x02", b"DELAY\x011\x02K\x01" + b"x" * 32_750)]
    assert [answer.code for answer in codes if answer is not None] == [
        ResponseCode.MESSAGE_ILLEGAL,
        ResponseCode.MESSAGE_ILLEGAL,
    ]
    world.turn(9 * SECOND_NS)
    assert pull(world, 2) == []


def test_a_pull_that_is_held_has_a_delayed_message_when_it_is_due() -> None:
    """Though nobody else says anything in that turn."""
    world = World()
    talk = world.connect()
    assert talk.put("T", b"later", properties="DELAY\x011").code == 0
    assert talk.pull("T", queue=0) is None
    world.wait(0.999)
    assert talk.hear() == []
    world.wait(0.001)
    (answer,) = talk.hear()
    assert bodies(answer) == [b"later"]
