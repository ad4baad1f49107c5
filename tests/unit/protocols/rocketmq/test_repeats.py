from __future__ import annotations

import pytest

from polymq.protocols.rocketmq import decode
from polymq.protocols.rocketmq.events import Again, Event, Request
from polymq.rocketmq_limits import REPEATED_SIZE_BYTES_MAX, REPEATS_PER_FEED_MAX
from tests.unit.protocols.nsq.streams import interpreted

from .frames import SETTINGS, binary_frame, json_frame, send_ext

PULL = {"consumerGroup": "G", "topic": "T", "queueId": 0, "queueOffset": 7, "maxMsgNums": 32, "sysFlag": 2, "commitOffset": 3}
plain = interpreted("polymq.protocols.rocketmq.repeats")


def heard(decoder: decode.Decoder, frame: bytes) -> Event:
    events: list[Event] = []
    assert decoder.feed(memoryview(frame), events) == len(frame)
    (event,) = events
    return event


def taught(frame: bytes) -> decode.Decoder:
    decoder = decode.Decoder(SETTINGS)
    request = heard(decoder, frame)
    assert isinstance(request, Request)
    assert request.key
    decoder.lanes[request.key] = "lane"
    return decoder


@pytest.mark.parametrize("code", [11, 361])
def test_a_pull_from_elsewhere_is_known_again(code: int) -> None:
    decoder = taught(json_frame(code, PULL))
    assert heard(decoder, json_frame(code, PULL | {"queueOffset": 123456789012, "commitOffset": 9}, opaque=5)) == Again(
        "lane", 5, 123456789012, 9
    )
    without = {name: value for name, value in PULL.items() if name != "commitOffset"}
    assert heard(taught(json_frame(code, without)), json_frame(code, without, opaque=6)) == Again("lane", 6, 7, -1)


def test_a_batch_that_was_born_later_is_known_again() -> None:
    ext = send_ext(m="true")
    decoder = taught(json_frame(320, ext, b"first"))
    assert heard(decoder, json_frame(320, ext | {"g": "99"}, b"second", opaque=2)) == Again("lane", 2, 99, -1, b"second")


def test_in_binary_too_and_not_mistaken_for_the_other() -> None:
    ext = {name: str(value) for name, value in PULL.items()}
    decoder = taught(binary_frame(11, ext))
    assert isinstance(heard(decoder, binary_frame(11, ext | {"queueOffset": "8"})), Again)
    assert isinstance(heard(decoder, json_frame(11, ext)), Request)


@pytest.mark.parametrize(
    "changed",
    [
        {"topic": "U"},
        {"consumerGroup": "GT", "topic": ""},
        {"sysFlag": 3},
        {"queueOffset": "x"},
        {"queueOffset": -1},
        {"queueOffset": "1" * 19},
        {"commitOffset": -1},
        {"more": 1},
        {"more": "x" * REPEATED_SIZE_BYTES_MAX},
    ],
)
def test_what_differs_is_a_request(changed: dict[str, object]) -> None:
    decoder = taught(json_frame(11, PULL))
    event = heard(decoder, json_frame(11, PULL | changed))
    assert isinstance(event, Request)
    assert event.ext == {name: str(value) for name, value in (PULL | changed).items()}


@pytest.mark.parametrize(("code", "flag", "body"), [(11, 2, b""), (11, 1, b""), (11, 0, b"body"), (34, 0, b"")])
def test_what_is_no_plain_pull_is_a_request(code: int, flag: int, body: bytes) -> None:
    event = heard(taught(json_frame(11, PULL)), json_frame(code, PULL, body, flag=flag))
    assert isinstance(event, Request)
    assert not event.key


def test_a_client_and_who_looks_at_every_request_know_none_again() -> None:
    decoder = taught(json_frame(11, PULL))
    decoder.every_request = True
    assert isinstance(heard(decoder, json_frame(11, PULL)), Request)
    event = heard(decode.Decoder(SETTINGS, server=False), json_frame(11, PULL))
    assert isinstance(event, Request)
    assert not event.key


def test_so_many_come_at_once() -> None:
    decoder = taught(json_frame(11, PULL))
    decoder.requests_max = 1
    events: list[Event] = []
    frame = json_frame(11, PULL)
    stream = frame * (REPEATS_PER_FEED_MAX + 9)
    consumed = decoder.feed(memoryview(stream), events)
    assert len(events) == REPEATS_PER_FEED_MAX + 1
    assert consumed == len(events) * len(frame)


def test_uncompiled_as_well() -> None:
    from polymq.protocols.rocketmq import fields

    scanner, data = fields.Fields(), json_frame(11, PULL)[8:]
    found = plain.Repeats()
    assert scanner.scan_json(data, 0, len(data))
    assert found.find(scanner, data, False, False) is None
    found.lanes[found.key] = 5
    assert found.find(scanner, data, False, False) == 5
    assert (found.number, found.commit_offset) == (7, 3)
