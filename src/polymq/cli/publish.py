"""`polymq publish`: messages from the command line, or one per line from standard input, to a topic."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Final, Protocol

import typer

from polymq import limits
from polymq.cli.nsq_http import NsqHttpOption, connected, over_http
from polymq.errors import ConfigError, PolyMQError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence

__all__ = ["Lines", "app", "batches", "publish"]

# One multi-publish: well below the 5 MiB and the million messages that servers take by default.
BATCH_SIZE_BYTES: Final = 1 << 20
BATCH_MESSAGES: Final = 1000
READ_SIZE_BYTES: Final = 1 << 18
DEADLINE_SECONDS: Final = 10.0
NS_PER_MS: Final = 10**6
EXAMPLES: Final = """[bold]Examples[/bold]

[cyan]polymq publish greetings hello "hello again"[/cyan]
two messages

[cyan]polymq publish orders < orders.jsonl[/cyan]
one message per line; empty lines are left out

[cyan]tail -F access.log | polymq publish access[/cyan]
each line as soon as it is there

[cyan]polymq publish photos --whole < cat.jpg[/cyan]
all of standard input as one message

[cyan]polymq publish reminders "stand up" --delay 10m[/cyan]
delivered in ten minutes, across restarts of the broker

[cyan]polymq publish flights departed --key DL1149 --header "Trace: 7f3a"[/cyan]
with a key and a header, which Spark and polymq consume --http show; over HTTP

It returns once the broker has acknowledged everything.
"""

app = typer.Typer(rich_markup_mode="rich", add_completion=False)


class Producer(Protocol):
    """What is needed of `polymq.clients.nsq.NsqProducer`."""

    async def publish(self, topic: str, body: bytes, *, delay_ms: int = 0) -> None: ...
    async def publish_many(self, topic: str, bodies: Sequence[bytes]) -> None: ...


class Acknowledged:
    """A producer that counts what the broker has acknowledged."""

    def __init__(self, count: list[int], producer: Producer) -> None:
        self._count = count
        self._producer = producer

    async def publish(self, topic: str, body: bytes, *, delay_ms: int = 0) -> None:
        """Publish one message."""
        await self._producer.publish(topic, body, delay_ms=delay_ms)
        self._count[0] += 1

    async def publish_many(self, topic: str, bodies: Sequence[bytes]) -> None:
        """Publish several messages, all or none of them."""
        await self._producer.publish_many(topic, bodies)
        self._count[0] += len(bodies)


class Lines:
    """Cuts chunks of input into lines, without their ends; keeps what is not a whole line yet, up to a limit."""

    def __init__(self, size_bytes_max: int = limits.MESSAGE_SIZE_BYTES_MAX) -> None:
        self._pieces: list[bytes] = []
        self._size_bytes = 0
        self._size_bytes_max = size_bytes_max

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that are complete now, empty ones left out.

        Raises ConfigError when the line that goes on in `data` becomes larger than a message may be.
        """
        first, *others = data.split(b"\n")
        self._keep(first)
        if not others:
            return []
        *whole, rest = others
        whole.insert(0, b"".join(self._pieces))
        self._pieces.clear()
        self._size_bytes = 0
        # The rest is within one chunk: whether it becomes too large is seen with the next.
        self._pieces.append(rest)
        self._size_bytes = len(rest)
        return [line for line in (line.removesuffix(b"\r") for line in whole) if line]

    def end(self) -> list[bytes]:
        """Return the last line if it had no end; raises as `feed` does."""
        self._keep(b"")
        rest = b"".join(self._pieces)
        self._pieces.clear()
        self._size_bytes = 0
        return [rest] if rest else []

    def _keep(self, piece: bytes) -> None:
        self._size_bytes += len(piece)
        if self._size_bytes > self._size_bytes_max:
            raise ConfigError([f"a line of the input is larger than {self._size_bytes_max} bytes, the most that a message may have"])
        self._pieces.append(piece)


