"""Tests of the simulator's own HTTP and of its own reading of record batches, against the real ones."""

import pytest

from polymq.testing.http_wire import AnswerReader, BrokenBatchesError, request, take_batches
from polymq.wire.batch import BatchHeader
from polymq.wire.records import HEADER_SIZE_BYTES, Message, encode_message, seal

ANSWERS = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 404 No\r\nTransfer-Encoding: chunked\r\nX: y\r\n\r\n3\r\nabc\r\n1\r\nd\r\n0\r\n\r\n"


def test_a_request_is_encoded() -> None:
    assert request("GET", "/a", {"b": "c d"}) == b"GET /a?b=c+d HTTP/1.1\r\nHost: simulated\r\n\r\n"
    assert request("POST", "/a", {}) == b"POST /a HTTP/1.1\r\nHost: simulated\r\nContent-Length: 0\r\n\r\n"


@pytest.mark.parametrize("step", [1, 7, len(ANSWERS)])
def test_answers_are_cut_out_of_the_stream(step: int) -> None:
    reader = AnswerReader()
    found = [answer for at in range(0, len(ANSWERS), step) for answer in reader.feed(ANSWERS[at : at + step])]
    assert [(answer.status, answer.body) for answer in found] == [(200, b"ok"), (404, b"abcd")]
    assert found[1].headers["x"] == "y"


def batch(*messages: Message, base_offset: int) -> bytes:
    records = b"".join(encode_message(message) for message in messages)
    data = bytearray(bytes(HEADER_SIZE_BYTES) + records)
    seal(data, 0, len(data), BatchHeader(segment_id=1, epoch=3, count=len(messages), base_offset=base_offset))
    return bytes(data)


def test_batches_are_taken_apart_as_the_broker_puts_them_together() -> None:
    data = batch(Message(b"one"), Message(b"two", key=b"k", headers=((b"a", b"b"),)), base_offset=5) + batch(Message(b""), base_offset=7)
    assert [tuple(each) for each in take_batches(data)] == [(3, 5, [b"one", b"two"]), (3, 7, [b""])]
    for damaged in (data[:-1], b"x" * 100, data[:83] + b"\1" + data[84:]):
        with pytest.raises(BrokenBatchesError):
            take_batches(damaged)
