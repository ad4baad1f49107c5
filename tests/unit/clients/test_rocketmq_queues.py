"""Queues by offset, over a name server and brokers in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from polymq.clients.rocketmq_options import RocketMQOptions, RocketMQTls
from polymq.clients.rocketmq_queues import Extent, MessageQueue, QueueClient, columns_of, is_lasting, plain_run
from polymq.errors import (
    ConnectFailed,
    ConnectionLost,
    DeadlineExceeded,
    LocalProtocolError,
    Refusal,
    RefusalCode,
    RemoteProtocolError,
)
from polymq.protocols.rocketmq.acl import is_signed_with
from tests.unit.clients.fake_queues import BASE_TIME_MS, FakeQueues

if TYPE_CHECKING:
    from collections.abc import Iterator

FIRST, SECOND = MessageQueue("orders", "broker-a", 0), MessageQueue("orders", "broker-a", 1)
OTHER = MessageQueue("orders", "broker-b", 0)


@pytest.fixture
def queues() -> Iterator[FakeQueues]:
    fake = FakeQueues()
    fake.create("orders", 2)
    fake.put("orders", 50)
    yield fake
    fake.close()


@pytest.fixture
def client(queues: FakeQueues) -> Iterator[QueueClient]:
    made = connect(queues)
    yield made
    made.close()


def connect(queues: FakeQueues, **options: Any) -> QueueClient:
    return QueueClient(queues.address, "g", RocketMQOptions(**{"request_seconds": 2.0, **options}))


@pytest.mark.parametrize("binary", [False, True])
def test_extents_and_pulls(queues: FakeQueues, binary: bool) -> None:
    client, queues.binary = connect(queues, binary=binary), binary
    queues.queues["orders"]["broker-a"][0].first = 5
    assert client.extents([FIRST, SECOND]) == {FIRST: Extent(5, 55), SECOND: Extent(0, 0)}
    assert client.ends([SECOND, FIRST]) == {SECOND: 0, FIRST: 55}
    client.close()
    (pulled,) = client.pull(FIRST, [5], 10)
    assert (pulled.next_offset, pulled.extent, pulled.is_moved) == (15, Extent(5, 55), False)
    assert columns_of(plain_run(pulled.run), 0, 99).bodies == b"0123456789"
    client.close()


def test_several_pulls_are_answered_in_order(queues: FakeQueues, client: QueueClient) -> None:
    pulled = client.pull(FIRST, [0, 10, 50, 60], 10)
    assert [each.next_offset for each in pulled] == [10, 20, 50, 50]
    assert [bool(each.run) for each in pulled] == [True, True, False, False]
    assert [each.is_moved for each in pulled] == [False, False, False, True]


def test_pulls_end_at_the_first_that_is_refused(queues: FakeQueues, client: QueueClient) -> None:
    queues.scripts[11] = lambda ext: (2, "busy", {}, b"") if ext["queueOffset"] == "10" else None
    assert len(client.pull(FIRST, [0, 10, 20], 10)) == 1
    with pytest.raises(Refusal, match="busy"):
        client.pull(FIRST, [10], 10)


def test_many_queues_are_asked_for_piece_by_piece(queues: FakeQueues, client: QueueClient) -> None:
    queues.create("events", 300)
    queues.put("events", 2, queue=299)
    wanted = [MessageQueue("events", "broker-a", number) for number in range(300)]
    ends = client.ends(wanted)
    assert list(ends) == wanted
    assert sum(ends.values()) == ends[wanted[-1]] == 2
    client.commit(dict.fromkeys(wanted, 1))
    assert len(queues.committed) == 300


def test_what_is_being_removed_is_told(queues: FakeQueues, client: QueueClient) -> None:
    fields = {"nextBeginOffset": "9", "minOffset": "0", "maxOffset": "50"}
    queues.scripts[11] = lambda _: (20, "MESSAGE_WAS_REMOVING", fields, b"")
    (pulled,) = client.pull(FIRST, [0], 10)
    assert (pulled.is_removing, pulled.run) == (True, b"")
    queues.scripts[11] = lambda _: (20, "NO_MATCHED_MESSAGE", fields, b"")
    assert not client.pull(FIRST, [0], 10)[0].is_removing


@pytest.mark.parametrize("hint", [0, 19, 20, 21, 49, 50, 99, -1])
@pytest.mark.parametrize(("time_ms", "offset"), [(0, 0), (BASE_TIME_MS + 191, 20), (BASE_TIME_MS + 200, 20), (BASE_TIME_MS + 10_000, 50)])
def test_times_are_found_whatever_the_broker_says(queues: FakeQueues, client: QueueClient, hint: int, time_ms: int, offset: int) -> None:
    queues.scripts[29] = lambda _: (0, "", {"offset": str(hint)}, b"")
    assert client.offset_at(FIRST, time_ms) == offset
    assert client.offset_at(SECOND, time_ms) == 0


def test_a_right_hint_costs_two_looks(queues: FakeQueues, client: QueueClient) -> None:
    queues.scripts[29] = lambda _: (0, "", {"offset": "20"}, b"")
    client.offset_at(FIRST, BASE_TIME_MS + 200)
    assert queues.codes().count(11) == 2


def test_times_are_found_around_what_is_left_out(queues: FakeQueues, client: QueueClient) -> None:
    messages = queues.queues["orders"]["broker-a"][0].messages
    messages[10:30] = [None] * 20
    assert 10 <= client.offset_at(FIRST, BASE_TIME_MS + 200) <= 30
    messages[10:] = [None] * 40
    assert client.offset_at(FIRST, BASE_TIME_MS + 200) >= 10


def test_routes_are_asked_for_again_when_they_are_old(queues: FakeQueues) -> None:
    now = [0.0]
    client = QueueClient(queues.address, "g", RocketMQOptions(), monotonic=lambda: now[0])
    for at, asked in ((0.0, 1), (4.0, 1), (6.0, 2)):
        now[0] = at
        route = client.route("orders", age_seconds_max=5.0)
        assert route is not None
        assert queues.codes().count(105) == asked
    assert client.route("nothing") is None
    client.close()


def test_users_topics_are_listed(queues: FakeQueues, client: QueueClient) -> None:
    queues.create("events")
    assert client.topics() == ["events", "orders"]


def test_gone_is_what_a_broker_that_is_there_does_not_have(queues: FakeQueues, client: QueueClient) -> None:
    queues.create("orders", 1, "broker-b")
    queues.create("events", 1, "broker-b")
    assert not client.is_gone(OTHER)
    queues.away.add("broker-b")
    assert not client.is_gone(OTHER)
    queues.away.clear()
    del queues.queues["orders"]["broker-b"]
    assert client.is_gone(OTHER)
    assert client.is_gone(MessageQueue("orders", "broker-a", 7))
    queues.scripts[106] = lambda _: (3, "not supported", {}, b"")
    assert not client.is_gone(OTHER)


def test_positions_are_committed(queues: FakeQueues, client: QueueClient) -> None:
    client.commit({FIRST: 7, SECOND: 0})
    assert queues.committed == {("orders", "broker-a", "0"): 7, ("orders", "broker-a", "1"): 0}
    queues.scripts[15] = lambda _: (1, "no", {}, b"")
    with pytest.raises(Refusal, match="position of g"):
        client.commit({FIRST: 7})


def test_a_beginning_that_cannot_be_read_is_removed(queues: FakeQueues, client: QueueClient) -> None:
    assert not client.is_beginning_removed(FIRST)
    queues.scripts[32] = lambda _: (0, "", {"timestamp": "-1"}, b"")
    assert client.is_beginning_removed(FIRST)
    assert not client.is_beginning_removed(SECOND)


def test_requests_are_signed(queues: FakeQueues) -> None:
    client = connect(queues, access_key="ak", secret_key="sk", security_token="st")
    client.ends([FIRST])
    assert all(ext["AccessKey"] == "ak" and ext["SecurityToken"] == "st" and is_signed_with("sk", ext, b"") for _, ext in queues.asked)
    client.close()


def test_the_next_name_server_is_asked(queues: FakeQueues) -> None:
    client = QueueClient(f"127.0.0.1:1;{queues.address}", "g", RocketMQOptions())
    assert client.route("orders") is not None
    client.close()
    nobody = QueueClient("127.0.0.1:1", "g", RocketMQOptions())
    with pytest.raises(ConnectFailed):
        nobody.route("orders")


def test_a_broker_that_is_away_is_asked_again_by_a_new_connection(queues: FakeQueues, client: QueueClient) -> None:
    queues.away.add("broker-a")
    with pytest.raises(ConnectFailed, match="broker-a"):
        client.ends([FIRST])
    queues.away.clear()
    client.ends([FIRST])

    def close(_: dict[str, str]) -> None:
        raise OSError

    queues.scripts[30] = close
    with pytest.raises(ConnectionLost):
        client.ends([FIRST])
    del queues.scripts[30]
    assert client.ends([FIRST]) == {FIRST: 50}


def test_refusals_are_told_apart(queues: FakeQueues, client: QueueClient) -> None:
    queues.scripts[105] = lambda _: (1, "org.apache.rocketmq.acl.common.AclException: no", {}, b"")
    with pytest.raises(Refusal) as caught:
        client.route("orders")
    assert is_lasting(caught.value)
    assert not is_lasting(Refusal(RefusalCode.LIMIT_REACHED))
    assert not is_lasting(ConnectFailed("x"))
    del queues.scripts[105]
    queues.scripts[30] = lambda _: (2, "busy", {}, b"")
    with pytest.raises(Refusal, match="the last offset of orders, queue 0 of broker-a"):
        client.ends([FIRST])
    queues.scripts[206] = lambda _: (2, "busy", {}, b"")
    with pytest.raises(Refusal, match="list of topics"):
        client.topics()


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"\0\0\0\x02\0\0", RemoteProtocolError),
        (b"\x7f\0\0\0", RemoteProtocolError),
        (b"\0\0\0\x08\0\0\0\x09abcd", RemoteProtocolError),
        (b"\0\0\0\x06\0\0\0\x02[]", RemoteProtocolError),
        (b"\0\0\0\x08", DeadlineExceeded),
        (b"", DeadlineExceeded),
    ],
)
def test_nonsense_and_silence_are_errors(
    queues: FakeQueues, monkeypatch: pytest.MonkeyPatch, answer: bytes, error: type[Exception]
) -> None:
    monkeypatch.setattr("tests.unit.clients.fake_queues.encode_response", lambda *_, **__: answer)
    client = connect(queues, request_seconds=0.2)
    with pytest.raises(error):
        client.route("orders")
    client.close()


def test_a_server_that_does_not_stop_talking_is_left(queues: FakeQueues, monkeypatch: pytest.MonkeyPatch) -> None:
    told = b'\0\0\0\x1b\0\0\0\x17{"code":40,"opaque":99}'
    monkeypatch.setattr("tests.unit.clients.fake_queues.encode_response", lambda *_, **__: told * 1001)
    client = connect(queues)
    with pytest.raises(RemoteProtocolError, match="nobody has asked"):
        client.route("orders")
    client.close()


def test_bad_options_are_refused() -> None:
    with pytest.raises(LocalProtocolError):
        QueueClient("nowhere", "g", RocketMQOptions())
    client = QueueClient("127.0.0.1:1", "g", RocketMQOptions(tls=RocketMQTls(root_file="/nowhere")))
    with pytest.raises(ConnectFailed, match="TLS"):
        client.route("orders")
