from __future__ import annotations

import contextlib
import socket
from typing import TYPE_CHECKING

import pytest

from polymq.clients.log import Chunk, LogClient, OffsetOutOfRange, PartitionInfo, parse_address
from polymq.errors import ConnectFailed, ConnectionLost, DeadlineExceeded, Refusal, RefusalCode, RemoteProtocolError
from polymq.wire.records import Message
from tests.unit.clients.fake_log import BASE_TIME_NS, FakeLog

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def log() -> Iterator[FakeLog]:
    fake = FakeLog()
    partition = fake.create("orders", 2)[0]
    for first in range(0, 30, 10):
        partition.append([Message(b"%d" % n) for n in range(first, first + 10)])
    yield fake
    fake.close()


@pytest.fixture
def client(log: FakeLog) -> Iterator[LogClient]:
    client = LogClient(log.address, timeout_seconds=5)
    yield client
    client.close()


def read(client: LogClient, offset: int = 0, end: int = 1000, size_bytes_max: int = 10**6) -> Chunk:
    return client.records("orders", 0, offset, end=end, size_bytes_max=size_bytes_max)


def test_topics_are_described_with_their_partitions_in_order(client: LogClient) -> None:
    (topic,) = client.topics()
    assert topic == client.topic("orders")
    assert [info.partition for info in topic.partitions] == [0, 1]
    size_bytes = len(read(client).data)
    assert topic.partitions[0] == PartitionInfo(0, 1, 1, ((1, 0),), 0, 30, 30, size_bytes)


def test_a_log_says_what_it_is_called(log: FakeLog, client: LogClient) -> None:
    log.node = "n1"
    assert (client.node(), client.topic("orders").node, read(client).node) == ("n1", "n1", "n1")


def test_any_json_is_fetched(log: FakeLog, client: LogClient) -> None:
    log.others["/nodes"] = {"producers": []}
    assert client.json("/nodes") == {"producers": []}


def test_records_come_as_whole_batches(client: LogClient) -> None:
    chunk = read(client, 5)
    assert [(header.base_offset, header.count) for _, _, header in chunk.batches()] == [(0, 10), (10, 10), (20, 10)]
    assert (chunk.epoch, chunk.start, chunk.readable) == (1, 0, 30)
    assert [header.base_offset for _, _, header in read(client, 10, size_bytes_max=1).batches()] == [10]
    assert [header.base_offset for _, _, header in read(client, 0, end=20).batches()] == [0, 10]
    assert read(client, 30).data == b""


def test_the_offset_of_a_time(client: LogClient) -> None:
    assert client.offset_at("orders", 0, BASE_TIME_NS + 10_000) == 10


def test_what_the_broker_refuses_is_a_refusal(log: FakeLog, client: LogClient) -> None:
    with pytest.raises(Refusal) as refused:
        client.topic("no/such topic")
    assert refused.value.code is RefusalCode.TOPIC_NOT_FOUND
    assert log.requests[-1] == "/v1/topics/no%2Fsuch%20topic"
    log.topics["orders"][0].trim(20)
    with pytest.raises(OffsetOutOfRange) as trimmed:
        read(client, 5)
    assert (trimmed.value.start, trimmed.value.readable) == (20, 30)


def test_damaged_batches_do_not_get_through(log: FakeLog, client: LogClient) -> None:
    log.damage = True
    with pytest.raises(RemoteProtocolError, match="checksum"):
        read(client)


def test_a_gap_between_batches_does_not_get_through(log: FakeLog, client: LogClient) -> None:
    del log.topics["orders"][0].batches[1]
    with pytest.raises(RemoteProtocolError, match="starts at offset 20 where 10 was due"):
        read(client)


@pytest.mark.parametrize(
    "answer",
    [
        (200, {"Content-Type": "text/plain"}, b""),
        (200, {"Content-Type": "application/vnd.polymq.batches"}, b""),
        (500, {}, b"oops"),
        (400, {}, b'{"error": "SOMETHING_NEW"}'),
        (200, {"Content-Type": "application/vnd.polymq.batches"}, bytes(17 * 1024 * 1024)),
    ],
    ids=["type", "headers", "status", "code", "size"],
)
def test_an_answer_that_is_not_the_doors_is_a_protocol_error(
    log: FakeLog, client: LogClient, answer: tuple[int, dict[str, str], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "answer", lambda path: answer)
    with pytest.raises(RemoteProtocolError):
        read(client)


@pytest.mark.parametrize("body", [b"[]", b"{", b'{"topics": [{"name": "x"}]}', b'{"topics": 5}'])
def test_json_that_is_not_the_doors_is_a_protocol_error(
    log: FakeLog, client: LogClient, body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "answer", lambda path: (200, {}, body))
    with pytest.raises(RemoteProtocolError):
        client.topics()


def test_a_connection_that_was_kept_and_has_died_is_opened_again(log: FakeLog, client: LogClient) -> None:
    client.topics()
    log.hang_up = 1
    assert client.topics()
    log.hang_up = 2
    with pytest.raises(ConnectionLost):
        client.topics()


def test_a_broker_that_is_stopping_is_as_one_that_is_away(log: FakeLog, client: LogClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "answer", lambda path: (503, {}, b'{"error":"SHUTTING_DOWN","message":"bye"}'))
    with pytest.raises(ConnectionLost, match="shutting down"):
        client.topics()
    monkeypatch.undo()
    assert client.topics()


def test_a_broker_that_ends_the_connection_behind_an_answer_is_reached_again(log: FakeLog, client: LogClient) -> None:
    log.last_answers = 1
    assert client.topics() == client.topics()


def test_waiting_for_records_comes_on_top_of_patience() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = LogClient(f"127.0.0.1:{silent.getsockname()[1]}", timeout_seconds=0.02)
        with pytest.raises(DeadlineExceeded, match=r"within 0\.07 s"):
            client.records("orders", 0, 0, end=1, size_bytes_max=1, wait_ms=50)


def test_an_answer_that_ends_too_early_is_not_taken(log: FakeLog, client: LogClient) -> None:
    log.cut_answers = 1
    with pytest.raises(ConnectionLost):
        read(client)
    assert read(client).data


def test_a_broker_that_is_away_is_tried_until_the_time_is_over() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    now = [0.0]
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        now[0] += seconds

    client = LogClient(address, retry_seconds=5, sleep=sleep, monotonic=lambda: now[0])
    with pytest.raises(ConnectFailed):
        client.topics()
    assert pauses[:6] == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0]
    assert 4 < sum(pauses) <= 5


def test_a_silent_broker_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = LogClient(f"127.0.0.1:{silent.getsockname()[1]}", timeout_seconds=0.05)
        with pytest.raises(DeadlineExceeded):
            client.topics()
        assert "idle" in repr(client)


def test_addresses() -> None:
    assert parse_address("localhost:4171") == ("localhost", 4171)
    assert parse_address("[::1]:80") == ("::1", 80)
    for wrong in ("", "host", ":1", "host:", "host:0", "host:65536", "host:-1", "host:x", "a:1,b:2"):
        with pytest.raises(ValueError, match="host:port"):
            parse_address(wrong)


def test_a_secret_is_sent_and_not_shown(log: FakeLog) -> None:
    log.create("t")
    with contextlib.closing(LogClient(log.address, secret="planted")) as client:
        client.topics()
        assert "planted" not in repr(client)
    with contextlib.closing(LogClient(log.address)) as client:
        client.topics()
    assert log.secrets == ["Bearer planted", None]
    for wrong in ("line\nbreak", "größe"):
        with pytest.raises(ValueError, match="printable ASCII"):
            LogClient(log.address, secret=wrong)
