"""RocketMQ, frame by frame: what polymq answers to good and bad requests is what a real nameserver and broker (4.9) answer.

Every case is played on both. Where polymq answers otherwise and means to, it is listed with the reason in `rocketmq_differences.toml`, with
its own answer; a line there that is no longer needed fails as well.
"""

from __future__ import annotations

import difflib
import json
import time
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.interop.rocketmq_dialogue import Cases, Stage, lying, pull, request, send, send_long
from tests.interop.rocketmq_raw import BINARY, batch_body, properties, raw_frame
from tests.interop.rocketmq_servers import POLYMQ, rocketmq_server

if TYPE_CHECKING:
    from collections.abc import Callable

CASES = Cases()
case = CASES.case
REAL = "rocketmq-4.9"
DIFFERENCES: list[dict[str, Any]] = tomllib.loads(Path(__file__).with_name("rocketmq_differences.toml").read_text(encoding="utf-8")).get(
    "difference", []
)
Transcripts = dict[str, dict[str, list[str]]]
ONEWAY = 2


@pytest.fixture(scope="module")
def transcripts(tmp_path_factory: pytest.TempPathFactory) -> Transcripts:
    played = {}
    for kind in (REAL, POLYMQ):
        with rocketmq_server(kind, tmp_path_factory.mktemp(kind)) as server:
            played[kind] = CASES.played(server)
    return {each.name: {kind: played[kind][each.name] for kind in played} for each in CASES.all}


@pytest.mark.parametrize("name", [each.name for each in CASES.all])
def test_both_say_the_same(name: str, transcripts: Transcripts) -> None:
    found, wanted = transcripts[name][POLYMQ], transcripts[name][REAL]
    assert wanted, "nothing was heard"
    assert not any("the case broke off" in line for line in wanted), wanted
    listed = [difference for difference in DIFFERENCES if name in difference["cases"]]
    # A difference is a line of the real one and polymq's instead of it, wherever it stands; "" is no line.
    for difference in listed:
        for theirs, ours in difference["lines"]:
            assert theirs in wanted or ours in found, f"no longer different: {theirs}"
            wanted = [ours if line == theirs else line for line in wanted]
    if found != wanted:
        pytest.fail("\n" + "\n".join(difflib.unified_diff(wanted, found, "real", "polymq", n=1, lineterm="")), pytrace=False)


def test_every_difference_is_of_a_case_and_has_a_reason() -> None:
    names = {each.name for each in CASES.all}
    for difference in DIFFERENCES:
        assert names.issuperset(difference["cases"]), difference
        assert difference["reason"]


# -- every field of every request: left out, empty, no number, negative, too large ------------------------------------------

QUEUE = {"topic": "WORD-t", "queueId": "0"}
GROUPED = {**QUEUE, "consumerGroup": "WORD-consumers"}
HOUR = {"beginTimestamp": "0", "endTimestamp": "1999999999999"}
# Requests that are right, to a topic with three messages; and the fields whose variations are of no use here.
REQUESTS: dict[str, tuple[int, dict[str, Any], bytes]] = {
    "send 310": (310, send("WORD-t"), b"body"),
    "send 10": (10, send_long("WORD-t"), b"body"),
    "batch 320": (320, send("WORD-t", m="true"), batch_body([(b"one", "A\x01b\x02"), (b"two", "")])),
    "pull 11": (11, pull("WORD-t"), b""),
    "query offset 14": (14, GROUPED, b""),
    "update offset 15": (15, {**GROUPED, "commitOffset": "2"}, b""),
    "search offset 29": (29, {**QUEUE, "timestamp": "0"}, b""),
    "max offset 30": (30, QUEUE, b""),
    "min offset 31": (31, QUEUE, b""),
    "earliest time 32": (32, QUEUE, b""),
    "view message 33": (33, {"offset": "9007199254740991"}, b""),
    "query messages 12": (12, {"topic": "WORD-t", "key": "k1", "maxNum": "32", **HOUR, "_UNIQUE_KEY_QUERY": "false"}, b""),
    "give back 36": (36, {"offset": "9007199254740991", "group": "WORD-consumers", "delayLevel": "0", "originTopic": "WORD-t"}, b""),
    "consumers 38": (38, {"consumerGroup": "WORD-consumers"}, b""),
    "leave 35": (35, {"clientID": "WORD-client", "producerGroup": "WORD-producers", "consumerGroup": "WORD-consumers"}, b""),
    "make topic 17": (
        17,
        {
            "topic": "WORD-made",
            "defaultTopic": "TBW102",
            "readQueueNums": "2",
            "writeQueueNums": "2",
            "perm": "6",
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": "0",
            "order": "false",
        },
        b"",
    ),
}
VARIATIONS = {"empty": "", "no number": "abc", "negative": "-1", "beyond 32 bits": "4294967297", "beyond 64 bits": "99999999999999999999"}


