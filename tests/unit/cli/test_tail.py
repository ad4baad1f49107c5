"""`polymq tail` prints what lies in the log from where it was told, past what was trimmed, and ends when it should."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from typer.testing import CliRunner

from polymq.cli import tail as tail_module
from polymq.cli.main import app
from polymq.cli.render import Form
from polymq.cli.tail import follow, messages_of, start_offsets
from polymq.clients.log import Chunk, OffsetOutOfRange, PartitionInfo, TopicInfo
from polymq.errors import ConfigError, Refusal, RefusalCode
from polymq.wire.batch import ATTRIBUTE_RENEWED, BatchHeader, Message, encode_message, seal
from polymq.wire.records import HEADER_SIZE_BYTES


def batch(base_offset: int, bodies: list[bytes], key: bytes | None = None, attributes: int = 0) -> bytes:
    data = bytearray(HEADER_SIZE_BYTES)
    for body in bodies:
        data += encode_message(Message(body, key, ((b"h", b"v"),)))
    seal(
        data, 0, len(data), BatchHeader(count=len(bodies), base_offset=base_offset, base_time_ns=base_offset * 10**9, attributes=attributes)
    )
    return bytes(data)


class FakeLog:
    """Partitions of batches of two messages, some trimmed; answers like the client of the log's door."""

    def __init__(self, *, starts: tuple[int, ...], ends: tuple[int, ...]) -> None:
        self.starts, self.ends = list(starts), list(ends)
        self.waits: list[int] = []
        self.epochs: list[tuple[int, int]] = [(1, 0)]
        self.renewed: set[int] = set()  # first offsets of batches

    def topic(self, name: str) -> TopicInfo:
        infos = (
            PartitionInfo(number, number, self.epochs[-1][0], tuple(self.epochs), start, end, end)
            for number, (start, end) in enumerate(zip(self.starts, self.ends, strict=True))
        )
        return TopicInfo("", name, tuple(infos))

    def offset_at(self, topic: str, partition: int, time_ns: int) -> int:
        return max(self.starts[partition], -(-time_ns // 10**9))

    def records(self, topic: str, partition: int, offset: int, *, end: int, size_bytes_max: int, wait_ms: int) -> Chunk:
        self.waits.append(wait_ms)
        start, readable = self.starts[partition], self.ends[partition]
        if not start <= offset <= readable:
            raise OffsetOutOfRange("gone", start=start, readable=readable)
        first = offset - offset % 2
        mark = ATTRIBUTE_RENEWED if first in self.renewed else 0
        bodies = [b"m%d" % number for number in range(first, min(first + 2, readable))]
        data = batch(first, bodies, b"k", mark) if offset < readable else b""
        return Chunk(data, self.epochs[-1][0], start, readable, 1)

    def close(self) -> None:
        self.waits.append(-1)


def places(log: Any, offsets: dict[int, int], *, limit: int | None = None, forever: bool = False) -> list[str]:
    return [shown.place for shown in follow(log, "t", offsets, forever=forever, limit=limit)]


def partitions(log: FakeLog) -> list[PartitionInfo]:
    return list(log.topic("t").partitions)


@pytest.mark.parametrize(
    ("origin", "last", "offsets"),
    [
        (None, 3, {0: 7, 1: 4}),
        (None, 0, {0: 10, 1: 5}),
        (None, 99, {0: 2, 1: 4}),
        ("start", 3, {0: 2, 1: 4}),
        ("end", 3, {0: 10, 1: 5}),
        ("6", 3, {0: 6, 1: 6}),
        ("2s", 3, {0: 7, 1: 7}),
    ],
)
def test_where_to_begin(origin: str | None, last: int, offsets: dict[int, int]) -> None:
    log: Any = FakeLog(starts=(2, 4), ends=(10, 5))
    assert start_offsets(log, "t", partitions(log), origin, last, 9 * 10**9) == offsets


def test_where_to_begin_must_make_sense() -> None:
    log: Any = FakeLog(starts=(0,), ends=(1,))
    with pytest.raises(ConfigError, match="how long ago"):
        start_offsets(log, "t", partitions(log), "yesterday", 3, 0)


def test_it_ends_at_the_end_of_all_partitions() -> None:
    log = FakeLog(starts=(0, 0), ends=(3, 1))
    assert places(log, {0: 1, 1: 0}) == ["0:1", "1:0", "0:2"]
    assert set(log.waits) == {0}


def test_following_waits_at_the_end() -> None:
    log = FakeLog(starts=(0, 0), ends=(2, 2))
    assert places(log, {0: 0, 1: 0}, forever=True, limit=4) == ["0:0", "0:1", "1:0", "1:1"]
    assert set(log.waits) == {tail_module.WAIT_MS // 2}


def test_a_limit_in_the_middle_of_a_batch() -> None:
    assert places(FakeLog(starts=(0,), ends=(9,)), {0: 0}, limit=3) == ["0:0", "0:1", "0:2"]


@pytest.mark.parametrize(
    ("end", "first", "places_after", "says"),
    [
        (8, 4, ["0:4", "0:5", "0:6", "0:7"], "offsets from 4 on are given again, what was printed for them is lost; going on at 4"),
        (5, 4, ["0:4"], "offsets from 4 on are given again, what was printed for them is lost; going on at 4"),
        (8, 6, ["0:6", "0:7"], "the broker lost power, a new epoch has begun; going on at 6"),
    ],
)
def test_a_new_epoch_is_said(end: int, first: int, places_after: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    log = FakeLog(starts=(0,), ends=(6,))
    client: Any = log
    shown = follow(client, "t", {0: 2}, forever=True, limit=4 + len(places_after))
    assert [next(shown).place for _ in range(4)] == ["0:2", "0:3", "0:4", "0:5"]
    log.ends[0] = end
    log.epochs.append((2, first))
    assert [message.place for message in shown] == places_after
    assert says in capsys.readouterr().err


def test_what_was_trimmed_is_skipped_and_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert places(FakeLog(starts=(4,), ends=(6,)), {0: 1}) == ["0:4", "0:5"]
    assert capsys.readouterr().err == "polymq: partition 0: offset 1 is not in the log; going on at 4\n"


def test_an_offset_beyond_the_end_begins_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    assert places(FakeLog(starts=(4,), ends=(6,)), {0: 99}) == []
    assert "going on at 6" in capsys.readouterr().err


def test_a_refusal_that_makes_no_sense_is_passed_on() -> None:
    class Confused(FakeLog):
        def records(self, *_: Any, **__: Any) -> Chunk:
            raise OffsetOutOfRange("gone", start=0, readable=5)

    with pytest.raises(OffsetOutOfRange):
        places(Confused(starts=(0,), ends=(5,)), {0: 3})


def test_messages_of_a_chunk() -> None:
    chunk = Chunk(batch(4, [b"a", b"b"], b"k") + batch(6, [b"c"]), 1, 0, 7, 1)
    found = list(messages_of("t", 2, chunk, 5))
    assert [(offset, shown.body, shown.key, shown.time_ns) for offset, shown in found] == [
        (5, b"b", b"k", 4 * 10**9),
        (6, b"c", None, 6 * 10**9),
    ]
    assert found[0][1].facts == {"topic": "t", "partition": 2, "offset": 5, "headers": [["h", "v"]]}


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> FakeLog:
    made = FakeLog(starts=(0, 0), ends=(4, 2))

    def connect(address: str, **_: str) -> FakeLog:
        assert address == "h:1"
        return made

    monkeypatch.setattr("polymq.clients.log.LogClient", connect)
    return made


def test_the_command(log: FakeLog) -> None:
    done = CliRunner().invoke(app, ["tail", "t", "--http", "h:1", "-n", "1", "--format", "json"])
    assert done.exit_code == 0, done.output
    assert [json.loads(line) for line in done.output.splitlines()] == [
        {"time_ns": 2 * 10**9, "topic": "t", "partition": 0, "offset": 3, "headers": [["h", "v"]], "key": "k", "body": "m3"},
        {"time_ns": 0, "topic": "t", "partition": 1, "offset": 1, "headers": [["h", "v"]], "key": "k", "body": "m1"},
    ]
    assert log.waits[-1] == -1


def test_one_partition_as_bodies(log: FakeLog) -> None:
    done = CliRunner().invoke(app, ["tail", "t", "--http", "h:1", "--partition", "1", "--from", "start", "--format", "body"])
    assert done.output == "m0\nm1\n"
    done = CliRunner().invoke(app, ["tail", "t", "--http", "h:1", "-f", "--count", "1", "--format", "body"])
    assert done.output == "m0\n"


def test_a_partition_that_is_not_there(log: FakeLog) -> None:
    done = CliRunner().invoke(app, ["tail", "t", "--http", "h:1", "--partition", "2"])
    assert str(done.exception) == "--partition 2: topic 't' has partitions 0 to 1"


def test_a_topic_that_is_not_there(log: FakeLog, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(code: RefusalCode) -> None:
        def topic(_: str) -> TopicInfo:
            raise Refusal(code)

        monkeypatch.setattr(log, "topic", topic)

    refuse(RefusalCode.TOPIC_NOT_FOUND)
    assert str(CliRunner().invoke(app, ["tail", "t", "--http", "h:1"]).exception) == "there is no topic 't': polymq stats lists all"
    refuse(RefusalCode.FORBIDDEN)
    assert isinstance(CliRunner().invoke(app, ["tail", "t", "--http", "h:1"]).exception, Refusal)


def test_output_is_flushed_when_following() -> None:
    class Target(io.BytesIO):
        flushes = 0

        def flush(self) -> None:
            self.flushes += 1

    log: Any = FakeLog(starts=(0,), ends=(2,))
    for forever, flushes in ((True, 3), (False, 1)):
        target = Target()
        tail_module._print(log, "t", None, ("start", 0, forever, 2), Form.BODY, target, lambda: 0)
        assert target.flushes == flushes


def test_what_readers_pass_over_is_not_printed() -> None:
    log = FakeLog(starts=(0,), ends=(9,))
    log.renewed = {2, 4, 8}
    assert places(log, {0: 0}) == ["0:0", "0:1", "0:6", "0:7"]
