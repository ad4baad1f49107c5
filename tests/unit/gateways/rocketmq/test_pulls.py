from __future__ import annotations

import pytest

from polymq.core.access import Action, Permission, Principal
from polymq.core.patterns import EVERYTHING
from polymq.gateways.rocketmq.answers import SEE
from polymq.protocols.rocketmq.codes import PullFlag, RequestCode, ResponseCode
from polymq.protocols.rocketmq.names import tag_hash
from polymq.rocketmq_limits import PULL_SCAN_RECORDS_MAX
from polymq.wire.batch import Message
from polymq.wire.left_out import EXPIRED, HEADER
from polymq.wire.slices import MessageBatch
from tests.unit.core.fakes import FakeReader

from .harness import MS, SECOND_NS, Members, Talk, Told, World, bodies, messages

FIELDS = {"suggestWhichBrokerId", "nextBeginOffset", "minOffset", "maxOffset"}


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def talk(world: World) -> Talk:
    return world.connect()


@pytest.mark.parametrize("code", [RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE])
@pytest.mark.parametrize("binary", [False, True])
def test_messages_that_are_there_come_at_once(talk: Talk, code: int, *, binary: bool) -> None:
    for body in (b"a", b"b", b"c"):
        talk.put("T", body)
    ext: dict[str, object] = {"consumerGroup": "G", "topic": "T", "queueId": 0, "queueOffset": 1, "maxMsgNums": 32, "sysFlag": 0}
    answer = talk.ask(code, ext, binary=binary)
    assert bodies(answer) == [b"b", b"c"]
    assert answer.ext == {"suggestWhichBrokerId": "0", "nextBeginOffset": "3", "minOffset": "0", "maxOffset": "3"}
    assert [message.queue_offset for message in messages(answer)] == [1, 2]


def test_as_many_come_as_are_asked_for_and_never_more_than_32(talk: Talk) -> None:
    for index in range(40):
        talk.put("T", b"%d" % index)
    assert len(bodies(talk.pull("T", maxMsgNums=5))) == 5
    assert len(bodies(talk.pull("T", maxMsgNums=100))) == 32
    assert bodies(talk.pull("T", 39, maxMsgNums=0)) == [b"39"]


def test_an_answer_has_so_many_bytes_and_one_message_in_any_case(talk: Talk) -> None:
    for _ in range(3):
        talk.put("T", b"x" * 200_000)
    assert len(bodies(talk.pull("T"))) == 1
    assert len(bodies(talk.pull("T", maxMsgBytes=10))) == 1
    answer = talk.pull("T", 1, maxMsgBytes=262144)
    assert answer is not None
    assert answer.ext["nextBeginOffset"] == "2"


@pytest.mark.parametrize(
    ("offset", "remark", "code", "after"),
    [(0, "FOUND", 0, 2), (2, "OFFSET_OVERFLOW_ONE", 19, 2), (3, "OFFSET_OVERFLOW_BADLY", 21, 2), (-1, "OFFSET_TOO_SMALL", 21, 0)],
)
def test_where_to_go_on(talk: Talk, offset: int, remark: str, code: int, after: int) -> None:
    talk.put("T")
    talk.put("T")
    answer = talk.pull("T", offset, flags=0)
    assert answer is not None
    assert (answer.code, answer.ext["nextBeginOffset"]) == (code, str(after))
    assert set(answer.ext) == FIELDS
    assert answer.remark == remark or code == 0


def test_a_queue_that_never_had_anything(talk: Talk) -> None:
    talk.put("T", queue=1)
    answer = talk.pull("T", 0, flags=0)
    assert answer is not None
    assert (answer.code, answer.remark, set(answer.ext)) == (19, "NO_MESSAGE_IN_QUEUE", FIELDS)
    answer = talk.pull("T", 5, flags=0)
    assert answer is not None
    assert (answer.code, answer.ext["nextBeginOffset"]) == (21, "0")


