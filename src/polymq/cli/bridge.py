"""`polymq bridge`: move a topic from any server to any other, at least once; `--follow` keeps a warm copy."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from polymq.errors import ConfigError, LocalProtocolError

if TYPE_CHECKING:
    from datetime import datetime

    from polymq.cli.bridge_reach import Reach
    from polymq.clients.bridge import Bridge, BridgeOptions
    from polymq.clients.bridge_address import BridgeEnd
    from polymq.clients.bridge_cursor import Cursor
    from polymq.clients.bridge_ends import BridgeSource, Tally
    from polymq.clients.bridge_log import LogBegin

__all__ = ["app", "beginning", "bridge"]

NS_PER_S: Final = 10**9
LOG_DEADLINE_SECONDS: Final = 10.0
LEFT_OUT: Final = 3
INTERRUPTED: Final = 130
EXAMPLES: Final = """[bold]Examples[/bold]

[cyan]polymq bridge nsq://old:4150/orders/move rocketmq://new:9876/orders[/cyan]
what the channel "move" of nsqd gets, to RocketMQ (or to polymq, which speaks that); ends when nothing has come for 2 s

[cyan]polymq bridge polymq://node1:4171/orders rocketmq://node2:9876/orders --follow --cursor orders.cursor[/cyan]
a warm copy of a topic on another node: all partitions, from the oldest message on, for ever; started again, it goes on
where it was

[cyan]polymq bridge polymq://node1:4171/orders nsq://127.0.0.1:4150/replay --from 2h[/cyan]
the last two hours once more, to another topic; nobody's messages are taken away

[cyan]polymq bridge rocketmq://ns1:9876,ns2:9876/TopicTest/mover nats://hub:4222/orders.in --follow[/cyan]
a consumer group of RocketMQ's to a subject; its offsets are the cursor

[cyan]polymq bridge phpmq://old:9100/mails phpmq://new:9100 --count 10[/cyan]
ten messages, to the queue of the same name

[bold]Addresses[/bold]: nsq://HOST:PORT/TOPIC/CHANNEL · rocketmq://NS:PORT,NS:PORT/TOPIC/GROUP · nats://HOST:PORT/SUBJECT/GROUP ·
phpmq://HOST:PORT/QUEUE · polymq://HOST:PORT/TOPIC (the log of a polymq node by its HTTP port; only to read from). A target has
no group, and without a topic the source's. Logins: PROTOCOL://USER:SECRET@HOST.

[bold]Promise[/bold]: a message is settled at the source once the target has acknowledged it. What breaks in between leads to copies, never
to a loss; two exceptions: NATS as a source sends everything once, and a NATS server as a target keeps nothing by itself.

[bold]Exit status[/bold]: 0 all is moved (or --follow was ended by a signal) · 1 an error · 3 all is moved but what was refused, or gone before it
was read · 130 interrupted before the end
"""

app = typer.Typer(rich_markup_mode="rich", add_completion=False, no_args_is_help=True)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the command line says, read."""

    source: BridgeEnd
    target: BridgeEnd
    follows: bool
    cursor: Path | None
    origin: LogBegin
    group_begin: str | datetime
    idle_seconds: float | None
    window: int
    options: BridgeOptions
    source_reach: Reach
    target_reach: Reach


SourceArgument = Annotated[str, typer.Argument(metavar="SRC", show_default=False, help="where the messages are: see Addresses")]
TargetArgument = Annotated[str, typer.Argument(metavar="DST", show_default=False, help="where they go")]
FollowOption = Annotated[bool, typer.Option("--follow", "-f", help="go on with new messages until Ctrl-C")]
CursorOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", show_default=False, help="keep how far it is here, and go on there (polymq:// as the source)"),
]
FromOption = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="WHERE",
        show_default=False,
        help="where to begin the first time: earliest (the default), latest, an offset, how long ago (2h), or a time (2026-05-01T12:00Z)",
    ),
]
CountOption = Annotated[int | None, typer.Option(metavar="N", min=1, show_default=False, help="stop after this many messages")]
IdleOption = Annotated[
    str | None,
    typer.Option(metavar="TIME", show_default=False, help="without --follow, a server's group ends when nothing comes for so long (2s)"),
]
WindowOption = Annotated[int, typer.Option(metavar="N", min=1, max=100_000, help="messages of a group that are here unsettled")]
SkipOption = Annotated[bool, typer.Option("--skip-refused", help="leave out, and count, messages that the target refuses")]
GiveUpOption = Annotated[
    str | None,
    typer.Option(metavar="TIME", show_default=False, help="stop with an error when a server is away for so long (default: never)"),
]
SourceTlsOption = Annotated[
    str | None, typer.Option(metavar="FILE|system", show_default=False, help="reach SRC within TLS; these authorities vouch for it")
]
TargetTlsOption = Annotated[str | None, typer.Option(metavar="FILE|system", show_default=False, help="the same for DST")]
LegacyOption = Annotated[bool, typer.Option("--phpmq-legacy", help="speak the older dialect, as PHPMQ's reference server does")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="reach both ends, say what would be moved, and move nothing")]


