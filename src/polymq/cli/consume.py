"""`polymq consume`: take messages from a channel, print them, and settle each once it is written."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, BinaryIO, Final

import typer

from polymq.cli.nsq_http import NsqHttpOption, connected, over_http
from polymq.cli.render import Form, Shown, render
from polymq.errors import ConfigError

if TYPE_CHECKING:
    from polymq.clients.nsq import NsqBatch, NsqConsumer, NsqMessage

__all__ = ["app", "consume", "pour"]

DEADLINE_SECONDS: Final = 10.0
NS_PER_S: Final = 10**9
EXAMPLES: Final = """[bold]Examples[/bold]

[cyan]polymq consume greetings me[/cyan]
everything that the channel "me" gets, until Ctrl-C; made if it does not exist

[cyan]polymq consume orders billing --count 10 --format body[/cyan]
ten messages, bodies only; the next consumer gets what follows

[cyan]polymq consume orders billing --idle 5s > orders.txt[/cyan]
until nothing has come for five seconds

[cyan]polymq consume orders spy#ephemeral --format json[/cyan]
a channel that goes away with this consumer

[cyan]polymq consume orders billing --http --format json[/cyan]
over HTTP, where messages come with their keys and headers

A message is settled once it is written, and nobody else on that channel gets it. To look without taking, use
[bold]polymq tail[/bold]. Over HTTP, what was on its way when Ctrl-C ends this comes again after the message timeout.
"""

app = typer.Typer(rich_markup_mode="rich", add_completion=False)


def shown(topic: str, channel: str, message: NsqMessage) -> Shown:
    """Describe a message; its place is its id, with the attempt if it is not the first."""
    message_id = message.id.decode()
    place = message_id if message.attempts == 1 else f"{message_id} ×{message.attempts}"
    return Shown(
        message.time_ns,
        place,
        message.body,
        facts={"topic": topic, "channel": channel, "id": message_id, "attempts": message.attempts},
    )


def write_batch(batch: NsqBatch, names: tuple[str, str], form: Form, target: BinaryIO, limit: int | None) -> int:
    """Write up to `limit` messages and settle them; the rest goes back at once. Returns how many were written."""
    messages = list(batch)
    taken = messages if limit is None else messages[:limit]
    target.write(b"".join(render(shown(*names, message), form) for message in taken))
    target.flush()
    for message in taken:
        message.settle()
    for message in messages[len(taken) :]:
        message.requeue()
    return len(taken)


async def pour(
    consumer: NsqConsumer, names: tuple[str, str], form: Form, target: BinaryIO, *, count: int | None, idle_seconds: float | None
) -> int:
    """Write messages until `count` are written or none has come for `idle_seconds`; returns how many."""
    import asyncio

    written = 0
    batches = consumer.batches()
    while count is None or written < count:
        try:
            async with asyncio.timeout(idle_seconds):
                batch = await anext(batches)
        except (TimeoutError, StopAsyncIteration):
            break
        written += write_batch(batch, names, form, target, None if count is None else count - written)
    if written:
        await consumer.flush()
    return written


@app.command(epilog=EXAMPLES)
def consume(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", show_default=False, help="the topic")],
    channel: Annotated[str, typer.Argument(metavar="CHANNEL", show_default=False, help="the channel; its consumers share the messages")],
    count: Annotated[int | None, typer.Option(metavar="N", min=1, show_default=False, help="stop after this many messages")] = None,
    idle: Annotated[
        str | None, typer.Option(metavar="TIME", show_default=False, help="stop when nothing has come for this long, such as 5s")
    ] = None,
    form: Annotated[Form, typer.Option("--format", help="a line each, JSON, or the bare body")] = Form.LINE,
    in_flight: Annotated[int, typer.Option(metavar="N", min=1, max=1_000_000, help="messages that this consumer holds at most")] = 200,
    nsq: Annotated[
        str | None, typer.Option(metavar="ADDRESS", show_default=False, help="the broker (default: as configured, 127.0.0.1:4150)")
    ] = None,
    http: Annotated[
        bool, typer.Option("--http", help="over HTTP, which shows keys and headers; --nsq-http alone means it as well")
    ] = False,
    nsq_http: NsqHttpOption = None,
) -> None:
    """Take messages from a channel and print them. Each is settled once it is written."""
    import asyncio

    from polymq.config_values import parse_duration

    try:
        idle_seconds = None if idle is None else parse_duration(idle) / NS_PER_S
    except ValueError as error:
        raise ConfigError([f"--idle {idle!r}: {error}"]) from error
    if over_http(nsq, nsq_http, wanted=http):
        from polymq.cli import consume_http

        with connected(nsq_http) as broker:
            consume_http.pour(
                broker, (topic, channel), form, sys.stdout.buffer, count=count, idle_seconds=idle_seconds, in_flight=in_flight
            )
        return
    asyncio.run(_consume((topic, channel), form, count, idle_seconds, in_flight, nsq))


async def _consume(
    names: tuple[str, str], form: Form, count: int | None, idle_seconds: float | None, in_flight: int, nsq: str | None
) -> None:
    from polymq.cli.reach import address_of
    from polymq.clients.nsq import NsqConsumer, NsqOptions
    from polymq.config_values import format_address

    address = format_address(address_of("nsq.tcp", nsq))
    # No more in flight than will be taken: what is given back counts as an attempt.
    in_flight = in_flight if count is None else min(in_flight, count)
    options = NsqOptions(deadline_seconds=DEADLINE_SECONDS)
    async with NsqConsumer(address, *names, options, max_in_flight=in_flight) as consumer:
        await pour(consumer, names, form, sys.stdout.buffer, count=count, idle_seconds=idle_seconds)
