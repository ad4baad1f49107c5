"""What is said to RocketMQ's servers in dialogues: what a request leaves behind, as later ones find it."""

from __future__ import annotations

import json
import time
import zlib
from typing import Any

from tests.interop.rocketmq_cases import GROUPED, heartbeat, lock_body
from tests.interop.rocketmq_dialogue import Stage, Talk, pull, send, send_long, shown
from tests.interop.rocketmq_frame_cases import CASES
from tests.interop.rocketmq_raw import BINARY, Frame, batch_body, properties

__all__ = ["CASES"]

case = CASES.case
PATIENCE_S = 10.0


def patiently(talk: Talk, code: int, ext: dict[str, Any], *, note: str = "", **more: Any) -> Frame | None:
    """Ask until it is known: a real one tells its nameserver of topics, and writes its index, behind its answers."""
    deadline = time.monotonic() + PATIENCE_S
    while (answer := talk.ask(code, ext, quietly=True)) is not None and answer.code and time.monotonic() < deadline:
        time.sleep(0.05)
    return talk.ask(code, ext, note=note, **more)


@case
def topics_have_the_queues_that_their_first_sender_wants(stage: Stage) -> None:
    talk, names = stage.broker(), stage.names()
    for wanted in ("1", "3", "8", "9", "1000"):
        talk.ask(310, send(f"WORD-{wanted}", d=wanted), b"x", note=f"310 for {wanted} queues")
        patiently(names, 105, {"topic": f"WORD-{wanted}"}, note=wanted)
    talk.ask(310, send("WORD-1", d="5"), b"x", note="another sender wants more")
    talk.ask(10, send_long("WORD-ten", d="2"), b"x", note="10")
    patiently(names, 105, {"topic": "WORD-ten"}, note="10")
    talk.ask(320, send("WORD-batch", m="true", d="2"), batch_body([(b"one", ""), (b"two", "")]), note="320")
    patiently(names, 105, {"topic": "WORD-batch"}, note="320")
    talk.ask(310, send("WORD-later", properties(DELAY="1"), d="2"), b"x", note="delayed", hidden=["queueOffset"])
    patiently(names, 105, {"topic": "WORD-later"}, note="delayed")
    talk.ask(310, send("WORD-high", d="2", e="2"), b"x", note="a queue that it does not want")
    patiently(names, 105, {"topic": "WORD-high"}, note="made all the same")


@case
def offsets_of_what_is_not_there(stage: Stage) -> None:
    stage.topic("zero")
    talk = stage.broker()
    for offset in ("1", "2", "41", str(1 << 40)):
        talk.ask(15, {**GROUPED, "commitOffset": offset}, note=f"commit {offset}")
        talk.ask(14, GROUPED, note="read")
    empty = {**GROUPED, "queueId": "1"}
    talk.ask(15, {**empty, "commitOffset": "7"}, note="an empty queue")
    talk.ask(14, empty, note="read")
    talk.ask(11, pull("WORD-t", queueId="1", queueOffset="7"), note="pull there")
    talk.ask(11, pull("WORD-t", queueId="2", sysFlag="5", commitOffset="9"), note="by a pull")
    talk.ask(14, {**GROUPED, "queueId": "2"}, note="read")
    talk.ask(15, {**GROUPED, "queueId": "9", "commitOffset": "3"}, note="a queue that is not there")
    talk.ask(15, {**GROUPED, "topic": "WORD-none", "commitOffset": "3"}, note="a topic that is not there")


@case
def what_waits_is_found_by_its_id(stage: Stage) -> None:
    stage.topic()
    talk = stage.broker()
    # Nobody else here sends for that level, so it is the first of its queue.
    answer = talk.ask(310, send("WORD-t", properties(KEYS="late", DELAY="9"), e="3"), b"late", note="for later")
    assert answer is not None
    physical = int(answer.ext["msgId"][16:], 16)
    patiently(talk, 33, {"offset": str(physical)}, note="while it waits")