def varied(code: int, ext: dict[str, Any], body: bytes, name: str) -> Callable[[Stage], None]:
    def play(stage: Stage) -> None:
        stage.topic("zero", "one", "two")
        talk = stage.broker()
        talk.ask(code, {key: value for key, value in ext.items() if key != name}, body, note="left out")
        # Names are shared by the cases, and hardly any is wrong: those have cases of their own.
        variations = {"empty": ""} if "WORD" in ext[name] else VARIATIONS
        for what, value in variations.items():
            talk.ask(code, {**ext, name: value}, body, note=what)
        talk.next_offset("WORD-t")

    return play


def right(code: int, ext: dict[str, Any], body: bytes) -> Callable[[Stage], None]:
    def play(stage: Stage) -> None:
        stage.topic("zero", "one", "two")
        talk = stage.broker()
        talk.ask(code, ext, body, note="JSON")
        talk.ask(code, ext, body, note="binary", serialize=BINARY)
        talk.ask(code, {key: json_value(value) for key, value in ext.items()}, body, note="numbers and truths that are not text")
        talk.ask(code, {**ext, "unknown": "field"}, body, note="and a field that nobody knows")
        talk.ask(code, ext, body, note="of another language", language="CPP", version=63)
        talk.ask(code, {}, body, note="no fields")
        talk.ask(code, {}, body, note="no fields, binary", serialize=BINARY)
        talk.connection.oneway(code, {key: talk.named(value) for key, value in ext.items()}, talk.named(body))
        talk.next_offset("WORD-t")

    return play


def json_value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


for name, (code, ext, body) in REQUESTS.items():
    CASES.add(f"{name}: right", right(code, ext, body))
    for key in ext:
        CASES.add(f"{name}: {key}", varied(code, ext, body, key))

LENGTHS = ("<127 characters>", "<128 characters>", "<300 characters>")
ILLEGAL = ("", "with blank", "sl/ash", "dot.ted", "ümlaut", *LENGTHS, "%RETRY%WORD-nobody", "%DLQ%WORD-nobody")
SYSTEM = (
    "SCHEDULE_TOPIC_XXXX",
    "RMQ_SYS_TRANS_HALF_TOPIC",
    "RMQ_SYS_TRANS_OP_HALF_TOPIC",
    "TRANS_CHECK_MAX_TIME_TOPIC",
    "SELF_TEST_TOPIC",
    "OFFSET_MOVED_EVENT",
    "RMQ_SYS_TRACE_TOPIC",
    "DefaultCluster",
    "broker-a",
)


def named(make: Callable[[str], tuple[int, dict[str, Any], bytes]], names: tuple[str, ...]) -> Callable[[Stage], None]:
    def play(stage: Stage) -> None:
        stage.topic("zero")
        talk = stage.broker()
        for name in names:
            code, ext, body = make(name)
            talk.ask(code, ext, body, note=repr(name))

    return play


CASES.add("send to topics of odd names", named(lambda name: (310, send(name), b"x"), ILLEGAL))
CASES.add("send to topics of the system", named(lambda name: (310, send(name), b"x"), SYSTEM))
CASES.add("pull from topics of odd names", named(lambda name: (11, pull(name), b""), ILLEGAL))
CASES.add("pull for groups of odd names", named(lambda name: (11, pull("WORD-t", consumerGroup=name), b""), ILLEGAL))
CASES.add("offsets of topics of odd names", named(lambda name: (30, {"topic": name, "queueId": "0"}, b""), ILLEGAL))
CASES.add("make topics of odd names", named(lambda name: (17, {**REQUESTS["make topic 17"][1], "topic": name}, b""), (*ILLEGAL, *SYSTEM)))


