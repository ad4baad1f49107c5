"""`polymq stats`: what each topic and each of its groups holds, as a table or as JSON."""

from __future__ import annotations

import contextlib
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Final

import typer

from polymq.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rich.console import Console
    from rich.table import Table

    from polymq.clients.log import Family, LogClient, TopicInfo

__all__ = ["TopicRow", "app", "gather", "stats", "to_table"]

NS_PER_S: Final = 10**9
TOPIC_NUMBERS: Final = {"polymq_topic_held_messages": "held", "polymq_topic_scheduled_messages": "scheduled"}
GROUP_NUMBERS: Final = {
    "polymq_group_depth_messages": "waiting",
    "polymq_group_leased_messages": "in_flight",
    "polymq_group_deferred_messages": "deferred",
    "polymq_group_requeues_total": "requeued",
    "polymq_group_timeouts_total": "timed_out",
}
# What policies have done to messages: columns only if they have done anything.
RETIRED_NUMBERS: Final = {
    "polymq_group_dead_letters_total": "dead_letters",
    "polymq_group_expired_total": "expired",
    "polymq_group_dropped_total": "dropped",
}
# The policies themselves, of topics and groups that have one.
TOPIC_LIMITS: Final = {
    "polymq_topic_limit_seconds": "max_age_seconds",
    "polymq_topic_limit_messages": "max_messages",
    "polymq_topic_limit_bytes": "max_bytes",
}
GROUP_LIMITS: Final = {"polymq_group_limit_attempts": "max_attempts", "polymq_group_ordered": "ordered"}
ALL_GROUP_NUMBERS: Final = GROUP_NUMBERS | RETIRED_NUMBERS | GROUP_LIMITS
EXAMPLES: Final = """[bold]Examples[/bold]

[cyan]polymq stats[/cyan]
all topics and their channels

[cyan]polymq stats orders billing --watch 2s[/cyan]
two topics, again every two seconds, until Ctrl-C

[cyan]polymq stats --json | jq '.[] | select(.groups.billing.waiting > 1000)'[/cyan]
for scripts

In the table, "in log" is what can be read back: finished messages stay for a while. "waiting" is what a channel has
still to deliver; on a topic's own line it is what no channel may have yet. What policies have done (dead letters,
expired, dropped) and the policies themselves are shown where there are any: [bold]polymq topic policy[/bold] has the rest.
"""

app = typer.Typer(rich_markup_mode="rich", add_completion=False)


@dataclass(slots=True)
class TopicRow:
    """The numbers of one topic, and those of its groups by name."""

    name: str
    partitions: int
    in_log: int
    end: int
    held: int = 0
    scheduled: int = 0
    limits: dict[str, float] = field(default_factory=dict)
    groups: dict[str, dict[str, int]] = field(default_factory=dict)


def gather(topics: Iterable[TopicInfo], families: Iterable[Family], wanted: Sequence[str] = ()) -> list[TopicRow]:
    """Put the catalogue and the numbers together, by topic; only those `wanted`, if any are named."""
    rows: dict[tuple[str, str], TopicRow] = {}
    for topic in topics:
        name = f"{topic.namespace}/{topic.name}" if topic.namespace else topic.name
        if wanted and topic.name not in wanted:
            continue
        in_log = sum(partition.readable - partition.start for partition in topic.partitions)
        rows[topic.namespace, topic.name] = TopicRow(name, len(topic.partitions), in_log, sum(each.end for each in topic.partitions))
    for family in families:
        for labels, value in family.samples:
            row = rows.get((labels.get("namespace", ""), labels.get("topic", "")))
            if row is None:
                continue
            if family.name in TOPIC_NUMBERS:
                setattr(row, TOPIC_NUMBERS[family.name], int(value))
            elif family.name in TOPIC_LIMITS:
                row.limits[TOPIC_LIMITS[family.name]] = value
            elif family.name in ALL_GROUP_NUMBERS:
                row.groups.setdefault(labels["group"], {})[ALL_GROUP_NUMBERS[family.name]] = int(value)
    return sorted(rows.values(), key=lambda row: row.name)