@case
def times_of_messages(stage: Stage) -> None:
    stage.topic("zero")
    talk = stage.broker()
    queue = {"topic": "WORD-t", "queueId": "0"}
    time.sleep(0.6)
    between = str(round(time.time() * 1000))
    time.sleep(0.1)
    talk.ask(310, send("WORD-t"), b"one", note="later")
    talk.await_offset("WORD-t", 2)
    for note, moment in {"long ago": "1000", "between": between, "to come": "1999999999999"}.items():
        talk.ask(29, {**queue, "timestamp": moment}, note=note)
        talk.ask(29, {**queue, "queueId": "1", "timestamp": moment}, note=f"{note}, an empty queue")
    talk.ask(32, queue, note="the first", hidden=["timestamp"])
    talk.ask(32, {**queue, "queueId": "1"}, note="the first of none")


@case
def what_is_sent_to_a_retry_topic(stage: Stage) -> None:
    stage.topic()
    talk = stage.broker()
    heartbeat(talk, "WORD-consumers", "WORD-client", "WORD-t")
    for number, (times, most) in enumerate((("0", "3"), ("2", "3"), ("3", "3"), ("16", "16"), ("1", ""), ("16", ""), ("0", "0"))):
        ext = send("%RETRY%WORD-consumers", properties(RETRY_TOPIC="WORD-t"), j=times, l=most)
        talk.ask(
            310, ext if most else {name: value for name, value in ext.items() if name != "l"}, b"%d" % number, note=f"{times} of {most}"
        )
    talk.ask(310, send("%RETRY%WORD-consumers", j="1", l="3"), b"old", note="an old client", version=79)
    talk.ask(310, send("%RETRY%WORD-consumers", j="16", l="20"), b"older", note="an old client, too often", version=79)
    for topic in ("%RETRY%WORD-consumers", "%DLQ%WORD-consumers"):
        talk.await_offset(topic, None)
        talk.ask(11, pull(topic), note=f"pull {topic}")


@case
def pulls_of_large_messages(stage: Stage) -> None:
    stage.topic()
    talk = stage.broker()
    for size in (100_000, 100_000, 100_000, 300_000, 10, 10):
        talk.ask(310, send("WORD-t"), b"x" * size, quietly=True)
    talk.await_offset("WORD-t", 6)
    for offset in range(6):
        fields = {name: talk.named(value) for name, value in pull("WORD-t", queueOffset=str(offset)).items()}
        # Not written down: that takes long.
        found = talk.connection.ask(11, fields)
        stage.note(f"from {offset} -> {found.code} {found.ext['nextBeginOffset']} {len(found.body)}")


@case
def topics_that_are_changed(stage: Stage) -> None:
    names, talk = stage.names(), stage.broker()
    stage.topic(queues=2)
    patiently(names, 105, {"topic": "WORD-t"}, note="two queues")
    fields = {
        "topic": "WORD-t",
        "defaultTopic": "TBW102",
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "false",
    }
    talk.ask(17, {**fields, "readQueueNums": "5", "writeQueueNums": "5"}, note="five")
    talk.ask(310, send("WORD-t", e="4"), b"x", note="send to the last")
    talk.ask(17, {**fields, "readQueueNums": "5", "writeQueueNums": "5"}, note="the same again")
    talk.ask(215, {"topic": "WORD-t"}, note="delete")
    talk.ask(11, pull("WORD-t"), note="pull")


@case
def a_subscription_that_is_not_known_yet(stage: Stage) -> None:
    stage.topic("zero")
    talk, other = stage.broker(), stage.broker("other")
    heartbeat(talk, "WORD-consumers", "WORD-client", "WORD-t", version=5)
    talk.ask(11, pull("WORD-t", sysFlag="0", subVersion="6"), note="a newer one than was told of")
    other.ask(11, pull("WORD-t", sysFlag="0", subVersion="5"), note="by another connection")


