"""Channels that a new topic has from its first message on, because directories know them from elsewhere.

A channel gets what is published from its beginning on, so one that is only made when its consumer finds this node
would miss the first messages. A new topic's messages are therefore withheld until the directories have been asked,
or have been silent for too long; publishers are not held up.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from polymq.errors import Refusal
from polymq.limits import LOOKUP_ADDRESSES_MAX, LOOKUP_CHANNELS_MAX
from polymq.protocols.http.client import Answer, Failure, Question
from polymq.protocols.nsq.names import is_ephemeral, is_valid_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from polymq.core.group import GroupKind
    from polymq.core.session import Session
    from polymq.protocols.nsqlookup.identify import Identity

    Ask = Callable[[Question, Callable[[object], None]], None]

__all__ = ["ChannelPreparer"]

_SECOND_NS: Final = 1_000_000_000
# nsqd's, --http-client-connect-timeout and --http-client-request-timeout.
_CONNECT_TIMEOUT_NS: Final = 2 * _SECOND_NS
_TIMEOUT_NS: Final = 5 * _SECOND_NS
# A thousand channels with the longest names fit three times over.
_ANSWER_SIZE_BYTES_MAX: Final = 256 * 1024
_OK: Final = 200

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _Preparation:
    """A topic whose channels are being asked for: how many answers are missing, and what is known so far."""

    topic: str
    missing: int
    channels: dict[str, None] = field(default_factory=dict)


class ChannelPreparer:
    """A follower of the core's catalogue. `directories` gives those that can be asked; `own`, the lookup role's channels."""

    def __init__(
        self,
        session: Session,
        directories: Callable[[], Iterable[Identity]],
        ask: Ask,
        soon: Callable[[Callable[[], None]], None],
        own: Callable[[str], list[str]],
    ) -> None:
        """Ask by `ask`; `soon` calls something in a later turn."""
        self._session = session
        self._directories = directories
        self._ask = ask
        self._soon = soon
        self._own = own
        self._preparations: dict[str, _Preparation] = {}
        self._complaints: dict[str, str] = {}

    def topic_created(self, namespace: str, topic: str) -> None:
        """Ask who knows channels of it."""
        if namespace or not is_valid_name(topic.encode("utf-8")):
            return
        directories = list(self._directories())
        own = self._own(topic)
        if not directories and not own:
            return
        preparation = _Preparation(topic, len(directories) + 1)
        self._preparations[topic] = preparation
        self._session.withhold_topic(topic, withheld=True)
        for directory in directories:
            place = _place(directory)
            question = Question(
                f"http://{place}/channels?topic={topic.replace('#', '%23')}",
                timeout_ns=_TIMEOUT_NS,
                connect_timeout_ns=_CONNECT_TIMEOUT_NS,
                headers=(("Accept", "application/vnd.nsq; version=1.0"),),
                body_size_bytes_max=_ANSWER_SIZE_BYTES_MAX,
            )
            self._ask(question, partial(self._answered, preparation, place))
        self._soon(partial(self._heard, preparation, own))

    def topic_deleted(self, namespace: str, topic: str) -> None:
        """Want no more answers."""
        if not namespace:
            self._preparations.pop(topic, None)

    def group_created(self, namespace: str, topic: str, group: str, kind: GroupKind) -> None:
        """Have nothing to do with it."""

    def group_deleted(self, namespace: str, topic: str, group: str, kind: GroupKind) -> None:
        """Have nothing to do with it."""

    def _answered(self, preparation: _Preparation, place: str, answer: object) -> None:
        """Take a directory's answer, or the lack of one: then the topic goes without."""
        found = _channels(answer)
        complaint = found if isinstance(found, str) else ""
        if complaint and self._complaints.get(place) != complaint:
            log.warning("nsqlookupd %s does not say which channels topic %s should have: %s", place, preparation.topic, complaint)
        if complaint and len(self._complaints) < LOOKUP_ADDRESSES_MAX:
            self._complaints[place] = complaint
        else:
            self._complaints.pop(place, None)
        self._heard(preparation, [] if isinstance(found, str) else found)

    def _heard(self, preparation: _Preparation, channels: list[str]) -> None:
        for channel in channels:
            name = channel.encode("utf-8", "replace")
            # An ephemeral channel without a consumer would not live.
            if len(preparation.channels) < LOOKUP_CHANNELS_MAX and is_valid_name(name) and not is_ephemeral(name):
                preparation.channels[channel] = None
        preparation.missing -= 1
        if not preparation.missing and self._preparations.get(preparation.topic) is preparation:
            del self._preparations[preparation.topic]
            self._finish(preparation)

    def _finish(self, preparation: _Preparation) -> None:
        """Make the channels, then let the messages go to all of them."""
        topic = preparation.topic
        try:
            for channel in preparation.channels:
                self._session.create_group(topic, channel)
        except Refusal as refusal:
            log.warning("topic %s is without some of its channels: %s", topic, refusal)
        self._session.withhold_topic(topic, withheld=False)


def _place(directory: Identity) -> str:
    host = directory.broadcast_address
    return f"[{host}]:{directory.http_port}" if ":" in host else f"{host}:{directory.http_port}"


def _channels(answer: object) -> list[str] | str:
    """Read an answer; why it cannot be used otherwise."""
    if isinstance(answer, Failure):
        return answer.reason
    assert isinstance(answer, Answer)
    if answer.status != _OK:
        return f"HTTP status {answer.status}"
    try:
        document = json.loads(answer.body)
    except (ValueError, RecursionError):
        return "the answer is not JSON"
    channels = document.get("channels") if isinstance(document, dict) else None
    if not isinstance(channels, list) or not all(isinstance(channel, str) for channel in channels):
        return "the answer names no channels"
    return channels