@app.command(epilog=EXAMPLES, no_args_is_help=True)
def bridge(
    source: SourceArgument,
    target: TargetArgument,
    follow: FollowOption = False,
    cursor: CursorOption = None,
    origin: FromOption = None,
    count: CountOption = None,
    idle: IdleOption = None,
    window: WindowOption = 2000,
    skip_refused: SkipOption = False,
    give_up: GiveUpOption = None,
    source_tls: SourceTlsOption = None,
    target_tls: TargetTlsOption = None,
    phpmq_legacy: LegacyOption = False,
    dry_run: DryRunOption = False,
) -> None:
    """Move a topic between any two servers, polymq's or real ones: NSQ, RocketMQ, NATS, PHPMQ. At least once."""
    import asyncio
    import time

    from polymq.cli.bridge_reach import Reach
    from polymq.clients.bridge import BridgeOptions
    from polymq.clients.bridge_address import parse_end

    source_end = parse_end(source, is_source=True)
    target_end = parse_end(target, is_source=False, topic=source_end.topic)
    _check(source_end, target_end, idle, source_tls, cursor)
    seconds = None if follow or source_end.is_log else _seconds("--idle", idle or "2s")
    begin, group_begin = beginning(origin, source_end.protocol, time.time_ns())
    options = BridgeOptions(
        count=count,
        ends_when_idle=seconds is not None,
        skips_refused=skip_refused,
        patience_seconds=None if give_up is None else _seconds("--give-up", give_up),
    )
    in_flight = window if count is None else min(window, count)  # what is given back counts as an attempt
    reaches = Reach(source_tls, phpmq_legacy), Reach(target_tls, phpmq_legacy)
    wanted = Wanted(source_end, target_end, follow, cursor, begin, group_begin, seconds, in_flight, options, *reaches)
    status = asyncio.run(_look(wanted) if dry_run else _go(wanted))
    if status:
        raise typer.Exit(status)


def _check(source: BridgeEnd, target: BridgeEnd, idle: str | None, source_tls: str | None, cursor: Path | None) -> None:
    """Refuse what does not go together."""
    if source.names == target.names:
        raise ConfigError(["SRC and DST are the same: what arrives would be moved again, for ever"])
    if cursor is not None and not source.is_log:
        raise ConfigError([f"--cursor is for polymq:// as the source; {source.protocol}:// keeps the place on the server"])
    if source.is_log and idle is not None:
        raise ConfigError(["--idle is for groups of servers; a log ends where it ended when the bridge was started, or --follow"])
    if source.is_log and source_tls is not None:
        raise ConfigError(["--source-tls: the log of a polymq node is read without TLS; or read a group, by a protocol's TLS port"])


def _seconds(option: str, text: str) -> float:
    from polymq.config_values import parse_duration

    try:
        seconds = parse_duration(text) / NS_PER_S
    except ValueError as error:
        raise ConfigError([f"{option} {text!r}: {error}"]) from error
    if seconds <= 0:
        raise ConfigError([f"{option} {text!r}: it must be more than 0"])
    return seconds


def beginning(origin: str | None, protocol: str, now_ns: int) -> tuple[LogBegin, str | datetime]:
    """Read --from, for a log and for a group. Raises ConfigError where the protocol has no such thing."""
    from datetime import UTC, datetime

    from polymq.clients.bridge_log import LogBegin
    from polymq.config_values import parse_duration

    if origin is None:
        return LogBegin(), ""
    if protocol not in ("polymq", "rocketmq"):
        raise ConfigError([f"--from: {protocol}:// cannot go back; it gives what its server has for it"])
    if origin in ("earliest", "latest"):
        return LogBegin(origin), "first" if origin == "earliest" else "last"
    if origin.isascii() and origin.isdigit():
        if protocol == "rocketmq":
            raise ConfigError(["--from: a topic of RocketMQ has an offset in each queue; say earliest, latest or a time"])
        return LogBegin("offset", int(origin)), ""
    try:
        time_ns = now_ns - parse_duration(origin)
    except ValueError:
        try:
            moment = datetime.fromisoformat(origin)
        except ValueError as error:
            raise ConfigError(
                [f"--from {origin!r}: expected earliest, latest, an offset, how long ago (2h), or a time (2026-05-01T12:00Z)"]
            ) from error
        time_ns = int((moment if moment.tzinfo else moment.astimezone()).timestamp() * NS_PER_S)
    return LogBegin("time", time_ns=max(0, time_ns)), datetime.fromtimestamp(max(0, time_ns) / NS_PER_S, UTC)