@case
def replies_go_to_who_has_asked(stage: Stage) -> None:
    stage.topic()
    asker, replier = stage.broker("asker"), stage.broker("replier")
    producers = {"clientID": "WORD-asker", "producerDataSet": [{"groupName": "WORD-producers"}]}
    asker.ask(34, {}, json.dumps(producers).encode(), note="heartbeat")
    text = properties(CORRELATION_ID="WORD-1", REPLY_TO_CLIENT="WORD-asker", TTL="3000", MSG_TYPE="reply")
    ext = {name: replier.named(value) for name, value in send("DefaultCluster_REPLY_TOPIC", text).items()}
    number = replier.connection.begin(325, ext, b"reply")
    heard: list[Frame] = []
    deadline = time.monotonic() + PATIENCE_S
    while not heard and time.monotonic() < deadline:
        heard = asker.connection.hear(0.3)
    for told in heard:
        raw = told.ext.pop("properties").replace(told.ext["storeTimestamp"], "<TIME>")
        stage.note(f"told -> {shown(told)} {sorted(filter(None, raw.split(chr(2))))}")
    replier.connection.close()
    nobody = text.replace("WORD-asker", "WORD-nobody")
    other = stage.broker("other")
    other.ask(325, send("DefaultCluster_REPLY_TOPIC", nobody), b"reply", note="to nobody", hidden=["queueOffset"])
    other.ask(325, send("DefaultCluster_REPLY_TOPIC", properties(MSG_TYPE="reply")), b"reply", note="to no name", hidden=["queueOffset"])
    assert number


@case
def returns_whose_level_is_none(stage: Stage) -> None:
    stage.topic("zero")
    talk = stage.broker()
    found = talk.ask(11, pull("WORD-t"), quietly=True)
    assert found is not None
    given = {
        "offset": str(int.from_bytes(found.body[28:36], "big")),
        "group": "WORD-consumers",
        "originTopic": "nowhere",
        "originMsgId": "id",
    }
    talk.ask(36, given, note="no level")
    talk.ask(36, {**given, "delayLevel": "many"}, note="many")
    talk.ask(36, {**given, "offset": "12345", "delayLevel": "many"}, note="of nothing")
    talk.ask(36, {**given, "delayLevel": "1", "maxReconsumeTimes": "many"}, note="as often as many times")
    talk.ask(36, {**given, "delayLevel": "2147483647"}, note="the last level")
    talk.await_offset("%RETRY%WORD-consumers", 1)
    talk.ask(11, pull("%RETRY%WORD-consumers"), note="what has come back")


@case
def keys_of_either_kind(stage: Stage) -> None:
    stage.topic()
    talk = stage.broker()
    unique = "7F00000100000000000000000000AB0"
    for number in range(3):
        text = properties(KEYS="one two  three", UNIQ_KEY=f"{unique}{number}")
        talk.ask(310, send("WORD-t", text), b"%d" % number, quietly=True)
    query = {"topic": "WORD-t", "maxNum": "32", "beginTimestamp": "0", "endTimestamp": "1999999999999"}
    patiently(talk, 12, {**query, "key": f"{unique}2"}, note="the last, which has all before it known")
    for key in ("one", "three", "", "one two", f"{unique}1", f"{unique}1".lower()):
        talk.ask(12, {**query, "key": key}, note=repr(key))
        talk.ask(12, {**query, "key": key, "_UNIQUE_KEY_QUERY": "true"}, note=f"{key!r} as a unique one")


@case
def consumers_who_ask_whether_they_may_filter(stage: Stage) -> None:
    stage.topic()
    talk = stage.broker()
    subscription = {"classFilterMode": False, "codeSet": [], "subString": "a > 1", "subVersion": 1, "tagsSet": [], "topic": "WORD-t"}
    for kind in ("TAG", "SQL92", "odd", ""):
        body = {"clientId": "WORD-c", "group": "WORD-g", "subscriptionData": {**subscription, "expressionType": kind}}
        talk.ask(46, {}, json.dumps(body).encode(), note=repr(kind))
    talk.ask(46, {}, b"", note="nothing")


@case
def a_pull_of_a_topic_that_goes(stage: Stage) -> None:
    stage.topic("zero")
    talk, other = stage.broker(), stage.broker("other")
    waiting = {name: talk.named(value) for name, value in pull("WORD-t", queueOffset="1", sysFlag="6", suspendTimeoutMillis="2000").items()}
    number = talk.connection.begin(11, waiting)
    time.sleep(0.3)
    other.ask(215, {"topic": "WORD-t"}, note="delete")
    answer = talk.connection.answer(number, timeout_s=10.0)
    stage.note(f"held -> {answer.code} {answer.remark}")


