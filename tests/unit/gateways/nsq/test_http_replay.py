"""Setting a channel back or forth over HTTP."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polymq import limits
from polymq.gateways.nsq.http_replay import read_time_ns
from tests.unit.core.conftest import inbox
from tests.unit.core.fakes import START_NS
from tests.unit.gateways.nsq.http_world import NsqWorld, message, parse

SECOND_NS = 1_000_000_000
REPLAY = "/channel/replay?topic=t&channel=c"


class Story(NsqWorld):
    """Ten messages, one a second from second 0 on, all of them settled; the consumer wants more."""

    def __init__(self, partitions: int = 1) -> None:
        super().__init__(partitions)
        self.consumer = self.consume("t", "c", 100)
        for index in range(10):
            self.publish("t", b"%d" % index)
            self.wait(1)
        self.settle(self.consumer, *inbox(self.consumer).ids)
        inbox(self.consumer).got.clear()

    def replay(self, query: str) -> str:
        """What comes again, after an order that is obeyed."""
        answer = self.post(f"{REPLAY}&{query}")
        assert (answer.status, answer.body) == (200, b"")
        self.turn()
        assert {attempts for _body, attempts in inbox(self.consumer).got} <= {1}, "as for the first time"
        return b"".join(sorted(inbox(self.consumer).bodies)).decode()


@pytest.mark.parametrize(
    ("query", "again"),
    [
        ("from=start", "0123456789"),
        ("from=end", ""),
        ("offset=0", "0123456789"),
        ("offset=7", "789"),
        ("offset=10", ""),
        ("offset=99", ""),
        (f"time={START_NS + 4 * SECOND_NS}", "456789"),
        (f"time={START_NS + 4 * SECOND_NS + 1}", "56789"),
        (f"time={START_NS + 60 * SECOND_NS}", ""),
        ("time=2023-11-14T22:13:27Z", "789"),
        ("time=2023-11-14T22:13:26.5Z", "789"),
        ("time=2023-11-15T00:13:27%2B02:00", "789"),
        ("time=0001-01-01T00:00:00Z", "0123456789"),
        ("time=9999-12-31T00:00:00Z", ""),
        ("ago=3000", "789"),
        ("ago=0", ""),
        ("ago=9223372036854775807", "0123456789"),
        ("offset=7&partition=0", "789"),
    ],
)
def test_a_channel_goes_on_where_it_is_told_to(query: str, again: str) -> None:
    assert Story().replay(query) == again


def test_going_forth_leaves_out_what_lies_between() -> None:
    world = NsqWorld()
    world.post("/topic/create?topic=t")
    world.post("/channel/create?topic=t&channel=c")
    world.publish("t", *[b"%d" % index for index in range(10)])
    world.turn()
    assert world.post(f"{REPLAY}&offset=8").status == 200
    consumer = world.consume("t", "c", 100)
    world.turn()
    assert inbox(consumer).bodies == [b"8", b"9"]


def test_all_partitions_or_one() -> None:
    assert Story(4).replay("from=start") == "0123456789"
    story = Story(4)
    some = story.replay("from=start&partition=2")
    assert 0 < len(some) < 10
    assert message(story.post(f"{REPLAY}&from=start&partition=4")) == (400, "INVALID_PARTITION")


def test_it_outlives_the_process() -> None:
    story = Story()
    story.replay("offset=7")
    story.restart()
    assert [group.depth for group in story.view().groups] == [3]


def test_what_is_on_the_disk_is_waited_for() -> None:
    story = Story()
    story.store.logs[0].cold = True
    wire = story.raw(f"POST {REPLAY}&ago=3000 HTTP/1.1\r\nHost: h\r\n\r\n".encode())
    wire.wait(50 * limits.HTTP_POLL_INTERVAL_NS)
    assert wire.output == b""
    story.store.logs[0].cold = False
    wire.wait(limits.HTTP_POLL_INTERVAL_NS)
    assert parse(wire.output).status == 200
    story.turn()
    assert inbox(story.consumer).bodies == [b"7", b"8", b"9"], "counted from when it was asked"


def test_damage_is_said() -> None:
    story = Story()
    story.store.logs[0].failed = "planted"
    assert message(story.post(f"{REPLAY}&ago=3000")) == (503, "STORE_FAILED")


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ("", 400, "MISSING_ARG_TOPIC"),
        ("topic=a$&channel=c", 400, "INVALID_ARG_TOPIC"),
        ("topic=t", 400, "MISSING_ARG_CHANNEL"),
        ("topic=t&channel=c$", 400, "INVALID_ARG_CHANNEL"),
        ("topic=t&channel=c", 400, "MISSING_ARG_FROM"),
        ("topic=t&channel=c&from=start&offset=1", 400, "CONFLICTING_ARGS"),
        ("topic=t&channel=c&from=middle", 400, "INVALID_FROM"),
        ("topic=t&channel=c&offset=-1", 400, "INVALID_OFFSET"),
        (f"topic=t&channel=c&offset={limits.OFFSET_MAX + 1}", 400, "INVALID_OFFSET"),
        ("topic=t&channel=c&time=yesterday", 400, "INVALID_TIME"),
        ("topic=t&channel=c&time=2023-11-14T22:13:27", 400, "INVALID_TIME"),
        ("topic=t&channel=c&time=2023-11-14", 400, "INVALID_TIME"),
        ("topic=t&channel=c&time=1700000000", 400, "INVALID_TIME"),
        ("topic=t&channel=c&time=1700000000000", 400, "INVALID_TIME"),
        ("topic=t&channel=c&time=1700000000000000", 400, "INVALID_TIME"),
        ("topic=t&channel=c&ago=10m", 400, "INVALID_AGO"),
        ("topic=t&channel=c&from=start&partition=x", 400, "INVALID_PARTITION"),
        ("topic=t&channel=c&from=start&partition=1", 400, "INVALID_PARTITION"),
        ("topic=nope&channel=c&from=start", 404, "TOPIC_NOT_FOUND"),
        ("topic=nope&channel=c&from=start&partition=0", 404, "TOPIC_NOT_FOUND"),
        ("topic=t&channel=nope&from=start", 404, "CHANNEL_NOT_FOUND"),
        ("topic=%zz", 400, "INVALID_REQUEST"),
    ],
)
def test_where_a_channel_cannot_go(query: str, status: int, code: str) -> None:
    story = Story()
    assert message(story.post(f"/channel/replay?{query}")) == (status, code)
    story.turn()
    assert inbox(story.consumer).bodies == []


def test_it_is_post() -> None:
    assert message(Story().get(f"{REPLAY}&from=start")) == (405, "METHOD_NOT_ALLOWED")


def test_times_that_no_message_can_have_are_the_nearest_that_one_can() -> None:
    assert read_time_ns("0001-01-01T00:00:00Z") == 0
    assert read_time_ns("9999-12-31T00:00:00Z") == limits.TIME_NS_MAX
    assert read_time_ns("2023-11-14T22:13:20.000001Z") == START_NS + 1000


@given(st.text(max_size=40))
def test_any_text_is_a_time_or_none(text: str) -> None:
    try:
        found = read_time_ns(text)
    except ValueError:
        return
    assert 0 <= found <= limits.TIME_NS_MAX