@case
def a_topic_that_is_not_there(stage: Stage) -> None:
    talk = stage.broker()
    for code, (_, ext, body) in zip(
        (11, 14, 29, 30, 31, 32, 12), [REQUESTS[name] for name in REQUESTS if name[-2:] in "11 14 29 30 31 32 12"], strict=True
    ):
        talk.ask(code, ext, body)
    talk.ask(310, send("WORD-none", c="WORD-nothing"), b"x", note="send, after the likeness of nothing")
    talk.ask(310, send("WORD-none", e="9"), b"x", note="send to a queue that will not be")
    stage.names().ask(105, {"topic": "WORD-nobody"}, note="unused")


@case
def a_queue_that_is_not_there(stage: Stage) -> None:
    stage.topic("zero")
    talk = stage.broker()
    for name in ("send 310", "send 10", "batch 320"):
        code, ext, body = REQUESTS[name]
        talk.ask(code, {**ext, ("queueId" if code == 10 else "e"): "4"}, body, note=name)
    for name in ("pull 11", "query offset 14", "search offset 29", "max offset 30", "min offset 31", "earliest time 32"):
        code, ext, body = REQUESTS[name]
        talk.ask(code, {**ext, "queueId": "4"}, body, note=name)


@case
def messages_as_they_are_stored(stage: Stage) -> None:
    stage.topic()
    talk = stage.broker()
    text = properties(KEYS="one two", TAGS="blue", UNIQ_KEY="7F00000100000000000000000000ABCD", WAIT="true", mine="ä")
    talk.ask(310, send("WORD-t", text, h="77"), "bödy".encode())
    talk.ask(310, send("WORD-t", text.removesuffix("\x02")), b"no last separator")
    talk.ask(310, send("WORD-t", "no pair"), b"1")
    talk.ask(310, send("WORD-t", "a\x01\x02\x01b\x02a\x01c\x02"), b"empty ones, and one twice")
    talk.ask(310, send("WORD-t", f="1", j="3", k="true"), b"compressed, they say")
    talk.ask(310, send("WORD-t"), b"", note="nothing")
    talk.ask(320, send("WORD-t", "WAIT\x01true\x02OUTER\x01x\x02", m="true"), batch_body([(b"one", "A\x01b\x02"), (b"two", "")]))
    talk.ask(11, pull("WORD-t"))


@case
def batches_that_are_not(stage: Stage) -> None:
    stage.topic()
    talk = stage.broker()
    good = batch_body([(b"one", ""), (b"two", "")])
    bodies = {
        "nothing": b"",
        "half a length": b"\0\0",
        "cut": good[:-1],
        "more": good + b"\0\0\0\x20",
        "a length of nought": b"\0\0\0\0" + good,
        "a lie": lying(good, 5),
        "a huge lie": lying(good, 0x7FFFFFFF),
        "negative": lying(good, 0xFFFFFFFF),
    }
    for name, body in bodies.items():
        talk.ask(320, send("WORD-t", m="true"), body, note=name)
    talk.ask(320, send("WORD-t", m="false"), good, note="who says that it is none")
    talk.ask(310, send("WORD-t", m="true"), good, note="one by 310")
    talk.ask(320, send("WORD-t", properties(DELAY="1"), m="true"), good, note="delayed")
    talk.ask(320, send("%RETRY%WORD-consumers", m="true"), good, note="to a retry topic")
    talk.next_offset("WORD-t")
    talk.ask(11, pull("WORD-t"))


@case
def sizes_at_the_limit(stage: Stage) -> None:
    stage.topic()
    talk = stage.broker()
    for size in (4 << 20, (4 << 20) + 1, (4 << 20) + 100_000, 5 << 20):
        talk.ask(310, send("WORD-t"), b"x" * size, note=f"{size} bytes")
    for size in (32_000, 32_766, 32_767, 32_768, 40_000):
        talk.ask(310, send("WORD-t", f"a\x01{'b' * (size - 3)}\x02"), b"x", note=f"{size} bytes of properties")
    talk.next_offset("WORD-t")


@case
def pulls_at_every_offset(stage: Stage) -> None:
    stage.topic("zero", "one", "two")
    talk = stage.broker()
    for offset in (-1, 0, 1, 2, 3, 4, 100, 1 << 40):
        talk.ask(11, pull("WORD-t", queueOffset=str(offset)), note=f"offset {offset}")
    for offset in (-1, 0, 1):
        talk.ask(11, pull("WORD-t", queueId="1", queueOffset=str(offset)), note=f"an empty queue, offset {offset}")
    for count in (0, 1, 2, 33, 1000, -1):
        talk.ask(11, pull("WORD-t", maxMsgNums=str(count)), note=f"{count} messages")
    for version in (401, 479):
        talk.ask(361, pull("WORD-t"), note=f"361 of {version}", version=version)


