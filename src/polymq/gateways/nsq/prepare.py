"""Channels that a new topic has from its first message on, because directories know them from elsewhere.

A channel gets what is published from its beginning on, so one that is only made when its consumer finds this node
would miss the first messages. A new topic's messages are therefore withheld until the directories have been asked,
or have been silent for too long; publishers are not held up. A directory that fails is asked about one topic at a
time until it answers again, and the others go without it at once.
"""

from __future__ import annotations

import json
import logging
from collections import deque
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from polymq.errors import Refusal
from polymq.limits import LOOKUP_CHANNELS_MAX, LOOKUP_QUESTIONS_MAX
from polymq.protocols.http.client import Answer, Failure, Question
from polymq.protocols.nsq.names import is_ephemeral, is_valid_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from polymq.core.group import GroupKind
    from polymq.core.session import Session
    from polymq.protocols.nsqlookup.identify import Identity

__all__ = ["ChannelPreparer", "Surroundings"]

# A thousand channels with the longest names fit three times over.
_ANSWER_SIZE_BYTES_MAX: Final = 256 * 1024
_OK: Final = 200

log = logging.getLogger(__name__)


class Alarm(Protocol):
    """Something that is to be called at a time."""

    def cancel(self) -> None:
        """Do not call it."""


class Surroundings(Protocol):
    """What there is around a broker, as far as it matters here."""

    connect_timeout_ns: int  # nsqd's --http-client-connect-timeout
    timeout_ns: int  # nsqd's --http-client-request-timeout; here it bounds the whole wait

    def directories(self) -> Iterable[Identity]:
        """List the directories that can be asked."""

    def own_channels(self, topic: str) -> list[str]:
        """List the channels that this node's own lookup role knows."""

    def ask(self, question: Question, answered: Callable[[object], None]) -> object:
        """Put a question; `answered` gets an Answer or a Failure in a later turn."""

    def call_after(self, delay_ns: int, function: Callable[[], None]) -> Alarm:
        """Call `function` in a later turn."""


@dataclass(slots=True, eq=False)
class _Preparation:
    """A topic whose channels are being asked for: how many answers are missing, and what is known so far."""

    topic: str
    missing: int
    channels: dict[str, None] = field(default_factory=dict)
    alarms: list[Alarm] = field(default_factory=list)

    def learn(self, channels: Iterable[str]) -> None:
        """Take what a directory says. An ephemeral channel without a consumer would not live."""
        for channel in channels:
            name = channel.encode("utf-8", "replace")
            if len(self.channels) < LOOKUP_CHANNELS_MAX and is_valid_name(name) and not is_ephemeral(name):
                self.channels[channel] = None


@dataclass(slots=True)
class _Source:
    """A directory by its place: how many questions it has, who waits for a turn, and what was wrong the last time."""

    place: str
    asked: int = 0
    waiting: deque[_Preparation] = field(default_factory=deque)
    complaint: str = ""


class ChannelPreparer:
    """A follower of the core's catalogue."""

    def __init__(self, session: Session, surroundings: Surroundings) -> None:
        self._session = session
        self._surroundings = surroundings
        self._preparations: dict[str, _Preparation] = {}
        self._sources: dict[str, _Source] = {}

    def topic_created(self, namespace: str, topic: str) -> None:
        """Ask who knows channels of it."""
        if namespace or not is_valid_name(topic.encode("utf-8")):
            return
        sources = self._current_sources()
        own = self._surroundings.own_channels(topic)
        if not sources and not own:
            return
        preparation = self._preparations[topic] = _Preparation(topic, len(sources) + 1)
        preparation.learn(own)
        self._session.withhold_topic(topic, withheld=True)
        for source in sources:
            if source.complaint and source.asked:
                preparation.missing -= 1
            else:
                source.waiting.append(preparation)
                self._ask_next(source)
        # Groups are made in a turn of their own: this is the middle of a change of the catalogue.
        preparation.alarms.append(self._surroundings.call_after(0, partial(self._heard, preparation)))
        preparation.alarms.append(self._surroundings.call_after(self._surroundings.timeout_ns, partial(self._finish, preparation)))

    def topic_deleted(self, namespace: str, topic: str) -> None:
        """Want no more answers."""
        if not namespace and topic in self._preparations:
            self._forget(self._preparations[topic])

    def group_created(self, namespace: str, topic: str, group: str, kind: GroupKind) -> None:
        """Have nothing to do with it."""

    def group_deleted(self, namespace: str, topic: str, group: str, kind: GroupKind) -> None:
        """Have nothing to do with it."""

    def _current_sources(self) -> list[_Source]:
        """Give the directories of the moment with what is known of each; others are forgotten once they have answered."""
        places = dict.fromkeys(map(_place, self._surroundings.directories()))
        self._sources = {place: source for place, source in self._sources.items() if place in places or source.asked}
        return [self._sources.setdefault(place, _Source(place)) for place in places]

    def _ask_next(self, source: _Source) -> None:
        """Ask about those who wait, as far as there may be questions."""
        while source.waiting and source.asked < LOOKUP_QUESTIONS_MAX:
            preparation = source.waiting.popleft()
            if self._preparations.get(preparation.topic) is preparation:
                source.asked += 1
                self._surroundings.ask(self._question(source.place, preparation.topic), partial(self._answered, source, preparation))

    def _question(self, place: str, topic: str) -> Question:
        return Question(
            f"http://{place}/channels?topic={topic.replace('#', '%23')}",
            timeout_ns=self._surroundings.timeout_ns,
            connect_timeout_ns=self._surroundings.connect_timeout_ns,
            headers=(("Accept", "application/vnd.nsq; version=1.0"),),
            body_size_bytes_max=_ANSWER_SIZE_BYTES_MAX,
        )

    def _answered(self, source: _Source, preparation: _Preparation, answer: object) -> None:
        """Take a directory's answer, or the lack of one: then the topic goes without."""
        source.asked -= 1
        found = _channels(answer)
        complaint = found if isinstance(found, str) else ""
        if complaint and complaint != source.complaint:
            log.warning("nsqlookupd %s does not say which channels topic %s should have: %s", source.place, preparation.topic, complaint)
        source.complaint = complaint
        if not isinstance(found, str):
            preparation.learn(found)
        self._heard(preparation)
        if complaint:
            waiting, source.waiting = source.waiting, deque()
            for other in waiting:
                self._heard(other)
        self._ask_next(source)

    def _heard(self, preparation: _Preparation) -> None:
        preparation.missing -= 1
        if not preparation.missing:
            self._finish(preparation)

    def _finish(self, preparation: _Preparation) -> None:
        """Make the channels that are known, then let the messages go to all of them."""
        topic = preparation.topic
        if self._preparations.get(topic) is not preparation:
            return
        self._forget(preparation)
        try:
            for channel in preparation.channels:
                self._session.create_group(topic, channel)
        except Refusal as refusal:
            log.warning("topic %s is without some of its channels: %s", topic, refusal)
        self._session.withhold_topic(topic, withheld=False)

    def _forget(self, preparation: _Preparation) -> None:
        del self._preparations[preparation.topic]
        for alarm in preparation.alarms:
            alarm.cancel()


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
