from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polymq import limits
from polymq.errors import Refusal, RefusalCode
from polymq.gateways.nats.log_requests import BadRequest, LogRequest, OutOfRange, answer, error_answer, parse_request, replayed
from polymq.gateways.nats.records import header_block
from polymq.wire.batch import Message
from polymq.wire.live import LiveMessage

DAY_NS = 86_400 * 10**9


def request(verb: str, payload: str | bytes = b"", *, block: bytes = b"") -> LogRequest:
    body = payload.encode() if isinstance(payload, str) else payload
    return parse_request(LiveMessage(f"$POLYMQ.LOG.{verb}".encode(), block + body, b"reply", header_size=len(block)))


@pytest.mark.parametrize(
    ("verb", "payload", "expected"),
    [
        ("TOPICS", "", LogRequest(b"TOPICS")),
        ("TOPICS", '{"after": "t"}', LogRequest(b"TOPICS", after="t")),
        ("INFO.a.b", "{}", LogRequest(b"INFO", "a.b")),
        ("READ.a.b.c", "", LogRequest(b"READ", "a.b.c")),
        ("READ.t", '{"offset": 0, "count": 5, "size": 6, "partition": 7}', LogRequest(b"READ", "t", 7, 0, None, 5, 6)),
        ("READ.t", '{"count": 0, "time_ns": 17}', LogRequest(b"READ", "t", time_ns=17, count=0)),
        ("READ.t", '{"time": "1970-01-02T00:00:00Z"}', LogRequest(b"READ", "t", time_ns=DAY_NS)),
        ("READ.t", '{"time": "1970-01-02"}', LogRequest(b"READ", "t", time_ns=DAY_NS)),
        ("READ.t", '{"time": "1970-01-02T02:00:00.5+02:00"}', LogRequest(b"READ", "t", time_ns=DAY_NS + 5 * 10**8)),
        ("READ.t", '{"time": "1492-10-12"}', LogRequest(b"READ", "t", time_ns=0)),
        ("READ.t", '{"time": "9999-10-12"}', LogRequest(b"READ", "t", time_ns=2**63 - 1)),
        ("FOLLOW.t", '{"to": "my.subject"}', LogRequest(b"FOLLOW", "t", to=b"my.subject")),
        ("CANCEL", '{"follow": "12"}', LogRequest(b"CANCEL", follow="12")),
    ],
)
def test_requests_are_read(verb: str, payload: str, expected: LogRequest) -> None:
    assert request(verb, payload) == expected
    assert request(verb, payload, block=b"NATS/1.0\r\nA: b\r\n\r\n") == expected


@pytest.mark.parametrize(
    ("verb", "payload", "said"),
    [
        ("WRITE.t", "", "no such request"),
        ("READ", "", "no such request"),
        ("TOPICS.t", "", "no such request"),
        ("READ.t", "offset=5", "a JSON object"),
        ("READ.t", "[1]", "a JSON object"),
        ("READ.t", b"\xff", "a JSON object"),
        ("READ.t", "[" * 4000, "a JSON object"),
        ("READ.t", " " * 4097, "4096 bytes"),
        ("READ.t", '{"ofset": 5}', "READ has no ofset"),
        ("TOPICS", '{"offset": 5}', "TOPICS has no offset"),
        ("INFO.t", '{"offset": 5}', "INFO has no offset"),
        ("READ.t", '{"offset": -1}', "offset: expected a whole number"),
        ("READ.t", '{"offset": 1.5}', "offset: expected a whole number"),
        ("READ.t", '{"offset": true}', "offset: expected a whole number"),
        ("READ.t", '{"offset": 1e400}', "offset: expected a whole number"),
        ("READ.t", '{"partition": 257}', "partition: expected a whole number"),
        ("READ.t", '{"offset": 1, "time_ns": 1}', "at most one"),
        ("READ.t", '{"time": "yesterday"}', "time: expected a time"),
        ("FOLLOW.t", '{"to": 5}', "to: expected a text"),
        ("FOLLOW.t", '{"to": "\\ud800"}', "to: expected a text"),
        ("FOLLOW.t", '{"count": 5}', "FOLLOW has no count"),
    ],
)
def test_what_is_wrong_is_said(verb: str, payload: str | bytes, said: str) -> None:
    with pytest.raises(BadRequest, match=said):
        request(verb, payload)