def to_table(rows: Sequence[TopicRow]) -> Table:
    """Lay the rows out: a line per topic, and one per group below it."""
    from rich.table import Table

    groups = [group for row in rows for group in row.groups.values()]
    retired = [title for title in RETIRED_NUMBERS.values() if any(group.get(title) for group in groups)]
    columns = [*GROUP_NUMBERS.values(), *retired]
    has_policies = any(row.limits for row in rows) or any(_group_policy(group) for group in groups)
    table = Table(box=None, pad_edge=False)
    table.add_column("topic / channel", overflow="fold")
    for title in ("in log", "published", *columns):
        table.add_column(title.replace("_", " "), justify="right", no_wrap=True)
    if has_policies:
        table.add_column("policy", overflow="fold")
    for row in rows:
        name = row.name if row.partitions == 1 else f"{row.name} ({row.partitions} partitions)"
        # What waits to be appended is shown where it is looked for: it becomes every group's.
        numbers = {"waiting": row.held, "deferred": row.scheduled}
        cells = [f"{numbers[column]:,}" if numbers.get(column) else "" for column in columns]
        policy = [_topic_policy(row.limits)] if has_policies else []
        table.add_row(f"[bold]{name}[/bold]", f"{row.in_log:,}", f"{row.end:,}", *cells, *policy)
        for group_name, group in sorted(row.groups.items()):
            policy = [_group_policy(group)] if has_policies else []
            table.add_row(f"  {group_name}", "", "", *[f"{group[column]:,}" if column in group else "" for column in columns], *policy)
    return table


def _topic_policy(limits: Mapping[str, float]) -> str:
    from polymq.config_values import format_duration, format_size

    parts = []
    if "max_age_seconds" in limits:
        parts.append(f"up to {format_duration(round(limits['max_age_seconds'] * NS_PER_S))} old")
    if "max_messages" in limits:
        parts.append(f"{limits['max_messages']:,.0f} messages")
    if "max_bytes" in limits:
        size = format_size(int(limits["max_bytes"]))
        parts.append(f"{size} bytes" if size.isdecimal() else size)
    return ", ".join(parts)


def _group_policy(group: Mapping[str, int]) -> str:
    attempts = [f"{group['max_attempts']:,} attempts"] if group.get("max_attempts") else []
    return ", ".join([*attempts, *(["ordered by key"] if group.get("ordered") else [])])


def to_json(rows: Iterable[TopicRow]) -> bytes:
    """Write the rows as a JSON array."""
    import orjson

    return orjson.dumps(list(rows), option=orjson.OPT_INDENT_2) + b"\n"


def show(client: LogClient, wanted: Sequence[str], console: Console, *, as_json: bool) -> None:
    """Fetch once and print. Raises ConfigError if a named topic does not exist."""
    rows = gather(client.topics(), client.statistics(), wanted)
    missing = sorted(set(wanted) - {row.name.rpartition("/")[2] for row in rows})
    if missing:
        raise ConfigError([f"there is no topic {name!r}: polymq stats lists all" for name in missing])
    if as_json:
        console.file.write(to_json(rows).decode())
    elif rows:
        console.print(to_table(rows))
    else:
        console.print("no topics yet: polymq publish greetings hello makes one")


@app.command(epilog=EXAMPLES)
def stats(
    topics: Annotated[list[str] | None, typer.Argument(metavar="TOPIC", show_default=False, help="only these topics")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="as JSON")] = False,
    watch: Annotated[str | None, typer.Option(metavar="TIME", show_default=False, help="again and again, this often, such as 2s")] = None,
    http: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", show_default=False, help="polymq's HTTP door (default: as configured, 127.0.0.1:4171)"),
    ] = None,
) -> None:
    """Show what each topic and each of its channels holds."""
    from rich.console import Console

    from polymq.cli.reach import secret, tcp_address_of
    from polymq.clients.log import LogClient
    from polymq.config_values import format_address, parse_duration

    try:
        pause_seconds = None if watch is None else parse_duration(watch) / NS_PER_S
    except ValueError as error:
        raise ConfigError([f"--watch {watch!r}: {error}"]) from error
    console = Console(file=sys.stdout, highlight=False)
    with contextlib.closing(LogClient(format_address(tcp_address_of("server.http", http)), secret=secret())) as client:
        show(client, topics or (), console, as_json=as_json)
        while pause_seconds is not None:
            time.sleep(pause_seconds)
            if console.is_terminal:
                console.clear()
            show(client, topics or (), console, as_json=as_json)
