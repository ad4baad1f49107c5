"""`polymq tail`: print what lies in a topic's log, without consuming it."""

from __future__ import annotations

import contextlib
import sys
import time
from typing import TYPE_CHECKING, Annotated, BinaryIO, Final

import typer

from polymq.cli.render import Form, Shown, render
from polymq.errors import ConfigError, Refusal, RefusalCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from polymq.clients.log import Chunk, LogClient, PartitionInfo

__all__ = ["app", "follow", "start_offsets", "tail"]

FETCH_SIZE_BYTES: Final = 1 << 20
# How long one request waits at the end of the log; several partitions take turns, so each waits less.
WAIT_MS: Final = 1000
END: Final = 1 << 62
EXAMPLES: Final = """[bold]Examples[/bold]

[cyan]polymq tail orders[/cyan]
the last 10 messages of each partition of the topic

[cyan]polymq tail orders -f[/cyan]
and then every new one, until Ctrl-C

[cyan]polymq tail orders --from start --format body > orders.txt[/cyan]
all that the log still has, bodies only

[cyan]polymq tail orders --from 10m -f --format json | jq .body[/cyan]
from ten minutes ago on, as JSON

Reading the log takes nothing away from consumers: it works beside them, and twice.
"""

app = typer.Typer(rich_markup_mode="rich", add_completion=False)


def start_offsets(
    client: LogClient, topic: str, partitions: list[PartitionInfo], origin: str | None, last: int, now_ns: int
) -> dict[int, int]:
    """Decide where to begin in each partition: at `origin` (start, end, an offset, or a time ago), else `last` from the end."""
    if origin is None:
        return {each.partition: max(each.start, each.readable - last) for each in partitions}
    if origin in ("start", "end"):
        return {each.partition: each.start if origin == "start" else each.readable for each in partitions}
    if origin.isascii() and origin.isdigit():
        return {each.partition: int(origin) for each in partitions}
    from polymq.config_values import parse_duration

    try:
        time_ns = now_ns - parse_duration(origin)
    except ValueError as error:
        raise ConfigError([f"--from {origin!r}: expected start, end, an offset (a number), or how long ago, such as 10m or 2h"]) from error
    return {each.partition: client.offset_at(topic, each.partition, time_ns) for each in partitions}


def messages_of(topic: str, partition: int, chunk: Chunk, offset: int) -> Iterator[tuple[int, Shown]]:
    """Take a chunk apart: (offset, message) for every message from `offset` on."""
    for here, message in chunk.messages(offset, END):
        facts = {
            "topic": topic,
            "partition": partition,
            "offset": here,
            "headers": [[n.decode(errors="replace"), v.decode(errors="replace")] for n, v in message.headers],
        }
        yield here, Shown(message.time_ns, f"{partition}:{here}", message.body, message.key, facts)


def begin_epoch(client: LogClient, topic: str, partition: int, offset: int, known_epoch: int) -> int:
    """Say that offsets may have been given again, and tell where to go on: where the first epoch behind the known one began."""
    infos = client.topic(topic).partitions
    firsts = [first for info in infos if info.partition == partition for epoch, first in info.epochs if epoch > known_epoch]
    position = min([offset, *firsts])
    lost = f"offsets from {position} on are given again, what was printed for them is lost; " if position < offset else ""
    print(f"polymq: partition {partition}: the broker lost power, a new epoch has begun; {lost}going on at {position}", file=sys.stderr)
    return position


def follow(client: LogClient, topic: str, offsets: dict[int, int], *, forever: bool, limit: int | None) -> Iterator[Shown]:
    """Yield messages of all partitions from `offsets` on; ends at the end of the log unless `forever`.

    Records that retention has removed meanwhile are skipped, which is said on stderr. So is a new epoch: the broker has
    lost the end of the log with the power, and gives its offsets to other messages, which are then printed too.
    """
    from polymq.clients.log import OffsetOutOfRange

    given = 0
    epochs: dict[int, int] = {}
    open_partitions = set(offsets)
    while open_partitions:
        for partition in sorted(open_partitions):
            try:
                wait_ms = WAIT_MS // len(open_partitions) if forever else 0
                chunk = client.records(topic, partition, offsets[partition], end=END, size_bytes_max=FETCH_SIZE_BYTES, wait_ms=wait_ms)
            except OffsetOutOfRange as error:
                position = min(max(offsets[partition], error.start), error.readable)
                if position == offsets[partition]:
                    raise
                print(
                    f"polymq: partition {partition}: offset {offsets[partition]} is not in the log; going on at {position}", file=sys.stderr
                )
                offsets[partition] = position
                continue
            if epochs.setdefault(partition, chunk.epoch) != chunk.epoch:
                offsets[partition] = begin_epoch(client, topic, partition, offsets[partition], epochs[partition])
                epochs[partition] = chunk.epoch
                continue
            if not chunk.data and not forever:
                open_partitions.discard(partition)
            for offset, message in messages_of(topic, partition, chunk, offsets[partition]):
                offsets[partition] = offset + 1
                yield message
                given += 1
                if given == limit:
                    return
            offsets[partition] = max(offsets[partition], chunk.end)


@app.command(epilog=EXAMPLES)
def tail(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", show_default=False, help="the topic to read")],
    last: Annotated[
        int, typer.Option("--last", "-n", metavar="N", min=0, help="begin this many messages before the end of each partition")
    ] = 10,
    origin: Annotated[
        str | None, typer.Option("--from", metavar="WHERE", show_default=False, help="begin at start, end, an offset, or so long ago (10m)")
    ] = None,
    forever: Annotated[bool, typer.Option("--follow", "-f", help="go on with new messages until Ctrl-C")] = False,
    limit: Annotated[
        int | None, typer.Option("--count", metavar="N", min=1, show_default=False, help="stop after this many messages")
    ] = None,
    partition: Annotated[int | None, typer.Option(metavar="N", min=0, show_default=False, help="only this partition")] = None,
    form: Annotated[Form, typer.Option("--format", help="a line each, JSON, or the bare body")] = Form.LINE,
    http: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", show_default=False, help="polymq's HTTP door (default: as configured, 127.0.0.1:4171)"),
    ] = None,
) -> None:
    """Print what lies in a topic's log. Nothing is consumed, nobody is disturbed."""
    from polymq.cli.reach import secret, tcp_address_of
    from polymq.clients.log import LogClient
    from polymq.config_values import format_address

    client = LogClient(format_address(tcp_address_of("server.http", http)), secret=secret())
    with contextlib.closing(client):
        _print(client, topic, partition, (origin, last, forever, limit), form, sys.stdout.buffer, time.time_ns)


def _print(
    client: LogClient,
    topic: str,
    partition: int | None,
    where: tuple[str | None, int, bool, int | None],
    form: Form,
    target: BinaryIO,
    now_ns: Callable[[], int],
) -> None:
    origin, last, forever, limit = where
    try:
        known = client.topic(topic).partitions
    except Refusal as error:
        if error.code is not RefusalCode.TOPIC_NOT_FOUND:
            raise
        raise ConfigError([f"there is no topic {topic!r}: polymq stats lists all"]) from error
    partitions = [each for each in known if partition is None or each.partition == partition]
    if not partitions:
        raise ConfigError([f"--partition {partition}: topic {topic!r} has partitions 0 to {len(known) - 1}"])
    offsets = start_offsets(client, topic, partitions, origin, last, now_ns())
    for message in follow(client, topic, offsets, forever=forever, limit=limit):
        target.write(render(message, form))
        if forever:
            target.flush()
    target.flush()
