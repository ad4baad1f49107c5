"""The maintenance console: a few words over a plain connection, for people with telnet or nc.

A line is a command, an answer ends with the prompt. What takes more than a turn (many queues, a message on the disk) goes on in
the next ones, and commands behind it wait. What the answers look like is in `console_pages.py`.
"""

from __future__ import annotations

import re
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final

from polymq.errors import Refusal
from polymq.gateways.contract import BaseGateway
from polymq.gateways.effects import Close, Pause, Resume, Send, SendAfter, SetTimer, TimerName
from polymq.gateways.phpmq import console_pages as pages
from polymq.phpmq_limits import COMMAND_LINE_SIZE_BYTES_MAX, COMMANDS_PER_TURN_MAX, LISTED_MESSAGES_MAX, LISTED_QUEUES_MAX
from polymq.protocols.phpmq.names import queue_of, topic_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from polymq.core.session import Session
    from polymq.core.views import GroupView, TopicView
    from polymq.gateways.contract import Peer
    from polymq.gateways.effects import Effect
    from polymq.gateways.phpmq.house import House

    # One step of what a command does: the text that is its answer, or None to be called again in the next turn.
    Step = Callable[[list[Effect]], bytes | None]

__all__ = ["ConsoleGateway"]

_PROMPT: Final = b"phpmq > "
_REFRESH_NS: Final = 500_000_000
# Telnet's own words: they are asked for by nobody here.
_TELNET: Final = re.compile(rb"\xff[\xfb-\xfe].", re.DOTALL)
# Queues that one step looks at, at 20 us each.
_STEP_QUEUES: Final = 250
# A monitor over many queues has a fifth of the broker's time at most.
_MONITOR_STEP_NS: Final = 20_000_000
_GONE: Final = b"something went wrong\r\n"