@case
def pulls_and_tags(stage: Stage) -> None:
    stage.topic("zero", "one", "two", "three")
    talk = stage.broker()
    for expression in ("", "*", "t1", "t1||t2", " t1 || t2 ", "nothing", "t1 ||", "||", "*||t1"):
        talk.ask(11, pull("WORD-t", subscription=expression), note=repr(expression))
    for kind in ("TAG", "SQL92", "other", ""):
        talk.ask(11, pull("WORD-t", subscription="t1", expressionType=kind), note=f"type {kind!r}")
    talk.ask(11, pull("WORD-t", subscription="t0", queueOffset="1"), note="nothing matches from 1 on")
    talk.ask(11, pull("WORD-t", subscription="t0", queueOffset="4"), note="the end")


@case
def pulls_without_a_subscription(stage: Stage) -> None:
    stage.topic("zero")
    talk = stage.broker()
    talk.ask(11, pull("WORD-t", sysFlag="0"), note="nobody has joined")
    for flag in (8, 12, 16, 20, 64):
        talk.ask(11, pull("WORD-t", sysFlag=str(flag)), note=f"flag {flag}")
    heartbeat(talk, "WORD-consumers", "WORD-client", "WORD-other")
    talk.ask(11, pull("WORD-t", sysFlag="0"), note="joined for another topic")
    heartbeat(talk, "WORD-consumers", "WORD-client", "WORD-t", version=5)
    talk.ask(11, pull("WORD-t", sysFlag="0", subVersion="5"), note="joined")
    talk.ask(11, pull("WORD-t", sysFlag="0", subVersion="4"), note="an older subscription")
    heartbeat(talk, "WORD-broadcast", "WORD-client", "WORD-t", version=5, model="BROADCASTING")
    talk.ask(11, pull("WORD-t", sysFlag="0", subVersion="5", consumerGroup="WORD-broadcast"), note="broadcast")


@case
def held_pulls(stage: Stage) -> None:
    stage.topic("zero")
    talk, other = stage.broker(), stage.broker("other")
    waiting = {name: talk.named(value) for name, value in pull("WORD-t", queueOffset="1", sysFlag="6", suspendTimeoutMillis="5000").items()}
    number = talk.connection.begin(11, waiting)
    stage.note(f"held -> {[each.code for each in talk.connection.hear(0.4)]}")
    began = time.monotonic()
    other.ask(310, send("WORD-t", e="1"), b"another queue")
    other.ask(310, send("WORD-t"), b"this queue")
    answer = talk.connection.answer(number)
    stage.note(f"then -> {answer.code} {answer.remark} {answer.ext.get('nextBeginOffset')}, at once: {time.monotonic() - began < 0.5}")
    filtered = {**waiting, "queueOffset": "2", "subscription": "wanted"}
    number = talk.connection.begin(11, filtered)
    other.ask(310, send("WORD-t", properties(TAGS="unwanted")), b"unwanted")
    stage.note(f"unwanted -> {[each.code for each in talk.connection.hear(0.4)]}")
    other.ask(310, send("WORD-t", properties(TAGS="wanted")), b"wanted")
    answer = talk.connection.answer(number)
    stage.note(f"wanted -> {answer.code} {answer.remark} {answer.ext.get('nextBeginOffset')}")


@case
def offsets_that_are_committed(stage: Stage) -> None:
    stage.topic("zero", "one", "two")
    talk = stage.broker()
    talk.ask(14, GROUPED, note="never")
    for offset in (2, 1, 0, 100, -1):
        talk.ask(15, {**GROUPED, "commitOffset": str(offset)}, note=f"commit {offset}")
        talk.ask(14, GROUPED, note="read")
    talk.ask(11, pull("WORD-t", sysFlag="5", commitOffset="2"), note="with a pull")
    talk.ask(14, GROUPED, note="read")
    for offset in (3, -1):
        talk.connection.oneway(15, {key: talk.named(value) for key, value in {**GROUPED, "commitOffset": str(offset)}.items()})
        talk.ask(14, GROUPED, note=f"read, after {offset} one way")
    talk.ask(14, {**GROUPED, "queueId": "1"}, note="another queue")
    talk.ask(14, {**GROUPED, "consumerGroup": "WORD-new"}, note="another group")
    talk.ask(15, {**GROUPED, "consumerGroup": "", "commitOffset": "1"}, note="nobody's")


