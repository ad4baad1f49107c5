"""`polymq consume --http` settles what it has written, over another connection than it comes, and never has too much out."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from polymq.cli import consume_http
from polymq.cli.consume_http import pour
from polymq.cli.main import app
from polymq.cli.nsq_http import NsqHttp
from polymq.cli.render import Form
from polymq.errors import ConfigError, ConnectionLost, DeadlineExceeded, RemoteProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from polymq.cli.nsq_http import Stream

OPENING = b'{"stream":"token","topic":"t","channel":"c","max_in_flight":1,"msg_timeout":60000}\n'


def line(number: int, **more: object) -> bytes:
    row = {"id": f"{number:016x}", "timestamp": 0, "attempts": 1, "body": str(number), **more}
    return json.dumps({name: value for name, value in row.items() if value is not None}).encode() + b"\n"


class Broker:
    """Gives pieces, then what `last` does; remembers what it was asked."""

    def __init__(self, *pieces: bytes, last: Callable[[], bytes] = lambda: b"") -> None:
        self.pieces = [OPENING, *pieces]
        self.last = last
        self.status = 200
        self.asked: list[tuple[str, bytes]] = []
        self.waits: list[float] = []
        self.answers: dict[str, tuple[int, bytes]] = {}
        self.now = 0.0
        self.closed = False

    def __call__(self, method: str, path: str, body: bytes = b"", headers: Sequence[tuple[str, bytes]] = (), /) -> tuple[int, bytes]:
        assert (method, headers) == ("POST", ())
        self.asked.append((path, body))
        return self.answers.get(path.partition("?")[0], (200, b""))

    def stream(self, path: str) -> Stream:
        self.asked.append((path, b""))
        return self

    def read(self, timeout_seconds: float) -> bytes:
        self.waits.append(timeout_seconds)
        return self.pieces.pop(0) if self.pieces else self.last()

    def close(self) -> None:
        self.closed = True

    def pour(self, form: Form = Form.BODY, *, count: int | None = None, idle: float | None = None) -> tuple[int, bytes]:
        target = io.BytesIO()
        http = NsqHttp("h:1", self, self.stream)
        written = pour(http, ("t", "c"), form, target, count=count, idle_seconds=idle, in_flight=200, clock=lambda: self.now)
        assert self.closed
        return written, target.getvalue()


def silence() -> bytes:
    raise TimeoutError


def ids(*numbers: int) -> bytes:
    return "\n".join(f"{number:016x}" for number in numbers).encode()


def test_what_comes_together_is_settled_together() -> None:
    broker = Broker(line(1) + line(2), b"\n", line(3)[:5], line(3)[5:], last=silence)
    assert broker.pour(idle=1) == (3, b"1\n2\n3\n")
    assert broker.asked == [
        ("/sub?topic=t&channel=c&max_in_flight=200", b""),
        ("/fin?stream=token", ids(1, 2)),
        ("/fin?stream=token", ids(3)),
    ]


def test_messages_that_come_with_the_first_line() -> None:
    broker = Broker(last=silence)
    broker.pieces = [OPENING + line(1)]
    assert broker.pour(idle=1) == (1, b"1\n")


def test_nothing_is_settled_that_could_not_be_written() -> None:
    class Full(io.BytesIO):
        def flush(self) -> None:
            raise OSError("no space left on device")

    broker = Broker(line(1))
    with pytest.raises(OSError, match="no space"):
        pour(NsqHttp("h:1", broker, broker.stream), ("t", "c"), Form.BODY, Full(), count=None, idle_seconds=None, in_flight=1)
    assert len(broker.asked) == 1
    assert broker.closed


def test_no_more_is_out_than_is_still_wanted() -> None:
    broker = Broker(line(1), line(2) + line(3))
    assert broker.pour(count=3) == (3, b"1\n2\n3\n")
    assert broker.asked == [
        ("/sub?topic=t&channel=c&max_in_flight=3", b""),
        ("/rdy?stream=token&count=2", b""),
        ("/fin?stream=token", ids(1)),
        ("/rdy?stream=token&count=0", b""),
        ("/fin?stream=token", ids(2, 3)),
    ]


def test_many_ids_are_sent_in_parts() -> None:
    many = range(1, consume_http._IDS_MAX + 2)
    broker = Broker(b"".join(map(line, many)), last=silence)
    assert broker.pour(idle=1)[0] == len(many)
    bodies = [body for path, body in broker.asked if path.startswith("/fin")]
    assert b"\n".join(bodies) == ids(*many)
    assert len(bodies) == 2
    assert max(map(len, bodies)) <= 64 * 1024


def test_idle_time_begins_with_each_message_and_not_with_signs_of_life() -> None:
    broker = Broker()
    pieces = [(0.0, OPENING), (3.0, line(1)), (7.0, b"\n"), (7.5, b"\n"), (8.0, b"\n"), (9.0, line(2))]

    def read(timeout_seconds: float) -> bytes:
        at, piece = pieces.pop(0)
        if at > broker.now + timeout_seconds:
            broker.now += timeout_seconds
            raise TimeoutError
        broker.now = at
        return piece

    broker.read = read  # type: ignore[method-assign]  # this one has a clock
    assert broker.pour(idle=5) == (1, b"1\n")
    assert broker.now == 8


def test_a_broker_that_falls_silent_and_one_that_ends_the_stream() -> None:
    for idle in (None, 1000.0):
        broker = Broker(last=silence)
        with pytest.raises(DeadlineExceeded, match="nothing for 75 s"):
            broker.pour(idle=idle)
        assert max(broker.waits) == 75
    broker = Broker(line(1))
    with pytest.raises(ConnectionLost, match="ended the stream"):
        broker.pour(count=2)


def test_what_came_too_late_to_be_settled_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    broker = Broker(line(1), last=silence)
    broker.answers["/fin"] = (409, b'{"message":"FIN_FAILED","failed":["0000000000000001"]}')
    assert broker.pour(idle=1)[0] == 1
    assert "some messages come again" in capsys.readouterr().err
    broker = Broker(line(1), last=silence)
    broker.answers["/fin"] = (404, b'{"message":"STREAM_NOT_FOUND"}')
    with pytest.raises(ConfigError, match="the stream has ended"):
        broker.pour(idle=1)


def test_how_messages_are_shown() -> None:
    broker = Broker(
        line(10, key="DL1149", headers=[["trace", "7f3a"]]),
        line(11, attempts=3, body=None, body_base64="/w==", key_base64="/g=="),
        last=silence,
    )
    assert [json.loads(text) for text in broker.pour(Form.JSON, idle=1)[1].splitlines()] == [
        {
            "time_ns": 0,
            "topic": "t",
            "channel": "c",
            "id": "000000000000000a",
            "attempts": 1,
            "headers": [["trace", "7f3a"]],
            "key": "DL1149",
            "body": "10",
        },
        {
            "time_ns": 0,
            "topic": "t",
            "channel": "c",
            "id": "000000000000000b",
            "attempts": 3,
            "key_base64": "/g==",
            "body_base64": "/w==",
        },
    ]
    broker = Broker(line(1) + line(2, attempts=3, key="k"), last=silence)
    first, again = broker.pour(Form.LINE, idle=1)[1].decode().splitlines()
    assert first.endswith("  0000000000000001  1")
    assert again.endswith("  0000000000000002 ×3  k → 2")


@pytest.mark.parametrize(
    "data",
    [
        b"x\n",
        b"5\n",
        b"[]\n",
        b"{}\n",
        b"\xff\n",
        line(1, body=None),
        line(1, body=None, body_base64="a"),
        b'{"id":1}\n',
        line(1, id=5),
        line(1, timestamp=10**30),
        line(1, timestamp="x"),
        b"[" * 100_000 + b"\n",
    ],
)
def test_what_is_no_answer_to_sub(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="not what /sub answers with"):
        Broker(data, last=silence).pour(Form.LINE, idle=1)


@given(st.lists(st.binary(max_size=30) | st.sampled_from([b"\n", line(1), line(2)[:20], line(2)[20:], OPENING]), max_size=6))
def test_whatever_comes_is_messages_or_an_error(pieces: list[bytes]) -> None:
    broker = Broker(*filter(None, pieces), last=silence)
    try:
        written, _ = broker.pour(idle=1)
    except RemoteProtocolError:
        return
    assert written <= len(b"".join(pieces))


def test_an_opening_that_is_none() -> None:
    broker = Broker(last=silence)
    broker.pieces = [line(1)]
    with pytest.raises(RemoteProtocolError, match="not what /sub answers with"):
        broker.pour(idle=1)


def test_a_line_without_end_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consume_http, "_LINE_SIZE_BYTES_MAX", 100)
    with pytest.raises(RemoteProtocolError):
        Broker(*[b"x" * 30] * 4, last=lambda: b"x").pour()


@pytest.mark.parametrize("option", ["--http", ""])
def test_the_command(option: str, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker(line(1), line(2))
    reached: list[tuple[str, int, str]] = []

    def connect(*where: Any) -> Broker:
        reached.append(where)
        return broker

    monkeypatch.setattr("polymq.cli.nsq_http._Connection", connect)
    arguments = ["consume", "t", "c", "--nsq-http", "h:1", "--format", "body", "--count", "2", *filter(None, [option])]
    done = CliRunner().invoke(app, arguments)
    assert (done.exit_code, done.stdout) == (0, "1\n2\n")
    assert reached == [("h", 1, "")]
    assert broker.asked[0][0] == "/sub?topic=t&channel=c&max_in_flight=2"


def test_an_address_for_tcp_is_none_for_http() -> None:
    done = CliRunner().invoke(app, ["consume", "t", "c", "--http", "--nsq", "h:1"])
    assert str(done.exception) == "--nsq names the broker for TCP, and this goes over HTTP: name it with --nsq-http HOST:PORT"
