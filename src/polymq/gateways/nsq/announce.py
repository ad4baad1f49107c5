"""One connection to a directory (nsqlookupd, or another polymq's lookup role), which is told what this node has.

After IDENTIFY everything that there is goes out as REGISTER, then every change as it happens, and a PING from time to
time. The directory has accepted this node once it has said OK to all that there was, or to a PING if there was nothing;
until then every connection to it is one more attempt, and the pauses between them grow. Answers come in the order of
the commands; only so many may be missing, and not for long, so a directory that hangs costs a bounded amount of memory
for a bounded time. One that answers nonsense is left and called again later: who does that is in `server/announcer.py`.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Final, Protocol

from polymq.core.group import GroupKind
from polymq.gateways.contract import BaseGateway
from polymq.gateways.effects import Close, Send, SetTimer, TimerName
from polymq.limits import LOOKUP_COMMANDS_UNANSWERED_MAX
from polymq.protocols.nsq.names import is_valid_name
from polymq.protocols.nsqlookup.frames import OK, PING, ReplyReader, identify, register, unregister
from polymq.protocols.nsqlookup.identify import parse_reply
from polymq.protocols.nsqlookup.settings import MAGIC

if TYPE_CHECKING:
    from collections.abc import Callable

    from polymq.core.followers import CatalogueListener
    from polymq.gateways.effects import Effect
    from polymq.protocols.nsqlookup.identify import Identity

__all__ = ["AnnouncingGateway", "Catalogue", "Keeper"]

_SECOND_NS: Final = 1_000_000_000
# nsqd's interval: a directory hides who has been silent for five minutes.
_PING_INTERVAL_NS: Final = 15 * _SECOND_NS
# nsqd waits for one second, in a thread of its own; nobody waits here.
_ANSWER_TIMEOUT_NS: Final = 5 * _SECOND_NS
# What is shown of nonsense.
_SHOWN_SIZE_BYTES: Final = 80

log = logging.getLogger(__name__)


class Catalogue(Protocol):
    """As much of the broker as has to be known here."""

    def follow(self, listener: CatalogueListener) -> None: ...
    def unfollow(self, listener: CatalogueListener) -> None: ...
    def tell(self, listener: CatalogueListener) -> None: ...


class Keeper(Protocol):
    """Whoever sees to it that there is a connection."""

    def settle(self) -> None:
        """The directory has accepted us."""

    def lost(self, reason: str) -> None:
        """There is no connection any more."""


class AnnouncingGateway(BaseGateway):
    """The node's side of one connection. `directory` is who the directory says that it is, once it has."""

    def __init__(self, catalogue: Catalogue, identity: Identity, keeper: Keeper, monotonic_ns: Callable[[], int]) -> None:
        self.directory: Identity | None = None
        self._catalogue = catalogue
        self._identity = identity
        self._keeper = keeper
        self._monotonic_ns = monotonic_ns
        self._reader = ReplyReader()
        self.need = self._reader.need
        self._queue: deque[bytes] = deque()
        self._unanswered = 0
        self._unaccepted = 0  # answers that are missing until the directory has accepted us
        self._leaving = False
        self._reason = "it has closed the connection"

    def leave(self) -> None:
        """Close: the directory is not to be told anything any more."""
        self._leaving = True
        self.ring()

    # -- the connection --------------------------------------------------------------------------------------------

    def opened(self, effects: list[Effect]) -> None:
        """Say who is there."""
        self._unanswered = 1
        effects.append(Send(MAGIC + identify(self._identity)))
        self._expect(effects)

    def feed(self, view: memoryview, effects: list[Effect]) -> int:
        """Take the answers, and send what had to wait for them."""
        replies, consumed = self._reader.feed(view)
        self.need = self._reader.need
        for reply in replies:
            if not self._answered(reply, effects):
                return len(view)
        if consumed is None:
            self._fail("it sends what is no answer of nsqlookupd's", effects)
            return len(view)
        if replies:
            self._send(effects)
            self._expect(effects)
        return consumed

    def timer(self, name: TimerName, effects: list[Effect]) -> None:
        """Show that this node is alive, or see that the directory is not."""
        if name is TimerName.HEARTBEAT:
            self._queue.append(PING)
            self._send(effects)
            effects.append(SetTimer(TimerName.HEARTBEAT, self._monotonic_ns() + _PING_INTERVAL_NS))
        elif self._unanswered:
            self._fail(f"no answer within {_ANSWER_TIMEOUT_NS // _SECOND_NS} s", effects)

    def woken(self, effects: list[Effect]) -> None:
        """Send what has changed in this turn."""
        if self._leaving:
            self._reason = ""
            effects.append(Close("no longer wanted"))
        else:
            self._send(effects)

    def stopping(self, effects: list[Effect]) -> None:
        """Leave without another word, as nsqd does: the directory forgets who is gone."""
        self._leaving = True
        effects.append(Close("shutting down"))

    def ended(self) -> None:
        """Follow no more, and have somebody call again."""
        self._catalogue.unfollow(self)
        self._queue.clear()
        self.directory = None
        if not self._leaving:
            self._keeper.lost(self._reason)

    def _answered(self, reply: bytes, effects: list[Effect]) -> bool:
        """Take one answer; whether to go on."""
        if not self._unanswered:
            self._fail(f"it answers without having been asked: {_shown(reply)}", effects)
            return False
        self._unanswered -= 1
        if self.directory is None:
            return self._introduced(reply, effects)
        if reply != OK:
            self._fail(f"it refuses a command: {_shown(reply)}", effects)
            return False
        if self._unaccepted:
            self._unaccepted -= 1
            if not self._unaccepted:
                log.info("announced to nsqlookupd %s:%d", self.directory.broadcast_address, self.directory.tcp_port)
                self._keeper.settle()
        return True

    def _introduced(self, reply: bytes, effects: list[Effect]) -> bool:
        """Take the answer to IDENTIFY: from here on the directory is told everything."""
        self.directory = parse_reply(reply)
        if self.directory is None:
            self._fail(f"it does not say who it is: {_shown(reply)}", effects)
            return False
        listing = _Listing()
        self._catalogue.tell(listing)
        # nsqd's PINGs come when its clock says so, which may be at once.
        self._queue.extend(listing.commands() or [PING])
        self._unaccepted = len(self._queue)
        self._catalogue.follow(self)
        effects.append(SetTimer(TimerName.HEARTBEAT, self._monotonic_ns() + _PING_INTERVAL_NS))
        return True

    def _send(self, effects: list[Effect]) -> None:
        """Send as much as may be unanswered at once."""
        if self.directory is None:
            return  # whatever is to be told is told once it has said who it is
        count = min(len(self._queue), LOOKUP_COMMANDS_UNANSWERED_MAX - self._unanswered)
        if count > 0:
            effects.append(Send(b"".join(self._queue.popleft() for _ in range(count))))
            if not self._unanswered:
                self._unanswered = count
                self._expect(effects)
            else:
                self._unanswered += count

    def _expect(self, effects: list[Effect]) -> None:
        """Wait for the next answer, if one is missing."""
        due_ns = self._monotonic_ns() + _ANSWER_TIMEOUT_NS if self._unanswered else None
        effects.append(SetTimer(TimerName.READ_DEADLINE, due_ns))

    def _fail(self, reason: str, effects: list[Effect]) -> None:
        self._reason = reason
        effects.append(Close(reason))

    # -- the catalogue ---------------------------------------------------------------------------------------------

    def topic_created(self, namespace: str, topic: str) -> None:
        """Register a topic."""
        self._tell(register, namespace, topic)

    def topic_deleted(self, namespace: str, topic: str) -> None:
        """Take a topic back."""
        self._tell(unregister, namespace, topic)

    def group_created(self, namespace: str, topic: str, group: str, kind: GroupKind) -> None:
        """Register a channel."""
        if kind is GroupKind.WORK:
            self._tell(register, namespace, topic, group)

    def group_deleted(self, namespace: str, topic: str, group: str, kind: GroupKind) -> None:
        """Take a channel back."""
        if kind is GroupKind.WORK:
            self._tell(unregister, namespace, topic, group)

    def _tell(self, command: Callable[..., bytes], namespace: str, *names: str) -> None:
        """Queue a command. What NSQ cannot spell, and what lies in another namespace, is nobody's business there."""
        if _is_spelled(namespace, *names):
            self._queue.append(command(*names))
            self.ring()