def heartbeat(
    talk: Any, group: str, client: str, *topics: str, version: int = 1, model: str = "CLUSTERING", note: str = "heartbeat"
) -> None:
    subscriptions = [
        {
            "classFilterMode": False,
            "codeSet": [],
            "expressionType": "TAG",
            "subString": "*",
            "subVersion": version,
            "tagsSet": [],
            "topic": each,
        }
        for each in topics
    ]
    consumer = {
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
        "consumeType": "CONSUME_PASSIVELY",
        "groupName": group,
        "messageModel": model,
    }
    data = [{**consumer, "subscriptionDataSet": subscriptions, "unitMode": False}]
    body = {"clientID": client, "consumerDataSet": data, "producerDataSet": [{"groupName": "WORD-producers"}]}
    talk.ask(34, {}, json.dumps(body).encode(), note=note)


@case
def members_come_and_go(stage: Stage) -> None:
    stage.topic()
    group = {"consumerGroup": "WORD-consumers"}
    one, two = stage.broker("one"), stage.broker("two")
    one.ask(38, group, note="nobody")
    heartbeat(one, "WORD-consumers", "WORD-one", "WORD-t")
    one.pushed("told")
    one.ask(38, group)
    heartbeat(two, "WORD-consumers", "WORD-two", "WORD-t")
    one.pushed("told of two")
    two.pushed("told of itself")
    heartbeat(two, "WORD-consumers", "WORD-two", "WORD-t", note="the same again")
    one.pushed("of nothing new")
    heartbeat(two, "WORD-consumers", "WORD-two", "WORD-t", "WORD-more", version=2, note="another subscription")
    one.pushed("of the subscription")
    two.ask(35, {"clientID": "WORD-two", "consumerGroup": "WORD-consumers"}, note="leave")
    one.pushed("that two is gone")
    one.ask(38, group)
    heartbeat(two, "WORD-consumers", "WORD-two", "WORD-t", note="back")
    one.pushed("that two is back")
    two.connection.close()
    one.pushed("that two is dead", 1.0)
    one.ask(35, {"clientID": "WORD-stranger", "consumerGroup": "WORD-consumers"}, note="a stranger leaves")
    one.ask(38, group)


@case
def one_client_id_twice(stage: Stage) -> None:
    stage.topic()
    group = {"consumerGroup": "WORD-consumers"}
    one, two = stage.broker("one"), stage.broker("two")
    heartbeat(one, "WORD-consumers", "WORD-same", "WORD-t")
    heartbeat(two, "WORD-consumers", "WORD-same", "WORD-t")
    two.ask(38, group)
    one.connection.close()
    time.sleep(0.5)
    two.ask(38, group)


@case
def heartbeats_that_are_none(stage: Stage) -> None:
    talk = stage.broker()
    bodies = {
        "nothing": b"",
        "an empty object": b"{}",
        "a list": b"[]",
        "a number": b"7",
        "half": b'{"clientID":"WORD-c"',
        "no text": b"\xff\xfe\x00",
        "null": b"null",
        "no client": b'{"consumerDataSet":[],"producerDataSet":[]}',
        "wrong types": b'{"clientID":7,"consumerDataSet":{},"producerDataSet":7}',
        "only a client": b'{"clientID":"WORD-c"}',
        "a group without name": b'{"clientID":"WORD-c","consumerDataSet":[{}],"producerDataSet":[{}]}',
        "unknown words": b'{"clientID":"WORD-c","consumerDataSet":[{"groupName":"WORD-g","messageModel":"ODD","consumeType":"ODD","consumeFromWhere":"ODD"}]}',
        "a line end": b'{"clientID":"WORD-c","producerDataSet":[{"groupName":"WORD-g"}]}\n',
    }
    for name, body in bodies.items():
        talk.ask(34, {}, body, note=name)
    talk.ask(38, {"consumerGroup": "WORD-g"})