def _note(text: str) -> None:
    print(f"bridge: {text}", file=sys.stderr, flush=True)


def _source(wanted: Wanted, tally: Tally, cursor: Cursor | None) -> BridgeSource:
    from polymq.cli.bridge_reach import broker_of
    from polymq.cli.reach import secret
    from polymq.clients.bridge_groups import GroupSource
    from polymq.clients.bridge_log import LogSource
    from polymq.clients.log import LogClient

    end = wanted.source
    if not end.is_log:
        return GroupSource(
            broker_of(end, wanted.source_reach),
            end.topic,
            end.group,
            window=wanted.window,
            idle_seconds=wanted.idle_seconds,
            begin=wanted.group_begin,
        )
    try:
        client = LogClient(end.url, secret=end.secret or secret(), timeout_seconds=LOG_DEADLINE_SECONDS)
    except ValueError as error:
        raise LocalProtocolError(str(error)) from error
    return LogSource(client, end.topic, tally, follows=wanted.follows, begin=wanted.origin, cursor=cursor, note=_note)


async def _go(wanted: Wanted) -> int:
    """Run the bridge; returns the exit status."""
    import asyncio
    import contextlib
    import time

    from polymq.cli.bridge_progress import Progress, summary
    from polymq.cli.bridge_reach import broker_of
    from polymq.clients.bridge import Bridge
    from polymq.clients.bridge_cursor import Cursor
    from polymq.clients.bridge_ends import Tally
    from polymq.clients.bridge_groups import TopicTarget

    tally = Tally()
    with contextlib.ExitStack() as stack:
        cursor = None
        if wanted.cursor is not None:
            cursor = stack.enter_context(Cursor(wanted.cursor, wanted.source.shown, wanted.target.shown))
            if not cursor.is_new:
                _note(f"going on where {wanted.cursor} says; {cursor.moved:,} moved before")
        source = _source(wanted, tally, cursor)
        reach = wanted.target_reach
        target = TopicTarget(broker_of(wanted.target, reach), wanted.target.topic, tally, has_ttl=not reach.is_legacy)
        engine = Bridge(source, target, tally, wanted.options, note=_note)
        _note(f"{wanted.source.shown} → {wanted.target.shown}")
        begun = time.monotonic()
        has_failed = True
        showing = asyncio.create_task(Progress(tally, source.left).show(), name="bridge progress")
        try:
            await _until_signals(engine)
            has_failed = False
        finally:
            showing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await showing
            if tally.moved or not has_failed:
                seconds = time.monotonic() - begun
                idle_seconds = (wanted.idle_seconds or 0.0) if engine.has_idled else 0.0
                _note(summary(tally, seconds, idle_seconds=idle_seconds))
    if engine.has_stopped and not wanted.follows:
        return INTERRUPTED
    return 0 if tally.is_whole else LEFT_OUT


async def _until_signals(engine: Bridge) -> None:
    """Run; the first SIGINT or SIGTERM ends it in order, the second at once."""
    import asyncio
    import signal

    loop = asyncio.get_running_loop()
    running = asyncio.create_task(engine.run(), name="bridge")

    def interrupt() -> None:
        if engine.has_stopped:
            running.cancel()
        else:
            engine.stop()

    signals = (signal.SIGINT, signal.SIGTERM)
    for each in signals:
        loop.add_signal_handler(each, interrupt)
    try:
        await running
    except asyncio.CancelledError:
        if not engine.has_stopped:
            raise
        raise KeyboardInterrupt from None
    finally:
        for each in signals:
            loop.remove_signal_handler(each)


async def _look(wanted: Wanted) -> int:
    """Reach both ends and say what there is."""
    import contextlib

    from polymq.cli.bridge_reach import broker_of
    from polymq.clients.bridge_cursor import Cursor
    from polymq.clients.bridge_ends import Tally

    async with contextlib.AsyncExitStack() as stack:
        cursor = None
        if wanted.cursor is not None and wanted.cursor.exists():
            cursor = stack.enter_context(Cursor(wanted.cursor, wanted.source.shown, wanted.target.shown))
        if wanted.source.is_log:
            source = _source(wanted, Tally(), cursor)
            stack.push_async_callback(source.close)
            await source.open()
            found = f"{source.left() or 0:,} messages to be moved now"
        else:
            await stack.enter_async_context(broker_of(wanted.source, wanted.source_reach))
            found = "reached; how much it has for the group is known when it is read"
        await stack.enter_async_context(broker_of(wanted.target, wanted.target_reach))
    print(f"source: {wanted.source.shown}: {found}")
    print(f"target: {wanted.target.shown}: reached")
    return 0
