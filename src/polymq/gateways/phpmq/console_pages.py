"""What the maintenance console says: plain lines, ended as telnet wants them. Pure functions over views."""

from __future__ import annotations

import heapq
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from polymq.phpmq_limits import LISTED_QUEUES_MAX
from polymq.protocols.phpmq.ids import id_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from polymq.core.views import GroupView, QueuedView, TopicView
    from polymq.gateways.effects import Effect

__all__ = ["CLEAR", "FAREWELL", "OK", "WELCOME", "Seen", "help_text", "monitor", "no_queue", "refused", "search", "show", "unknown"]

OK: Final = b"OK\r\n"
WELCOME: Final = b"Welcome to polymq's maintenance console for PHPMQ. Say help for its commands.\r\n"
FAREWELL: Final = b"Bye.\r\n"
# Home, and nothing below: the one control sequence that is sent.
CLEAR: Final = b"\x1b[2J\x1b[H"
_COMMANDS: Final = {
    "help": ("help [COMMAND]", "say what the commands do"),
    "show": ("show QUEUE", "list the messages of a queue, the oldest first"),
    "search": ("search PATTERN", "list the queues whose names are like a pattern: * is anything, upper and lower case are the same"),
    "flush": ("flush QUEUE", "remove every message of a queue, those that a consumer has included"),
    "flushall": ("flushall", "do that with all queues"),
    "monitor": ("monitor", "show how it goes, every half second, until q (or anything else) is said"),
    "clear": ("clear", "clear the screen"),
    "q": ("q", "end monitor"),
    "quit": ("quit", "close the connection; exit does the same"),
}
_NAME_WIDTH: Final = 32
_BAR_WIDTH: Final = 20
_SHOWN_MAX: Final = 20
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")
_STEP: Final = 1024


def _lines(*lines: str) -> bytes:
    return "".join(f"{line}\r\n" for line in lines).encode("utf-8", "replace")


def _name(queue: bytes) -> str:
    """Write a queue's name so that it does nothing to a terminal."""
    text = queue.decode("utf-8", "backslashreplace")
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode("ascii") for each in text)


def _size(size: float) -> str:
    for unit in _UNITS:
        if size < _STEP or unit == _UNITS[-1]:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= _STEP
    raise AssertionError("the last unit has no end")


def _held(view: GroupView) -> int:
    return view.depth + view.leased + view.deferred


def help_text(command: str = "") -> bytes:
    """Say what one command does, or all."""
    if command and command not in _COMMANDS:
        return unknown(command)
    chosen = [_COMMANDS[command]] if command else list(_COMMANDS.values())
    return _lines(*[f"{usage:<18}{text}" for usage, text in chosen])


def unknown(command: str) -> bytes:
    """Answer what is no command, or lacks what it needs."""
    if command in _COMMANDS:
        return _lines(f"Say {_COMMANDS[command][0]}.")
    shown = command[:_NAME_WIDTH].encode("unicode_escape").decode("ascii")
    return _lines(f"There is no command {shown!r}. Say help for those that there are.")


def refused(text: str) -> bytes:
    """Answer what may not be done."""
    return _lines(f"Refused: {text}")


def no_queue(queue: bytes) -> bytes:
    """Answer a command for a queue that is not there."""
    return _lines(f"There is no queue {_name(queue)}.")


def show(queue: bytes, view: GroupView, messages: Sequence[QueuedView], salt: int) -> bytes:
    """List messages: place, id, whether a consumer has it, size, when it was published."""
    rows = [f"Queue {_name(queue)}: {_held(view)} messages, {view.leased} of them out, {view.consumer_count} consumers"]
    if messages:
        rows.append(f"{'prio':>5}  {'id':<32}  {' '}  {'size':>10}  {'created':<19}")
    for place, each in enumerate(messages, 1):
        created = datetime.fromtimestamp(each.message.time_ns / 1e9, UTC).strftime("%Y-%m-%d %H:%M:%S")
        mark = "→" if each.is_out else "•"
        raw_id = id_text(each.id, salt).decode("ascii")
        rows.append(f"{place:>5}  {raw_id}  {mark}  {_size(len(each.message.body)):>10}  {created}")
    left = _held(view) - len(messages)
    if left > 0:
        rows.append(f"… and {left} more")
    return _lines(*rows)