def lock_body(client: str, *queues: int, group: str = "WORD-consumers", topic: str = "WORD-t") -> bytes:
    queues_of = [{"brokerName": "broker-a", "queueId": number, "topic": topic} for number in queues]
    return json.dumps({"clientId": client, "consumerGroup": group, "mqSet": queues_of}).encode()


@case
def locks(stage: Stage) -> None:
    stage.topic()
    one, two = stage.broker("one"), stage.broker("two")
    one.ask(41, {}, lock_body("WORD-one", 0))
    one.ask(41, {}, lock_body("WORD-one", 0), note="again")
    two.ask(41, {}, lock_body("WORD-two", 0), note="taken")
    two.ask(42, {}, lock_body("WORD-two", 0), note="not its own")
    two.ask(41, {}, lock_body("WORD-two", 0), note="still taken")
    one.ask(42, {}, lock_body("WORD-one", 0), note="given up")
    two.ask(41, {}, lock_body("WORD-two", 0), note="free")
    two.ask(41, {}, lock_body("WORD-two"), note="nothing")
    two.ask(41, {}, lock_body("WORD-two", 99), note="a queue that is not there")
    two.ask(41, {}, lock_body("WORD-two", 0, group=""), note="no group")
    for name, body in {"empty": b"", "{}": b"{}", "half": b'{"clientId"', "a list": b"[]"}.items():
        two.ask(41, {}, body, note=f"lock {name}")
        two.ask(42, {}, body, note=f"unlock {name}")


@case
def what_is_given_back(stage: Stage) -> None:
    stage.topic("zero", "one")
    talk = stage.broker()
    found = talk.ask(11, pull("WORD-t"), quietly=True)
    assert found is not None
    physical = int.from_bytes(found.body[28:36], "big")
    given = {"offset": str(physical), "group": "WORD-consumers", "delayLevel": "1", "originMsgId": "WORD-id", "originTopic": "WORD-t"}
    talk.ask(36, given, note="a group that nobody knows")
    heartbeat(talk, "WORD-consumers", "WORD-client", "WORD-t")
    talk.ask(36, {**given, "unitMode": "false", "maxReconsumeTimes": "16"}, note="known")
    talk.ask(36, {**given, "delayLevel": "-1"}, note="dead at once")
    talk.ask(36, {**given, "maxReconsumeTimes": "0"}, note="dead by count")
    talk.ask(36, {**given, "delayLevel": "99"}, note="a level that is not there")
    talk.ask(36, {**given, "offset": "12345"}, note="the middle of nowhere")
    talk.ask(36, {**given, "offset": "-1"}, note="negative")
    time.sleep(1.8)
    for topic in ("%RETRY%WORD-consumers", "%DLQ%WORD-consumers"):
        talk.ask(11, pull(topic), note=f"pull {topic}")


@case
def delays(stage: Stage) -> None:
    stage.topic()
    talk = stage.broker()
    for level in ("1", "0", "-1", "19", "abc", "1.5"):
        talk.ask(
            310, send("WORD-t", properties(DELAY=level), e="1"), f"level {level}".encode(), note=f"level {level}", hidden=["queueOffset"]
        )
    time.sleep(1.8)
    talk.ask(11, pull("WORD-t", queueId="1"))


@case
def keys_and_ids(stage: Stage) -> None:
    stage.topic("zero", "one")
    talk = stage.broker()
    found = talk.ask(11, pull("WORD-t"), quietly=True)
    assert found is not None
    physical = int.from_bytes(found.body[28:36], "big")
    talk.ask(33, {"offset": str(physical)}, note="the first")
    talk.ask(33, {"offset": str(physical + 1)}, note="within it")
    query = {"topic": "WORD-t", "key": "k1", "maxNum": "32", **HOUR, "_UNIQUE_KEY_QUERY": "false"}
    deadline = time.monotonic() + 10
    # A real one writes its index behind the answers.
    while (answer := talk.ask(12, query, quietly=True)) is not None and answer.code and time.monotonic() < deadline:
        time.sleep(0.05)
    talk.ask(12, query, note="a key")
    talk.ask(12, {**query, "key": "k"}, note="half a key")
    talk.ask(12, {**query, "maxNum": "0"}, note="none of them")
    talk.ask(12, {**query, "endTimestamp": "1"}, note="another time")
    talk.ask(12, {**query, "beginTimestamp": "1999999999999", "endTimestamp": "1"}, note="time backwards")
    talk.ask(12, {**query, "topic": "WORD-other"}, note="another topic")


