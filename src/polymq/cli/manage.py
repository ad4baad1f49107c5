"""What `polymq topic` and `polymq channel` share: verbs that take only names, policies, and lists of messages."""

from __future__ import annotations

import base64
import sys
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from polymq.cli.nsq_http import NsqHttp, NsqHttpOption, connected
from polymq.cli.render import Form, Shown, render
from polymq.config_values import format_duration, parse_duration
from polymq.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = [
    "NS_PER_MS",
    "ChannelArgument",
    "CountOption",
    "FormOption",
    "JsonOption",
    "TopicArgument",
    "add_verbs",
    "channel_verb",
    "parse_ms",
    "print_messages",
    "show_deferred",
    "show_policy",
    "topic_verb",
]

TopicArgument = Annotated[str, typer.Argument(metavar="TOPIC", show_default=False, help="the topic")]
ChannelArgument = Annotated[str, typer.Argument(metavar="CHANNEL", show_default=False, help="the channel")]
JsonOption = Annotated[bool, typer.Option("--json", help="as JSON")]
CountOption = Annotated[int, typer.Option("--count", metavar="N", min=1, help="at most so many")]
FormOption = Annotated[Form, typer.Option("--format", help="a line each, JSON, or the bare body")]

NS_PER_MS: Final = 10**6
NS_PER_S: Final = 10**9


def topic_verb(verb: str, done: str) -> Any:
    """Make a command that does one thing to a topic and says so."""

    def command(topic: TopicArgument, nsq_http: NsqHttpOption = None) -> None:
        with connected(nsq_http) as broker:
            broker.post(f"/topic/{verb}", topic=topic)
        print(f"{done} topic {topic}", file=sys.stderr)

    return command


def channel_verb(verb: str, done: str) -> Any:
    """Make a command that does one thing to a channel and says so."""

    def command(topic: TopicArgument, channel: ChannelArgument, nsq_http: NsqHttpOption = None) -> None:
        with connected(nsq_http) as broker:
            broker.post(f"/channel/{verb}", topic=topic, channel=channel)
        print(f"{done} channel {channel} of topic {topic}", file=sys.stderr)

    return command


def add_verbs(app: typer.Typer, make: Any, verbs: Mapping[str, tuple[str, str]]) -> None:
    """Add commands: verb → what it says when it is done, what it is for."""
    for verb, (done, text) in verbs.items():
        app.command(verb, help=text)(make(verb, done))


def parse_ms(option: str, text: str | None) -> int | None:
    """Read a duration as the broker wants it; `off` is none. Raises ConfigError."""
    if text is None or text == "off":
        return None if text is None else 0
    try:
        duration_ns = parse_duration(text)
    except ValueError as error:
        raise ConfigError([f"{option} {text!r}: {error}, or off"]) from error
    if duration_ns % NS_PER_MS:
        raise ConfigError([f"{option} {text!r}: whole milliseconds"])
    return duration_ns // NS_PER_MS


def show_policy(policy: Mapping[str, Any], *, as_json: bool) -> None:
    """Print what is chosen, a line each."""
    if as_json:
        import orjson

        sys.stdout.write(orjson.dumps(policy, option=orjson.OPT_INDENT_2).decode() + "\n")
        return
    # What was chosen as the dead-letter topic is in the one that it amounts to.
    shown = {name: value for name, value in policy.items() if name != "dead_letter"}
    width = max(map(len, shown))
    for name, value in shown.items():
        sys.stdout.write(f"{name.replace('_', ' '):<{width}}  {_policy_text(name, value)}\n")


def _policy_text(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name == "ttl":
        return format_duration(value * NS_PER_MS) if value else "off"
    if isinstance(value, int):
        return f"{value:,}" if value else "no limit"
    return str(value)


def print_messages(rows: Iterable[Mapping[str, Any]], names: Mapping[str, str], form: Form) -> None:
    """Print messages that were looked at."""
    for row in rows:
        sys.stdout.buffer.write(render(_shown(row, names), form))
    sys.stdout.buffer.flush()


def _shown(row: Mapping[str, Any], names: Mapping[str, str]) -> Shown:
    """Describe a message: its place is its offset if that is known, else its id, with its attempts so far."""
    place = f"{row['partition']}:{row['offset']}" if "offset" in row else row["id"]
    if row["attempts"]:
        place += f" ×{row['attempts']}"
    facts = {name: row[name] for name in ("id", "partition", "offset", "attempts", "headers") if name in row}
    body = bytes_of(row, "body")
    assert body is not None
    return Shown(row["timestamp"], place, body, bytes_of(row, "key"), {**names, **facts})


def bytes_of(row: Mapping[str, Any], name: str) -> bytes | None:
    """Give a message's body or key as the endpoints write it: as text, or as `…_base64`; None if it has none."""
    if name in row:
        return str(row[name]).encode()
    return base64.b64decode(row[f"{name}_base64"]) if f"{name}_base64" in row else None


def show_deferred(broker: NsqHttp, path: str, names: Mapping[str, str], count: int, *, as_json: bool) -> None:
    """Print what waits for its time, in the order in which it came, and whether there is more."""
    rows = list(broker.pages(path, count + 1, **names))
    shown = rows[:count]
    if as_json:
        import orjson

        sys.stdout.write(orjson.dumps(shown, option=orjson.OPT_INDENT_2).decode() + "\n")
    elif shown:
        _print_deferred(shown, time.time_ns())
    else:
        sys.stdout.write("nothing is deferred\n")
    if len(rows) > count:
        print(f"and more: --count shows more than {count}", file=sys.stderr)


def _print_deferred(rows: list[Mapping[str, Any]], now_ns: int) -> None:
    from rich.console import Console
    from rich.table import Table

    last = "size" if "size" in rows[0] else "attempts"
    table = Table(box=None, pad_edge=False)
    for title in ("id", "due", "in", last):
        table.add_column(title, justify="right" if title in ("in", last) else "left", no_wrap=True)
    for row in rows:
        due = datetime.fromtimestamp(row["due"] / NS_PER_S, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")
        table.add_row(row["id"], due, _coarse(row["due"] - now_ns), f"{row[last]:,}")
    Console(file=sys.stdout, highlight=False, markup=False).print(table)


def _coarse(duration_ns: int) -> str:
    """Say how long that is, to two units: `29d23h`, `1m5s`, `now`."""
    seconds = max(0, duration_ns) // NS_PER_S
    parts = [(seconds // 86_400, "d"), (seconds // 3600 % 24, "h"), (seconds // 60 % 60, "m"), (seconds % 60, "s")]
    first = next((index for index, (value, _unit) in enumerate(parts) if value), None)
    if first is None:
        return "now"
    return "".join(f"{value}{unit}" for value, unit in parts[first : first + 2] if value)
