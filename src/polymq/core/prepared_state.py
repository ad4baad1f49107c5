"""What is known of sinks: the parts that their tasks have prepared, the commit that is under way, the last one that was.

A *sink* is a query that writes (its name is a stable one), a *part* is what one attempt of one of its tasks has
written. The records of a part lie in a staging log: a log of its own number that no topic has, so nobody reads it. A
*frame* is one batch there: records for one partition of one topic. Everything is journaled, in entries of the
catalogue's kind whose `op` is "sink", "sink_…" or "staging_log".
Read next: `prepared.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from polymq.core import journal_entries

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["NOTHING_COMMITTED", "NO_LOG", "Frame", "Intent", "Part", "Sink", "SinkReplay", "commit_entry", "staged_entry"]

NO_LOG: Final = -1
NOTHING_COMMITTED: Final = -1

_Row = list[int]


@dataclass(frozen=True, slots=True)
class Frame:
    """One staged batch. `partition` -1: any; `later`: its records wait for the times that they bear; `expires`: some end at a time."""

    first: int
    count: int
    size_bytes: int
    topic: str
    partition: int
    later: bool
    expires: bool


@dataclass(slots=True)
class Part:
    """What one attempt has written so far, the first of it at `begun_ns` (wall clock); `ends[i]` frames in its first i + 1 requests."""

    name: str
    begun_ns: int
    frames: list[Frame] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    rows: int = 0
    size_bytes: int = 0

    @property
    def requests(self) -> int:
        """How many requests it was written in."""
        return len(self.ends)

    def add(self, frames: Iterable[Frame]) -> None:
        """Take in what one more request has brought."""
        for frame in frames:
            self.frames.append(frame)
            self.rows += frame.count
            self.size_bytes += frame.size_bytes
        self.ends.append(len(self.frames))

    def of_request(self, request: int) -> list[Frame]:
        """Give what one request has brought."""
        return self.frames[self.ends[request - 1] if request else 0 : self.ends[request]]

    def up_to(self, end: int) -> Part:
        """Give it without the requests, from the first on, of which something lies at or behind `end` of the staging log."""
        whole = Part(self.name, self.begun_ns)
        for request in range(self.requests):
            frames = self.of_request(request)
            if any(frame.first + frame.count > end for frame in frames):
                break
            whole.add(frames)
        return whole


@dataclass(slots=True)
class Intent:
    """A commit that has begun: which parts, and where the logs that get them ended before."""

    batch: int
    parts: list[str]
    bases: dict[int, int]


@dataclass(slots=True)
class Sink:
    """`once`: nobody comes back to it after its commit, so it is forgotten soon. `log` is the staging log's number."""

    namespace: str
    name: str
    log: int = NO_LOG
    last: int = NOTHING_COMMITTED
    used_ns: int = 0
    once: bool = False
    parts: dict[str, Part] = field(default_factory=dict)
    intent: Intent | None = None

    @property
    def key(self) -> tuple[str, str]:
        """What it is found by."""
        return self.namespace, self.name

    def frames(self, parts: Iterable[str]) -> list[Frame]:
        """Give what some parts have, in order."""
        return [frame for name in parts for frame in self.parts[name].frames]

    def entry(self, op: str, **fields: Any) -> bytes:
        """Encode something about it for the journal."""
        return journal_entries.catalogue(op, namespace=self.namespace, name=self.name, **fields)

    def head(self) -> bytes:
        """Encode what replaces all that is known about it; what it has prepared is to follow."""
        return self.entry("sink", log=self.log, last=self.last, used_ns=self.used_ns, once=self.once)

    def entries(self) -> Iterator[bytes]:
        """Give the journal's entries that rebuild it."""
        yield self.head()
        for part in self.parts.values():
            for request in range(part.requests):
                yield staged_entry(self, part, part.of_request(request))
        if self.intent is not None:
            yield commit_entry(self, self.intent)

    def done(self, used_ns: int) -> None:
        """Take note that the commit is complete: all that was prepared is done with, the attempts that lost as well."""
        assert self.intent is not None
        self.last, self.used_ns = self.intent.batch, used_ns
        self.intent = None
        self.parts.clear()
        self.log = NO_LOG


def staged_entry(sink: Sink, part: Part, frames: Iterable[Frame]) -> bytes:
    """Encode that a part has got the frames of one more request."""
    topics: dict[str, int] = {}
    rows: list[_Row] = []
    for frame in frames:
        topic = topics.setdefault(frame.topic, len(topics))
        rows.append([topic, frame.partition, frame.first, frame.count, frame.size_bytes, frame.later | frame.expires << 1])
    return sink.entry("sink_staged", part=part.name, begun_ns=part.begun_ns, topics=list(topics), rows=rows)


def commit_entry(sink: Sink, intent: Intent) -> bytes:
    """Encode that a commit has begun."""
    bases = [[number, base] for number, base in intent.bases.items()]
    return sink.entry("sink_commit", batch=intent.batch, parts=intent.parts, bases=bases, once=sink.once)


class SinkReplay:
    """What the journal's entries say about sinks so far. What is said of an unknown sink is left out: the snapshot says it again."""

    def __init__(self) -> None:
        self.sinks: dict[tuple[str, str], Sink] = {}
        self.logs: dict[int, None] = {}

    def apply(self, op: str, fields: dict[str, Any]) -> None:
        """Apply one entry."""
        key = fields.pop("namespace"), fields.pop("name")
        if op == "sink":
            self.sinks[key] = Sink(*key, **fields)
        elif op == "sink_forgotten":
            self.sinks.pop(key, None)
        elif (sink := self.sinks.get(key)) is not None:
            getattr(self, op)(sink, **fields)

    def sink_staged(self, sink: Sink, *, part: str, begun_ns: int, topics: list[str], rows: list[_Row]) -> None:
        """A part has got frames."""
        found = sink.parts.setdefault(part, Part(part, begun_ns))
        found.add(
            Frame(first, count, size_bytes, topics[topic], partition, bool(flags & 1), bool(flags & 2))
            for topic, partition, first, count, size_bytes, flags in rows
        )

    def sink_dropped(self, sink: Sink, *, parts: list[str]) -> None:
        """Parts are gone."""
        for name in parts:
            sink.parts.pop(name, None)

    def sink_commit(self, sink: Sink, *, batch: int, parts: list[str], bases: list[_Row], once: bool) -> None:
        """A commit has begun, or begins anew after a restart."""
        sink.once = once
        sink.intent = Intent(batch, parts, {number: base for number, base in bases})  # noqa: C416

    def sink_done(self, sink: Sink, *, batch: int, used_ns: int) -> None:
        """A commit is complete."""
        if sink.intent is not None and sink.intent.batch == batch:
            sink.done(used_ns)