def test_topics_are_utf_8() -> None:
    assert request("INFO.ü").topic == "ü"
    with pytest.raises(BadRequest, match="UTF-8"):
        parse_request(LiveMessage(b"$POLYMQ.LOG.INFO.\xff", b""))


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5), lambda inner: st.lists(inner, max_size=2), max_leaves=3
)
names = st.sampled_from(("partition", "offset", "time", "time_ns", "count", "size", "to", "follow", "after", "other"))


@given(
    st.sampled_from(("TOPICS", "INFO.t", "READ.t", "FOLLOW.t", "CANCEL", "")),
    st.dictionaries(names, values, max_size=3) | st.binary(max_size=20),
)
def test_anything_may_be_asked(verb: str, asked: dict[str, object] | bytes) -> None:
    """It is understood, or it is a bad request."""
    try:
        found = request(verb, asked if isinstance(asked, bytes) else json.dumps(asked))
    except BadRequest:
        return
    assert 0 <= found.partition <= limits.PARTITIONS_PER_TOPIC_MAX
    assert all(number is None or 0 <= number < 1 << 63 for number in (found.offset, found.time_ns, found.count, found.size_bytes))


def test_answers_say_the_same_in_headers_and_in_json() -> None:
    found = error_answer(b"r", OutOfRange(3, 5, 2))
    assert found.payload[: found.header_size] == b"NATS/1.0 416 Offset Out Of Range\r\n\r\n"
    text = "there is no offset 2: the log has the offsets from 3 to 5"
    assert json.loads(found.payload[found.header_size :]) == {"error": "OFFSET_OUT_OF_RANGE", "message": text, "start": 3, "readable": 5}
    assert error_answer(b"r", Refusal(RefusalCode.LOGIN_EXPIRED)).payload.startswith(b"NATS/1.0 401 Unauthorized\r\n")
    assert error_answer(b"r", BadRequest("what?")).payload.startswith(b"NATS/1.0 400 Bad Request\r\n")
    assert error_answer(b"r", Refusal(RefusalCode.STORE_FAILED)).payload.startswith(b"NATS/1.0 500 Server Error\r\n")
    assert answer(b"r", {"a": 1}) == LiveMessage(b"r", b'{"a":1}')


def test_a_message_of_the_log_says_where_it_is_from() -> None:
    message, own = Message(b"body", time_ns=17), b"NATS/1.0\r\nA: b\r\n\r\n"
    found = replayed(b"to", (b"orders.new", 2, 5), LiveMessage(b"orders.new", own + b"body", b"answers", len(own)), message)
    expected = (
        b"NATS/1.0\r\nPolymq-Topic: orders.new\r\nPolymq-Partition: 2\r\nPolymq-Offset: 5\r\nPolymq-Time-Ns: 17\r\n"
        b"Polymq-Reply: answers\r\nA: b\r\n\r\n"
    )
    assert found == LiveMessage(b"to", expected + b"body", header_size=len(expected))
    bare = replayed(b"to", (b"t", 0, 0), LiveMessage(b"t", b""), Message(b""))
    assert bare.payload == b"NATS/1.0\r\nPolymq-Topic: t\r\nPolymq-Partition: 0\r\nPolymq-Offset: 0\r\nPolymq-Time-Ns: 0\r\n\r\n"


PLACE = b"NATS/1.0\r\nPolymq-Topic: t\r\nPolymq-Partition: 0\r\nPolymq-Offset: 7\r\nPolymq-Time-Ns: 0\r\n"


