"""`polymq publish` cuts its input into messages and batches, in order, and loses none."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any, Self

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from polymq.cli import publish as publish_module
from polymq.cli.main import app
from polymq.cli.publish import BATCH_MESSAGES, BATCH_SIZE_BYTES, Lines, batches, read_chunk, send, send_lines
from polymq.errors import ConfigError, ConnectionLost

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


class FakeProducer:
    """Remembers what is published: (topic, bodies, delay)."""

    made: list[FakeProducer]

    def __init__(self, address: str = "", options: Any = None) -> None:
        self.address = address
        self.options = options
        self.calls: list[tuple[str, list[bytes], int]] = []

    async def publish(self, topic: str, body: bytes, *, delay_ms: int = 0) -> None:
        self.calls.append((topic, [body], delay_ms))

    async def publish_many(self, topic: str, bodies: Sequence[bytes]) -> None:
        assert len(bodies) > 1
        self.calls.append((topic, list(bodies), 0))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.calls.append(("closed", [], 0))


@given(st.lists(st.binary(max_size=5)), st.lists(st.integers(0, 20), max_size=4))
def test_lines_are_the_same_however_the_input_is_cut(parts: list[bytes], cuts: list[int]) -> None:
    data = b"\n".join(parts)
    lines = Lines()
    found: list[bytes] = []
    places = sorted({min(cut, len(data)) for cut in cuts} | {len(data)})
    for start, end in zip([0, *places], places, strict=False):
        found += lines.feed(data[start:end])
    found += lines.end()
    expected = [line.removesuffix(b"\r") for line in data.split(b"\n")[:-1]] + [data.split(b"\n")[-1]]
    assert found == [line for line in expected if line]


def test_a_line_that_is_too_large_is_refused_and_not_kept() -> None:
    lines = Lines(10)
    assert lines.feed(b"0123456789") == []
    assert lines.feed(b"\nab") == [b"0123456789"]
    assert lines.feed(b"01234567\n") == [b"ab01234567"]
    assert lines.feed(b"x\n" + b"0" * 10) == [b"x"]
    with pytest.raises(ConfigError, match="larger than 10 bytes"):
        lines.feed(b"1")
    lines = Lines(10)
    assert lines.feed(b"x\n" + b"0" * 11) == [b"x"]
    with pytest.raises(ConfigError, match="larger than 10 bytes"):
        lines.end()


def test_what_was_acknowledged_is_said_when_a_publish_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    class Failing(FakeProducer):
        async def publish_many(self, topic: str, bodies: Sequence[bytes]) -> None:
            if self.calls:
                raise ConnectionLost("gone")
            await super().publish_many(topic, bodies)

    monkeypatch.setattr("polymq.clients.nsq.NsqProducer", Failing)
    done = CliRunner().invoke(app, ["publish", "t", *(str(number) for number in range(BATCH_MESSAGES + 2))])
    assert isinstance(done.exception, ConnectionLost)
    assert done.stderr.endswith(f"stopped; the broker has acknowledged {BATCH_MESSAGES} messages to t\n")


@given(st.lists(st.integers(0, BATCH_SIZE_BYTES + 1), max_size=8))
def test_batches_keep_order_and_limits(sizes: list[int]) -> None:
    bodies = [bytes(size) for size in sizes]
    groups = list(batches(bodies))
    assert [body for group in groups for body in group] == bodies
    assert all(group and (len(group) == 1 or sum(map(len, group)) <= BATCH_SIZE_BYTES) for group in groups)


def test_batches_have_a_number_of_messages_at_most() -> None:
    assert [len(group) for group in batches([b"x"] * (BATCH_MESSAGES + 1))] == [BATCH_MESSAGES, 1]


def test_many_go_as_one_and_one_goes_alone() -> None:
    producer = FakeProducer()
    assert asyncio.run(send(producer, "t", [b"a", b"b"], 0)) == 2
    assert asyncio.run(send(producer, "t", [b"c"], 0)) == 1
    assert asyncio.run(send(producer, "t", [], 0)) == 0
    assert asyncio.run(send(producer, "t", [b"d", b"e"], 5)) == 2
    assert producer.calls == [("t", [b"a", b"b"], 0), ("t", [b"c"], 0), ("t", [b"d"], 5), ("t", [b"e"], 5)]


def test_lines_go_as_soon_as_they_are_whole() -> None:
    producer = FakeProducer()
    chunks = [b"a\nb", b"c\n", b"\n", b"d", b""]

    async def read() -> bytes:
        return chunks.pop(0)

    assert asyncio.run(send_lines(producer, "t", read, 0)) == 3
    assert [bodies for _, bodies, _ in producer.calls] == [[b"a"], [b"bc"], [b"d"]]


def test_a_pipe_is_read_when_there_is_something() -> None:
    async def scenario(reading: int, writing: int) -> list[bytes]:
        waiting = asyncio.create_task(read_chunk(reading))
        await asyncio.sleep(0)
        assert not waiting.done()
        os.write(writing, b"x")
        found = [await waiting]
        os.close(writing)
        return [*found, await read_chunk(reading)]

    reading, writing = os.pipe()
    assert asyncio.run(scenario(reading, writing)) == [b"x", b""]
    os.close(reading)


def test_a_file_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "input"
    path.write_bytes(b"text")
    with path.open("rb") as source:
        assert asyncio.run(read_chunk(source.fileno())) == b"text"
        assert asyncio.run(read_chunk(source.fileno())) == b""


@pytest.fixture
def producers(monkeypatch: pytest.MonkeyPatch) -> list[FakeProducer]:
    made: list[FakeProducer] = []

    def make(address: str, options: Any) -> FakeProducer:
        made.append(FakeProducer(address, options))
        return made[-1]

    monkeypatch.setattr("polymq.clients.nsq.NsqProducer", make)
    return made


def test_arguments_are_messages(producers: list[FakeProducer]) -> None:
    done = CliRunner().invoke(app, ["publish", "t", "one", "zwei ü", "--nsq", "h:1"])
    assert (done.exit_code, done.stderr) == (0, "published 2 messages to t\n")
    assert producers[0].address == "h:1"
    assert producers[0].options.deadline_seconds == publish_module.DEADLINE_SECONDS
    assert producers[0].calls == [("t", [b"one", "zwei ü".encode()], 0), ("closed", [], 0)]


def test_a_delay(producers: list[FakeProducer]) -> None:
    done = CliRunner().invoke(app, ["publish", "t", "one", "--nsq", "h:1", "--delay", "1m30s"])
    assert done.stderr == "published 1 message to t\n"
    assert producers[0].calls[0] == ("t", [b"one"], 90_000)


def test_all_of_the_input_as_one(producers: list[FakeProducer]) -> None:
    done = CliRunner().invoke(app, ["publish", "t", "--nsq", "h:1", "--whole"], input=b"a\n\xff\n")
    assert done.exit_code == 0
    assert producers[0].calls[0] == ("t", [b"a\n\xff\n"], 0)


def test_lines_of_the_input(producers: list[FakeProducer], monkeypatch: pytest.MonkeyPatch) -> None:
    chunks = [b"a\nb\n", b""]

    async def read(_: int) -> bytes:
        return chunks.pop(0)

    class Input:
        isatty = staticmethod(lambda: True)
        fileno = staticmethod(lambda: 0)

    monkeypatch.setattr(publish_module, "read_chunk", read)
    monkeypatch.setattr("sys.stdin", Input)
    acknowledged = [0]
    publish_module._publish("t", [], False, 0, "h:1", acknowledged)
    assert acknowledged == [2]
    assert producers[0].calls[0] == ("t", [b"a", b"b"], 0)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [(["x", "--whole"], "--whole reads standard input"), (["x", "--delay", "soon"], "--delay 'soon': expected a time with its unit")],
)
def test_what_makes_no_sense(arguments: list[str], says: str) -> None:
    assert says in str(CliRunner().invoke(app, ["publish", "t", *arguments]).exception)