def test_what_was_dropped_begins_later(world: World, talk: Talk) -> None:
    for _ in range(3):
        talk.put("T")
    world.log("T").start = 2
    answer = talk.pull("T", 0, flags=0)
    assert answer is not None
    assert (answer.code, answer.ext["nextBeginOffset"], answer.ext["minOffset"]) == (21, "2", "2")


def test_a_pull_waits_for_a_message_and_gets_it_in_its_turn(world: World, talk: Talk) -> None:
    talk.put("T", b"a")
    assert talk.pull("T", 1) is None
    other = world.connect()
    other.put("T", b"elsewhere", queue=1)
    assert talk.hear() == []
    other.put("T", b"b")
    (answer,) = talk.hear()
    assert bodies(answer) == [b"b"]
    assert not talk.client.pulls
    assert world.house.holds.count == 0


def test_a_pull_that_waits_in_vain_is_told_after_its_time(world: World, talk: Talk) -> None:
    talk.put("T")
    assert talk.pull("T", 1, suspendTimeoutMillis=2000) is None
    assert talk.pull("T", 1, suspendTimeoutMillis=60_000, group="H") is None
    world.wait(1.9)
    assert talk.hear() == []
    world.wait(0.2)
    (answer,) = talk.hear()
    assert (answer.code, answer.ext["nextBeginOffset"], set(answer.ext)) == (19, "1", FIELDS)
    world.wait(22.8)
    assert talk.hear() == []
    world.wait(0.2)
    (answer,) = talk.hear()
    assert answer.code == 19


def test_tags_are_filtered_by_what_the_pull_wants(talk: Talk) -> None:
    for index, tag in enumerate(["A", "B", "", "A"]):
        talk.put("T", b"%d" % index, properties=f"TAGS\x01{tag}\x02" if tag else "")
    wants = int(PullFlag.SUBSCRIPTION)
    assert bodies(talk.pull("T", flags=wants, subscription="A")) == [b"0", b"3"]
    assert bodies(talk.pull("T", flags=wants, subscription="A || B")) == [b"0", b"1", b"3"]
    assert bodies(talk.pull("T", flags=wants, subscription="*")) == [b"0", b"1", b"2", b"3"]
    assert bodies(talk.pull("T", flags=wants)) == [b"0", b"1", b"2", b"3"]
    answer = talk.pull("T", flags=wants, subscription="C")
    assert answer is not None
    assert (answer.code, answer.remark, answer.ext["nextBeginOffset"]) == (20, "NO_MATCHED_MESSAGE", "4")
    answer = talk.pull("T", flags=wants, subscription="a > 1", expressionType="SQL92")
    assert answer is not None
    assert answer.code == ResponseCode.SYSTEM_ERROR


def test_a_pull_that_waits_goes_on_waiting_for_its_tag(world: World, talk: Talk) -> None:
    talk.put("T")
    flags = int(PullFlag.SUBSCRIPTION | PullFlag.SUSPEND)
    assert talk.pull("T", 1, flags=flags, subscription="A", suspendTimeoutMillis=5000) is None
    other = world.connect()
    other.put("T", properties="TAGS\x01B")
    assert talk.hear() == []
    other.put("T", b"mine", properties="TAGS\x01A")
    (answer,) = talk.hear()
    assert bodies(answer) == [b"mine"]
    assert talk.pull("T", 3, flags=flags, subscription="A", suspendTimeoutMillis=5000) is None
    other.put("T", properties="TAGS\x01B")
    world.wait(5)
    (answer,) = talk.hear()
    assert (answer.code, answer.ext["nextBeginOffset"]) == (20, "4")


