"""`polymq bridge`: what the command line may say, and with which status it ends."""

from __future__ import annotations

import asyncio
import os
import signal
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from polymq.cli import bridge as bridge_module
from polymq.cli.bridge import LEFT_OUT
from polymq.cli.main import app
from polymq.clients.bridge_log import LogBegin
from polymq.errors import ConfigError, LocalProtocolError
from tests.unit.clients.bridge_fakes import FakeSource, FakeTarget

if TYPE_CHECKING:
    from pathlib import Path

    from polymq.cli.bridge import Wanted

LOG = "polymq://h/orders"
NSQ = "nsq://h/orders"
BODIES = [b"%d" % number for number in range(5)]


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> tuple[FakeSource, FakeTarget]:
    source, target = FakeSource(BODIES), FakeTarget()
    monkeypatch.setattr(bridge_module, "_source", lambda wanted, tally, cursor: source)
    monkeypatch.setattr("polymq.clients.bridge_groups.TopicTarget", lambda broker, topic, tally, **_options: target)
    return source, target


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["bridge", *arguments])


def test_everything_is_moved(ends: tuple[FakeSource, FakeTarget]) -> None:
    result = run(LOG, NSQ)
    assert result.exit_code == 0, result.output
    assert ends[1].got == BODIES
    assert "polymq://h:4171/orders → nsq://h:4150/orders" in result.output
    assert "moved 5 messages in" in result.output


def test_what_was_left_out_shows_in_the_status(ends: tuple[FakeSource, FakeTarget]) -> None:
    ends[1].decide = lambda _number, body: LocalProtocolError("no") if body == b"3" else None
    result = run(LOG, NSQ, "--skip-refused")
    assert result.exit_code == LEFT_OUT
    assert "1 refused and left out" in result.output


def test_a_refusal_is_an_error(ends: tuple[FakeSource, FakeTarget]) -> None:
    ends[1].decide = lambda _number, body: LocalProtocolError("too large") if body == b"3" else None
    result = run(LOG, NSQ)
    assert "too large" in str(result.exception)
    assert "moved 3 messages" in result.output
    assert ends[0].settled == BODIES[:3]


@pytest.mark.parametrize(("options", "status"), [((), 130), (("--follow",), 0)])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_in_order(
    ends: tuple[FakeSource, FakeTarget], monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], status: int, number: signal.Signals
) -> None:
    source = FakeSource(BODIES, behind="wait")
    keep = source.keep

    async def keep_and_be_interrupted(*, moved: int, is_last: bool = False) -> None:
        await keep(moved=moved, is_last=is_last)
        if moved == len(BODIES):
            os.kill(os.getpid(), number)

    monkeypatch.setattr(source, "keep", keep_and_be_interrupted)
    monkeypatch.setattr(bridge_module, "_source", lambda wanted, tally, cursor: source)
    result = run(LOG, NSQ, *options)
    assert result.exit_code == status
    assert source.settled == BODIES
    assert source.is_closed
    del ends