@case
def routes(stage: Stage) -> None:
    stage.topic()
    names = stage.names()
    time.sleep(0.5)
    names.ask(105, {"topic": "WORD-t"})
    names.ask(105, {"topic": "WORD-t"}, version=121, note="an old client")
    names.ask(105, {"topic": "WORD-t", "acceptStandardJsonOnly": "true"}, version=121, note="an old client that reads standard JSON")
    names.ask(105, {"topic": "WORD-t"}, serialize=BINARY, note="binary")
    names.ask(105, {}, note="no topic")
    names.ask(105, {"topic": ""}, note="an empty one")
    names.ask(105, {"topic": "TBW102"}, note="the likeness of all")
    names.ask(105, {"topic": "with blank"}, note="no name")
    names.ask(105, {"topic": "x" * 300}, note="a long one")
    names.ask(106, {}, note="cluster")


@case
def codes_that_nobody_knows(stage: Stage) -> None:
    talk = stage.broker()
    for code in (0, 1, 9, 16, 39, 40, 99, 500, 12345, -1):
        talk.ask(code, {}, note=f"code {code}")
        talk.ask(code, {}, note=f"code {code}, binary", serialize=BINARY)
    talk.ask(99999, {}, note="beyond 16 bits")


@case
def frames_that_lie(stage: Stage) -> None:
    good = request(30, {"topic": "TBW102", "queueId": "0"})
    frames = {
        "right": good,
        "twice": good + good,
        "no length": b"\0\0\0\0",
        "a length of three": b"\0\0\0\x03abc",
        "a length of four": b"\0\0\0\x04\0\0\0\0",
        "longer than it is": lying(good, len(good) + 100),
        "one shorter": lying(good, len(good) - 5) + good,
        "16 MiB": lying(good, 16 << 20),
        "more than 16 MiB": lying(good, (16 << 20) + 1),
        "negative": lying(good, -1),
        "a header longer than the frame": good[:4] + b"\0\0\xff\xff" + good[8:],
        "a header of nothing": good[:4] + b"\0\0\0\0" + good[8:],
        "serialize type 2": good[:4] + b"\x02" + good[5:],
        "serialize type 255": good[:4] + b"\xff" + good[5:],
        "JSON that says it is binary": good[:4] + b"\x01" + good[5:],
        "HTTP": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    }
    for name, data in frames.items():
        talk = stage.broker()
        talk.say(data, note=name)
        talk.connection.close()


HEADERS: dict[str, bytes] = {
    "nothing but braces": b"{}",
    "no code": b'{"opaque":7,"flag":0,"language":"JAVA","version":409}',
    "no opaque": b'{"code":105,"flag":0,"language":"JAVA","version":409,"extFields":{"topic":"TBW102"}}',
    "no language": b'{"code":99,"opaque":7}',
    "an unknown language": b'{"code":99,"opaque":7,"language":"COBOL"}',
    "a language that is a number": b'{"code":99,"opaque":7,"language":3}',
    "code as text": b'{"code":"99","opaque":"7","flag":"0","version":"409"}',
    "code with a fraction": b'{"code":99.5,"opaque":7}',
    "code that is true": b'{"code":true,"opaque":7}',
    "code null": b'{"code":null,"opaque":7}',
    "opaque negative": b'{"code":99,"opaque":-7}',
    "opaque beyond 32 bits": b'{"code":99,"opaque":4294967303}',
    "an answer that nobody waits for": b'{"code":99,"opaque":7,"flag":1}',
    "one way": b'{"code":99,"opaque":7,"flag":2}',
    "fields null": b'{"code":30,"opaque":7,"extFields":null}',
    "fields a list": b'{"code":30,"opaque":7,"extFields":[]}',
    "fields a text": b'{"code":30,"opaque":7,"extFields":"x"}',
    "a field that is an object": b'{"code":30,"opaque":7,"extFields":{"topic":{"a":1},"queueId":"0"}}',
    "a field that is null": b'{"code":30,"opaque":7,"extFields":{"topic":null,"queueId":"0"}}',
    "the same field twice": b'{"code":30,"opaque":7,"extFields":{"topic":"a","topic":"TBW102","queueId":"0"}}',
    "blanks and lines": b' {\n "code" : 99 ,\t"opaque" : 7 } \n',
    "single quotes": b"{'code':99,'opaque':7}",
    "names without quotes": b"{code:99,opaque:7}",
    "a trailing comma": b'{"code":99,"opaque":7,}',
    "a list": b"[1,2]",
    "a number": b"7",
    "null": b"null",
    "half": b'{"code":99,"opaque":7',
    "more behind it": b'{"code":99,"opaque":7}}',
    "no text": b"\xff\xfe{",
    "deep": b'{"code":99,"opaque":7,"x":' + b"[" * 400 + b"]" * 400 + b"}",
    "unknown names": b'{"code":99,"opaque":7,"mine":{"a":[1,null,true,"x"]}}',
    "serializeTypeCurrentRPC of another": b'{"code":99,"opaque":7,"serializeTypeCurrentRPC":"ROCKETMQ"}',
    "escapes": b'{"code":30,"opaque":7,"extFields":{"topic":"\\u0054BW102","queueId":"0"}}',
}