def test_a_filter_looks_at_so_many_only(world: World, talk: Talk) -> None:
    count = PULL_SCAN_RECORDS_MAX + 10
    talk.put("T")
    partition = world.broker.catalogue.topics["", "T"].partitions[0]
    partition.append(MessageBatch.of([b""] * count), wall_ns=0, origin=1)
    world.core.store.commit()
    answer = talk.pull("T", flags=int(PullFlag.SUBSCRIPTION), subscription="A")
    assert answer is not None
    assert answer.code == 20
    assert 1 < int(answer.ext["nextBeginOffset"]) <= count


def test_messages_of_others_come_as_they_can_be_told(world: World, talk: Talk) -> None:
    world.core.session.publish("made.elsewhere", MessageBatch.of([b"one", b"two"]), origin=1)
    world.turn()
    found = messages(talk.pull("made%2Eelsewhere"))
    assert [(message.body, message.topic) for message in found] == [(b"one", "made%2Eelsewhere"), (b"two", "made%2Eelsewhere")]
    answer = talk.pull("made%2Eelsewhere", queue=1)
    assert answer is not None
    assert answer.code == ResponseCode.SYSTEM_ERROR


def test_without_a_topic_a_queue_or_the_right(world: World, talk: Talk) -> None:
    answer = talk.pull("T")
    assert answer is not None
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST
    talk.put("T")
    for queue in (4, -1):
        answer = talk.pull("T", queue=queue)
        assert answer is not None
        assert (answer.code, "queueId" in (answer.remark or "")) == (1, True)
    world.house.principal = Principal("x", permissions=(Permission(frozenset({Action.PUBLISH}), EVERYTHING, (EVERYTHING,)),))
    answer = world.connect().pull("T")
    assert answer is not None
    assert answer.code == ResponseCode.NO_PERMISSION


def test_the_subscription_of_the_group_counts(world: World) -> None:
    members = Members()
    world.house.members = members
    talk = world.connect()
    talk.put("T", b"a", properties="TAGS\x01A")
    talk.put("T", b"b", properties="TAGS\x01B")
    answer = talk.pull("T")
    assert answer is not None
    assert (answer.code, answer.remark) == (24, f"the consumer's group info not exist{SEE}")
    members.told["G", "U"] = Told()
    answer = talk.pull("T")
    assert answer is not None
    assert (answer.code, answer.remark) == (24, f"the consumer's subscription not exist{SEE}")
    members.told["G", "T"] = Told(codes=frozenset({tag_hash("B")}))
    assert bodies(talk.pull("T")) == [b"b"]
    members.told["G", "T"] = Told(codes=frozenset())
    assert bodies(talk.pull("T")) == [b"a", b"b"]
    members.told["G", "T"] = Told(expression_type="SQL92")
    answer = talk.pull("T")
    assert answer is not None
    assert (answer.code, answer.remark) == (1, "The broker does not support consumer to filter message by SQL92")


def test_a_newer_subscription_is_waited_for(world: World) -> None:
    members = Members()
    world.house.members = members
    talk = world.connect()
    talk.put("T", b"a", properties="TAGS\x01A")
    members.told["G", "T"] = Told(version=1)
    assert talk.pull("T", subVersion=2) is None
    world.house.holds.heard("H")
    world.turn()
    assert talk.hear() == []
    members.told["G", "T"] = Told(version=2)
    world.house.holds.heard("G")
    world.turn()
    (answer,) = talk.hear()
    assert bodies(answer) == [b"a"]
    assert talk.pull("T", subVersion=3) is None
    world.wait(1.1)
    (answer,) = talk.hear()
    assert (answer.code, answer.remark) == (25, "the consumer's subscription not latest")
    assert world.house.holds.count == 0


def test_the_wait_for_a_heartbeat_does_not_shorten_the_wait_for_messages(world: World) -> None:
    members = Members()
    world.house.members = members
    talk = world.connect()
    talk.put("T")
    members.told["G", "T"] = Told(version=1)
    assert talk.pull("T", 1, subVersion=2, suspendTimeoutMillis=10_000) is None
    world.wait(0.5)
    members.told["G", "T"] = Told(version=2)
    world.house.holds.heard("G")
    world.wait(9.9)
    assert talk.hear() == []
    world.wait(0.2)
    (answer,) = talk.hear()
    assert answer.code == 19


