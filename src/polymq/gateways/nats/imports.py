"""What one account has of another's: streams of messages, and services that it may ask.

A stream is listened to where it is from, for exactly what is listened to here (`StreamImport`): as often as queue groups need, and not
at all while nobody wants it. What comes is published here, to those who are at this server: every server does so for its own. It
goes no further: who imports a stream of this account has what is published in it, and not what it has of others itself. A request to
a service is taken here and asked where the service is, with a reply of our own in place of the asker's (`ServiceImport`); what comes
there goes to the asker, and a service may be another account's in turn. Its target is unsure: whether somebody has heard a question is
found out there, and it is the publisher who is told. Neither goes round in circles: the configuration refuses
that. What is handed on here is stored where it was published, if at all. Read next: `core/live.py`.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING

from polymq.core.interest.targets import Target
from polymq.core.live import Taker
from polymq.gateways.nats.account_names import account_name
from polymq.gateways.nats.questions import Questions
from polymq.limits import INTEREST_CACHED_NAME_SIZE_BYTES_MAX, NATS_IMPORT_NAMES_MAX, NATS_SERVICE_REQUESTS_MAX
from polymq.protocols.nats.encode import SidTable
from polymq.protocols.nats.request_info import request_info, with_request_info
from polymq.wire.live import COLUMNS, HEADER_SIZE, IMPORTED, KEPT, PAYLOAD_SIZE
from polymq.wire.live_mapping import gather, rewrite

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from polymq.core.interest.targets import Entry
    from polymq.core.live import Live, LiveSpace
    from polymq.wire.live import LiveBatch

__all__ = ["ImportRule", "Imports", "Shape"]


@dataclass(frozen=True, slots=True)
class ImportRule:
    """`subject` of the namespace `origin` is `to` in `namespace`. `is_service`: it is asked there, else it is heard here."""

    is_service: bool
    origin: str
    subject: bytes
    namespace: str
    to: bytes
    response_type: str = "single"  # "stream": as many answers as come; "chunked": until an empty one
    response_ns: int = 120_000_000_000  # how long an answer may take


class Shape:
    """A pattern whose wildcards are numbered: two of the same numbers make names of one into names of the other."""

    def __init__(self, pattern: bytes) -> None:
        tokens = pattern.split(b".")
        self._has_rest = tokens[-1] == b">"
        self._tokens: list[bytes | int] = []
        number = 0
        for token in tokens[:-1] if self._has_rest else tokens:
            if token == b"*":
                number += 1
                self._tokens.append(number)
            elif token[:1] == b"$" and token[1:].isdigit():
                self._tokens.append(int(token[1:]))
            else:
                self._tokens.append(token)

    @property
    def pattern(self) -> bytes:
        """What to listen to."""
        tokens = [b"*" if isinstance(token, int) else token for token in self._tokens]
        return b".".join([*tokens, b">"] if self._has_rest else tokens)

    def is_like(self, other: Shape) -> bool:
        """Say whether a name is the same in both."""
        return self._tokens == other._tokens and self._has_rest == other._has_rest

    def read_name(self, name: bytes) -> tuple[dict[int, bytes], list[bytes]]:
        """Say what stands for the wildcards in a name that matches."""
        tokens = name.split(b".")
        found = {own: token for own, token in zip(self._tokens, tokens, strict=False) if isinstance(own, int)}
        return found, tokens[len(self._tokens) :]

    def read(self, wanted: bytes) -> tuple[dict[int, bytes], list[bytes]] | None:
        """Say what stands for the wildcards of this in everything that is meant by another pattern as well; None: nothing is."""
        tokens = wanted.split(b".")
        found: dict[int, bytes] = {}
        for index, own in enumerate(self._tokens):
            if index >= len(tokens):
                return None
            token = tokens[index]
            if token == b">":
                # From here on everything is wanted.
                found.update((each, b"*") for each in self._tokens[index:] if isinstance(each, int))
                return found, [b">"] if self._has_rest else []
            if isinstance(own, int):
                found[own] = token
            elif token not in (own, b"*"):
                return None
        rest = tokens[len(self._tokens) :]
        if self._has_rest:
            return (found, rest) if rest else None
        return None if rest else (found, [])

    def write(self, found: dict[int, bytes], rest: list[bytes]) -> bytes:
        """Put what another shape has read in place of the wildcards."""
        return b".".join([*(found[token] if isinstance(token, int) else token for token in self._tokens), *rest])


def convert(source: Shape, target: Shape, pattern: bytes) -> bytes | None:
    """Make the part of a pattern that one shape means into what the other does; None: it has nothing of it."""
    found = source.read(pattern)
    return None if found is None else target.write(*found)


class _Names:
    """What names of one account are in another; those of which there were some lately are known."""

    def __init__(self, source: Shape, target: Shape) -> None:
        self.is_same = source.is_like(target)
        self._source, self._target = source, target
        self._known: dict[bytes, bytes] = {}

    def __call__(self, name: bytes) -> bytes:
        """Say what a name is there."""
        found = self._known.get(name)
        if found is None:
            found = name if self.is_same else self._target.write(*self._source.read_name(name))
            if len(self._known) >= NATS_IMPORT_NAMES_MAX:
                self._known.clear()
            if len(name) <= INTEREST_CACHED_NAME_SIZE_BYTES_MAX:
                self._known[name] = found
        return found


def _picks(target: Target) -> memoryview:
    """Copy the pairs of a target."""
    return memoryview(array("i", target.pairs[: 2 * target.pair_count].tobytes()))


class _Importers(Taker):
    """All streams that others import of one namespace: one target, so that what comes by a stream is given to none of them."""

    def __init__(self, space: LiveSpace) -> None:
        self.space = space
        space.hands_on = True
        self.target = Target(self)
        self._streams: list[StreamImport] = []
        self._tags = SidTable()
        # By the tag of an entry: the number of its stream, and its queue group.
        self._owners = array("i")
        self._queues: list[bytes] = []

    def add(self, stream: StreamImport) -> int:
        """Number a stream."""
        self._streams.append(stream)
        return len(self._streams) - 1

    def listen(self, number: int, pattern: bytes, queue: bytes) -> Entry:
        """Have a stream's part of what is published."""
        tag = self._tags.add(b"-")
        if tag == len(self._queues):
            self._owners.append(number)
            self._queues.append(queue)
        else:
            self._owners[tag], self._queues[tag] = number, queue
        return self.space.listen(pattern, self.target, tag=tag, queue=queue)

    def leave(self, entry: Entry) -> None:
        """End that."""
        self.space.leave(entry)
        self._tags.remove(entry.tag)

    def take(self, batch: LiveBatch, target: Target) -> Callable[[], None] | None:
        """Take each message once for each stream, with the names of the groups for which it came."""
        found = gather(target.pairs, target.pair_count, memoryview(self._owners), self._queues)

        def publish() -> None:
            for number, picks, queues in found:
                self._streams[number].publish(batch, picks, queues)

        return publish