def header(data: bytes) -> Callable[[Stage], None]:
    def play(stage: Stage) -> None:
        stage.broker().say(raw_frame(data), note="broker")
        stage.names().say(raw_frame(data), note="nameserver")

    return play


for name, data in HEADERS.items():
    CASES.add(f"a header: {name}", header(data))


@case
def a_header_of_a_megabyte(stage: Stage) -> None:
    big = json.dumps({"code": 99, "opaque": 7, "extFields": {"x": "y" * (1 << 20)}}).encode()
    many = json.dumps({"code": 99, "opaque": 7, "extFields": {f"x{number}": "" for number in range(50_000)}}).encode()
    for name, data in {"one field": big, "many fields": many}.items():
        stage.broker().say(raw_frame(data), note=name, quiet_s=3.0)


def binary(
    code: int = 99, ext: bytes = b"", *, remark: bytes = b"", remark_size: int | None = None, ext_size: int | None = None, language: int = 0
) -> bytes:
    fixed = code.to_bytes(2, "big", signed=True) + bytes([language]) + (409).to_bytes(2, "big") + (7).to_bytes(4, "big") + bytes(4)
    sizes = [len(remark) if remark_size is None else remark_size, len(ext) if ext_size is None else ext_size]
    first, second = (size.to_bytes(4, "big", signed=True) for size in sizes)
    return fixed + first + remark + second + ext


def pair(key: bytes, value: bytes) -> bytes:
    return len(key).to_bytes(2, "big") + key + len(value).to_bytes(4, "big") + value


BINARIES: dict[str, bytes] = {
    "right": binary(),
    "with a remark": binary(remark=b"hello"),
    "an unknown language": binary(language=200),
    "a remark that is longer": binary(remark_size=1000),
    "a remark of less than nothing": binary(remark_size=-5),
    "fields that are longer": binary(ext_size=1000),
    "fields of less than nothing": binary(ext_size=-5),
    "half a pair": binary(30, b"\0\x05top"),
    "a name of nothing": binary(30, pair(b"", b"x") + pair(b"topic", b"TBW102") + pair(b"queueId", b"0")),
    "a value of nothing": binary(30, pair(b"topic", b"") + pair(b"queueId", b"0")),
    "a value that is longer": binary(30, b"\0\x05topic\0\0\xff\xffx"),
    "a name of less than nothing": binary(30, b"\xff\xfbtopic"),
    "bytes behind it": binary() + b"more",
    "cut": binary()[:-2],
    "nothing": b"",
}


def binary_header(data: bytes) -> Callable[[Stage], None]:
    def play(stage: Stage) -> None:
        stage.broker().say(raw_frame(data, serialize=BINARY), note="broker")

    return play


for name, data in BINARIES.items():
    CASES.add(f"a binary header: {name}", binary_header(data))


@case
def many_at_once_are_answered_each(stage: Stage) -> None:
    stage.topic()
    talk = stage.broker()
    fields = {key: talk.named(value) for key, value in send("WORD-t").items()}
    numbers = [talk.connection.begin(310, fields, f"{number}".encode(), serialize=number % 2) for number in range(50)]
    answers = [talk.connection.answer(number) for number in numbers]
    stage.note(f"codes {sorted({each.code for each in answers})}, offsets {sorted(int(each.ext['queueOffset']) for each in answers)}")