def own_lines(block: bytes) -> bytes:
    """What is said of a message's own block behind where it is from."""
    found = replayed(b"to", (b"t", 0, 7), LiveMessage(b"t", block + b"body", header_size=len(block)), Message(b"body"))
    said, body = found.payload[: found.header_size], found.payload[found.header_size :]
    assert (said[: len(PLACE)], said[-2:], body) == (PLACE, b"\r\n", b"body")
    return said[len(PLACE) : -2]


@pytest.mark.parametrize(
    "lines",
    [
        b"",
        b"A: b\r\n",
        b"X:  v  \r\nX: v2\r\nx: v3\r\n",
        b"E:\r\nU: \xff\xfe\r\nT:\t1\r\n",
        b"X-Polymq-Offset: 1\r\nA: Polymq-Offset: 2\r\nX-Status: 3\r\nStatuses: 4\r\nA: status: 1\r\n",
    ],
)
def test_headers_are_given_byte_for_byte(lines: bytes) -> None:
    assert own_lines(b"NATS/1.0\r\n" + lines + b"\r\n") == lines


@pytest.mark.parametrize(
    ("block", "said"),
    [
        (b"NATS/1.0\r\nPolymq-Offset: 999999\r\nA: b\r\npolymq-TOPIC: other\r\n\r\n", b"A: b\r\n"),
        (b"NATS/1.0\r\nA:  b\r\nStatus: 200 OK\r\n\r\n", b"Polymq-Status: 200 OK\r\nA:  b\r\n"),
        (b"NATS/1.0 100 Idle\r\nA: b\r\n\r\n", b"Polymq-Status: 100 Idle\r\nA: b\r\n"),
        (b"NATS/1.0\r\nstatus: 1\nPolymq-Offset: 5\r\nStatus:\r\n\r\n", b""),
        (b"NATS/1.0\r\nno colon\r\nA: b\r\n c\r\n: d\r\n\r\n", b"A: b\r\n"),
        (b"NATS/1.0\r\n Polymq-Offset: 5\r\nPolymq-Offset : 5\r\nA: b\nPolymq-Offset: 5\r\nB: c\rD: e\r\n\r\n", b""),
        (b"NATS/1.0\r\nA: b\r\n\r\nB: c\r\n\r\n", b"A: b\r\nB: c\r\n"),
        (b"NATS/1.0\r\nA: b\r\n", b"A: b\r\n"),
        (b"NATS/1.0\r\n", b""),
        (b"XXXX\r\n\r\n", b""),
    ],
)
def test_no_header_of_a_message_is_taken_for_the_logs(block: bytes, said: bytes) -> None:
    whole = b"Polymq-Block: %b\r\n" % base64.b64encode(block)
    found = own_lines(block)
    assert whole in found, "nothing is lost"
    assert found.replace(whole, b"") == said


@given(st.lists(st.binary(max_size=12) | st.sampled_from((b"Polymq-Offset: 1", b"A: b", b"Status: 1")), max_size=4), st.booleans())
def test_whatever_a_publisher_writes_the_place_is_the_logs(lines: list[bytes], exact: bool) -> None:
    """Read by a client that splits at every line's end and trims names, the last of several headers counting."""
    block = b"NATS/1.0\r\n" + b"".join(line + b"\r\n" for line in lines) + b"\r\n"
    if not exact:
        block = header_block([(line[:4], line[4:]) for line in lines])
    read = dict[bytes, bytes]()
    for line in (PLACE + own_lines(block)).replace(b"\r", b"\n").split(b"\n")[1:]:
        if line:
            name, colon, value = line.partition(b":")
            assert colon
            read[name.strip().lower()] = value.strip()
    assert (read[b"polymq-offset"], read[b"polymq-topic"]) == (b"7", b"t")
    assert b"status" not in read