def test_a_pull_commits_on_the_way(world: World, talk: Talk) -> None:
    talk.put("T")
    talk.pull("T", flags=int(PullFlag.COMMIT_OFFSET), commitOffset=1)
    assert world.core.session.committed("T", "G")[0] == 1
    talk.pull("T", flags=0, commitOffset=0)
    assert world.core.session.committed("T", "G")[0] == 1


def test_each_group_reads_on_by_itself(world: World, talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    seeks = []
    seek = FakeReader.seek

    def note(reader: FakeReader, offset: int) -> None:
        seeks.append(offset)
        seek(reader, offset)

    monkeypatch.setattr(FakeReader, "seek", note)
    for index in range(6):
        talk.put("T", b"%d" % index)
    for offset in range(0, 6, 2):
        for group in ("G", "H"):
            assert len(bodies(talk.pull("T", offset, group=group, maxMsgNums=2))) == 2
    assert seeks == []


def test_the_time_of_a_pull_counts_from_when_it_came(world: World, talk: Talk) -> None:
    talk.put("T")
    assert talk.pull("T", 1, suspendTimeoutMillis=1000) is None
    begun = world.clock.now_ns
    world.wait(3)
    assert len(talk.hear()) == 1
    assert world.clock.now_ns - begun >= 3000 * MS


@pytest.mark.parametrize("field", ["queueId", "queueOffset", "maxMsgNums", "sysFlag", "maxMsgBytes", "suspendTimeoutMillis", "subVersion"])
def test_numbers_that_are_none_are_named(talk: Talk, field: str) -> None:
    talk.put("T")
    for text in ("x", "9" * 19, "-" + "9" * 30, "9" * 5000):
        answer = talk.pull("T", 0, **{field: text})
        assert answer is not None
        assert (answer.code, f"<{field}>" in (answer.remark or "")) == (1, True)
    if field in {"queueId", "queueOffset", "maxMsgNums", "sysFlag"}:
        talk.send(
            talk.frame(
                RequestCode.PULL_MESSAGE,
                {"consumerGroup": "G", "topic": "T", "queueId": 0, "queueOffset": 0, "maxMsgNums": 1, "sysFlag": 0} | {field: ""},
            )
        )
        (answer,) = talk.hear()
        assert answer.code == 1


def test_an_offset_far_below_zero_is_moved(talk: Talk) -> None:
    talk.put("T")
    answer = talk.pull("T", -(1 << 62))
    assert answer is not None
    assert (answer.code, answer.ext["nextBeginOffset"]) == (21, "0")


def test_what_cannot_be_read_is_an_error_and_not_an_empty_queue(world: World, talk: Talk) -> None:
    talk.put("T")
    world.log("T").failed = "damaged"
    answer = talk.pull("T")
    assert answer is not None
    assert (answer.code, answer.remark) == (1, "damaged")
    assert not talk.client.pulls


@pytest.mark.parametrize("held", [False, True])
def test_a_bug_of_ours_ends_a_pull_and_nothing_else(world: World, talk: Talk, monkeypatch: pytest.MonkeyPatch, *, held: bool) -> None:
    talk.put("T")
    if held:
        assert talk.pull("T", 1) is None

    def fail(*_args: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("polymq.gateways.rocketmq.pulls.encode_stored", fail)
    if held:
        world.connect().put("T")
        (answer,) = talk.hear()
    else:
        found = talk.pull("T")
        assert found is not None
        answer = found
    assert (answer.code, answer.remark) == (1, "internal error")
    assert world.house.holds.count == 0
    monkeypatch.undo()
    assert len(bodies(talk.pull("T"))) == 1 + held


def test_a_pull_passes_over_what_is_over_by_its_own_time(world: World, talk: Talk) -> None:
    session = talk.client.session
    session.create_topic("T", partitions=1)
    end_ns = world.clock.wall_ns() + 10 * SECOND_NS
    session.publish_messages("T", [Message(b"short", expiry_ns=end_ns), Message(b"long", headers=((b"", b"v"),))], origin=4)
    world.turn()
    assert bodies(talk.pull("T")) == [b"short", b"long"]
    world.wait(10)
    assert bodies(talk.pull("T")) == [b"long"]
    counts = world.broker.left_out.of("rocketmq")
    assert (counts[EXPIRED], counts[HEADER]) == (1, 2)
    # All of it is over: the client is told to go on behind it.
    session.publish_messages("T", [Message(b"over", expiry_ns=1)], origin=4)
    world.turn()
    answer = talk.pull("T", 2)
    assert answer is not None
    assert (answer.code, answer.ext["nextBeginOffset"]) == (ResponseCode.PULL_RETRY_IMMEDIATELY, "3")


@pytest.mark.parametrize(("most", "count"), [(0, 5), (100, 1), (600, 1), (1100, 2), (1600, 3)])
def test_messages_come_from_one_piece_of_the_log_after_the_other(
    talk: Talk, monkeypatch: pytest.MonkeyPatch, most: int, count: int
) -> None:
    for number in range(5):
        talk.put("T", b"%d" % number * 400)
    take = FakeReader.take
    monkeypatch.setattr(FakeReader, "take", lambda self, _count_max, size_max: take(self, 1, size_max))
    answer = talk.pull("T", maxMsgBytes=most)
    assert [body[:1] for body in bodies(answer)] == [b"0", b"1", b"2", b"3", b"4"][:count]
    assert answer is not None
    assert answer.ext["nextBeginOffset"] == str(count)
    rest = talk.pull("T", count, maxMsgNums=1)
    assert (count == 5 and rest is None) or [body[:1] for body in bodies(rest)] == [b"%d" % count]


@pytest.mark.parametrize("field", ["queueId", "queueOffset", "maxMsgNums", "sysFlag", "maxMsgBytes", "suspendTimeoutMillis", "subVersion"])
@pytest.mark.parametrize("text", [" 0", "0 ", "0_0", "", "1.0", "0x0"])
def test_numbers_are_what_java_takes_for_numbers(talk: Talk, field: str, text: str) -> None:
    talk.put("T")
    answer = talk.pull("T", **{field: text})  # type: ignore[arg-type]
    assert answer is not None
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, f"the custom field <{field}> is no number")
    assert bodies(talk.pull("T", maxMsgNums="+32", commitOffset="-1")) == [b"x"]


def test_a_pull_that_commits_says_what(talk: Talk) -> None:
    talk.put("T")
    said = {"consumerGroup": "G", "topic": "T", "queueId": 0, "queueOffset": 0, "maxMsgNums": 32}
    assert bodies(talk.ask(RequestCode.PULL_MESSAGE, said | {"sysFlag": 0})) == [b"x"]
    answer = talk.ask(RequestCode.PULL_MESSAGE, said | {"sysFlag": 1})
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "the custom field <commitOffset> is null")


def test_what_was_put_back_by_others_comes_once(world: World, talk: Talk) -> None:
    """A copy that PHPMQ's 005 has made for its group: offsets go on behind it, as behind what a filter leaves out."""
    talk.put("T", b"a")
    world.core.renew("T", Message(b"a"))
    talk.put("T", b"b")
    world.core.renew("T", Message(b"b"))
    answer = talk.pull("T", 0)
    assert bodies(answer) == [b"a", b"b"]
    assert [message.queue_offset for message in messages(answer)] == [0, 2]
    answer = talk.pull("T", 3, flags=0)
    assert answer is not None
    assert (answer.code, answer.ext["nextBeginOffset"]) == (ResponseCode.PULL_RETRY_IMMEDIATELY, "4")
