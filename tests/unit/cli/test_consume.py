"""`polymq consume` settles what it has written, and gives back what it was not asked for."""

from __future__ import annotations

import asyncio
import io
from typing import TYPE_CHECKING, Any, Self

import pytest
from typer.testing import CliRunner

from polymq.cli.consume import pour, shown, write_batch
from polymq.cli.main import app
from polymq.cli.render import Form

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

NAMES = ("t", "c")


class FakeMessage:
    time_ns = 0

    def __init__(self, body: bytes, attempts: int = 1) -> None:
        self.id = b"%016x" % int(body)
        self.body = body
        self.attempts = attempts
        self.end = ""

    def settle(self) -> None:
        assert not self.end
        self.end = "settled"

    def requeue(self) -> None:
        assert not self.end
        self.end = "requeued"


class FakeConsumer:
    """Gives batches, then nothing for ever, or ends."""

    def __init__(self, *given: list[FakeMessage], ends: bool = False) -> None:
        self.given = given
        self.ends = ends
        self.flushed = 0

    async def batches(self) -> AsyncIterator[list[FakeMessage]]:
        for batch in self.given:
            yield batch
        if not self.ends:
            await asyncio.Event().wait()

    async def flush(self) -> None:
        self.flushed += 1

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.flushed += 100


def messages(*numbers: int) -> list[FakeMessage]:
    return [FakeMessage(b"%d" % number) for number in numbers]


def poured(consumer: Any, *, count: int | None = None, idle_seconds: float | None = None) -> tuple[int, bytes]:
    target = io.BytesIO()
    written = asyncio.run(pour(consumer, NAMES, Form.BODY, target, count=count, idle_seconds=idle_seconds))
    return written, target.getvalue()


def test_what_is_written_is_settled_and_the_rest_goes_back() -> None:
    class Target(io.BytesIO):
        def flush(self) -> None:
            self.settled_before_flush = [message.end for message in batch]

    batch: Any = messages(1, 2, 3)
    target = Target()
    assert write_batch(batch, NAMES, Form.BODY, target, 2) == 2
    assert target.getvalue() == b"1\n2\n"
    assert target.settled_before_flush == ["", "", ""]
    assert [message.end for message in batch] == ["settled", "settled", "requeued"]


def test_nothing_is_settled_that_could_not_be_written() -> None:
    class Full(io.BytesIO):
        def flush(self) -> None:
            raise OSError("no space left on device")

    batch: Any = messages(1)
    with pytest.raises(OSError, match="no space"):
        write_batch(batch, NAMES, Form.BODY, Full(), None)
    assert batch[0].end == ""


def test_it_stops_after_a_number_of_messages() -> None:
    consumer = FakeConsumer(messages(1, 2), messages(3, 4))
    assert poured(consumer, count=3) == (3, b"1\n2\n3\n")
    assert consumer.flushed == 1


def test_it_stops_when_nothing_comes() -> None:
    consumer = FakeConsumer(messages(1))
    assert poured(consumer, idle_seconds=0.001) == (1, b"1\n")
    assert consumer.flushed == 1
    assert poured(FakeConsumer(), idle_seconds=0.001) == (0, b"")


def test_it_stops_when_the_consumer_ends() -> None:
    assert poured(FakeConsumer(messages(1), messages(2), ends=True)) == (2, b"1\n2\n")


def test_how_a_message_is_shown() -> None:
    first: Any = FakeMessage(b"10")
    again: Any = FakeMessage(b"10", attempts=3)
    assert shown("t", "c", first).place == "000000000000000a"
    assert shown("t", "c", again).place == "000000000000000a ×3"
    assert shown("t", "c", again).facts == {"topic": "t", "channel": "c", "id": "000000000000000a", "attempts": 3}


@pytest.mark.parametrize(
    ("arguments", "in_flight"), [([], 200), (["--count", "2"], 2), (["--in-flight", "1", "--count", "9", "--idle", "1ms"], 1)]
)
def test_the_command(monkeypatch: pytest.MonkeyPatch, arguments: list[str], in_flight: int) -> None:
    made: list[tuple[Any, ...]] = []

    def make(*given: Any, max_in_flight: int) -> FakeConsumer:
        made.append((*given[:3], max_in_flight))
        return FakeConsumer(messages(1, 2), ends=True)

    monkeypatch.setattr("polymq.clients.nsq.NsqConsumer", make)
    done = CliRunner().invoke(app, ["consume", "t", "c", "--nsq", "h:1", "--format", "body", *arguments])
    assert (done.exit_code, done.stdout) == (0, "1\n2\n")
    assert made == [("h:1", "t", "c", in_flight)]


def test_an_idle_time_that_is_none() -> None:
    assert "--idle 'x': expected a time" in str(CliRunner().invoke(app, ["consume", "t", "c", "--idle", "x"]).exception)