def search(pattern: bytes) -> Callable[[str, bytes | None, GroupView | None, list[Effect]], bytes | None]:
    """Give what looks at one queue after the other and lists those whose names are like a pattern."""
    # Only the star means something. Looked for piece by piece: the time is bounded, and nothing is compiled and kept.
    first, *others = pattern.decode("utf-8", "surrogateescape").lower().split("*")
    rows: list[str] = []

    def visit(_topic: str, queue: bytes | None, view: GroupView | None, _effects: list[Effect]) -> bytes | None:
        if queue is None or view is None:
            return _lines(*rows) if rows else _lines("No queue is called so.")
        if _is_like(queue.decode("utf-8", "surrogateescape").lower(), first, others):
            rows.append(_queue_row(queue, view))
        if len(rows) >= LISTED_QUEUES_MAX:
            return _lines(*rows, "… and there may be more")
        return None

    return visit


def _is_like(name: str, first: str, others: Sequence[str]) -> bool:
    """Say whether a name begins with `first` and goes on with the others, whatever lies between them; the last is its end."""
    if not others:
        return name == first
    if not name.startswith(first):
        return False
    at = len(first)
    for piece in others[:-1]:
        found = name.find(piece, at)
        if found < 0:
            return False
        at = found + len(piece)
    return name.endswith(others[-1]) and len(name) - len(others[-1]) >= at


def _queue_row(queue: bytes, view: GroupView) -> str:
    return f"{_name(queue):<{_NAME_WIDTH}}  {_held(view):>10} messages  {view.leased:>8} out  {view.consumer_count:>6} consumers"


class Seen:
    """What `monitor` has seen of the queues, one after the other: their sums, and the fullest ones. Takes the same room however many there are."""

    def __init__(self) -> None:
        self.queues = 0
        self.messages = 0
        self.out = 0
        self.consumers = 0
        self.size_bytes = 0
        # The least full on top, and of two the one that was seen last.
        self._fullest: list[tuple[int, int, bytes, GroupView]] = []

    def add(self, queue: bytes, view: GroupView, topic: TopicView) -> None:
        """See a queue."""
        held = _held(view)
        self.queues += 1
        self.messages += held
        self.out += view.leased
        self.consumers += view.consumer_count
        self.size_bytes += round(held * _mean_size_bytes(topic))
        push = heapq.heappush if len(self._fullest) < _SHOWN_MAX else heapq.heappushpop
        push(self._fullest, (held, -self.queues, queue, view))

    @property
    def fullest(self) -> list[tuple[bytes, GroupView]]:
        """Give the fullest queues, the fullest first."""
        return [(queue, view) for _held_count, _turn, queue, view in sorted(self._fullest, reverse=True)]


def _mean_size_bytes(topic: TopicView) -> float:
    """Tell how large a message of a topic is on the average: of those that came since the start, else of its log."""
    if topic.message_count:
        return topic.message_bytes / topic.message_count
    count = sum(each.end - each.start for each in topic.partitions)
    return sum(each.size_bytes for each in topic.partitions) / count if count else 0.0


def monitor(seen: Seen, *, uptime_s: float, memory_bytes: int, clients: int) -> bytes:
    """Show the whole in a few lines, and the fullest queues with a bar each. The size is about right: nobody adds up what is in a queue."""
    hours, seconds = divmod(int(uptime_s), 3600)
    lines = [
        f"up {hours}:{seconds // 60:02d}:{seconds % 60:02d}   memory {_size(memory_bytes)}   clients {clients}",
        f"queues {seen.queues}   messages {seen.messages}   size ~{_size(seen.size_bytes)}   out {seen.out}   consumers {seen.consumers}",
    ]
    fullest = seen.fullest
    most = max([_held(view) for _queue, view in fullest], default=0)
    for queue, view in fullest:
        full = _held(view) * _BAR_WIDTH // most if most else 0
        lines.append(f"{_queue_row(queue, view)}  [{'#' * full}{' ' * (_BAR_WIDTH - full)}]")
    return CLEAR + _lines(*lines, "(q ends this)")
