"""Tests of the simulated clients' frames, against the broker's own decoder and encoder: two programs, one protocol."""

import pytest

from polymq.protocols.rocketmq.decode import Decoder
from polymq.protocols.rocketmq.encode import encode_message_ids, encode_response
from polymq.protocols.rocketmq.events import Event, Request
from polymq.protocols.rocketmq.ids import physical_offset
from polymq.protocols.rocketmq.places import Place
from polymq.protocols.rocketmq.settings import RocketmqSettings
from polymq.protocols.rocketmq.stored import Extra, encode_stored_message, make_message
from polymq.testing.rocketmq_wire import Code, FrameReader, batch_body, place_of, properties, pulled_messages, request


def read(data: bytes) -> Request:
    events: list[Event] = []
    decoder = Decoder(RocketmqSettings())
    decoder.every_request = True
    decoder.feed(memoryview(data), events)
    (event,) = events
    assert isinstance(event, Request)
    return event


def test_a_request_is_read_by_the_broker() -> None:
    found = read(request(Code.COMMIT, 7, {"consumerGroup": "g", "commitOffset": 5}, b"body"))
    assert (found.code, found.opaque, found.body, found.oneway) == (15, 7, b"body", False)
    assert found.ext == {"consumerGroup": "g", "commitOffset": "5"}
    assert read(request(Code.COMMIT, 7, {}, oneway=True)).oneway


@pytest.mark.parametrize("cut", [1, 4, 9, 1000])
def test_answers_are_read_in_pieces_of_any_size(cut: int) -> None:
    data = encode_response(0, 3, ext={"offset": "5"}, body=b"abc") + encode_response(17, 4, remark="no topic")
    reader = FrameReader()
    frames = [frame for at in range(0, len(data), cut) for frame in reader.feed(data[at : at + cut])]
    assert [(frame.code, frame.opaque, frame.body, frame.is_answer) for frame in frames] == [(0, 3, b"abc", True), (17, 4, b"", True)]
    assert frames[0].ext == {"offset": "5"}
    assert frames[1].remark == "no topic"


def test_places_are_read_from_ids() -> None:
    text = encode_message_ids(b"\x7f\0\0\1", 10911, physical_offset(5, 17), 2)
    assert [place_of(each) for each in text.split(",")] == [(5, 17), (5, 18)]


def test_pulled_messages_are_read() -> None:
    place = Place(b"t", 2, 5, b"\x7f\0\0\1", 10911, b"DefaultRegion")
    message = make_message(b"00000001", Extra(reconsume_times=3, properties=b"KEYS\x01k\x02"))
    data = encode_stored_message(message, 17, place)
    found = pulled_messages(data + data)
    assert len(found) == 2
    assert (found[0].queue, found[0].offset, found[0].number, found[0].attempts, found[0].topic) == (2, 17, 5, 3, "t")
    assert found[0].body == b"00000001"
    assert found[0].physical == physical_offset(5, 17)


def test_what_does_not_fit_is_noticed() -> None:
    place = Place(b"t", 2, 5, b"\x7f\0\0\1", 10911, b"DefaultRegion")
    data = bytearray(encode_stored_message(make_message(b"00000001", Extra()), 17, place))
    data[3] += 1
    with pytest.raises(ValueError, match="has parts of"):
        pulled_messages(bytes(data))


def test_batches_and_properties_are_written() -> None:
    assert properties({"DELAY": 1, "KEYS": "k"}) == "DELAY\x011\x02KEYS\x01k\x02"
    data = batch_body([b"one", b"three"])
    assert int.from_bytes(data[:4], "big") == 25
    assert len(data) == 25 + 27