def test_a_second_signal_ends_it_at_once(ends: tuple[FakeSource, FakeTarget], monkeypatch: pytest.MonkeyPatch) -> None:
    ends[1].hangs = True

    async def open_and_be_interrupted() -> None:
        loop = asyncio.get_running_loop()
        for _ in range(2):
            loop.call_later(0.01, os.kill, os.getpid(), signal.SIGINT)

    monkeypatch.setattr(ends[0], "open", open_and_be_interrupted)
    monkeypatch.setattr("polymq.clients.bridge._GRACE_SECONDS", 60)
    result = run(LOG, NSQ)
    assert result.exit_code == 130
    assert ends[0].is_closed


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((LOG, "polymq://g/orders"), "only read"),
        (("nsq://h/t/c", "nsq://h/t"), "the same"),
        (("nsq://h/t/c", NSQ, "--cursor", "c"), "keeps the place on the server"),
        ((LOG, NSQ, "--idle", "2s"), "groups of servers"),
        (("nsq://h/t/c", NSQ, "--idle", "soon"), "--idle"),
        (("nsq://h/t/c", NSQ, "--idle", "0s"), "more than 0"),
        (("nsq://h/t/c", NSQ, "--from", "earliest"), "cannot go back"),
        (("rocketmq://h/t/c", NSQ, "--from", "17"), "each queue"),
        ((LOG, NSQ, "--from", "yesterday"), "expected earliest"),
        ((LOG, NSQ, "--give-up", "never"), "--give-up"),
        ((LOG, NSQ, "--source-tls", "system"), "without TLS"),
        ((LOG, NSQ, "--target-tls", "/not/there.pem"), "no certificates"),
    ],
)
def test_what_makes_no_sense_is_said(arguments: tuple[str, ...], says: str) -> None:
    result = run(*arguments)
    assert isinstance(result.exception, ConfigError | LocalProtocolError)
    assert says in str(result.exception)


NOW_NS = 1_000_000 * 10**9


@pytest.mark.parametrize(
    ("origin", "begin", "group_begin"),
    [
        (None, LogBegin(), ""),
        ("earliest", LogBegin("earliest"), "first"),
        ("latest", LogBegin("latest"), "last"),
        ("10m", LogBegin("time", time_ns=NOW_NS - 600 * 10**9), datetime.fromtimestamp(999_400, UTC)),
        ("1970-01-02T00:00:00Z", LogBegin("time", time_ns=86_400 * 10**9), datetime(1970, 1, 2, tzinfo=UTC)),
        ("1960-01-01T00:00Z", LogBegin("time"), datetime(1970, 1, 1, tzinfo=UTC)),
    ],
)
def test_where_to_begin(origin: str | None, begin: LogBegin, group_begin: object) -> None:
    assert bridge_module.beginning(origin, "rocketmq", NOW_NS) == (begin, group_begin)


def test_an_offset_is_for_a_log() -> None:
    assert bridge_module.beginning("17", "polymq", NOW_NS)[0] == LogBegin("offset", 17)


def test_what_was_asked_for_reaches_the_bridge(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Wanted] = []

    async def go(wanted: Wanted) -> int:
        seen.append(wanted)
        return 0

    monkeypatch.setattr(bridge_module, "_go", go)
    assert run("nsq://h/t/c", "nats://h", "--count", "7", "--give-up", "1m", "--idle", "3s", "--skip-refused").exit_code == 0
    assert run("rocketmq://h/t/c", "nats://h/s", "-f", "--window", "10", "--from", "latest").exit_code == 0
    assert run(LOG, "nats://h/s").exit_code == 0
    (first, second, third) = seen
    assert (first.window, first.idle_seconds, first.options.count, first.options.patience_seconds) == (7, 3.0, 7, 60.0)
    assert first.options.ends_when_idle
    assert first.options.skips_refused
    assert first.target.topic == "t"
    assert (second.window, second.idle_seconds, second.follows, second.group_begin) == (10, None, True, "last")
    assert not second.options.ends_when_idle
    assert not third.options.ends_when_idle


def test_a_cursor_is_the_bridges_own(ends: tuple[FakeSource, FakeTarget], tmp_path: Path) -> None:
    from polymq.clients.bridge_cursor import Cursor

    path = tmp_path / "c"
    with Cursor(path, "polymq://h:4171/orders", "nsq://h:4150/orders") as cursor:
        cursor.write({}, 1234)
        assert "another bridge" in str(run(LOG, NSQ, "--cursor", str(path)).exception)
    result = run(LOG, NSQ, "--cursor", str(path))
    assert result.exit_code == 0
    assert "1,234 moved before" in result.output
    assert "another bridge" in str(run(LOG, "nsq://h/other", "--cursor", str(path)).exception)
    del ends
