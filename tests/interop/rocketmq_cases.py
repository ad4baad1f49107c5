"""What is said to RocketMQ's servers in dialogues: each request of the issue, good and bad, and what they do to each other."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from tests.interop.rocketmq_dialogue import Cases, Stage, lying, pull, send, send_long
from tests.interop.rocketmq_raw import BINARY, batch_body, properties

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["CASES"]

CASES = Cases()
case = CASES.case
ONEWAY = 2

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
SENDS = (310, 10, 320)
VARIATIONS = {"empty": "", "no number": "abc", "negative": "-1", "beyond 32 bits": "4294967297", "beyond 64 bits": "99999999999999999999"}


def varied(code: int, ext: dict[str, Any], body: bytes, name: str) -> Callable[[Stage], None]:
    def play(stage: Stage) -> None:
        stage.topic("zero", "one", "two")
        talk = stage.broker()
        talk.ask(code, {key: value for key, value in ext.items() if key != name}, body, note="left out")
        # Names are shared by the cases, and hardly any is wrong: those have cases of their own.
        variations = {"empty": ""} if "WORD" in ext[name] else VARIATIONS
        chosen = code in SENDS and name in {"e", "queueId"}
        for what, value in variations.items():
            # For a negative queue each server takes the one it likes.
            hidden = ["queueId", "queueOffset"] if chosen and what == "negative" else []
            talk.ask(code, {**ext, name: value}, body, note=what, hidden=hidden)
        if not chosen:
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
        stage.stored += (code in SENDS) + (code == 320)
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
        # What one of the servers takes is not to move what comes after it.
        queue = "1" if "lie" in name or name == "negative" else "0"
        talk.ask(320, send("WORD-t", m="true", e=queue), body, note=name)
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