class StreamImport:
    """One stream: what is wanted here is listened to there. `others` are those who import of here."""

    def __init__(self, rule: ImportRule, origin: _Importers, others: _Importers) -> None:
        self._origin = origin
        self._others = others
        self._here = others.space
        self._there_shape, self._here_shape = Shape(rule.subject), Shape(rule.to)
        self._names = _Names(self._there_shape, self._here_shape)
        self._number = origin.add(self)
        self._entries: dict[tuple[bytes, bytes], list[Entry]] = {}

    def follow(self, pattern: bytes, queue: bytes) -> None:
        """Listen as those who are connected here do: once for a pattern, as often as there are members for a queue group."""
        there = convert(self._here_shape, self._there_shape, pattern)
        if there is None:
            return
        wanted = self._here.guest_count(pattern, queue)
        wanted = wanted if queue else min(wanted, 1)
        entries = self._entries.setdefault((pattern, queue), [])
        while len(entries) > wanted:
            self._origin.leave(entries.pop())
        while len(entries) < wanted:
            entries.append(self._origin.listen(self._number, there, queue))
        if not entries:
            del self._entries[pattern, queue]

    def publish(self, batch: LiveBatch, picks: memoryview, queues: Sequence[bytes]) -> None:
        """Give some messages to those who are connected here, for all who listen alone and for these groups.

        Other servers have imports of their own.
        """
        rename = None if self._names.is_same else self._names
        self._here.publish(rewrite(batch, picks, marks=KEPT | IMPORTED, rename=rename, queues=queues), self._others.target)