class ConsoleGateway(BaseGateway):
    """The server's side of one console. `process` gives what is known of the process: seconds up, bytes of memory."""

    def __init__(self, session: Session, peer: Peer, house: House, process: Callable[[], tuple[float, int]]) -> None:
        self._session = session
        self._house = house
        self._group = house.settings.group
        self._process = process
        self._peer = peer
        self._step: Step | None = None
        self._monitoring = False
        # Of the round of `monitor` that is under way: names that are left, and what was seen.
        self._round: tuple[Iterator[str], pages.Seen] | None = None
        self._closing = False

    def opened(self, effects: list[Effect]) -> None:
        """Say who this is."""
        effects.append(Send(pages.WELCOME + _PROMPT))

    def feed(self, view: memoryview, effects: list[Effect]) -> int:
        """Carry out whole lines, as many as a turn has room for."""
        data = bytes(view)
        at = 0
        for _ in range(COMMANDS_PER_TURN_MAX):
            end = data.find(b"\n", at)
            if end < 0:
                break
            self._command(_TELNET.sub(b"", data[at:end]).rstrip(b"\r"), effects)
            at = end + 1
            if self._step is not None or self._closing:
                break
        else:
            self._later(_do_nothing, effects)
        if self._step is not None or self._closing:
            self.need = 1  # what came behind is looked at when this is done
            return at
        left = len(data) - at
        if left > COMMAND_LINE_SIZE_BYTES_MAX:
            self._closing = True
            self._house.complain(self._peer, "command-line", "a command without an end")
            effects.append(Close("a command without an end"))
        self.need = left + 1
        return at

    def _command(self, line: bytes, effects: list[Effect]) -> None:
        if self._monitoring:
            self._monitoring = False
            self._round = None
            effects.append(SetTimer(TimerName.FLUSH, None))
        word, _, argument = line.strip().partition(b" ")
        argument = argument.strip()
        name = word.lower().decode("ascii", "replace")
        try:
            if name in {"quit", "exit"}:
                self._closing = True
                effects.append(Send(pages.FAREWELL))
                effects.append(Close("the console was left"))
            elif name == "monitor":
                self._monitoring = True
                self._monitor(effects)
            elif name in {"", "q"}:
                effects.append(Send(_PROMPT))
            elif name == "flush" and argument:
                self._flush(argument, effects)
            else:
                self._begin(name, argument, effects)
        except Refusal as refusal:
            effects.append(Send(pages.refused(refusal.text) + _PROMPT))

    def _begin(self, name: str, argument: bytes, effects: list[Effect]) -> None:
        """Carry out what may take some turns."""
        if name == "show" and argument:
            self._go_on(partial(self._show, argument), effects)
        elif name == "search" and argument:
            self._go_on(self._over_queues(pages.search(argument)), effects)
        elif name == "flushall" and not argument:
            self._go_on(self._over_queues(self._flush_all()), effects)
        elif name == "clear":
            effects.append(Send(pages.CLEAR + _PROMPT))
        else:
            text = pages.help_text(argument.decode("utf-8", "replace")) if name == "help" else pages.unknown(name)
            effects.append(Send(text + _PROMPT))

    # -- what takes longer -----------------------------------------------------------------------------------------

    def _go_on(self, step: Step, effects: list[Effect]) -> None:
        """Carry out a step, and the others in turns to come."""
        text = step(effects)
        if text is None:
            self._later(step, effects)
        else:
            effects.append(Send(text + _PROMPT))

    def _later(self, step: Step, effects: list[Effect]) -> None:
        """Have a step carried out in the next turn; nothing is read meanwhile."""
        self._step = step
        effects.append(Pause())
        effects.append(SetTimer(TimerName.RETRY, self._house.clock.monotonic_ns()))

    def timer(self, name: TimerName, effects: list[Effect]) -> None:
        """Go on with what takes longer, or show once more how it goes."""
        if name is TimerName.FLUSH and self._monitoring:
            self._monitor(effects)
        elif name is TimerName.RETRY and self._step is not None:
            step, self._step = self._step, None
            try:
                text = step(effects)
            except Refusal as refusal:
                text = pages.refused(refusal.text)
            if text is None:
                self._later(step, effects)
                return
            if step is not _do_nothing:
                effects.append(Send(text + _PROMPT))
            effects.append(Resume())

    def _show(self, queue: bytes, _effects: list[Effect]) -> bytes | None:
        view = self._find(queue)
        if view is None:
            return pages.no_queue(queue)
        topic = topic_of(queue)
        assert topic is not None
        found = self._session.queued(topic, self._group, count_max=LISTED_MESSAGES_MAX)
        return None if found is None else pages.show(queue, view, found, self._house.settings.salt)

    def _over_queues(self, visit: Callable[[str, bytes | None, GroupView | None, list[Effect]], bytes | None]) -> Step:
        """Have `visit` called for every queue, some in a turn; at the end, without a queue, it says what there is to say."""
        names = self._names()

        def step(effects: list[Effect]) -> bytes | None:
            for _ in range(_STEP_QUEUES):
                name = next(names, None)
                if name is None:
                    return visit("", None, None, effects) or b""
                queue, view = queue_of(name), self._view(name)
                if queue is not None and view is not None:
                    text = visit(name, queue, view, effects)
                    if text is not None:
                        return text
            return None

        return step

    def _names(self) -> Iterator[str]:
        after: str | None = ""
        while after is not None:
            names, after = self._session.topic_page(after, LISTED_QUEUES_MAX)
            yield from names

    def _view(self, topic: str) -> GroupView | None:
        """Describe a queue."""
        return self._group_of(self._session.topic(topic, consumers=False))

    def _group_of(self, topic: TopicView | None) -> GroupView | None:
        """Give the group of a topic that is its queue."""
        return next((group for group in topic.groups if group.name == self._group), None) if topic is not None else None

    def _find(self, queue: bytes) -> GroupView | None:
        topic = topic_of(queue)
        return self._view(topic) if topic is not None else None

    # -- changes ---------------------------------------------------------------------------------------------------

    def _flush(self, queue: bytes, effects: list[Effect]) -> None:
        topic = topic_of(queue)
        if topic is None or self._view(topic) is None:
            effects.append(Send(pages.no_queue(queue) + _PROMPT))
            return
        self._session.empty_group(topic, self._group)
        effects.append(SendAfter(self._session.journaled(), pages.OK + _PROMPT, _failed, publishes=False))

    def _flush_all(self) -> Callable[[str, bytes | None, GroupView | None, list[Effect]], bytes | None]:
        def visit(name: str, queue: bytes | None, _view: GroupView | None, effects: list[Effect]) -> bytes | None:
            if queue is not None:
                self._session.empty_group(name, self._group)
                return None
            effects.append(SendAfter(self._session.journaled(), b"", _failed, publishes=False))
            return pages.OK

        return visit

    # -- watching --------------------------------------------------------------------------------------------------

    def _monitor(self, effects: list[Effect]) -> None:
        """Look at some queues, and show how it goes when those were all; go on until another line comes, with pauses for the others' sake."""
        if self._round is None:
            self._round = self._names(), pages.Seen()
        names, seen = self._round
        looked = 0
        for name in islice(names, _STEP_QUEUES):
            looked += 1
            queue, topic = queue_of(name), self._session.topic(name, consumers=False)
            view = self._group_of(topic)
            if queue is not None and topic is not None and view is not None:
                seen.add(queue, view, topic)
        pause_ns = _MONITOR_STEP_NS
        if looked < _STEP_QUEUES:
            self._round = None
            pause_ns = _REFRESH_NS
            uptime_s, memory_bytes = self._process()
            clients = len(self._house.clients)
            effects.append(Send(pages.monitor(seen, uptime_s=uptime_s, memory_bytes=memory_bytes, clients=clients)))
        effects.append(SetTimer(TimerName.FLUSH, self._house.clock.monotonic_ns() + pause_ns))

    def ended(self) -> None:
        """Leave."""
        self._session.close()


def _do_nothing(_effects: list[Effect]) -> bytes:
    """Let the others have their turn: there were many commands."""
    return b""


def _failed(_reason: str) -> bytes:
    return _GONE