@case
def bodies_that_are_packed(stage: Stage) -> None:
    stage.topic()
    talk = stage.broker()
    packed = zlib.compress(b"body " * 20, 5)
    for flag in ("1", "769", "257", "513", "768", "0"):
        talk.ask(310, send("WORD-t", f=flag), packed, note=f"flag {flag}")
    talk.ask(310, send("WORD-t", properties(DELAY="1"), f="769"), packed, note="later", hidden=["queueOffset"])
    batch = batch_body([(packed, ""), (b"plain", "")])
    talk.ask(320, send("WORD-t", f="769", m="true"), batch, note="together")
    talk.await_offset("WORD-t", 9)
    found = talk.ask(11, pull("WORD-t", queueOffset="1"), note="as they were sent")
    assert found is not None
    talk.ask(33, {"offset": str(int.from_bytes(found.body[28:36], "big"))}, note="one of them")


@case
def numbers_that_are_nearly_ones(stage: Stage) -> None:
    stage.topic("zero")
    talk = stage.broker()
    for text in (" 0", "0 ", "+0", "-0", "00", "0x0", "1e0", "0.0", "0_0", "true", "null"):
        talk.ask(30, {"topic": "WORD-t", "queueId": text}, note=f"the end of {text!r}")
        talk.ask(14, {**GROUPED, "queueId": text}, note=f"a position in {text!r}")
        talk.ask(31, {"topic": "WORD-t", "queueId": text}, note=f"the beginning of {text!r}")
        for name in ("queueId", "queueOffset", "maxMsgNums", "sysFlag", "commitOffset", "subVersion", "suspendTimeoutMillis"):
            talk.ask(11, pull("WORD-t", **{name: text}), note=f"a pull whose {name} is {text!r}")


@case
def the_binary_form_of_everything(stage: Stage) -> None:
    stage.topic("zero")
    talk = stage.broker()
    requests: list[tuple[int, dict[str, Any], bytes]] = [
        (310, send("WORD-t", properties(KEYS="a", TAGS="b")), b"x"),
        (10, send_long("WORD-t"), b"y"),
        (320, send("WORD-t", m="true"), batch_body([(b"1", ""), (b"2", "")])),
        (14, GROUPED, b""),
        (15, {**GROUPED, "commitOffset": "1"}, b""),
        (14, GROUPED, b""),
        (29, {"topic": "WORD-t", "queueId": "0", "timestamp": "0"}, b""),
        (38, {"consumerGroup": "nobody"}, b""),
        (34, {}, b'{"clientID":"WORD-c","producerDataSet":[{"groupName":"WORD-p"}]}'),
        (41, {}, lock_body("WORD-c", 0)),
        (42, {}, lock_body("WORD-c", 0)),
        (33, {"offset": "77777777777"}, b""),
        (35, {"clientID": "WORD-c", "producerGroup": "WORD-p"}, b""),
    ]
    for code, ext, body in requests:
        talk.ask(code, ext, body, serialize=BINARY)
    talk.await_offset("WORD-t", 5)
    talk.ask(11, pull("WORD-t"), serialize=BINARY)


@case
def what_is_left_out(stage: Stage) -> None:
    stage.topic("zero")
    names, talk = stage.names(), stage.broker()
    names.ask(101, {"namespace": "WORD"}, note="a value without its name")
    names.ask(101, {"key": "WORD"}, note="a value of nothing")
    names.ask(219, {}, note="all values of nothing")
    names.ask(224, {}, note="the topics of no cluster")
    talk.ask(207, {"groupName": "with blank"}, note="a group that cannot be")
    fields = pull("WORD-t", sysFlag="5")
    talk.ask(11, {name: value for name, value in fields.items() if name != "commitOffset"}, note="a pull that commits nothing")
    for name in ("d", "l"):
        talk.ask(310, send("WORD-t", **{name: ""}), b"x", note=f"an empty {name}")