class ServiceImport(Taker):
    """One service: what is asked here is asked there, and answered here.

    Limits: NATS_SERVICE_REQUESTS_MAX questions without an answer; then the oldest is forgotten.
    """

    def __init__(self, live: Live, rule: ImportRule, monotonic_ns: Callable[[], int], random_bytes: Callable[[int], bytes]) -> None:
        self._live = live
        self._origin = live.space(rule.origin)
        self._here = live.space(rule.namespace)
        there, here = Shape(rule.subject), Shape(rule.to)
        self._names = _Names(here, there)
        self._rule = rule
        self._questions = Questions(NATS_SERVICE_REQUESTS_MAX, monotonic_ns, random_bytes)
        # By the namespace of who asks: what the service is told of him.
        self._infos: dict[str, bytes] = {}
        self._asked, self._answered = Target(self, remote=True, unsure=True), Target(self)
        self._origin.hands_on = self._here.hands_on = True
        # Other servers have imports of their own: they are not told of this, and what they send is not meant.
        self._here.listen(here.pattern, self._asked, tag=0)
        self._listens: Entry | None = None

    def is_wanted(self, name: bytes) -> bool:
        """Say whether somebody is there for a question."""
        return self._origin.is_wanted(self._names(name))

    def take(self, batch: LiveBatch, target: Target) -> Callable[[], None] | None:
        """Take questions, or answers."""
        picks = _picks(target)
        if target is self._asked:
            if target.pair_count == 1 and not self.is_wanted(batch.subject(picks[0])):
                return None  # questions that nobody is there for come one by one
            return lambda: self._ask(batch, picks)
        return lambda: self._answer(batch, picks)

    def _ask(self, batch: LiveBatch, picks: memoryview) -> None:
        """Ask there. What nobody hears stays untaken, which whoever has published it says."""
        replies = self._note([batch.reply(index) for index in picks[::2]])
        info = self._info()
        questions = rewrite(
            batch, picks, marks=KEPT, rename=self._names, replies=replies, head=lambda block: with_request_info(block, info)
        )
        self._questions.ask(self._origin, batch, picks, questions, replies)

    def _note(self, replies: list[bytes]) -> list[bytes]:
        """Remember who asks, and give replies of our own to those who want an answer."""
        if self._listens is None and any(replies):
            self._listens = self._origin.listen(self._questions.pattern, self._answered, tag=0)
        return self._questions.note_all(self._here, replies, self._rule.response_ns)

    def _info(self) -> bytes:
        """Say who asks, as nats-server does: of which account he is, and by which other one it has come here."""
        here = self._rule.namespace
        publisher = self._live.publisher
        namespace = here if publisher is None else publisher.principal.namespace
        found = self._infos.get(namespace)
        if found is None:
            facts = {"acc": account_name(namespace), "svc": "" if namespace == here else account_name(here)}
            found = self._infos[namespace] = request_info(facts)
        return found

    def _answer(self, batch: LiveBatch, picks: memoryview) -> None:
        """Hand answers to those who asked, as many as the service gives."""
        kind, response_ns = self._rule.response_type, self._rule.response_ns
        rows = batch.rows
        replies: list[bytes] = []
        asked: list[int] = []
        for place in range(len(picks) // 2):
            index = picks[2 * place]
            is_empty = rows[COLUMNS * index + PAYLOAD_SIZE] == rows[COLUMNS * index + HEADER_SIZE]
            last = kind == "single" or (kind == "chunked" and is_empty)
            question = self._questions.take(batch.subject(index), again_ns=0 if last else response_ns)
            if question is not None:
                replies.append(question.reply)
                asked += (index, 0)
        if asked:
            self._here.publish(rewrite(batch, memoryview(array("i", asked)), marks=KEPT, subjects=replies))


class Imports:
    """All imports of a server: the core's `InterestWatcher`. Made before anybody listens."""

    def __init__(
        self, live: Live, rules: Sequence[ImportRule], monotonic_ns: Callable[[], int], random_bytes: Callable[[int], bytes]
    ) -> None:
        self._streams: dict[str, list[StreamImport]] = {}
        self._importers: dict[str, _Importers] = {}
        live.watchers.append(self)
        for rule in rules:
            if rule.is_service:
                ServiceImport(live, rule, monotonic_ns, random_bytes)  # its space has it
            else:
                stream = StreamImport(rule, self._of(live, rule.origin), self._of(live, rule.namespace))
                self._streams.setdefault(rule.namespace, []).append(stream)

    def _of(self, live: Live, namespace: str) -> _Importers:
        """Give those who import of a namespace."""
        found = self._importers.get(namespace)
        if found is None:
            found = self._importers[namespace] = _Importers(live.space(namespace))
        return found

    def interest_changed(self, space: LiveSpace, pattern: bytes, queue: bytes) -> None:
        """Have streams follow; see `core.live.InterestWatcher`. Cost: 1 µs for each stream of the namespace."""
        for stream in self._streams.get(space.namespace, ()):
            stream.follow(pattern, queue)
