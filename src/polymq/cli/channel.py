"""`polymq channel`: make, remove, empty and pause channels, choose how they treat messages, look ahead, go back."""

from __future__ import annotations

import sys
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Final

import typer

from polymq.cli.manage import (
    NS_PER_MS,
    ChannelArgument,
    CountOption,
    FormOption,
    JsonOption,
    TopicArgument,
    add_verbs,
    channel_verb,
    print_messages,
    show_deferred,
    show_policy,
)
from polymq.cli.nsq_http import NsqHttpOption, connected
from polymq.cli.render import Form
from polymq.config_values import parse_duration
from polymq.errors import ConfigError

__all__ = ["app", "place"]

# Numbers from here on are points in time, in ns, as messages carry them; no offset is as large.
TIMESTAMP_NS_MIN: Final = 10**17
EXAMPLES: Final = """[bold]Examples[/bold]

[cyan]polymq channel policy orders billing --max-attempts 5[/cyan]
what was delivered five times and not finished goes to the topic orders.billing.dead, with headers that say whence

[cyan]polymq channel policy orders billing --ordered --on-disconnect requeue[/cyan]
of messages with the same key one is out at a time; what a consumer leaves behind comes back at once

[cyan]polymq channel peek orders billing[/cyan]
what its consumers would get next, without taking it

[cyan]polymq channel replay orders billing --from 2h[/cyan]
all of the last two hours once more; or --from start, end, an offset, or a time such as 2026-02-28T13:00

[cyan]polymq channel deferred orders billing[/cyan]
what its consumers have given back for later

[cyan]polymq channel pause orders billing[/cyan]
nothing is delivered until polymq channel unpause orders billing
"""

app = typer.Typer(rich_markup_mode="rich", add_completion=False, no_args_is_help=True)


class OnDisconnect(StrEnum):
    """What becomes of a consumer's messages when its connection ends."""

    DEFAULT = "default"
    WAIT = "wait"
    REQUEUE = "requeue"


@app.callback(epilog=EXAMPLES)
def channel_group() -> None:
    """Make, remove, empty and pause channels; choose how they treat messages; look ahead; go back."""


add_verbs(
    app,
    channel_verb,
    {
        "create": ("created", "Make a channel of a topic, if it is not there. The first consumer does so as well."),
        "delete": ("deleted", "Remove a channel and what it had. Its consumers are disconnected."),
        "empty": ("emptied", "Drop everything that a channel has to deliver, also what is out."),
        "pause": ("paused", "Deliver nothing; what is out can still be finished."),
        "unpause": ("unpaused", "Deliver again."),
    },
)


@app.command()
def policy(
    topic: TopicArgument,
    channel: ChannelArgument,
    max_attempts: Annotated[
        int | None,
        typer.Option(metavar="N", min=0, show_default=False, help="after so many deliveries a message is a dead letter; 0: never"),
    ] = None,
    dead_letter: Annotated[
        str | None, typer.Option(metavar="TOPIC", show_default=False, help="where dead letters go; '': to TOPIC.CHANNEL.dead")
    ] = None,
    ordered: Annotated[
        bool | None, typer.Option("--ordered/--unordered", show_default=False, help="one message of each key at a time, in order; or any")
    ] = None,
    on_disconnect: Annotated[
        OnDisconnect | None,
        typer.Option(
            show_default=False, help="what a consumer held comes back at its timeout, or at once; default: as the broker's setting"
        ),
    ] = None,
    as_json: JsonOption = False,
    nsq_http: NsqHttpOption = None,
) -> None:
    """Show what is chosen about a channel, or choose: options that are not given stay as they are."""
    chosen = {
        "max_attempts": max_attempts,
        "dead_letter": dead_letter,
        "ordered": None if ordered is None else str(ordered).lower(),
        "on_disconnect": on_disconnect,
    }
    with connected(nsq_http) as broker:
        if any(value is not None for value in chosen.values()):
            found = broker.change("/channel/policy", topic=topic, channel=channel, **chosen)
        else:
            found = broker.get("/channel/policy", topic=topic, channel=channel)
    show_policy(found, as_json=as_json)


@app.command()
def peek(
    topic: TopicArgument, channel: ChannelArgument, count: CountOption = 10, form: FormOption = Form.LINE, nsq_http: NsqHttpOption = None
) -> None:
    """Show what waits for a channel's consumers. Nothing is consumed."""
    with connected(nsq_http) as broker:
        print_messages(broker.pages("/channel/peek", count, topic=topic, channel=channel), {"topic": topic, "channel": channel}, form)


@app.command()
def deferred(
    topic: TopicArgument,
    channel: ChannelArgument,
    count: CountOption = 100,
    as_json: JsonOption = False,
    nsq_http: NsqHttpOption = None,
) -> None:
    """List what a channel's consumers have given back for later."""
    with connected(nsq_http) as broker:
        show_deferred(broker, "/channel/deferred", {"topic": topic, "channel": channel}, count, as_json=as_json)


@app.command()
def replay(
    topic: TopicArgument,
    channel: ChannelArgument,
    where: Annotated[
        str, typer.Option("--from", metavar="WHERE", show_default=False, help="start, end, an offset, so long ago (2h), or a time")
    ],
    partition: Annotated[int | None, typer.Option(metavar="N", min=0, show_default=False, help="only in this partition")] = None,
    nsq_http: NsqHttpOption = None,
) -> None:
    """Have a channel go on at another place: what is still in the log is delivered again, or left out."""
    name, value = place(where)
    with connected(nsq_http) as broker:
        broker.post("/channel/replay", topic=topic, channel=channel, partition=partition, **{name: value})
    print(f"channel {channel} of topic {topic} goes on from {where}", file=sys.stderr)


def place(text: str) -> tuple[str, str]:
    """Give the argument of /channel/replay for what was typed; a time without a zone is this machine's."""
    if text in ("start", "end"):
        return "from", text
    if text.isascii() and text.isdigit():
        return ("time" if int(text) >= TIMESTAMP_NS_MIN else "offset"), text
    try:
        return "ago", str(parse_duration(text) // NS_PER_MS)
    except ValueError:
        pass
    try:
        return "time", datetime.fromisoformat(text).astimezone().isoformat()
    except (ValueError, OverflowError) as error:
        raise ConfigError(
            [f"--from {text!r}: expected start, end, an offset (a number), how long ago, such as 2h, or a time, such as 2026-02-28T13:00"]
        ) from error