def batches(bodies: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Group messages so that each group is one acceptable multi-publish; a message larger than that is alone."""
    group: list[bytes] = []
    size_bytes = 0
    for body in bodies:
        if group and (len(group) == BATCH_MESSAGES or size_bytes + len(body) > BATCH_SIZE_BYTES):
            yield group
            group, size_bytes = [], 0
        group.append(body)
        size_bytes += len(body)
    if group:
        yield group


async def send(producer: Producer, topic: str, bodies: Sequence[bytes], delay_ms: int, *, alone: bool = False) -> int:
    """Publish messages in order, each in a request of its own if there is a delay or they are to be `alone`; returns how many."""
    if delay_ms or alone:
        for body in bodies:
            await producer.publish(topic, body, delay_ms=delay_ms)
    else:
        for group in batches(bodies):
            if len(group) == 1:
                await producer.publish(topic, group[0])
            else:
                await producer.publish_many(topic, group)
    return len(bodies)


async def send_lines(producer: Producer, topic: str, read: Callable[[], Awaitable[bytes]], delay_ms: int, *, alone: bool = False) -> int:
    """Publish the lines that `read` gives, chunk by chunk, until it gives nothing; returns how many."""
    lines = Lines()
    count = 0
    while True:
        data = await read()
        count += await send(producer, topic, lines.feed(data) if data else lines.end(), delay_ms, alone=alone)
        if not data:
            return count


async def read_chunk(descriptor: int) -> bytes:
    """Read what is there, waiting for the first byte without holding up the loop; empty at the end.

    The client answers heartbeats meanwhile, and Ctrl-C ends the wait, which a thread that reads would not.
    """
    import asyncio
    import os

    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    try:
        loop.add_reader(descriptor, ready.set)
    except PermissionError:
        # epoll knows no files of a disk: these can always be read.
        return os.read(descriptor, READ_SIZE_BYTES)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(descriptor)
    return os.read(descriptor, READ_SIZE_BYTES)


@app.command(epilog=EXAMPLES)
def publish(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", show_default=False, help="the topic to publish to; made if it does not exist")],
    messages: Annotated[
        list[str] | None, typer.Argument(metavar="MESSAGE", show_default=False, help="messages; none: the lines of standard input")
    ] = None,
    whole: Annotated[bool, typer.Option("--whole", help="all of standard input is one message")] = False,
    delay: Annotated[str, typer.Option(metavar="TIME", show_default=False, help="deliver only after this time, such as 90s or 10m")] = "0s",
    nsq: Annotated[
        str | None, typer.Option(metavar="ADDRESS", show_default=False, help="the broker (default: as configured, 127.0.0.1:4150)")
    ] = None,
    key: Annotated[str | None, typer.Option(metavar="KEY", show_default=False, help="the key of every message; over HTTP")] = None,
    header: Annotated[
        list[str] | None,
        typer.Option(metavar="'NAME: VALUE'", show_default=False, help="a header of every message, several times if need be; over HTTP"),
    ] = None,
    http: Annotated[bool, typer.Option("--http", help="over HTTP; --nsq-http alone means it as well")] = False,
    nsq_http: NsqHttpOption = None,
) -> None:
    """Publish messages: given as arguments, or one per line from standard input."""
    from polymq.cli.publish_http import described
    from polymq.config_values import parse_duration

    if messages and whole:
        raise ConfigError(["--whole reads standard input: give it no messages"])
    try:
        delay_ms = parse_duration(delay) // NS_PER_MS
    except ValueError as error:
        raise ConfigError([f"--delay {delay!r}: {error}"]) from error
    headers = described(key, header or ())
    acknowledged = [0]
    try:
        if over_http(nsq, nsq_http, wanted=http or bool(headers)):
            _publish_http(topic, messages or [], whole, delay_ms, nsq_http, headers, acknowledged)
        else:
            _publish(topic, messages or [], whole, delay_ms, nsq, acknowledged)
    except (PolyMQError, KeyboardInterrupt):
        print(f"stopped; the broker has acknowledged {_messages(acknowledged[0])} to {topic}", file=sys.stderr)
        raise
    print(f"published {_messages(acknowledged[0])} to {topic}", file=sys.stderr)


def _messages(count: int) -> str:
    return f"{count} message{'' if count == 1 else 's'}"


def _publish(topic: str, messages: list[str], whole: bool, delay_ms: int, nsq: str | None, acknowledged: list[int]) -> None:
    import asyncio

    from polymq.cli.reach import address_of
    from polymq.clients.nsq import NsqOptions, NsqProducer
    from polymq.config_values import format_address

    address = format_address(address_of("nsq.tcp", nsq))

    async def go() -> None:
        async with NsqProducer(address, NsqOptions(deadline_seconds=DEADLINE_SECONDS)) as producer:
            await _send_all(Acknowledged(acknowledged, producer), topic, messages, whole, delay_ms, alone=False)

    asyncio.run(go())


def _publish_http(
    topic: str,
    messages: list[str],
    whole: bool,
    delay_ms: int,
    nsq_http: str | None,
    headers: list[tuple[str, bytes]],
    acknowledged: list[int],
) -> None:
    import asyncio

    from polymq.cli.publish_http import HttpProducer

    with connected(nsq_http) as broker:
        producer = Acknowledged(acknowledged, HttpProducer(broker, headers))
        asyncio.run(_send_all(producer, topic, messages, whole, delay_ms, alone=bool(headers)))


async def _send_all(producer: Producer, topic: str, messages: list[str], whole: bool, delay_ms: int, *, alone: bool) -> None:
    """Publish what was given: arguments, all of standard input, or its lines."""
    if not messages and not whole and sys.stdin.isatty():
        print("one message per line; Ctrl-D ends", file=sys.stderr)
    if messages:
        await send(producer, topic, [message.encode(errors="surrogateescape") for message in messages], delay_ms, alone=alone)
    elif whole:
        await send(producer, topic, [sys.stdin.buffer.read()], delay_ms, alone=alone)
    else:
        await send_lines(producer, topic, lambda: read_chunk(sys.stdin.fileno()), delay_ms, alone=alone)
