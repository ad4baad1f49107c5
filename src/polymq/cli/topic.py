"""`polymq topic`: make, remove, empty and pause topics, choose what becomes of their messages, look at these."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import Annotated, Final

import typer

from polymq.cli.manage import (
    CountOption,
    FormOption,
    JsonOption,
    TopicArgument,
    add_verbs,
    parse_ms,
    print_messages,
    show_deferred,
    show_policy,
    topic_verb,
)
from polymq.cli.nsq_http import NsqHttpOption, connected
from polymq.cli.render import Form
from polymq.errors import ConfigError
from polymq.limits import PARTITIONS_PER_TOPIC_MAX

__all__ = ["app"]

EXAMPLES: Final = """[bold]Examples[/bold]

[cyan]polymq topic policy orders --ttl 7d --max-messages 1000000 --full drop-oldest[/cyan]
nothing older than a week is delivered, and of more than a million messages the oldest go

[cyan]polymq topic policy orders[/cyan]
what is chosen

[cyan]polymq topic peek orders --offset 1000 --count 5[/cyan]
five messages from an offset on, whoever has had them; [bold]polymq tail[/bold] shows the latest

[cyan]polymq topic deferred reminders[/cyan]
what was published with a delay and waits for its time, with the ids of the messages

[cyan]polymq topic cancel reminders 0000020000000007[/cyan]
one of them shall not be delivered

[cyan]polymq topic pause orders[/cyan]
what is published from here on waits in the topic until polymq topic unpause orders
"""

app = typer.Typer(rich_markup_mode="rich", add_completion=False, no_args_is_help=True)


class Expired(StrEnum):
    """What becomes of a message that is too old."""

    DROP = "drop"
    DEAD_LETTER = "dead-letter"


class Full(StrEnum):
    """What becomes of a publish to a topic that is full."""

    REJECT = "reject"
    DROP_OLDEST = "drop-oldest"


@app.callback(epilog=EXAMPLES)
def topic_group() -> None:
    """Make, remove, empty and pause topics; choose what becomes of their messages; look at these."""


add_verbs(
    app,
    topic_verb,
    {
        "delete": ("deleted", "Remove a topic, its channels and its messages. Consumers are disconnected."),
        "empty": ("emptied", "Drop what no channel has got yet."),
        "pause": ("paused", "Keep what is published from here on from the channels."),
        "unpause": ("unpaused", "Give the channels what was kept from them."),
    },
)


class Durability(StrEnum):
    """What an acknowledged message of a topic survives."""

    CACHE = "cache"
    FSYNC = "fsync"


@app.command()
def create(
    topic: TopicArgument,
    partitions: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            max=PARTITIONS_PER_TOPIC_MAX,
            show_default=False,
            help="spread it over so many logs; they have no order between them",
        ),
    ] = None,
    durability: Annotated[
        Durability | None,
        typer.Option(show_default=False, help="what its messages survive: cache: kill -9 of the broker; fsync: the machine's end as well"),
    ] = None,
    nsq_http: NsqHttpOption = None,
) -> None:
    """Make a topic, if it is not there. The first publish does so as well, with what the broker's settings say."""
    with connected(nsq_http) as broker:
        broker.post("/topic/create", topic=topic, partitions=partitions, durability=durability)
    print(f"created topic {topic}", file=sys.stderr)


@app.command()
def policy(
    topic: TopicArgument,
    ttl: Annotated[
        str | None, typer.Option(metavar="TIME", show_default=False, help="messages older than this are not delivered (7d); off: any age")
    ] = None,
    expired: Annotated[Expired | None, typer.Option(show_default=False, help="what becomes of those that are older")] = None,
    max_messages: Annotated[
        int | None, typer.Option(metavar="N", min=0, show_default=False, help="so many may be unfinished; 0: any number")
    ] = None,
    max_bytes: Annotated[
        str | None, typer.Option(metavar="SIZE", show_default=False, help="about so much of them (10GiB); 0: any size")
    ] = None,
    full: Annotated[
        Full | None, typer.Option(show_default=False, help="what happens when there are more: refuse publishers, or drop the oldest")
    ] = None,
    as_json: JsonOption = False,
    nsq_http: NsqHttpOption = None,
) -> None:
    """Show what is chosen about a topic, or choose: options that are not given stay as they are."""
    chosen = {
        "ttl": parse_ms("--ttl", ttl),
        "expired": expired,
        "max_messages": max_messages,
        "max_bytes": _parse_size("--max-bytes", max_bytes),
        "full": full,
    }
    with connected(nsq_http) as broker:
        if any(value is not None for value in chosen.values()):
            found = broker.change("/topic/policy", topic=topic, **chosen)
        else:
            found = broker.get("/topic/policy", topic=topic)
    show_policy(found, as_json=as_json)


@app.command()
def peek(
    topic: TopicArgument,
    partition: Annotated[int, typer.Option(metavar="N", min=0, help="the partition to look into")] = 0,
    offset: Annotated[int, typer.Option(metavar="N", min=0, help="where to begin; what the log has no more is passed over")] = 0,
    count: CountOption = 10,
    form: FormOption = Form.LINE,
    nsq_http: NsqHttpOption = None,
) -> None:
    """Show messages that lie in a topic, whoever has had them. Nothing is consumed."""
    with connected(nsq_http) as broker:
        rows = broker.pages("/topic/peek", count, "offset", topic=topic, partition=partition, offset=offset)
        print_messages(rows, {"topic": topic}, form)


@app.command()
def deferred(topic: TopicArgument, count: CountOption = 100, as_json: JsonOption = False, nsq_http: NsqHttpOption = None) -> None:
    """List what was published with a delay and waits for its time."""
    with connected(nsq_http) as broker:
        show_deferred(broker, "/topic/deferred", {"topic": topic}, count, as_json=as_json)


@app.command()
def cancel(
    topic: TopicArgument,
    ids: Annotated[list[str], typer.Argument(metavar="ID", show_default=False, help="as polymq topic deferred shows them")],
    nsq_http: NsqHttpOption = None,
) -> None:
    """Drop messages that wait for their time."""
    with connected(nsq_http) as broker:
        for done, message_id in enumerate(ids):
            try:
                broker.post("/topic/cancel", topic=topic, id=message_id)
            except ConfigError:
                if done:
                    print(f"cancelled {done} of {len(ids)} messages", file=sys.stderr)
                raise
    print(f"cancelled {len(ids)} message{'' if len(ids) == 1 else 's'} of topic {topic}", file=sys.stderr)


def _parse_size(option: str, text: str | None) -> int | None:
    from polymq.config_values import parse_size

    if text is None:
        return None
    try:
        return parse_size(text)
    except ValueError as error:
        raise ConfigError([f"{option} {text!r}: {error}"]) from error