class _Listing:
    """What there is when the directory is told first, in nsqd's form: a topic is named alone only if it has no channel.

    Source: nsqd/lookup.go, connectCallback, NSQ 1.3.0.
    """

    def __init__(self) -> None:
        self._channels: dict[str, list[str]] = {}

    def commands(self) -> list[bytes]:
        """Give the commands, topic by topic."""
        return [register(topic, channel) for topic, channels in self._channels.items() for channel in channels or [""]]

    def topic_created(self, namespace: str, topic: str) -> None:
        """Note a topic."""
        if _is_spelled(namespace, topic):
            self._channels[topic] = []

    def group_created(self, namespace: str, topic: str, group: str, kind: GroupKind) -> None:
        """Note a channel. Its topic has been named before."""
        if kind is GroupKind.WORK and _is_spelled(namespace, topic, group):
            self._channels[topic].append(group)

    def topic_deleted(self, namespace: str, topic: str) -> None:
        """Nothing goes while it is told what there is."""

    def group_deleted(self, namespace: str, topic: str, group: str, kind: GroupKind) -> None:
        """Nothing goes while it is told what there is."""


def _is_spelled(namespace: str, *names: str) -> bool:
    return not namespace and all(is_valid_name(name.encode("utf-8")) for name in names)


def _shown(reply: bytes) -> str:
    return repr(reply[:_SHOWN_SIZE_BYTES].decode("utf-8", "replace"))
